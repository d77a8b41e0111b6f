"""The universal API with real agents, through its Python client: turns, permissions, questions, raw, termination, a death."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

import pytest

from shim.client import Client, EventType, Session, UniversalEvent

from .support.bench import CLAUDE, Bench, bench, nightly
from .support.children import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]
TURN_S = 60
NAMES = count(1)
"""For sessions of one server."""


@pytest.fixture(scope="module", params=[CLAUDE, *nightly("codex")])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    folder = tmp_path_factory.mktemp("record")
    with bench(request.param, config={}, SHIM_RECORD_DIR=str(folder)) as made:
        yield made


@asynccontextmanager
async def session(server: Bench) -> AsyncIterator[Session]:
    async with Client(server.url) as client, asyncio.timeout(TURN_S):
        directory = str(server.place.project)
        yield await client.create_session(f"e2e-{next(NAMES)}", agent=server.shim.provider, directory=directory)


def types(events: list[UniversalEvent]) -> list[str]:
    return [event.type.value for event in events]


async def test_a_turn_with_raw_that_is_what_the_agent_sent(server: Bench) -> None:
    async with session(server) as talk:
        events = [event async for event in talk.prompt("[scene:text] hello", include_raw=True)]
        plain = [event async for event in talk.history(after=events[0].sequence - 1)]
    assert types(events)[-1] == "turn.ended"
    assert events[-1].data.metadata["reason"] == "completed"
    text = "".join(e.data.delta for e in events if e.type is EventType.ITEM_DELTA and e.data.part_type == "text")
    assert "hello" in text
    agent = [event for event in events if event.source == "agent"]
    assert agent
    assert [event.model_copy(update={"raw": None}) for event in events] == plain[: len(events)]
    folder = Path(server.settings["SHIM_RECORD_DIR"])
    rows = [json.loads(line) for file in folder.iterdir() for line in file.read_text().splitlines()]
    sent = {json.dumps(row["msg"], sort_keys=True) for row in rows if row.get("dir") == "out"}
    assert all(json.dumps(event.raw, sort_keys=True) in sent for event in agent)


async def test_a_stream_goes_through_a_permission(server: Bench) -> None:
    async with session(server) as talk:
        seen: list[UniversalEvent] = []
        async for event in talk.prompt("[scene:ask_bash:touch made-by-v1.txt] do it"):
            seen.append(event)
            if event.type is EventType.PERMISSION_REQUESTED:
                await talk.reply_permission(event.data.permission_id, "once")
    assert "permission.requested" in types(seen)
    [resolved] = [event for event in seen if event.type is EventType.PERMISSION_RESOLVED]
    assert resolved.data.status == "accept"
    assert (server.place.project / "made-by-v1.txt").exists()
    kinds = {event.data.item.kind.value for event in seen if event.type is EventType.ITEM_COMPLETED}
    assert {"tool_call", "tool_result"} <= kinds


async def test_a_stream_goes_through_a_question(server: Bench) -> None:
    async with session(server) as talk:
        answers: list[list[str]] = []
        async for event in talk.prompt("[scene:question] ask me"):
            if event.type is EventType.QUESTION_REQUESTED:
                answers = [[question.options[0].label] for question in event.data.questions]
                await talk.reply_question(event.data.question_id, answers)
            if event.type is EventType.QUESTION_RESOLVED:
                assert [list(one) for one in event.data.answers] == answers
    assert answers


async def test_terminate_stops_the_agent(server: Bench) -> None:
    async with session(server) as talk:
        before = set(server.agents())
        seen: list[UniversalEvent] = []
        own: set[int] = set()
        async for event in talk.prompt("[scene:drip:300] talk"):
            seen.append(event)
            if event.type is EventType.ITEM_DELTA and not own:
                own = set(server.agents()) - before
                await talk.terminate()
        last = [event async for event in talk.history()][-1]
    assert own
    await asyncio.to_thread(wait_for, lambda: not own & set(server.agents()), 10, "the agent still runs")
    assert (last.type, last.data.reason, last.data.terminated_by) == (EventType.SESSION_ENDED, "terminated", "daemon")
    assert types(seen).count("turn.ended") == 1


async def test_an_agent_that_is_killed_ends_the_session_with_what_is_known(server: Bench) -> None:
    async with session(server) as talk:
        before = set(server.agents())
        killed = False
        async for event in talk.prompt("[scene:drip:300] talk"):
            if event.type is EventType.ITEM_DELTA and not killed:
                killed = True
                for pid in set(server.agents()) - before:
                    os.kill(pid, signal.SIGKILL)
            if event.type is EventType.TURN_ENDED:
                assert event.data.metadata["reason"] == "agent_exited"
        ended = [event async for event in talk.history() if event.type is EventType.SESSION_ENDED]
        assert killed
        assert [(event.data.reason, event.data.terminated_by) for event in ended] == [("error", "agent")]
        assert (await talk.info()).ended
        assert "again" in await talk.ask("[scene:text] again")
        assert not (await talk.info()).ended


async def test_a_session_of_v1_is_seen_by_opencode1(server: Bench) -> None:
    async with session(server) as talk:
        await talk.ask("[scene:text] shared")
        core = (await talk.info()).openCodeSessionId
    messages = await asyncio.to_thread(server.api.messages, core)
    assert [message["info"]["role"] for message in messages] == ["user", "assistant"]
