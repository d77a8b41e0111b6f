"""A client that has read a running turn, and lays that over what streams have told it meanwhile, is put right."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from shim.faces.opencode1.wire_event import OpenCodeEvent
from shim.sessions.session import session_state
from tests.support.opencode1_views import view
from tests.support.scripted_model import World, ask

WAIT_S = 10


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_state, "AFTER_S", (0.01, 0.03))


async def read(w: World, session: str) -> list[Any]:
    """As `GET /session/{id}/message`: a copy."""
    state = await w.manager.state(session)
    state.on_read()
    return json.loads(json.dumps([message.wire() for message in view(state.session).messages.values()]))


def with_events(messages: list[Any], events: list[OpenCodeEvent]) -> list[Any]:
    """What a client has that takes whole messages and parts, and pieces for parts that it knows."""
    known = {m["info"]["id"]: (m["info"], {p["id"]: p for p in m["parts"]}) for m in messages}
    for event in events:
        told = event.properties
        if event.type == "message.updated":
            known[told["info"]["id"]] = (told["info"], known.get(told["info"]["id"], ({}, {}))[1])
        elif event.type == "message.part.updated" and told["part"]["messageID"] in known:
            known[told["part"]["messageID"]][1][told["part"]["id"]] = told["part"]
    return [{"info": info, "parts": [parts[id_] for id_ in sorted(parts)]} for info, parts in known.values()]


async def wait_for_resync(w: World, session: str) -> None:
    """Until nothing is to be told again."""
    state = await w.manager.state(session)
    async with asyncio.timeout(WAIT_S):
        while state._resync.waits:
            await asyncio.sleep(session_state.AFTER_S[0])


async def test_changes_since_a_read_are_sent_again(w: World) -> None:
    session = w.session()
    await ask(w, session)
    told = w.agent.begin()
    w.agent.delta(told, "I want ")
    stale = await read(w, session)
    w.agent.delta(told, "to push.")
    w.agent.complete(told, "I want to push.", finish="tool-calls")
    w.agent.call(told, "c1")
    permission = w.agent.ask("c1")
    meanwhile = len(w.hub.events)
    await wait_for_resync(w, session)
    now = [message.wire() for message in view(await w.manager.session(session)).messages.values()]
    assert with_events(stale, []) != now
    assert with_events(stale, w.hub.events[meanwhile:]) == now
    assert permission
    assert now[-1]["parts"][-1]["state"]["status"] == "running"
    w.agent.result("c1")
    w.agent.end_turn()


async def test_a_message_that_began_while_it_was_read(w: World) -> None:
    session = w.session()
    await ask(w, session)
    stale = await read(w, session)
    w.agent.begin()
    second = w.agent.begin()
    w.agent.delta(second, "Hello")
    meanwhile = len(w.hub.events)
    await wait_for_resync(w, session)
    again = w.hub.events[meanwhile:]
    assert with_events(stale, again) == [m.wire() for m in view(await w.manager.session(session)).messages.values()]
    w.agent.complete(second, "Hello")
    w.agent.end_turn()


async def test_no_event_follows_the_end_of_the_turn(w: World) -> None:
    session = w.session()
    await ask(w, session)
    await read(w, session)
    w.agent.text("Hello")
    w.agent.end_turn()
    await wait_for_resync(w, session)
    assert w.hub.kinds(session)[-1] == "session.idle"
    await read(w, session)
    assert not (await w.manager.state(session))._resync.waits


async def test_changes_long_before_a_read_are_not_sent_again(w: World, monkeypatch: pytest.MonkeyPatch) -> None:
    session = w.session()
    await ask(w, session)
    await read(w, session)
    w.agent.text("Hello", finish="tool-calls")
    monkeypatch.setattr(session_state, "KEEP_S", 0.0)
    meanwhile = len(w.hub.events)
    await wait_for_resync(w, session)
    assert w.hub.events[meanwhile:] == []
    w.agent.end_turn()


async def test_many_reads_are_sent_once_at_each_time(w: World) -> None:
    session = w.session()
    await ask(w, session)
    growing = w.agent.begin()
    w.agent.delta(growing, "Hello")
    for _ in range(50):
        await read(w, session)
    meanwhile = len(w.hub.events)
    await wait_for_resync(w, session)
    assert [event.type for event in w.hub.events[meanwhile:]] == ["message.part.updated"] * 2
    w.agent.complete(growing, "Hello")
    w.agent.end_turn()
