"""A tiny MCP server whose tools `form` and `link` ask the person (`elicitation/create`), and return what came back."""

from __future__ import annotations

import json
import sys
from typing import Any

FORM = {"type": "object", "properties": {"confirm": {"type": "boolean"}}, "required": ["confirm"]}
ASKS: dict[str, dict[str, Any]] = {
    "form": {"message": "Send this?", "mode": "form", "requestedSchema": FORM},
    "link": {"message": "Log in to mail", "mode": "url", "url": "https://mail.test/login", "elicitationId": "e1"},
}
TOOLS = [{"name": name, "description": "Asks.", "inputSchema": {"type": "object", "properties": {}}} for name in ASKS]


def write(**message: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


calls: list[Any] = []
for line in sys.stdin:
    message = json.loads(line)
    method, params = message.get("method"), message.get("params", {})
    if method == "initialize":
        version, server = params["protocolVersion"], {"name": "asking", "version": "1"}
        write(id=message["id"], result={"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": server})
    elif method == "tools/list":
        write(id=message["id"], result={"tools": TOOLS})
    elif method == "tools/call":
        calls.append(message["id"])
        write(id="ask", method="elicitation/create", params=ASKS[params["name"]])
    elif message.get("id") == "ask":
        told = json.dumps(message.get("result", message.get("error")), sort_keys=True)
        write(id=calls.pop(), result={"content": [{"type": "text", "text": f"told: {told}"}]})
    elif "id" in message:
        write(id=message["id"], result={})
