"""The signs that a chaos run keeps of an event stream."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from types import SimpleNamespace
from typing import TypeAlias

import aiohttp
import pytest
import pytest_asyncio
from aiohttp import web
from aiohttp.test_utils import TestServer

from tools.chaos.evidence import Sign, StreamRecord, Token
from tools.chaos.streams import Hopper, IdleBell, event_id_of, token_of

StartServer: TypeAlias = Callable[[Callable[[web.Request], Awaitable[web.Response]]], Awaitable[str]]


@pytest_asyncio.fixture
async def start_server() -> AsyncIterator[StartServer]:
    """Starts a server of one event stream, and gives its URL."""
    servers: list[TestServer] = []

    async def start(handler: Callable[[web.Request], Awaitable[web.Response]]) -> str:
        app = web.Application()
        app.router.add_get("/global/event", handler)
        servers.append(TestServer(app))
        await servers[-1].start_server()
        return str(servers[-1].make_url("")).rstrip("/")

    yield start
    for server in servers:
        await server.close()


def test_a_record_has_ended_with_the_last_idle_of_each_session_that_it_shows() -> None:
    last = {"ses_a": "msg_2", "ses_b": "msg_9"}
    record = StreamRecord("hopper")
    assert record.has_ended(last)
    tokens = record.tokens["ses_a"] = [Token(Sign.PROMPT, "msg_1"), Token(Sign.IDLE)]
    assert not record.has_ended(last)
    tokens.append(Token(Sign.PROMPT, "msg_2"))
    assert not record.has_ended(last)
    tokens.append(Token(Sign.IDLE))
    assert record.has_ended(last)
    begun = record.tokens["ses_b"] = [Token(Sign.BUSY)]
    assert not record.has_ended(last), "it began in a turn of which it has no prompt"
    begun.append(Token(Sign.IDLE))
    assert record.has_ended(last)


def line(type_: str, *, wrapped: bool = False, **properties: object) -> bytes:
    event = {"id": "evt_1", "type": type_, "properties": properties}
    value = {"directory": "/", "payload": event} if wrapped else event
    return b"data: " + json.dumps(value, separators=(",", ":")).encode() + b"\n"


@pytest.mark.parametrize("wrapped", [False, True])
def test_idle_busy_and_prompts_are_signs(wrapped: bool) -> None:
    info = {"id": "msg_1", "role": "user", "sessionID": "s"}
    status = {"type": "busy"}
    assert token_of(line("session.idle", wrapped=wrapped, sessionID="s")) == ("s", Token(Sign.IDLE))
    assert token_of(line("session.status", wrapped=wrapped, sessionID="s", status=status)) == ("s", Token(Sign.BUSY))
    assert token_of(line("message.updated", wrapped=wrapped, sessionID="s", info=info)) == ("s", Token(Sign.PROMPT, "msg_1"))


def test_other_lines_are_no_signs() -> None:
    assert token_of(b"id: 5\n") is None
    assert token_of(line("session.status", sessionID="s", status={"type": "idle"})) is None
    assert token_of(line("message.updated", sessionID="s", info={"id": "msg_2", "role": "assistant"})) is None
    assert token_of(line("message.part.updated", sessionID="s", part={"text": '"role":"user"'})) is None


def test_only_events_of_sessions_on_the_stream_of_all_have_an_id() -> None:
    assert event_id_of(line("session.idle", wrapped=True, sessionID="s")) == "evt_1"
    assert event_id_of(line("server.heartbeat", wrapped=True)) == ""
    assert event_id_of(b"id: 5\n") == ""


async def test_an_idle_before_the_wait_counts_and_one_before_clear_does_not() -> None:
    bell = IdleBell()
    bell.ring("s")
    assert await bell.wait("s", 1.0)
    bell.clear("s")
    assert not await bell.wait("s", 0.01)


def frame(position: str, event_id: str, type_: str = "session.idle") -> str:
    event = {"directory": "/", "payload": {"id": event_id, "type": type_, "properties": {"sessionID": "ses_a"}}}
    return f"id: {position}\ndata: {json.dumps(event, separators=(',', ':'))}\n\n"


CONNECTED, CREATED = "server.connected", "session.created"


@pytest.mark.parametrize("is_created_anew", [False, True])
async def test_a_hopper_begins_a_record_when_a_node_does_not_know_its_position(
    start_server: StartServer, is_created_anew: bool
) -> None:
    """Then events may come again, but no end of a turn, unless its session is new there; before that, none may."""
    again = frame("2.7", "evt_2", CREATED if is_created_anew else "session.updated") + frame("2.8", "evt_1")
    answers = [
        frame("1.0", "evt_0", CONNECTED) + frame("1.1", "evt_2", CREATED) + frame("1.2", "evt_1"),
        frame("1.2", "evt_0", CONNECTED) + frame("1.3", "evt_2", CREATED),
        frame("2.7", "evt_0", CONNECTED) + again,
    ]
    positions: list[str | None] = []

    async def stream(request: web.Request) -> web.Response:
        positions.append(request.headers.get("Last-Event-ID"))
        return web.Response(text=answers[len(positions) - 1]) if len(positions) <= len(answers) else web.Response(status=500)

    url = await start_server(stream)
    async with aiohttp.ClientSession() as http:
        hopper = Hopper(http, "hopper", lambda: SimpleNamespace(name="node", url=url), random.Random(1), again_s=0.0)
        async with asyncio.timeout(10):
            task = asyncio.create_task(hopper.run())
            while len(positions) <= len(answers):
                await asyncio.sleep(0)
            task.cancel()
    assert positions == [None, "1.2", "1.3", "2.8"]
    before, after = hopper.records
    assert [line[:5] for line in before.doubles] == ["evt_2"]
    assert [line[:5] for line in after.doubles] == ([] if is_created_anew else ["evt_1"])
    assert len(after.tokens["ses_a"]) == 1
