"""Undo and redo over HTTP: files, messages, events in native's order, and what survives a restart.

Native's answers to the same requests: docs/undo.md (a live OpenCode 1.18.33).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from shim.http.operation import SERVICES
from shim.sessions.undo import step_snapshots
from shim.store.sqlite import SqliteStore
from tests.support.live import Live, live
from tests.unit.host.git.test_snapshot import repository, state


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Live]:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "keep.txt").write_text("keep\n")
    async with live(tmp_path) as made:
        yield made


async def shell(server: Live, session: str, command: str) -> None:
    """A command of the person's: one turn that changes files."""
    await server.api.post(f"/session/{session}/shell", {"agent": "build", "command": command}, status=200)


async def users(server: Live, session: str) -> list[str]:
    return [m["info"]["id"] for m in await server.messages(session) if m["info"]["role"] == "user"]


async def revert(server: Live, session: str, message: str, status: int = 200, **more: str) -> Any:
    return (await server.api.post(f"/session/{session}/revert", {"messageID": message, **more}, status=status)).body


async def info(server: Live, session: str) -> Any:
    return (await server.api.get(f"/session/{session}", status=200)).body


async def diffs(server: Live, session: str, **query: str) -> Any:
    return (await server.api.get(f"/session/{session}/diff", params=query, status=200)).body


async def test_a_turns_parts_have_snapshots_and_the_turn_its_changes(server: Live) -> None:
    session, fold = await server.turn("edit")
    parts = [p for m in fold.wire() for p in m["parts"]]
    (patch,) = [p for p in parts if p["type"] == "patch"]
    assert patch["files"] == [str(server.directory / "mock.txt")]
    starts = [p["snapshot"] for p in parts if p["type"] == "step-start"]
    assert patch["hash"] == starts[0]
    (change,) = await diffs(server, session, messageID=(await users(server, session))[0])
    assert (change["file"], change["status"], change["additions"]) == ("mock.txt", "added", 1)
    assert fold.info["summary"] == {"additions": 1, "deletions": 0, "files": 1}


async def test_undo_and_redo_of_files_and_the_events_in_order(server: Live) -> None:
    session = await server.session()
    await shell(server, session, "echo one > one.txt; rm keep.txt")
    before = state(server.directory)
    await shell(server, session, "mv one.txt two.txt; chmod +x two.txt; mkdir -p d/e; echo x > d/e/f")
    after = state(server.directory)
    _, second = await users(server, session)
    async with server.api.stream("/event") as events:
        answer = await revert(server, session, second)
        seen = await events.until("session.updated")
        told = [e for e in seen if not e["type"].startswith(("server.", "file."))]
        assert [e["type"] for e in told] == ["session.diff", "session.updated"]
        assert told[-1]["properties"]["info"] == answer
        assert {d["file"]: d["status"] for d in told[0]["properties"]["diff"]} == {
            "d/e/f": "added",
            "one.txt": "deleted",
            "two.txt": "added",
        }
    assert state(server.directory) == before
    assert not (server.directory / "d").exists()
    assert answer["revert"]["messageID"] == second
    assert "deleted file mode 100755" in answer["revert"]["diff"]
    assert answer["summary"]["files"] == 3
    assert len(await server.messages(session)) == 4
    whole = (await server.api.post(f"/session/{session}/unrevert", status=200)).body
    assert "revert" not in whole
    assert state(server.directory) == after
    assert {d["file"] for d in await diffs(server, session)} == {"keep.txt", "two.txt", "d/e/f"}


async def test_undo_step_by_step_and_redo_step_by_step(server: Live) -> None:
    session = await server.session()
    states = [state(server.directory)]
    for number in range(3):
        await shell(server, session, f"echo {number} >> log; echo {number} > f{number}")
        states.append(state(server.directory))
    asked = await users(server, session)
    kept = set()
    for number in (2, 1, 0, 1, 2):
        kept.add((await revert(server, session, asked[number]))["revert"]["snapshot"])
        assert state(server.directory) == states[number]
    await server.api.post(f"/session/{session}/unrevert", status=200)
    assert state(server.directory) == states[3]
    assert len(kept) == 1


async def test_the_next_prompt_removes_what_was_undone_and_tells_the_agent(server: Live) -> None:
    session = await server.session()
    await server.ask(session, "echo first")
    await server.ask(session, "edit")
    await server.ask(session, "echo third")
    _, second, third = await users(server, session)
    gone = [m["info"]["id"] for m in (await server.messages(session))[2:]]
    await revert(server, session, second)
    async with server.api.stream("/event") as events:
        await server.prompt(session, "what do you know")
        seen = await events.until("session.idle")
    kinds = [e["type"] for e in seen]
    assert [e["properties"]["messageID"] for e in seen if e["type"] == "message.removed"] == gone
    assert kinds.index("session.updated") > len(gone)
    assert kinds.index("message.updated") > kinds.index("session.updated")
    assert "revert" not in await info(server, session)
    assert await diffs(server, session) == []
    said = (await server.messages(session))[-1]["parts"]
    told = next(p["text"] for p in said if p["type"] == "text")
    assert told.startswith("<undone>")
    assert 'the last 2 prompts, from "edit" on' in told
    assert third not in {m["info"]["id"] for m in await server.messages(session)}


async def test_a_part_and_everything_after_it(server: Live) -> None:
    session = await server.session()
    await server.ask(session, "edit")
    await server.ask(session, "echo two")
    message = (await server.messages(session))[-1]
    text = next(p["id"] for p in message["parts"] if p["type"] == "text")
    answer = await revert(server, session, message["info"]["id"], partID=text)
    assert answer["revert"]["messageID"] == (await users(server, session))[1]  # nothing was said before it
    edit = next(m for m in await server.messages(session) if any(p["type"] == "patch" for p in m["parts"]))
    step = next(p["id"] for p in edit["parts"] if p["type"] == "step-finish")
    answer = await revert(server, session, edit["info"]["id"], partID=step)
    assert answer["revert"]["partID"] == step
    assert not (server.directory / "mock.txt").exists()
    await server.ask(session, "echo three")
    kinds = [p["type"] for m in await server.messages(session) if m["info"]["id"] == edit["info"]["id"] for p in m["parts"]]
    assert "tool" in kinds
    assert not {"step-finish", "patch"} & set(kinds)


async def test_reverting_to_an_unknown_message_is_not_found(server: Live) -> None:
    session = await server.session()
    await server.ask(session, "echo one")
    await revert(server, session, "msg_nope", status=404)
    await revert(server, session, (await users(server, session))[0], status=404, partID="prt_nope")
    await revert(server, "ses_nope", "msg_nope", status=404)
    before = await info(server, session)
    assert (await server.api.post(f"/session/{session}/unrevert", status=200)).body == before


async def test_not_while_a_turn_runs(server: Live) -> None:
    session = await server.session()
    async with server.api.stream("/event") as events:
        await server.prompt(session, "hang")
        await events.until("message.part.delta")
        assert (await revert(server, session, (await users(server, session))[0], status=409))["_tag"] == "SessionBusyError"
        await server.api.post(f"/session/{session}/unrevert", status=409)
        await server.api.post(f"/session/{session}/abort", status=200)


async def test_changes_of_an_aborted_turn_are_undone_and_idle_comes_last(server: Live) -> None:
    session = await server.session()
    async with server.api.stream("/event") as events:
        request = asyncio.create_task(shell(server, session, "echo x > made.txt; printf 'rea%s' dy; sleep 60"))
        await events.until(lambda e: "ready" in json.dumps(e))
        await server.api.post(f"/session/{session}/abort", status=200)
        await request
        seen = await events.until("session.idle")
        assert any(e["type"] == "message.part.updated" and e["properties"]["part"]["type"] == "patch" for e in seen)
    assert (server.directory / "made.txt").exists()
    await revert(server, session, (await users(server, session))[0])
    assert not (server.directory / "made.txt").exists()


async def test_a_persons_own_changes_stay_or_are_kept(server: Live) -> None:
    session = await server.session()
    await shell(server, session, "echo agent > theirs.txt")
    (server.directory / "mine.txt").write_text("mine")
    await revert(server, session, (await users(server, session))[0])
    assert (server.directory / "mine.txt").read_text() == "mine"
    (server.directory / "theirs.txt").write_text("edited after the undo")
    async with server.api.stream("/event") as events:
        await server.api.post(f"/session/{session}/unrevert", status=200)
        toast = (await events.until("tui.toast.show"))[-1]["properties"]
    assert "theirs.txt" in toast["message"]
    assert (server.directory / "theirs.txt").read_text() == "agent\n"


async def test_two_sessions_of_one_directory_undo_their_own_files(server: Live) -> None:
    one, two = await server.session(), await server.session()
    await shell(server, one, "echo 1 > one.txt")
    await shell(server, two, "echo 2 > two.txt")
    await revert(server, one, (await users(server, one))[0])
    assert not (server.directory / "one.txt").exists()
    assert (server.directory / "two.txt").exists()


@pytest.mark.parametrize("git", [True, False])
async def test_undo_then_a_restart_then_redo(tmp_path: Path, git: bool) -> None:
    (tmp_path / "project").mkdir()
    if git:
        repository(tmp_path / "project")
    store = tmp_path / "data" / "shim.db"
    async with live(tmp_path, store=SqliteStore(store)) as server:
        session = await server.session()
        await shell(server, session, "echo x > made.txt")
        await revert(server, session, (await users(server, session))[0])
        before = await info(server, session), await diffs(server, session), await server.messages(session)
        assert not (server.directory / "made.txt").exists()
    async with live(tmp_path, store=SqliteStore(store)) as server:
        assert (await info(server, session), await diffs(server, session), await server.messages(session)) == before
        await server.api.post(f"/session/{session}/unrevert", status=200)
        assert (server.directory / "made.txt").read_text() == "x\n"


async def test_where_an_agent_is_to_go_on_survives_a_restart(tmp_path: Path) -> None:
    """The server may end between an undo that is settled and the start of the agent that is to forget."""
    store = tmp_path / "data" / "shim.db"
    async with live(tmp_path, store=SqliteStore(store)) as server:
        session, _ = await server.turn("hello")
        known = (await server.api.raw.app[SERVICES].sessions.actor(session)).native["mock"]
        known.resume_at = "turn-7"
        await server.api.patch(f"/session/{session}", {"title": "saves the session"}, status=200)
    async with live(tmp_path, store=SqliteStore(store)) as server:
        actor = await server.api.raw.app[SERVICES].sessions.actor(session)
        assert actor.native == {"mock": known}


async def test_snapshots_switched_off_in_the_config(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "opencode.json").write_text('{"snapshot": false}')
    async with live(tmp_path) as server:
        session, fold = await server.turn("edit")
        parts = [p for m in fold.wire() for p in m["parts"]]
        assert not any("snapshot" in p or p["type"] == "patch" for p in parts)
        assert [d["file"] for d in fold.diffs] == ["mock.txt"]  # what the agent has told of its tools
        async with server.api.stream("/event") as events:
            answer = await revert(server, session, (await users(server, session))[0])
            assert "opencode.json" in (await events.until("tui.toast.show"))[-1]["properties"]["message"]
        assert set(answer["revert"]) == {"messageID"}
        assert (server.directory / "mock.txt").exists()
    assert not list((tmp_path / "data").glob("snapshots/*"))


async def test_a_home_directory_is_warned_about_once_and_the_session_works(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "project").symlink_to(tmp_path / "home")
    async with live(tmp_path) as server:
        session = await server.session()
        async with server.api.stream("/event") as events:
            await server.prompt(session, "echo hello")
            seen = await events.until("session.idle")
            await server.prompt(session, "echo again")
            seen += await events.until("session.idle")
        assert ["home directory" in e["properties"]["message"] for e in seen if e["type"] == "tui.toast.show"] == [True]


async def test_a_snapshot_that_takes_too_long_does_not_hold_the_turn(server: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    session = await server.session()
    await server.ask(session, "echo warm")
    release = asyncio.Event()

    async def slow(*_: object) -> str:
        await release.wait()
        return ""

    monkeypatch.setattr(step_snapshots, "LAST_S", 0.01)
    async with server.api.stream("/event") as events:
        await server.prompt(session, "edit")
        await events.until(lambda e: e["type"] == "message.part.updated" and e["properties"]["part"]["type"] == "step-start")
        monkeypatch.setattr("shim.host.git.snapshot.Snapshots.track", slow)
        seen = await events.until("session.idle")
        release.set()
        await server.api.patch(f"/session/{session}", {"title": "over"}, status=200)
        seen += await events.until("session.updated")
    assert [e["type"] for e in seen].count("session.idle") == 1
    assert [e["type"] for e in seen][-2:] == ["session.idle", "session.updated"]
    (told,) = [e["properties"]["message"] for e in seen if e["type"] == "tui.toast.show"]
    assert "does not bring back what the last step changed" in told


async def test_a_person_hears_that_a_command_begins_without_a_snapshot(server: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    session, release = await server.session(), asyncio.Event()

    async def slow(*_: object) -> str:
        await release.wait()
        return ""

    monkeypatch.setattr(step_snapshots, "HEAD_START_S", 0.01)
    monkeypatch.setattr("shim.host.git.snapshot.Snapshots.track", slow)
    body = {"agent": "build", "command": "echo 1 > one.txt"}
    async with server.api.stream("/event") as events:
        asked = asyncio.create_task(server.api.post(f"/session/{session}/shell", body, status=200))
        (told,) = [e for e in await events.until("tui.toast.show") if e["type"] == "tui.toast.show"]
        release.set()
        await events.until("session.idle")
        await asked
    assert "an undo may leave what changes in this turn" in told["properties"]["message"]


async def test_a_fork_can_be_undone_and_has_no_pending_undo(server: Live) -> None:
    session = await server.session()
    await shell(server, session, "echo 1 > one.txt")
    await shell(server, session, "echo 2 > two.txt")
    await shell(server, session, "echo 3 > three.txt")
    asked = await users(server, session)
    await revert(server, session, asked[2])
    await server.ask(session, "echo gone for good")  # the third is removed
    await revert(server, session, asked[1])
    fork = (await server.api.post(f"/session/{session}/fork", {}, status=200)).body
    assert "revert" not in fork
    copied = await users(server, fork["id"])
    assert len(copied) == 3
    await server.api.post(f"/session/{session}/unrevert", status=200)
    await revert(server, fork["id"], copied[1])
    assert (server.directory / "one.txt").exists()
    assert not (server.directory / "two.txt").exists()
