"""`/mcp` under messages that nobody would write: each is answered as JSON-RPC, none with 500, and the server goes on."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp_types import CallToolResult, InitializeResult, ListToolsResult, jsonrpc_message_adapter
from pydantic import BaseModel, ValidationError

from shim.faces.mcp.tools import TOOLS
from tests.fuzz import mutate
from tests.fuzz.live_server import Server
from tests.support.live import live
from tests.support.mcp_client import HEADERS

RESULTS: tuple[type[BaseModel], ...] = (CallToolResult, InitializeResult, ListToolsResult)


def is_valid(kind: type[BaseModel], result: object) -> bool:
    """Whether a result is one of this kind, by the SDK's types."""
    try:
        kind.model_validate(result)
    except ValidationError:
        return False
    return True


@pytest.fixture(scope="module")
def mcp_server() -> Iterator[Server]:
    with tempfile.TemporaryDirectory() as folder, asyncio.Runner() as runner:
        made = Server(runner, live(Path(folder), mcp=True))
        yield made
        runner.run(made.context.__aexit__(None, None, None))


def message_of(random: Random, session: str) -> dict[str, Any]:
    """A message that could be right."""
    arguments: dict[str, Any] = {
        "list_agents": {"directory": "x"},
        "start_session": {"agent": "mock", "prompt": "echo x", "model": "mock", "mode": "plan", "title": "t"},
        "prompt": {"session": session, "prompt": "echo x", "model": "mock"},
        "wait": {"session": session, "timeout_s": 0, "ignore": ["per_x"]},
        "read": {"session": session, "back": 1, "offset": 3},
        "answer": {"request": "per_x", "reply": "once", "message": "m", "answers": [["a"]]},
        "abort": {"session": session},
        "list_sessions": {"offset": 1},
    }
    assert arguments.keys() == TOOLS.keys()
    name = random.choice(sorted(arguments))
    call = {"name": name, "arguments": arguments[name], "_meta": {"progressToken": 1}}
    method, params = random.choice(
        (
            ("tools/call", call),
            ("tools/call", call),
            ("tools/call", call),
            ("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}),
            ("tools/list", {"cursor": "x"}),
            ("notifications/cancelled", {"requestId": 1, "reason": "x"}),
        )
    )
    return {"jsonrpc": "2.0", "method": method, "params": params, **({} if "notif" in method else {"id": random.randint(0, 5)})}


async def ask(server: Server, seed: int) -> tuple[str, int, bytes]:
    random = Random(seed)
    raw = json.dumps(message_of(random, server.session)).encode()
    body = raw if random.random() < 0.1 else mutate.line(random, raw)
    headers = {**HEADERS, "Mcp-Session-Id": random.choice(("", "x", "é".encode().decode("latin-1")))}
    if random.random() < 0.1:
        headers["MCP-Protocol-Version"] = random.choice(("2025-06-18", "x", "2026-07-28"))
    method = "POST" if random.random() < 0.95 else random.choice(("GET", "DELETE", "PUT"))
    async with server.live.api.raw.request(method, "/mcp", data=body, headers=headers) as answer:
        text = await answer.read()
        if answer.content_type == "text/event-stream":
            text = [line[6:] for line in text.splitlines() if line.startswith(b"data: ")][-1]
        return f"{method} {body!r} {headers}", answer.status, text


@given(seed=st.integers(0, 2**40))
def test_messages(mcp_server: Server, seed: int) -> None:
    what, status, body = mcp_server.do(ask(mcp_server, seed))
    assert status < 500, (what, body)
    if status == 202:
        assert not body
    elif "DELETE" not in what[:7] and "PUT" not in what[:4]:
        message = jsonrpc_message_adapter.validate_json(body)
        assert b"Unexpected server error" not in body, (what, body)
        result = getattr(message, "result", None)
        assert result is None or result == {} or any(is_valid(kind, result) for kind in RESULTS), (what, body)
