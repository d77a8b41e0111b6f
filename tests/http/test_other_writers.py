"""Two programs that write to one conversation at once: what the other one says is told, shown, and given to the agent."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from shim.lib import disk
from shim.lib.clock import SystemClock, rfc3339
from shim.sessions.session.native_sessions import native_sessions_of
from shim.sessions.transfer.other_writers import OtherWriters
from tests.bench.agent import SESSION
from tests.http.test_acp import backend_of
from tests.support.live import Live, live, with_claude

MODEL = {"providerID": "claude", "modelID": "default"}
LATER = "8c0186c0-2da1-40c8-abb4-fa3f20d72518"
THEIRS = "2ab0186c-2da1-40c8-abb4-fa3f20d72517"


async def rest(_writers: OtherWriters) -> None:
    """Look at no file."""


@pytest.fixture
async def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Live]:
    """A server with a program that speaks Claude Code's protocol. It looks at files when the test does."""
    monkeypatch.setattr(OtherWriters, "watch", rest)
    async with live(tmp_path, environ=with_claude(tmp_path)) as running:
        yield running


def append(home: Path, *rows: dict[str, Any], at: str = "") -> None:
    file = home / ".claude" / "projects" / "p" / f"{SESSION}.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a") as out:
        out.writelines(json.dumps({"timestamp": at or rfc3339(SystemClock().now_ms()), **row}) + "\n" for row in rows)


def prompt(uuid: str, words: str) -> dict[str, Any]:
    message = {"role": "user", "content": words}
    return {"type": "user", "uuid": uuid, "parentUuid": None, "promptSource": "typed", "message": message}


def answer(uuid: str, parent: str, words: str) -> dict[str, Any]:
    said = {"role": "assistant", "id": f"msg_{uuid}", "model": "m", "content": [{"type": "text", "text": words}]}
    return {"type": "assistant", "uuid": uuid, "parentUuid": parent, "message": said}


async def status_items(server: Live, session: str, label: str) -> list[dict[str, Any]]:
    body: Any = await (await server.api.raw.get(f"/v1/sessions/{session}/events")).json()
    items: list[dict[str, Any]] = [event["data"].get("item") or {} for event in body["events"]]
    return [item for item in items if item.get("kind") == "status" and item["content"][0]["label"] == label]


async def test_a_turn_of_another_program_is_shown_and_goes_along_with_the_next_prompt(server: Live, tmp_path: Path) -> None:
    session, writers = await server.session(), OtherWriters(backend_of(server).services.sessions)
    await server.ask(session, "[deltas:1]", model=MODEL)
    append(tmp_path / "home", prompt("3b72725e-c043-532f-805c-2d84cb0de85a", "[deltas:1]"))  # the server's own, of version 5
    await writers.look()
    await writers.look()
    assert await status_items(server, session, "notice") == []
    append(tmp_path / "home", prompt(THEIRS, "in the terminal"))
    async with server.api.stream("/event") as one, server.api.stream("/api/event") as two:
        await writers.look()
        for events, key in ((one, "properties"), (two, "data")):
            while (event := await events.next())["type"] != "tui.toast.show":
                pass
            assert "goes on with this conversation in `claude`" in event[key]["message"]
    (told,) = await status_items(server, session, "notice")
    assert "goes on with this conversation in `claude`" in told["content"][0]["detail"]
    append(tmp_path / "home", answer("a1", THEIRS, "said in the terminal"))
    await writers.look()
    assert len(await server.messages(session)) == 2, "it may go on"
    async with server.api.stream("/event") as events:
        await writers.look()
        while (await events.next())["type"] != "session.idle":
            pass
    messages = await server.messages(session)
    assert [p["text"] for m in messages[2:] for p in m["parts"] if p["type"] == "text"] == [
        "in the terminal",
        "said in the terminal",
    ]
    assert (await server.api.get(f"/api/session/{session}/inbox", status=200)).body["data"] == []
    shown: Any = (await server.api.get(f"/api/session/{session}/message", status=200)).body["data"]
    assert "said in the terminal" in json.dumps(shown)
    for carried in ([message["info"]["id"] for message in messages[2:]], []):
        await server.ask(session, "[deltas:1]", model=MODEL)
        assert (await status_items(server, session, "prompt"))[-1]["metadata"]["carried"] == carried
    assert len(await status_items(server, session, "notice")) == 1


async def test_a_turn_that_runs_here_is_not_disturbed(server: Live, tmp_path: Path) -> None:
    session, writers = await server.session(), OtherWriters(backend_of(server).services.sessions)
    append(tmp_path / "home", prompt(THEIRS, "before"))
    await server.ask(session, "[deltas:1]", model=MODEL)
    await writers.look()
    async with server.api.stream("/event") as events:
        await server.api.post(
            f"/session/{session}/prompt_async", {"parts": [{"type": "text", "text": "[hang:1]"}], "model": MODEL}
        )
        while (await events.next())["type"] != "session.status":
            pass
        append(tmp_path / "home", prompt(THEIRS, "in the terminal"), answer("a1", THEIRS, "said in the terminal"))
        for _ in range(3):
            await writers.look()
        assert len(await status_items(server, session, "notice")) == 1
        assert "said in the terminal" not in json.dumps(await server.messages(session))
        await server.api.post(f"/session/{session}/abort", status=200)
        while (await events.next())["type"] != "session.idle":
            pass
    await writers.look()
    assert "said in the terminal" in json.dumps(await server.messages(session))


async def test_words_before_the_first_look_are_found_once(server: Live, tmp_path: Path) -> None:
    """Each `OtherWriters` is as that of a next server, whose agents go on: the first one, and those that find all recorded.

    The terminal's clock may be ahead, if only by the millisecond of a look.
    """
    ahead_ms = SystemClock().now_ms() + 60_000
    session, services = await server.session(), backend_of(server).services
    append(tmp_path / "home", prompt(THEIRS, "of long ago"), answer("a0", THEIRS, "old"), at="2026-11-29T00:00:00.000Z")
    await server.ask(session, "[deltas:1]", model=MODEL)
    append(tmp_path / "home", prompt(THEIRS, "at once"), answer("a1", THEIRS, "said in the terminal"), at=rfc3339(ahead_ms))
    for notices in (1, 1, 2):
        if notices == 2:
            append(tmp_path / "home", prompt(LATER, "at night"), answer("a2", LATER, "said at night"), at=rfc3339(ahead_ms + 1))
        writers = OtherWriters(services.sessions)
        for _ in range(3):
            await writers.look()
        said = json.dumps(await server.messages(session))
        assert [said.count(words) for words in ("of long ago", '"at once"', '"at night"')] == [0, 1, notices - 1]
        assert len(await status_items(server, session, "notice")) == notices
    known = services.sessions.index.get(session).native
    assert native_sessions_of(json.loads(json.dumps({name: asdict(own) for name, own in known.items()}))) == known


async def test_a_file_that_cannot_be_opened_keeps_no_other_from_being_looked_at(
    server: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, services = await server.session(), backend_of(server).services
    await server.ask(session, "[deltas:1]", model=MODEL)
    append(tmp_path / "home", prompt(THEIRS, "in the terminal"))
    tries: list[Path] = []

    def refuse(place: Path) -> None:
        tries.append(place)
        raise PermissionError

    writers = OtherWriters(services.sessions)
    with monkeypatch.context() as locked:
        locked.setattr(disk, "open_file", refuse)
        await writers.look()
    assert [path.name for path in tries] == [f"{SESSION}.jsonl"]
    for _ in range(2):
        await writers.look()
    assert len(await status_items(server, session, "notice")) == 1, "it is read as soon as it can be"


PAGE = {"Sec-Fetch-Site": "same-origin"}
"""The header of a page of this server, whose read of the messages shows that a person has opened the session."""


async def end_agent(server: Live, session: str) -> None:
    sessions = backend_of(server).services.sessions
    assert sessions.reap(SystemClock().now_ms() + 10**9) == 1
    actor = sessions.index.get(session).actor
    assert actor is None or not actor.process.is_alive


def texts(messages: list[Any]) -> list[str]:
    return [part["text"] for message in messages for part in message["parts"] if part["type"] == "text"]


async def test_a_turn_of_a_terminal_while_no_agent_runs_is_shown_when_a_person_opens_the_session(
    server: Live, tmp_path: Path
) -> None:
    """Once, however often it is opened. The agent goes on after it, so nothing goes along with the next prompt."""
    session = await server.session()
    await server.ask(session, "[deltas:1]", model=MODEL)
    await end_agent(server, session)
    append(tmp_path / "home", prompt(THEIRS, "in the terminal"))
    async with server.api.stream("/event") as events:
        await server.api.get(f"/session/{session}/message", headers=PAGE, status=200)
        append(tmp_path / "home", answer("a1", THEIRS, "said in the terminal"))
        for _ in range(2):
            await server.api.get(f"/session/{session}/message", headers=PAGE, status=200)
        while (await events.next())["type"] != "session.idle":
            pass
    messages = await server.messages(session)
    assert texts(messages[2:]) == ["in the terminal", "said in the terminal"]
    assert messages[3]["info"]["parentID"] == messages[2]["info"]["id"]
    await server.ask(session, "[deltas:1]", model=MODEL)
    assert (await status_items(server, session, "prompt"))[-1]["metadata"].get("carried", []) == []
    assert len(await server.messages(session)) == 6


async def test_a_turn_of_a_terminal_while_no_agent_runs_stands_before_the_next_prompt(server: Live, tmp_path: Path) -> None:
    session = await server.session()
    await server.ask(session, "[deltas:1]", model=MODEL)
    await end_agent(server, session)
    append(tmp_path / "home", prompt(LATER, "of long ago"), answer("a0", LATER, "old"), at="2026-11-29T00:00:00.000Z")
    append(tmp_path / "home", prompt(THEIRS, "in the terminal"), answer("a1", THEIRS, "said in the terminal"))
    await server.ask(session, "[deltas:1]", model=MODEL)
    messages = await server.messages(session)
    assert texts(messages)[2:5] == ["in the terminal", "said in the terminal", "[deltas:1]"]
    assert (await status_items(server, session, "prompt"))[-1]["metadata"].get("carried", []) == []
    await server.ask(session, "[deltas:1]", model=MODEL)
    assert len(await server.messages(session)) == 8, "it is recorded once"


async def test_a_turn_of_a_terminal_while_no_agent_runs_stands_before_a_compaction(server: Live, tmp_path: Path) -> None:
    session = await server.session()
    await server.ask(session, "[deltas:1]", model=MODEL)
    await end_agent(server, session)
    append(tmp_path / "home", prompt(THEIRS, "in the terminal"), answer("a1", THEIRS, "said in the terminal"))
    await server.api.post(f"/session/{session}/summarize", MODEL, status=200)
    messages = await server.messages(session)
    assert texts(messages)[2:4] == ["in the terminal", "said in the terminal"]
    assert [part["type"] for part in messages[4]["parts"]] == ["compaction"]


async def test_a_turn_without_an_end_is_not_shown_before_a_prompt(server: Live, tmp_path: Path) -> None:
    session = await server.session()
    await server.ask(session, "[deltas:1]", model=MODEL)
    await end_agent(server, session)
    append(tmp_path / "home", prompt(THEIRS, "in the terminal"))
    await server.ask(session, "[deltas:1]", model=MODEL)
    assert len(await server.messages(session)) == 4
