"""OpenCode 2 as an agent, over real HTTP and SSE: our server, the codec, and a server of OpenCode 2 as a process of its own.

The npm package of OpenCode 2, `@opencode/cli`, is not on every mirror.
The stand-in is this project's own face of OpenCode 2 with the mock agent behind it:
on the wire it is a server of OpenCode 2, whose answers and events other tests hold against the published contract.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from shim.lib.settings import Settings
from shim.main.app import build_app
from shim.store.memory import MemoryStore
from tests.support.api import ApiClient, EventStream
from tests.support.live import Live

START_S = 60.0
"""The longest that the stand-in may take to start and answer, on a busy machine."""
MODEL = {"providerID": "opencode2", "modelID": "mock/mock"}
MODEL_OF_2 = {"providerID": "opencode2", "id": "mock/mock"}
ENDS = ("session.execution.succeeded", "session.execution.failed", "session.execution.interrupted")

pytestmark = [pytest.mark.timeout(180), pytest.mark.asyncio(loop_scope="module")]


def stand_in(folder: Path) -> Path:
    """A program `opencode2` that is our server with the mock agent."""
    path = folder / "opencode2"
    home = folder / "stand-in"
    home.mkdir(exist_ok=True)
    path.write_text(
        f"#!/bin/sh\nexport HOME={shlex.quote(str(home))} SHIM_DEFAULT_AGENT=mock SHIM_MOCK_DELAY_FACTOR=0 "
        f"SHIM_CLAUDE_BIN={shlex.quote(str(home))}/none\nunset SHIM_OPENCODE2_BIN\n"
        f'exec {shlex.quote(sys.executable)} -P -m shim.cli.opencode opencode2 "$@"\n'
    )
    path.chmod(0o755)
    return path


@asynccontextmanager
async def opencode2_server(folder: Path, store: MemoryStore, **settings: Any) -> AsyncIterator[Live]:
    """Our server, whose agent `opencode2` is the stand-in."""
    directory = folder / "project"
    directory.mkdir(exist_ok=True)
    environ = {"PATH": "/usr/bin:/bin", "HOME": str(folder / "home"), "SHIM_OPENCODE2_BIN": str(stand_in(folder))}
    environ |= {name: value for name, value in os.environ.items() if name == "PYTHONPATH"}
    chosen = Settings(directory=directory, data_dir=folder / "data", **settings)
    async with ApiClient(build_app(chosen, store=store, environ=environ)) as api:
        yield Live(api, directory.resolve())


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Live]:
    """One server for all tests that do not end it: each has sessions of its own."""
    async with opencode2_server(tmp_path_factory.mktemp("opencode2"), MemoryStore()) as running:
        yield running


def texts(messages: list[Any]) -> list[str]:
    """What the agent has said, as OpenCode 1's clients get it."""
    parts = [part for message in messages if message["info"]["role"] == "assistant" for part in message["parts"]]
    return [part["text"] for part in parts if part["type"] == "text"]


async def native_session_ids(store: MemoryStore, session: str) -> set[str]:
    """The agent's own sessions that this conversation was held in."""
    return {event.native_session_id for event in await store.events(session) if event.native_session_id}


async def idle(events: EventStream) -> list[dict[str, Any]]:
    """All events of OpenCode 1 up to the end of the turn."""
    return await events.until("session.idle", START_S)


async def turn(server: Live, session: str, text: str) -> list[dict[str, Any]]:
    """The events of a prompt that needs no answer."""
    async with server.api.stream("/event") as events:
        await server.prompt(session, text, model=MODEL)
        return await idle(events)


async def request_of(server: Live, session: str, text: str, kind: str, events: EventStream) -> dict[str, Any]:
    """The request that a prompt leads to."""
    await server.prompt(session, text, model=MODEL)
    return (await events.until(kind, START_S))[-1]["properties"]


async def cards(server: Live, session: str) -> list[tuple[str, str]]:
    """(tool, status) of each call."""
    parts = [part for message in await server.messages(session) for part in message["parts"] if part["type"] == "tool"]
    return [(part["tool"], part["state"]["status"]) for part in parts]


# --- OpenCode 1's wire -----------------------------------------------------------------------------------------


async def test_a_prompt_is_answered_and_the_turn_is_idle_once(server: Live) -> None:
    session = await server.session()
    async with server.api.stream("/event") as events:
        await server.prompt(session, "echo hello", model=MODEL)
        await idle(events)
        await server.api.patch(f"/session/{session}", {"title": "over"}, status=200)
        after = await events.until(lambda event: event.get("properties", {}).get("info", {}).get("title") == "over")
    assert texts(await server.messages(session)) == ["hello"]
    assert "session.idle" not in [event["type"] for event in after]


@pytest.mark.parametrize(("reply", "status"), [("once", "completed"), ("reject", "error")])
async def test_a_call_runs_only_when_its_permission_is_granted(server: Live, reply: str, status: str) -> None:
    session = await server.session()
    async with server.api.stream("/event") as events:
        request = await request_of(server, session, "permission", "permission.asked", events)
        await server.api.post(f"/permission/{request['id']}/reply", {"reply": reply}, status=200)
        await idle(events)
    assert request["permission"] == "bash"
    assert await cards(server, session) == [("bash", status)]


async def test_a_rule_that_denies_reaches_the_agent_and_holds(server: Live) -> None:
    session = await server.session(permission=[{"permission": "bash", "pattern": "*", "action": "deny"}])
    seen = await turn(server, session, "permission")
    assert "permission.asked" not in {event["type"] for event in seen}
    assert await cards(server, session) == [("bash", "error")]


async def test_a_question_is_answered(server: Live) -> None:
    session = await server.session()
    async with server.api.stream("/event") as events:
        request = await request_of(server, session, "question", "question.asked", events)
        answers = [[question["options"][0]["label"]] for question in request["questions"]]
        await server.api.post(f"/question/{request['id']}/reply", {"answers": answers}, status=200)
        seen = await idle(events)
    replied = next(event["properties"] for event in seen if event["type"] == "question.replied")
    assert replied["answers"] == answers


async def test_an_interrupt_ends_the_turn_once(server: Live) -> None:
    session = await server.session()
    async with server.api.stream("/event") as events:
        await server.prompt(session, "hang", model=MODEL)
        await events.until("message.part.updated", START_S)
        await server.api.post(f"/session/{session}/abort", status=200)
        await idle(events)
    await turn(server, session, "echo after")
    assert texts(await server.messages(session))[-1] == "after"


@pytest.mark.parametrize(("lost", "native_sessions"), [(False, 1), (True, 2)])
async def test_after_a_restart_the_conversation_goes_on_or_a_lost_one_is_replaced(
    tmp_path: Path, lost: bool, native_sessions: int
) -> None:
    store = MemoryStore()
    async with opencode2_server(tmp_path, store) as server:
        session = await server.session()
        await turn(server, session, "echo before")
    if lost:
        shutil.rmtree(tmp_path / "stand-in")
    async with opencode2_server(tmp_path, store) as server:
        await turn(server, session, "echo after")
        assert texts(await server.messages(session)) == ["before", "after"]
        assert len(await native_session_ids(store, session)) == native_sessions


# --- OpenCode 2's wire -----------------------------------------------------------------------------------------


async def events_of_turn(events: EventStream) -> list[dict[str, Any]]:
    """All events of OpenCode 2 up to the end of the turn."""
    return await events.until(lambda event: event["type"] in ENDS, START_S)


async def session_of_2(server: Live) -> str:
    body = {"location": {"directory": str(server.directory)}, "model": MODEL_OF_2}
    return str((await server.api.post("/api/session", body, status=200)).body["data"]["id"])


async def prompt_2(server: Live, session: str, text: str) -> None:
    await server.api.post(f"/api/session/{session}/prompt", {"text": text}, status=200)


async def turn_2(server: Live, session: str, text: str) -> list[dict[str, Any]]:
    """The events of a prompt that needs no answer."""
    async with server.api.stream("/api/event") as events:
        await prompt_2(server, session, text)
        return await events_of_turn(events)


def texts_of_2(events: list[dict[str, Any]]) -> list[str]:
    return [event["data"]["text"] for event in events if event["type"] == "session.text.ended"]


async def test_prompt_permission_and_interrupt_over_opencode2(server: Live) -> None:
    session = await session_of_2(server)
    first = await turn_2(server, session, "echo hello")
    async with server.api.stream("/api/event") as events:
        await prompt_2(server, session, "permission")
        request = (await events.until("permission.asked", START_S))[-1]["data"]
        reply = f"/api/session/{session}/permission/{request['id']}/reply"
        await server.api.post(reply, {"decision": "once"}, status=204)
        second = await events_of_turn(events)
        await prompt_2(server, session, "hang")
        await events.until("session.text.delta", START_S)
        await server.api.post(f"/api/session/{session}/interrupt", status=200)
        third = await events_of_turn(events)
    assert [turn[-1]["type"] for turn in (first, second, third)] == [ENDS[0], ENDS[0], ENDS[2]]
    assert request["action"] == "shell"
    assert texts_of_2(first) == ["hello"]
    assert "session.tool.success" in {event["type"] for event in second}


async def test_opencode2_goes_on_after_a_restart(tmp_path: Path) -> None:
    store = MemoryStore()
    async with opencode2_server(tmp_path, store) as server:
        session = await session_of_2(server)
        await turn_2(server, session, "echo before")
    async with opencode2_server(tmp_path, store) as server:
        seen = await turn_2(server, session, "echo after")
        assert len(await native_session_ids(store, session)) == 1
    assert seen[-1]["type"] == ENDS[0]
    assert texts_of_2(seen) == ["after"]
