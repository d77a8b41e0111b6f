"""`/mcp` of a server of a cluster: it serves its own sessions, names the server of another one, and starts sessions here."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

import pytest

from tests.process.test_serve import START_S
from tests.process.test_two_servers import Server, until

HEADERS = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}

NODE_SETTINGS = {"SHIM_MCP": "true"}

pytestmark = [pytest.mark.timeout(180), pytest.mark.slow]


def use(node: Server, tool: str, **arguments: Any) -> Any:
    """Call a tool. Out: what it gives, or the words of its failure."""
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}
    request = urllib.request.Request(f"{node.url}/mcp", json.dumps(call).encode(), HEADERS)
    with urllib.request.urlopen(request, timeout=START_S) as answer:
        result = json.load(answer)["result"]
    return result["content"][0]["text"] if result["isError"] else result["structuredContent"]


def test_a_server_serves_its_sessions_and_names_the_server_of_another_one(two_nodes: tuple[Server, Server]) -> None:
    owner, other = two_nodes
    session = use(owner, "start_session", agent="mock", prompt="echo one")["session"]
    assert use(owner, "wait", session=session)["state"] == "idle"
    assert use(owner, "read", session=session)["text"] == "one"
    until(lambda: session in json.dumps(use(other, "list_sessions")))
    assert use(other, "read", session=session)["text"] == "one", "what is stored can be read everywhere"
    refusal = use(other, "prompt", session=session, prompt="echo two")
    assert owner.url in refusal, refusal
    assert use(owner, "read", session=session)["text"] == "one"
