"""Turns over HTTP and SSE with the mock agent: each scene ends in one idle, and the stream tells what HTTP answers."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from shim.faces.opencode1.routes import event
from shim.host.files.roots import repository_above
from shim.store.memory import MemoryStore
from shim.store.sqlite import SqliteStore
from tests.support.api import EventStream
from tests.support.live import Live, live
from tests.support.opencode1_fold import Fold


def tools(fold: Fold) -> list[tuple[str, str]]:
    return [(p["tool"], p["state"]["status"]) for m in fold.wire() for p in m["parts"] if p["type"] == "tool"]


def texts(fold: Fold) -> str:
    return "\n".join(
        p["text"] for m in fold.wire() if m["info"]["role"] == "assistant" for p in m["parts"] if p["type"] == "text"
    )


@pytest.mark.parametrize(
    ("scene", "cards"),
    [
        ("echo hello there", []),
        ("markdown", []),
        ("think", []),
        ("tool", [("bash", "completed")]),
        ("edit", [("write", "completed")]),
        ("parallel", [("bash", "completed"), ("webfetch", "completed")]),
        ("failtool", None),
        ("todo", None),
        ("subagent", [("task", "completed")]),
        ("background", None),
        ("retry", []),
        ("slow 1", None),
        ("burst 500", []),
        ("lazy", None),
        ("unparsed", None),
        ("image", None),
        ("help", []),
        ("something else entirely", []),
    ],
)
async def test_a_scene_ends_well(server: Live, scene: str, cards: list[tuple[str, str]] | None) -> None:
    _, fold = await server.turn(scene)
    assert fold.errors == []
    assert "completed" in fold.wire()[-1]["info"]["time"]
    if cards is not None:
        assert tools(fold) == cards


async def test_the_echo_repeats_the_prompt(server: Live) -> None:
    _, fold = await server.turn("echo one two three")
    assert texts(fold).strip() == "one two three"


async def test_an_edit_really_edits_and_tells_its_diff(server: Live) -> None:
    await server.turn("edit")
    first = (server.directory / "mock.txt").read_text()
    _, fold = await server.turn("edit")
    second = (server.directory / "mock.txt").read_text()
    assert second.startswith(first)
    assert len(second) > len(first)
    [entry] = fold.diffs
    assert (entry["file"], entry["additions"], entry["deletions"]) == ("mock.txt", 1, 0)
    edit = next(p for m in fold.wire() for p in m["parts"] if p["type"] == "tool" and p["tool"] == "edit")
    assert edit["state"]["metadata"]["filediff"]["additions"] == 1
    user = fold.wire()[0]["info"]
    assert user["summary"]["diffs"] == fold.diffs


@pytest.mark.parametrize(("scene", "name"), [("error", "APIError"), ("crash", "UnknownError"), ("exit", "UnknownError")])
async def test_a_turn_that_fails_says_so_once(server: Live, scene: str, name: str) -> None:
    _, fold = await server.turn(scene)
    assert [e["name"] for e in fold.errors] == [name]
    assert fold.wire()[-1]["info"]["error"]["name"] == name


@pytest.mark.parametrize("reply", ["once", "always", "reject"])
@pytest.mark.parametrize("route", ["new", "old"])
async def test_a_permission_on_both_generations_of_endpoints(server: Live, reply: str, route: str) -> None:
    async def act(_: EventStream, event: dict[str, Any]) -> None:
        if event["type"] == "permission.asked":
            p = event["properties"]
            assert (await server.api.get("/permission", status=200)).body == [p]
            if route == "new":
                answer = await server.api.post(f"/permission/{p['id']}/reply", {"reply": reply}, status=200)
            else:
                answer = await server.api.post(
                    f"/session/{p['sessionID']}/permissions/{p['id']}", {"response": reply}, status=200
                )
            assert answer.body is True
            again = await server.api.post(f"/permission/{p['id']}/reply", {"reply": reply}, status=404)
            assert again.body["_tag"] == "PermissionNotFoundError"

    _, fold = await server.turn("permission", act)
    assert tools(fold) == [("bash", "error" if reply == "reject" else "completed")]


async def test_a_rejection_with_a_message_reaches_the_agent(server: Live) -> None:
    async def act(_: EventStream, event: dict[str, Any]) -> None:
        if event["type"] == "permission.asked":
            body = {"reply": "reject", "message": "use printf"}
            await server.api.post(f"/permission/{event['properties']['id']}/reply", body, status=200)

    _, fold = await server.turn("permission", act)
    assert "use printf" in str(fold.wire())


async def test_a_question_is_answered(server: Live) -> None:
    async def act(_: EventStream, event: dict[str, Any]) -> None:
        if event["type"] == "question.asked":
            p = event["properties"]
            assert (await server.api.get("/question", status=200)).body == [p]
            answers = [[q["options"][0]["label"]] for q in p["questions"]]
            await server.api.post(f"/question/{p['id']}/reply", {"answers": answers}, status=200)

    _, fold = await server.turn("question", act)
    assert ("question", "completed") in tools(fold)


async def test_a_question_is_refused(server: Live) -> None:
    async def act(_: EventStream, event: dict[str, Any]) -> None:
        if event["type"] == "question.asked":
            await server.api.post(f"/question/{event['properties']['id']}/reject", status=200)

    _, fold = await server.turn("question", act)
    assert ("question", "error") in tools(fold)


async def test_rules_of_the_session_answer_for_the_person(server: Live) -> None:
    session = await server.session(permission=[{"permission": "bash", "pattern": "*", "action": "allow"}])
    answer = await server.ask(session, "permission")
    assert answer["info"]["finish"] == "stop"


@pytest.mark.parametrize("scene", ["hang", "tool", "permission", "question", "background"])
async def test_an_abort_is_one_idle(tmp_path: Path, scene: str) -> None:
    async with live(tmp_path, delay_factor=20.0 if scene == "tool" else 0.2) as server:
        await _abort_in(server, scene)


async def _abort_in(server: Live, scene: str) -> None:
    done: list[str] = []

    async def act(_: EventStream, event: dict[str, Any]) -> None:
        p = event["properties"]
        busy_with = {
            "hang": "message.part.delta",
            "tool": "message.part.updated",
            "permission": "permission.asked",
            "question": "question.asked",
            "background": "message.part.delta",
        }[scene]
        right = event["type"] == busy_with and (scene != "tool" or p["part"].get("state", {}).get("status") == "running")
        if right and not done:
            done.append(scene)
            assert (await server.api.post(f"/session/{p['sessionID']}/abort", status=200)).body is True

    _, fold = await server.turn(scene, act)
    assert [e["name"] for e in fold.errors] == ["MessageAbortedError"]
    assert (await server.api.get("/permission", status=200)).body == []
    assert (await server.api.get("/question", status=200)).body == []


async def test_an_abort_right_after_the_prompt_holds(server: Live) -> None:
    session = await server.session()
    await server.prompt(session, "hang")
    await server.api.post(f"/session/{session}/abort", status=200)
    assert (await server.api.get("/session/status", status=200)).body == {}
    assert (await server.ask(session, "echo still here"))["info"]["finish"] == "stop"


async def test_abort_of_nothing_is_fine(server: Live) -> None:
    session = await server.session()
    assert (await server.api.post(f"/session/{session}/abort", status=200)).body is True
    assert (await server.api.post("/session/ses_0000000000000000000000000/abort", status=200)).body is True


async def test_a_subagents_session_can_be_opened(server: Live) -> None:
    session, _ = await server.turn("subagent")
    [child] = (await server.api.get(f"/session/{session}/children", status=200)).body
    assert child["parentID"] == session
    inner = await server.messages(child["id"])
    assert [m["info"]["role"] for m in inner][:2] == ["user", "assistant"]
    answer = await server.api.post(f"/session/{child['id']}/message", {"parts": [{"type": "text", "text": "x"}]}, status=400)
    assert "parent" in answer.body["data"]["message"]


async def test_two_blocking_prompts_are_both_answered(server: Live) -> None:
    import asyncio

    session = await server.session()
    both = await asyncio.gather(server.ask(session, "slow 1"), server.ask(session, "echo second"))
    assert {a["info"]["finish"] for a in both} == {"stop"}
    assert both[0]["info"]["id"] == both[1]["info"]["id"]


async def test_a_late_stream_gets_open_requests(server: Live) -> None:
    session = await server.session()
    async with server.api.stream("/event") as first:
        await server.prompt(session, "permission")
        asked = (await first.until("permission.asked"))[-1]["properties"]
    for path in ("/event", "/global/event"):
        async with server.api.stream(path) as lazy:
            events = await lazy.until("permission.asked")
            assert events[0]["type"] == "server.connected"
            assert events[-1]["properties"] == asked
    await server.api.post(f"/session/{session}/abort", status=200)


@pytest.mark.parametrize(("lost_s", "is_told"), [(60.0, True), (0.0, False)])
async def test_a_client_that_comes_back_after_a_crash_hears_how_its_turn_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost_s: float, is_told: bool
) -> None:
    """The journal as it is while the turn runs is what a killed server leaves."""
    monkeypatch.setattr(event, "LOST_S", lost_s)
    (tmp_path / "second").mkdir()
    one, two = tmp_path / "one.db", tmp_path / "two.db"
    async with live(tmp_path, store=SqliteStore(one), delay_factor=1.0) as before:
        session = await before.session()
        async with before.api.stream("/event") as events:
            await before.prompt(session, "slow 60")
            await events.until("message.part.delta")
        await before.api.get(f"/session/{session}/message", status=200)
        with closing(sqlite3.connect(one)) as source, closing(sqlite3.connect(two)) as copy:
            source.backup(copy)
        await before.api.post(f"/session/{session}/abort", status=200)
    async with live(tmp_path / "second", store=SqliteStore(two)) as after:
        assert (await after.api.get("/session/status", status=200)).body == {}
        async with after.api.stream("/global/event") as events:
            await after.api.patch(f"/session/{session}", {"title": "over"}, status=200)
            told = await events.until("session.updated")
        kinds = [row["type"] for row in told if row["properties"].get("sessionID") == session]
        assert ("session.error" in kinds) == is_told
        assert (kinds[-2:] == ["session.status", "session.updated"]) == is_told
        assert "session.idle" not in kinds, "that was published once, when nobody listened"


async def test_a_stream_goes_on_where_it_broke_off(server: Live) -> None:
    session = await server.session()
    async with server.api.stream("/event") as first:
        await server.prompt(session, "echo one two three four")
        await first.until("message.part.delta")
        last = first.ids[-1]
        rest = await first.until("session.idle")
    async with server.api.stream("/event", headers={"Last-Event-ID": last}) as second:
        again = await second.until("session.idle")
    assert again[0]["type"] == "server.connected"
    assert [e["id"] for e in again[1:]] == [e["id"] for e in rest]


async def test_old_clients_get_growing_parts_instead_of_deltas(server: Live) -> None:
    session = await server.session()
    response = await server.api.raw.get("/event", headers={"User-Agent": "opencode/1.1.53"})
    await server.prompt(session, "echo one two three")
    grown: list[str] = []
    import asyncio
    import json

    async with asyncio.timeout(10):
        async for line in response.content:
            if not line.startswith(b"data:"):
                continue
            event = json.loads(line[5:])
            assert event["type"] != "message.part.delta"
            if event["type"] == "message.part.updated" and "delta" in event["properties"]:
                grown.append(event["properties"]["part"]["text"])
            if event["type"] == "session.idle":
                break
    response.close()
    assert len(grown) > 1
    assert grown == sorted(grown, key=len)
    assert grown[-1].strip() == "one two three"


@pytest.mark.parametrize("path", ["/event", "/global/event"])
async def test_a_stream_opened_during_a_turn_has_its_text(tmp_path: Path, path: str) -> None:
    async with live(tmp_path, delay_factor=1.0) as server:
        session = await server.session()
        async with server.api.stream("/event") as first:
            await server.prompt(session, "slow 30")
            await first.until("message.part.delta")
        fold = Fold(session)
        before = await server.messages(session)
        for message in before[:1]:
            fold.feed("message.updated", {"sessionID": session, "info": message["info"]})
            for part in message["parts"]:
                fold.feed("message.part.updated", {"sessionID": session, "part": part})
        async with server.api.stream(path) as lazy:
            for event in await lazy.until("message.part.delta"):
                fold.feed(event["type"], event["properties"])
            assert fold.status == {"type": "busy"}
            await server.api.post(f"/session/{session}/abort", status=200)
            for event in await lazy.until("session.idle"):
                fold.feed(event["type"], event["properties"])
        fold.info = {}
        fold.check()
        assert fold.wire() == await server.messages(session)


async def test_a_reader_of_a_running_turn_gets_its_growing_text_again(tmp_path: Path) -> None:
    """A client adds deltas to what it has read, some of them twice or not at all: a whole part puts that right."""
    async with live(tmp_path, delay_factor=1.0) as server:
        session = await server.session()
        async with server.api.stream("/event") as events:
            await server.prompt(session, "hang")
            await events.until(lambda e: e["type"] == "message.part.delta" and "me." in e["properties"]["delta"])
            read = (await server.messages(session))[-1]["parts"][-1]
            told = (await events.until("message.part.updated"))[-1]["properties"]["part"]
            assert told == read
            assert told["text"].endswith("stop me.")
            assert "end" not in told["time"]
            await server.api.post(f"/session/{session}/abort", status=200)


async def test_the_repository_of_a_session_is_looked_for_outside_of_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[threading.Thread] = []

    def find(directory: str) -> str:
        threads.append(threading.current_thread())
        return repository_above(directory)

    monkeypatch.setattr("shim.main.backend.repository_above", find)
    async with live(tmp_path, unattended="rules") as server:
        await server.turn("permission")
    assert len(threads) == 1
    assert threading.main_thread() not in threads


async def test_a_prompt_waits_for_one_commit(tmp_path: Path) -> None:
    """What its agent and its client wait for: only the acknowledgement is behind a commit."""
    flushed: list[str | None] = []

    class CommitCounter(MemoryStore):
        async def flush(self, session_id: str | None = None) -> None:
            flushed.append(session_id)

    async with live(tmp_path, store=CommitCounter()) as server:
        session = await server.session()
        await server.ask(session, "echo first")
        flushed.clear()
        await server.prompt(session, "echo second")
        assert flushed == [session]
