"""`/v1` with the mock: all 23 operations, each answer and event against our document and the peers'."""

from __future__ import annotations

import asyncio
import io
import tarfile
from pathlib import Path
from typing import Any

import pytest

from shim.store.sqlite import SqliteStore
from tests.support.universal import WAIT_S, Face, face, our_document


def kinds(events: list[dict[str, Any]]) -> list[str]:
    return [event["type"] for event in events]


def of(events: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [event for event in events if event["type"] == kind]


# --- meta, agents ---------------------------------------------------------------------------------------


async def test_health_and_document(v1: Face) -> None:
    assert (await v1.call("get_health"))["status"] == "ok"
    assert await v1.call("get_openapi") == our_document().raw


async def test_agents(v1: Face) -> None:
    agents = {agent["id"]: agent for agent in (await v1.call("list_agents"))["agents"]}
    assert agents["mock"]["installed"] is True
    assert agents["mock"]["capabilities"]["questions"] is True
    assert agents["claude"]["installed"] is False
    assert "npm install" in agents["claude"]["trouble"]
    models = await v1.call("get_agent_models", agent="mock")
    assert models == {"models": [{"id": "mock", "name": "Mock", "variants": ["low", "high"]}], "defaultModel": "mock"}
    assert [mode["id"] for mode in (await v1.call("get_agent_modes", agent="mock"))["modes"]] == ["build", "plan"]
    for operation in ("get_agent_models", "get_agent_modes", "install_agent", "get_agent_install"):
        problem = await v1.call(operation, agent="nobody", status=404)
        assert problem["type"] == "urn:opencode-shim:error:unsupported_agent"


async def test_credentials_are_seen_not_read(tmp_path: Path, v1: Face) -> None:
    async def has() -> bool:
        agents = (await v1.call("list_agents"))["agents"]
        return next(agent["credentialsAvailable"] for agent in agents if agent["id"] == "claude")

    assert not await has()
    (tmp_path / "home" / ".claude").mkdir(parents=True)
    (tmp_path / "home" / ".claude" / ".credentials.json").touch(0o000)
    assert await has()


# --- sessions -------------------------------------------------------------------------------------------


async def test_a_session_has_the_id_that_its_maker_chose(v1: Face) -> None:
    made = await v1.call("create_session", session_id="my-session", json={"agent": "mock", "title": "Mine", "variant": "high"})
    assert made["healthy"] is True
    problem = await v1.call("create_session", session_id="my-session", json={"agent": "mock"}, status=409)
    assert problem["type"].endswith("session_already_exists")
    [session] = (await v1.call("list_sessions"))["sessions"]
    assert (session["sessionId"], session["agent"], session["title"]) == ("my-session", "mock", "Mine")
    assert (session["model"], session["variant"], session["ended"], session["eventCount"]) == ("mock", "high", False, 1)
    events = (await v1.call("get_events", session_id="my-session"))["events"]
    assert [(e["session_id"], e["sequence"], e["type"]) for e in events] == [("my-session", 1, "session.started")]


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ({}, "invalid_request"),
        ({"agent": "nobody"}, "unsupported_agent"),
        ({"agent": "claude"}, "agent_not_installed"),
        ({"agent": "mock", "model": "gpt"}, "invalid_request"),
        ({"agent": "mock", "variant": "huge"}, "invalid_request"),
        ({"agent": "mock", "agentMode": "fly"}, "mode_not_supported"),
        ({"agent": "mock", "permissionMode": "fly"}, "mode_not_supported"),
        ({"agent": "mock", "directory": "not/there"}, "invalid_request"),
        ({"agent": "mock", "mcp": {"a": {"type": "local", "command": "x"}}}, "invalid_request"),
        ({"agent": "mock", "mcp": {"a": {"type": "remote", "url": "http://x", "transport": "sse"}}}, "invalid_request"),
        ({"agent": "mock", "mcp": {"a": {"type": "local"}}}, "invalid_request"),
        ({"agent": "mock", "skills": {"sources": []}}, "invalid_request"),
    ],
)
async def test_a_session_that_cannot_be_made(v1: Face, body: dict[str, Any], kind: str) -> None:
    problem = await v1.call("create_session", session_id="s", json=body, status=400)
    assert problem["type"] == f"urn:opencode-shim:error:{kind}"
    assert len(problem["detail"]) > 20
    assert (await v1.call("list_sessions"))["sessions"] == []


async def test_unknown_sessions_are_problems(v1: Face) -> None:
    for operation, more in {
        "get_events": {},
        "get_events_sse": {},
        "post_message": {"json": {"message": "x"}},
        "post_message_stream": {"json": {"message": "x"}},
        "terminate_session": {},
        "reply_permission": {"permission_id": "p", "json": {"reply": "once"}},
        "reply_question": {"question_id": "q", "json": {"answers": [["a"]]}},
        "reject_question": {"question_id": "q"},
        "fs_entries": {},
    }.items():
        problem = await v1.call(operation, session_id="nobody", status=404, **more)
        assert problem["type"] == "urn:opencode-shim:error:session_not_found", operation


async def test_wrong_requests_are_problems(v1: Face) -> None:
    await v1.session()
    assert "offset" in (await v1.call("get_events", session_id="s", offset="x", status=400))["detail"]
    await v1.call("get_events", session_id="s", offset=-1, status=400)
    await v1.call("post_message", session_id="s", json={}, status=400)
    raw = v1.live.api.raw
    for method, path, status in (("GET", "/v1/nothing", 404), ("DELETE", "/v1/sessions", 405)):
        async with raw.request(method, path) as answer:
            assert (answer.status, answer.content_type) == (status, "application/problem+json")
            assert (await answer.json())["status"] == status


# --- turns ----------------------------------------------------------------------------------------------


async def test_a_message_and_its_turn(v1: Face) -> None:
    await v1.session()
    events = await v1.say("s", "echo Hello there")
    assert kinds(events)[0] == "item.completed"
    assert kinds(events)[-1] == "turn.ended"
    assert events[-1]["data"]["metadata"]["reason"] == "completed"
    assert "".join(e["data"]["delta"] for e in of(events, "item.delta")) == "Hello there"
    assert all(e["synthetic"] is (e["source"] == "daemon") for e in events)
    again = (await v1.call("get_events", session_id="s", offset=events[0]["sequence"] - 1))["events"]
    assert again == events


async def test_post_message_returns_at_once_and_the_turn_goes_on(v1: Face) -> None:
    await v1.session()
    await v1.call("post_message", session_id="s", json={"message": "echo one"})
    async with v1.stream("get_events_sse", session_id="s") as stream:
        events = await stream.until("turn.ended")
    assert [event["sequence"] for event in events] == list(range(1, len(events) + 1))


@pytest.mark.parametrize(("reply", "status"), [("once", "accept"), ("always", "accept_for_session"), ("reject", "reject")])
async def test_a_stream_goes_through_a_permission(v1: Face, reply: str, status: str) -> None:
    await v1.session()
    async with v1.stream("post_message_stream", session_id="s", json={"message": "permission"}) as stream:
        asked = (await stream.until("permission.requested"))[-1]["data"]
        assert asked["status"] == "requested"
        await v1.call("reply_permission", session_id="s", permission_id=asked["permission_id"], json={"reply": reply})
        rest = await stream.rest()
    [resolved] = of(rest, "permission.resolved")
    assert (resolved["data"]["permission_id"], resolved["data"]["status"]) == (asked["permission_id"], status)
    assert kinds(rest)[-1] == "turn.ended"
    gone = {"session_id": "s", "permission_id": asked["permission_id"], "json": {"reply": "once"}}
    assert (await v1.call("reply_permission", status=404, **gone))["type"].endswith("permission_not_found")


async def test_a_stream_goes_through_questions(v1: Face) -> None:
    await v1.session()
    async with v1.stream("post_message_stream", session_id="s", json={"message": "question"}) as stream:
        asked = (await stream.until("question.requested"))[-1]["data"]
        answers = [[question["options"][0]["label"]] for question in asked["questions"]]
        await v1.call("reply_question", session_id="s", question_id=asked["question_id"], json={"answers": answers})
        rest = await stream.rest()
    assert of(rest, "question.resolved")[0]["data"]["answers"] == answers
    async with v1.stream("post_message_stream", session_id="s", json={"message": "question"}) as stream:
        asked = (await stream.until("question.requested"))[-1]["data"]
        await v1.call("reject_question", session_id="s", question_id=asked["question_id"])
        rest = await stream.rest()
    assert of(rest, "question.resolved")[0]["data"]["status"] == "rejected"
    assert kinds(rest)[-1] == "turn.ended"


async def test_bypass_answers_what_is_asked(v1: Face) -> None:
    await v1.session(permissionMode="bypass")
    events = await v1.say("s", "permission")
    assert kinds(events)[-1] == "turn.ended"
    assert of(events, "permission.resolved")[0]["data"]["status"] == "accept"


async def test_two_messages_at_once_are_answered_in_one_turn_and_both_streams_end(v1: Face) -> None:
    await v1.session()
    async with (
        v1.stream("post_message_stream", session_id="s", json={"message": "slow 1"}) as one,
        v1.stream("post_message_stream", session_id="s", json={"message": "echo two"}) as two,
    ):
        first, second = await one.rest(), await two.rest()
    assert first[-1] == second[-1]
    assert kinds(first)[-1] == "turn.ended"


async def test_attachments(v1: Face) -> None:
    (v1.live.directory / "a.txt").write_text("the text")
    await v1.session()
    body = {"message": "echo x", "attachments": [{"path": "a.txt"}, {"path": "data:image/png;base64,AAAA", "filename": "b.png"}]}
    async with v1.stream("post_message_stream", session_id="s", json=body) as stream:
        events = await stream.rest()
    content = events[0]["data"]["item"]["content"]
    assert [part["type"] for part in content] == ["text", "file_ref", "image"]


# --- raw, ends ------------------------------------------------------------------------------------------


async def test_raw_only_when_asked_for_on_http_and_streams(v1: Face) -> None:
    await v1.session()
    with_raw = await v1.say("s", "tool", include_raw=True)
    start = with_raw[0]["sequence"] - 1
    plain = (await v1.call("get_events", session_id="s", offset=start))["events"]
    assert [event["raw"] for event in plain] == [None] * len(plain)
    assert [{**event, "raw": None} for event in with_raw] == plain
    assert (await v1.call("get_events", session_id="s", offset=start, include_raw=True))["events"] == with_raw
    agent = [event for event in with_raw if event["source"] == "agent"]
    assert agent
    assert all(event["raw"] is not None for event in agent)
    async with v1.stream("get_events_sse", session_id="s", offset=start) as stream:
        assert await stream.until("turn.ended") == plain
    async with v1.stream("get_events_sse", session_id="s", offset=start, include_raw=True) as stream:
        assert await stream.until("turn.ended") == with_raw


async def test_a_stream_on_which_nothing_happens_is_kept_alive_and_goes_on(v1: Face, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shim.http.log_stream.KEEP_ALIVE_S", 0.05)
    await v1.session()
    async with v1.stream("get_events_sse", session_id="s") as stream:
        assert (await stream.next())["type"] == "session.started"
        content = stream.response.content
        async with asyncio.timeout(WAIT_S):
            assert [await content.readline() for _ in range(4)] == [b": keep-alive\n", b"\n"] * 2
        await v1.call("post_message", session_id="s", json={"message": "echo on"})
        assert (await stream.until("turn.ended"))[0]["sequence"] == 2


async def test_pages(v1: Face) -> None:
    await v1.session()
    await v1.say("s", "tool")
    whole = (await v1.call("get_events", session_id="s"))["events"]
    got: list[dict[str, Any]] = []
    more = True
    while more:
        page = await v1.call("get_events", session_id="s", offset=len(got), limit=3)
        got += page["events"]
        more = page["hasMore"]
    assert got == whole
    assert await v1.call("get_events", session_id="s", limit=0) == {"events": [], "hasMore": True}
    assert await v1.call("get_events", session_id="s", offset=10**9) == {"events": [], "hasMore": False}


async def test_terminate_stops_the_agent_for_good(v1: Face) -> None:
    await v1.session()
    async with v1.stream("post_message_stream", session_id="s", json={"message": "hang"}) as stream:
        await stream.until("item.started")
        await v1.call("terminate_session", session_id="s")
        rest = await stream.rest()
    assert kinds(rest)[-1] == "turn.ended"
    last = (await v1.call("get_events", session_id="s"))["events"][-1]
    assert last["type"] == "session.ended"
    assert (last["data"]["reason"], last["data"]["terminated_by"]) == ("terminated", "daemon")
    assert (await v1.call("list_sessions"))["sessions"][0]["ended"] is True
    problem = await v1.call("post_message", session_id="s", json={"message": "x"}, status=409)
    assert problem["type"].endswith("session_ended")
    await v1.call("terminate_session", session_id="s")
    assert kinds((await v1.call("get_events", session_id="s"))["events"]).count("session.ended") == 1


async def test_an_agent_that_dies_ends_the_session_until_the_next_message(v1: Face) -> None:
    await v1.session()
    events = await v1.say("s", "crash")
    assert events[-1]["data"]["metadata"]["reason"] == "agent_exited"
    last = (await v1.call("get_events", session_id="s"))["events"][-1]
    assert last["type"] == "session.ended"
    assert (last["data"]["reason"], last["data"]["terminated_by"]) == ("error", "agent")
    assert last["data"]["message"]
    assert (await v1.call("list_sessions"))["sessions"][0]["ended"] is True
    again = await v1.say("s", "echo again")
    assert "session.started" in kinds(again)
    assert kinds(again)[-1] == "turn.ended"
    assert (await v1.call("list_sessions"))["sessions"][0]["ended"] is False


# --- both faces -----------------------------------------------------------------------------------------


async def test_a_session_of_v1_is_watched_by_opencodes_clients(v1: Face) -> None:
    made = await v1.call("create_session", session_id="shared", json={"agent": "mock"})
    core = made["openCodeSessionId"]
    api = v1.live.api
    async with api.stream("/event") as events:
        await v1.say("shared", "echo from v1")
        seen = await events.until("session.idle")
    assert {event["properties"].get("sessionID") for event in seen if event["type"] == "session.status"} == {core}
    assert [info["id"] for info in (await api.get("/session", status=200)).body] == [core]
    await v1.live.ask(core, "echo from opencode")
    said = (await v1.call("get_events", session_id="shared"))["events"]
    assert "from opencode" in "".join(e["data"]["delta"] for e in of(said, "item.delta"))
    await v1.call("get_events", session_id=core, status=404)


async def test_a_session_of_opencode_is_watched_here_with_its_subagents(v1: Face) -> None:
    session = await v1.live.session()
    await v1.live.ask(session, "subagent")
    sessions = {one["sessionId"]: one for one in (await v1.call("list_sessions"))["sessions"]}
    [child] = [one for one in sessions.values() if one.get("parentSessionId") == session]
    events = (await v1.call("get_events", session_id=child["sessionId"]))["events"]
    assert events[0]["data"]["metadata"]["parent_session_id"] == session
    await v1.call("terminate_session", session_id=child["sessionId"], status=400)
    await v1.live.api.delete(f"/session/{session}", status=200)
    await v1.call("get_events", session_id=session, status=404)


async def test_a_deleted_session_ends_its_streams_and_frees_its_name(v1: Face) -> None:
    core = (await v1.call("create_session", session_id="s", json={"agent": "mock"}))["openCodeSessionId"]
    async with v1.stream("get_events_sse", session_id="s") as stream:
        await stream.until("session.started")
        await v1.live.api.delete(f"/session/{core}", status=200)
        assert kinds(await stream.rest()) == ["session.ended"]
    await v1.session()


async def test_names_and_ends_survive_a_restart(tmp_path: Path) -> None:
    async with face(tmp_path, store=SqliteStore(tmp_path / "data" / "j.db")) as v1:
        await v1.session("one", permissionMode="bypass")
        await v1.session("two")
        await v1.say("one", "echo x")
        await v1.call("terminate_session", session_id="two")
        before = (await v1.call("list_sessions"))["sessions"]
        events = (await v1.call("get_events", session_id="one", include_raw=True))["events"]
    async with face(tmp_path, store=SqliteStore(tmp_path / "data" / "j.db")) as v1:
        assert (await v1.call("list_sessions"))["sessions"] == before
        assert (await v1.call("get_events", session_id="one", include_raw=True))["events"] == events
        await v1.call("create_session", session_id="one", json={"agent": "mock"}, status=409)
        await v1.call("post_message", session_id="two", json={"message": "x"}, status=409)
        async with v1.stream("get_events_sse", session_id="one", headers={"Last-Event-ID": "3"}) as stream:
            assert (await stream.next())["sequence"] == 4


# --- files ----------------------------------------------------------------------------------------------


async def test_files(v1: Face) -> None:
    await v1.session()
    home = v1.live.directory
    wrote = await v1.call("fs_write_file", session_id="s", path="a/b.bin", data=b"\x00\xff")
    assert wrote == {"path": str(home / "a" / "b.bin"), "bytesWritten": 2}
    assert await v1.call("fs_read_file", session_id="s", path="a/b.bin") == b"\x00\xff"
    stat = await v1.call("fs_stat", session_id="s", path=str(home / "a" / "b.bin"))
    assert (stat["entryType"], stat["size"]) == ("file", 2)
    await v1.call("fs_mkdir", session_id="s", path="c/d")
    assert [(e["name"], e["entryType"]) for e in await v1.call("fs_entries", session_id="s")] == [
        ("a", "directory"),
        ("c", "directory"),
    ]
    await v1.call("fs_move", session_id="s", json={"from": "a/b.bin", "to": "c/e.bin"})
    await v1.call("fs_write_file", session_id="s", path="f", data=b"")
    await v1.call("fs_move", session_id="s", json={"from": "f", "to": "c/e.bin"}, status=409)
    await v1.call("fs_move", session_id="s", json={"from": "f", "to": "c/e.bin", "overwrite": True})
    assert (home / "c" / "e.bin").read_bytes() == b""
    await v1.call("fs_delete_entry", session_id="s", path="c", status=400)
    await v1.call("fs_delete_entry", session_id="s", path="c", recursive=True)
    await v1.call("fs_delete_entry", session_id="s", path="c", status=404)
    await v1.call("fs_delete_entry", session_id="s", path=".", recursive=True, status=400)
    assert [entry["name"] for entry in await v1.call("fs_entries")] == ["a"]


def archive(**files: bytes) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


async def test_upload(v1: Face) -> None:
    await v1.session()
    done = await v1.call("fs_upload_batch", session_id="s", path="up", data=archive(**{"x.txt": b"x", "y/z.txt": b"z"}))
    home = v1.live.directory
    assert done == {"paths": [str(home / "up" / "x.txt"), str(home / "up" / "y" / "z.txt")], "truncated": False}
    assert (home / "up" / "y" / "z.txt").read_text() == "z"
    await v1.call("fs_upload_batch", session_id="s", data=b"no tar", status=400)
    await v1.call("fs_upload_batch", session_id="s", data=archive(**{"../out": b"x"}), status=400)
    assert not (home.parent / "out").exists()


async def test_files_stay_in_the_directory(tmp_path: Path, v1: Face) -> None:
    await v1.session()
    (tmp_path / "secret").write_text("s")
    (v1.live.directory / "link").symlink_to(tmp_path / "secret")
    for path in ("../secret", str(tmp_path / "secret"), "link"):
        await v1.call("fs_read_file", session_id="s", path=path, status=400)
        await v1.call("fs_stat", session_id="s", path=path, status=400)
        await v1.call("fs_write_file", session_id="s", path=path, data=b"x", status=400)
    await v1.call("fs_move", session_id="s", json={"from": "link", "to": "../out"}, status=400)
    await v1.call("fs_delete_entry", session_id="s", path="link")
    assert (tmp_path / "secret").read_text() == "s"


async def test_files_anywhere_if_it_is_allowed(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("o")
    async with face(tmp_path, fs_anywhere=True) as v1:
        assert await v1.call("fs_read_file", path="../other") == b"o"
