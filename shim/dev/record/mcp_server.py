"""A tiny MCP server on stdin and stdout with one tool, `echo`, so that recordings have calls of MCP tools.

Run as a file, by path, without this package. Source: modelcontextprotocol.io, revision 2024-11-05 and later.
"""

from __future__ import annotations

import json
import sys
from typing import Any

TOOL = {
    "name": "echo",
    "description": "Says the text again.",
    "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
}


def result(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    """Return the result of a request, or None for an unknown method."""
    if method == "initialize":
        version = params.get("protocolVersion", "2024-11-05")
        server = {"name": "scripted", "version": "1.0.0"}
        return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": server}
    if method == "tools/list":
        return {"tools": [TOOL]}
    if method == "tools/call":
        words = str(params.get("arguments", {}).get("text", ""))
        return {"content": [{"type": "text", "text": f"echo: {words}"}], "isError": False}
    return {} if method == "ping" else None


def main() -> None:
    """Answer requests until stdin ends."""
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message:
            continue
        outcome = result(message.get("method", ""), message.get("params") or {})
        body = {"result": outcome} if outcome is not None else {"error": {"code": -32601, "message": "Method not found"}}
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], **body}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
