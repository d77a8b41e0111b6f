"""Sessions over HTTP: made, listed, changed, forked, deleted, and kept over a restart."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from shim.store.sqlite import SqliteStore
from tests.http.conftest import repository
from tests.support.live import Live, live, prompt_body


async def ids(server: Live, **params: str) -> list[str]:
    return [s["id"] for s in (await server.api.get("/session", params=params, status=200)).body]


async def test_a_new_session(server: Live) -> None:
    async with server.api.stream("/event") as events:
        info = (await server.api.post("/session", status=200)).body
        created = (await events.until("session.created"))[-1]
    assert created["properties"] == {"sessionID": info["id"], "info": info}
    assert info["title"].startswith("New session - ")
    assert info["directory"] == str(server.directory)
    assert (await server.api.get(f"/session/{info['id']}", status=200)).body == info


@pytest.mark.parametrize(
    ("body", "status"),
    [({}, 200), ({"title": "mine"}, 200), ({"nosuch": 1}, 200), ({"title": 5}, 400), ({"parentID": "abc"}, 400)],
)
async def test_bodies_of_create(server: Live, body: Any, status: int) -> None:
    answer = await server.api.post("/session", body, status=status)
    if status == 200 and "title" in body:
        assert answer.body["title"] == "mine"


async def test_a_body_may_be_left_out_but_null_is_none(server: Live) -> None:
    """As native 1.18.33: an empty body and blanks are none, `null` is refused, whatever the content type."""
    session = await server.session()
    for path in ("/session", f"/session/{session}/fork"):
        for data in (b"", b" "):
            await server.api.request("POST", path, data=data, status=200)
        refused = await server.api.request("POST", path, data=b"null", status=400)
        assert refused.body["data"] == {"message": "Expected object, got null", "kind": "Payload"}


async def test_lists_are_newest_first_and_can_be_narrowed(server: Live) -> None:
    first = await server.session(title="Apple pie")
    second = await server.session(title="Banana")
    child = await server.session(parentID=second, title="apple child")
    assert await ids(server) == [child, second, first]
    await server.api.patch(f"/session/{first}", {"title": "Apple cake"}, status=200)
    assert await ids(server) == [first, child, second]
    assert await ids(server, roots="true") == [first, second]
    assert await ids(server, search="APPLE") == [first, child]
    assert await ids(server, limit="1") == [first]
    for none in ("abc", "NaN", "inf", "-1"):
        assert await ids(server, limit=none, start=none) == [first, child, second]
    updated = (await server.api.get(f"/session/{first}", status=200)).body["time"]["updated"]
    assert await ids(server, start=str(updated)) == [first]
    await server.api.get("/session", params={"roots": "1"}, status=400)


async def test_one_server_serves_many_directories(tmp_path: Path, server: Live) -> None:
    other = repository(tmp_path / "other", {"a.txt": "a", "sub/b.txt": "b"})
    here = await server.session()
    there = (await server.api.post("/session", {}, params={"directory": str(other)}, status=200)).body
    below = (await server.api.post("/session", {}, headers={"x-opencode-directory": str(other / "sub")}, status=200)).body
    assert there["projectID"] == below["projectID"] != "global"
    assert (there["path"], below["path"]) == ("", "sub")
    assert await ids(server) == [here]
    assert await ids(server, directory=str(other)) == [there["id"]]
    assert await ids(server, directory=str(other), scope="project") == [below["id"], there["id"]]
    assert await ids(server, directory=str(other), path="sub") == [below["id"]]
    async with server.api.stream("/event", params={"directory": str(other)}) as events:
        await server.ask(here, "echo unseen")
        await server.ask(there["id"], "echo seen")
        seen = await events.until("session.idle")
    assert {e["properties"].get("sessionID") for e in seen[1:]} == {there["id"]}


async def test_patch_changes_what_it_names(server: Live) -> None:
    session = await server.session()
    assert (await server.api.patch(f"/session/{session}", {"title": "New"}, status=200)).body["title"] == "New"
    archived = (await server.api.patch(f"/session/{session}", {"time": {"archived": 123}}, status=200)).body
    assert archived["time"]["archived"] == 123
    rules = [{"permission": "bash", "pattern": "*", "action": "deny"}]
    assert (await server.api.patch(f"/session/{session}", {"permission": rules}, status=200)).body["permission"] == rules
    same = (await server.api.patch(f"/session/{session}", {}, status=200)).body
    assert (same["title"], same["permission"]) == ("New", rules)
    await server.api.patch(f"/session/{session}", {"title": 5}, status=400)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", ""),
        ("PATCH", ""),
        ("DELETE", ""),
        ("GET", "/message"),
        ("GET", "/children"),
        ("GET", "/todo"),
        ("GET", "/diff"),
        ("POST", "/fork"),
        ("POST", "/prompt_async"),
        ("POST", "/message"),
        ("POST", "/shell"),
        ("POST", "/command"),
    ],
)
async def test_an_unknown_session_is_404_everywhere(server: Live, method: str, path: str) -> None:
    bodies: dict[str, Any] = {
        "/prompt_async": prompt_body("x"),
        "/message": prompt_body("x"),
        "/shell": {"command": "ls", "agent": "build"},
        "/command": {"command": "x", "arguments": ""},
    }
    options = {"json": bodies.get(path, {})} if method != "GET" else {}
    answer = await server.api.request(method, f"/session/ses_00000000000000000000000000{path}", status=404, **options)
    assert answer.body["name"] == "NotFoundError"


async def test_delete_takes_children_along_and_tells_it(server: Live) -> None:
    parent = await server.session()
    child = await server.session(parentID=parent)
    async with server.api.stream("/event") as events:
        assert (await server.api.delete(f"/session/{parent}", status=200)).body is True
        first = (await events.until("session.deleted"))[-1]
        second = (await events.until("session.deleted"))[-1]
    assert [first["properties"]["sessionID"], second["properties"]["sessionID"]] == [child, parent]
    await server.api.get(f"/session/{parent}", status=404)
    await server.api.get(f"/session/{child}", status=404)


async def test_a_session_that_is_its_own_parent_is_deleted(server: Live) -> None:
    """An import may say anything."""
    session = await server.session()
    document = (await server.api.get(f"/session/{session}/export", status=200)).body
    await server.api.delete(f"/session/{session}", status=200)
    document["info"]["parentID"] = session
    await server.api.post("/session/import", document, status=200)
    assert [child["id"] for child in (await server.api.get(f"/session/{session}/children", status=200)).body] == [session]
    await server.api.delete(f"/session/{session}", status=200)
    await server.api.get(f"/session/{session}", status=404)


async def test_a_long_line_of_parents_makes_no_deep_call(server: Live) -> None:
    session = first = await server.session()
    for _ in range(sys.getrecursionlimit()):
        session = await server.session(parentID=session)
    await server.api.delete(f"/session/{first}", status=200)
    await server.api.get(f"/session/{session}", status=404)


async def test_deleting_a_busy_session_ends_its_turn(server: Live) -> None:
    session = await server.session()
    async with server.api.stream("/event") as events:
        await server.prompt(session, "hang")
        await events.until("message.part.delta")
        await server.api.delete(f"/session/{session}", status=200)
        kinds = [e["type"] for e in await events.until("session.deleted")]
    assert kinds.count("session.idle") == 1
    assert (await server.api.get("/session/status", status=200)).body == {}


async def test_deleting_a_session_ends_its_subagents_too(server: Live) -> None:
    session = await server.session()
    async with server.api.stream("/event") as events:
        await server.prompt(session, "subagent")
        child = (await events.until("session.created"))[-1]["properties"]["sessionID"]
        await server.api.delete(f"/session/{session}", status=200)
        gone = [(await events.until("session.deleted"))[-1]["properties"]["sessionID"] for _ in range(2)]
    assert gone == [child, session]
    assert (await server.api.get("/session", status=200)).body == []


async def test_fork(server: Live) -> None:
    session = await server.session(title="origin")
    await server.ask(session, "echo one")
    await server.ask(session, "echo two", messageID="msg_mine")
    await server.api.patch(f"/session/{session}", {"time": {"archived": 1}}, status=200)
    whole = (await server.api.post(f"/session/{session}/fork", {}, status=200)).body
    part = (await server.api.post(f"/session/{session}/fork", {"messageID": "msg_mine"}, status=200)).body
    assert (whole["title"], part["title"]) == ("origin (fork #1)", "origin (fork #2)")
    assert "parentID" not in whole
    assert "archived" not in whole["time"], "an archived session's fork is there to be worked with"
    assert len(await server.messages(whole["id"])) == 4
    assert len(await server.messages(part["id"])) == 2
    old = {m["info"]["id"] for m in await server.messages(session)}
    assert not old & {m["info"]["id"] for m in await server.messages(whole["id"])}
    await server.api.post(f"/session/{session}/fork", {"messageID": "msg_nosuch"}, status=404)
    answer = await server.ask(part["id"], "echo three")
    assert answer["info"]["sessionID"] == part["id"]


async def test_a_fork_has_the_tools_as_they_were(server: Live) -> None:
    """Their input was lost once: the TUI showed "Reading file..." for ever."""
    session = await server.session()
    await server.ask(session, "edit README.md")
    fork = (await server.api.post(f"/session/{session}/fork", {}, status=200)).body["id"]
    names = ("tool", "state", "text", "reason", "hash", "files")
    old, new = [
        [{name: part.get(name) for name in names} for one in await server.messages(id_) for part in one["parts"]]
        for id_ in (session, fork)
    ]
    assert new == old
    assert [part["state"]["input"].keys() >= {"filePath"} for part in new if part["tool"]] == [True]


async def test_sessions_and_settings_survive_a_restart(tmp_path: Path) -> None:
    store = tmp_path / "data" / "shim.db"
    async with live(tmp_path, store=SqliteStore(store)) as server:
        session = await server.session()
        await server.ask(session, "edit")
        await server.ask(session, "todo")
        fork = (await server.api.post(f"/session/{session}/fork", {}, status=200)).body["id"]
        before = [await server.messages(s) for s in (session, fork)]
        info = (await server.api.get(f"/session/{session}", status=200)).body
        todos = (await server.api.get(f"/session/{session}/todo", status=200)).body
        diffs = (await server.api.get(f"/session/{session}/diff", status=200)).body
    assert store.stat().st_mode & 0o077 == 0
    async with live(tmp_path, store=SqliteStore(store)) as server:
        assert set(await ids(server)) == {session, fork}
        assert [await server.messages(s) for s in (session, fork)] == before
        assert (await server.api.get(f"/session/{session}", status=200)).body == info
        assert (await server.api.get(f"/session/{session}/todo", status=200)).body == todos != []
        assert (await server.api.get(f"/session/{session}/diff", status=200)).body == diffs != []
        answer = await server.ask(session, "echo again")
        assert answer["info"]["finish"] == "stop"
        ordered = [m["info"]["id"] for m in await server.messages(session)]
        assert ordered == sorted(ordered)


async def test_sessions_outside_of_git_are_listed_by_their_path_from_the_root(server: Live, tmp_path: Path) -> None:
    """The TUI of 1.18 asks so."""
    folder = tmp_path / "plain" / "sub"
    folder.mkdir(parents=True)
    here, path = {"directory": str(folder)}, str(folder).lstrip("/")
    made = (await server.api.post("/session", {}, params=here, status=200)).body
    assert made["path"] == path
    queries = ({"roots": "true", "path": path}, {"start": "0", "path": path}, {"path": path.rpartition("/")[0]})
    for query in (*queries, {"scope": "project"}):
        rows = (await server.api.get("/session", params={**here, **query}, status=200)).body
        assert made["id"] in [row["id"] for row in rows], query
    elsewhere = (await server.api.get("/session", params={"directory": str(tmp_path)}, status=200)).body
    assert made["id"] not in [row["id"] for row in elsewhere]


async def test_sessions_stay_in_the_list_when_their_folder_becomes_a_repository(server: Live, tmp_path: Path) -> None:
    folder = tmp_path / "begins"
    folder.mkdir()
    here = {"directory": str(folder)}

    async def create() -> str:
        return (await server.api.post("/session", {}, params=here, status=200)).body["id"]

    def run_git(*args: str) -> None:
        subprocess.run(["git", "-c", "user.email=a@b.c", "-c", "user.name=n", *args], cwd=folder, check=True, capture_output=True)

    ids = [await create()]
    run_git("init", "-q")
    await server.api.post("/instance/dispose", params=here, status=200)
    ids.append(await create())
    run_git("commit", "-q", "--allow-empty", "-m", "first")
    await server.api.post("/instance/dispose", params=here, status=200)
    ids.append(await create())
    queries: tuple[dict[str, str], ...] = ({}, {"roots": "true", "limit": "100"}, {"path": ""}, {"scope": "project"})
    for query in queries:
        rows = (await server.api.get("/session", params={**here, **query}, status=200)).body
        assert {row["id"] for row in rows} >= set(ids), query
        assert len({(row["projectID"], row["path"]) for row in rows if row["id"] in ids}) == 1, "they are of the new project"
    project = (await server.api.get("/project/current", params=here, status=200)).body["id"]
    assert project != "global"
    assert {(await server.api.get(f"/session/{id_}", status=200)).body["projectID"] for id_ in ids} == {project}
    async with server.api.stream("/event", params=here) as events:
        await server.ask(ids[0], "echo hello")
        seen = await events.until("session.idle")
    infos = [event["properties"]["info"] for event in seen if event["type"] == "session.updated"]
    assert (infos[-1]["projectID"], infos[-1]["path"]) == (project, ""), "its events too, from its next prompt on"


@pytest.mark.parametrize("spelling", ["/{real}", "{link}", "{real}/../real", "{link}/"])
async def test_a_folder_is_one_however_it_is_spelled(server: Live, tmp_path: Path, spelling: str) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.mkdir()
    link.symlink_to(real)
    named = spelling.format(real=real, link=link)
    async with server.api.stream("/event", params={"directory": named}) as events:
        made = (await server.api.post("/session", {}, params={"directory": named}, status=200)).body
        assert made["directory"] == str(real)
        created = (await events.until("session.created"))[-1]
        assert created["properties"]["info"]["id"] == made["id"]
    for directory in (str(real), named):
        rows = (await server.api.get("/session", params={"directory": directory}, status=200)).body
        assert made["id"] in [row["id"] for row in rows]
    assert (await server.api.get("/path", params={"directory": named}, status=200)).body["directory"] == str(real)
