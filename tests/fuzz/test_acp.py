"""`/acp` under messages that nobody would write: every request is answered once, by the schema, and the connection goes on."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz import mutate
from tests.fuzz.live_server import Server
from tests.support.acp import AGENT, CLIENT, WAIT_S, Judge
from tests.support.live import Live

LAST = "last"
"""Id of the request whose answer ends a sequence."""
MESSAGES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("initialize", {"protocolVersion": 1, "clientCapabilities": {"elicitation": {"form": {}}, "session": {"notices": {}}}}),
    ("authenticate", {"methodId": "password"}),
    ("session/new", {"cwd": "DIRECTORY", "mcpServers": []}),
    ("session/load", {"sessionId": "SESSION", "cwd": "DIRECTORY", "mcpServers": []}),
    ("session/resume", {"sessionId": "SESSION", "cwd": "DIRECTORY"}),
    ("session/list", {"cwd": "DIRECTORY", "cursor": "0"}),
    ("session/set_mode", {"sessionId": "SESSION", "modeId": "plan"}),
    ("session/set_config_option", {"sessionId": "SESSION", "configId": "effort", "value": "high"}),
    ("session/prompt", {"sessionId": "SESSION", "prompt": [{"type": "text", "text": "echo hi"}]}),
    ("session/prompt", {"sessionId": "SESSION", "prompt": [{"type": "resource_link", "uri": "file:///x", "name": "x"}]}),
    ("session/prompt", {"sessionId": "SESSION", "prompt": [{"type": "image", "data": "AAAA", "mimeType": "image/png"}]}),
    ("session/prompt", {"sessionId": "SESSION", "prompt": [{"type": "resource", "resource": {"uri": "a:b", "text": "t"}}]}),
    ("session/close", {"sessionId": "SESSION"}),
    ("session/cancel", {"sessionId": "SESSION"}),
    ("$/cancel_request", {"requestId": 3}),
)


def line_of(random: Random, number: int, server: Live, session: str, judge: Judge) -> bytes:
    """A message, most of them spoiled. `judge` learns of a request that is not."""
    method, params = random.choice(MESSAGES)
    text = json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
    if method == "session/cancel" or random.random() < 0.05:
        text = text.replace(f'"id": {number}, ', "")
    raw = text.replace("SESSION", session).replace("DIRECTORY", str(server.directory)).encode()
    if random.random() >= 0.3:
        return mutate.line(random, raw)
    if b'"id"' in raw:
        judge.asked[AGENT, number] = method
    return raw


async def talk(server: Live, seed: int, session: str) -> None:
    random, judge = Random(seed), Judge({(AGENT, "first"): "initialize", (AGENT, LAST): "session/list"})
    async with server.api.raw.ws_connect("/acp") as socket:
        begin = {"jsonrpc": "2.0", "id": "first", "method": "initialize", "params": {"protocolVersion": 1}}
        await socket.send_str(json.dumps(begin))
        for number in range(random.randint(1, 6)):
            await socket.send_str(line_of(random, number, server, session, judge).decode("utf-8", "replace"))
        await socket.send_str(json.dumps({"jsonrpc": "2.0", "id": LAST, "method": "session/list", "params": {}}))
        seen: list[Any] = []
        async with asyncio.timeout(WAIT_S):
            while not seen or seen[-1].get("id") != LAST:
                seen.append(json.loads(await socket.receive_str()))
    assert "result" in seen[-1]
    answers = Counter(str(message["id"]) for message in seen if "result" in message)
    for message in seen:
        if "error" in message:
            assert "has failed" not in message["error"]["message"], (seed, message)
        if "result" not in message or ((AGENT, message["id"]) in judge.asked and answers[str(message["id"])] == 1):
            judge.see(message, to=CLIENT)


@given(seed=st.integers(0, 2**40))
def test_messages(server: Server, seed: int) -> None:
    server.do(talk(server.live, seed, server.session))
