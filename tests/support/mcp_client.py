"""A client of `/mcp` in this process. The types of the official SDK read every message that it gets."""

from __future__ import annotations

import itertools
import json
import secrets
from typing import Any

import mcp_types
from mcp_types import jsonrpc_message_adapter

from tests.support.live import Live

HEADERS = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
INITIALIZE = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "tests", "version": "1"}}


def call(tool: str, id_: Any = 1, **arguments: Any) -> dict[str, Any]:
    """The message that calls a tool."""
    return {"jsonrpc": "2.0", "id": id_, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}


async def post(server: Live, body: Any, **headers: str) -> tuple[int, Any]:
    """Send one message. Out: the status, and the last message of the answer, None for none."""
    async with server.api.raw.post("/mcp", json=body, headers={**HEADERS, **headers}) as answer:
        raw = await answer.read()
        is_stream = answer.content_type == "text/event-stream"
    frames = [line[6:] for line in raw.splitlines() if line.startswith(b"data: ")] if is_stream else [raw] if raw else []
    messages = [jsonrpc_message_adapter.validate_json(frame) for frame in frames]
    for message in messages[:-1]:
        assert isinstance(message, mcp_types.JSONRPCNotification)
        mcp_types.ProgressNotification.model_validate(message.model_dump(by_alias=True, exclude_none=True))
    return answer.status, json.loads(frames[-1]) if frames else None


class McpClient:
    """One connection: its calls have ids of their own."""

    def __init__(self, server: Live, **headers: str) -> None:
        self._server = server
        self.headers = {"Mcp-Session-Id": secrets.token_hex(8), **headers}
        self._ids = itertools.count(100)

    async def ask(self, method: str, params: dict[str, Any] | None = None) -> Any:
        """A request that is not refused. Out: its result."""
        body = {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": params or {}}
        status, message = await post(self._server, body, **self.headers)
        assert (status, "error" in message) == (200, False), message
        return message["result"]

    async def _call(self, tool: str, arguments: dict[str, Any]) -> mcp_types.CallToolResult:
        return mcp_types.CallToolResult.model_validate(await self.ask("tools/call", {"name": tool, "arguments": arguments}))

    async def use(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Call a tool that must not fail. Out: what it gives."""
        result = await self._call(tool, arguments)
        assert not result.is_error, result.content
        (content,) = result.content
        assert isinstance(content, mcp_types.TextContent)
        assert json.loads(content.text) == result.structured_content
        assert result.structured_content is not None
        return result.structured_content

    async def refusal(self, tool: str, **arguments: Any) -> str:
        """Call a tool that must fail. Out: what it says."""
        result = await self._call(tool, arguments)
        assert result.is_error, result
        (content,) = result.content
        assert isinstance(content, mcp_types.TextContent)
        return content.text

    async def start(self, prompt: str, **more: Any) -> str:
        """Start a session of the mock. Out: its id."""
        return str((await self.use("start_session", **{"agent": "mock", "prompt": prompt, **more}))["session"])
