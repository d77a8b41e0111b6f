"""Sessions over OpenCode 2: created, listed, changed, forked, undone, deleted. Every answer is held against its schema."""

from __future__ import annotations

from typing import Any

import pytest

from shim.main.app import SERVICES
from tests.http.opencode2.client import Tui
from tests.support.live import Live


async def create_session(client: Tui, **body: Any) -> dict[str, Any]:
    return (await client.call("POST", "/api/session", body)).body["data"]


async def test_a_client_names_its_session_and_makes_it_once(client: Tui) -> None:
    id_ = "ses_01client0000000000000000000"
    rules = [{"action": "shell", "resource": "git *", "effect": "allow"}]
    first = await create_session(client, id=id_, title="Mine", metadata={"a": 1}, permissions=rules)
    assert (first["id"], first["title"], first["metadata"], first["permissions"]) == (id_, "Mine", {"a": 1}, rules)
    assert await create_session(client, id=id_, title="Another") == first


async def test_a_session_that_cannot_be_made_says_why(client: Tui) -> None:
    bad = await client.call("POST", "/api/session", {"id": "xyz"}, status=400)
    assert bad.body == {"_tag": "InvalidRequestError", "message": "Invalid session ID", "field": "sessionID"}
    relative = await client.call("POST", "/api/session", {"location": {"directory": "here"}}, status=400)
    assert "absolute" in relative.body["message"]
    orphan = await client.call("POST", "/api/session", {"parentID": "ses_nobody"}, status=404)
    assert orphan.body["_tag"] == "SessionNotFoundError"
    assert orphan.body["sessionID"] == "ses_nobody"


async def test_a_child_is_where_its_parent_is(client: Tui) -> None:
    parent = await create_session(client)
    child = await create_session(client, parentID=parent["id"])
    assert child["location"] == parent["location"]
    found = (await client.call("GET", "/api/session", parentID=parent["id"])).body["data"]
    assert [one["id"] for one in found] == [child["id"]]
    roots = (await client.call("GET", "/api/session", parentID="null")).body["data"]
    assert [one["id"] for one in roots] == [parent["id"]]


@pytest.mark.parametrize(
    ("path", "tag"),
    [
        ("/api/session/ses_nobody", "SessionNotFoundError"),
        ("/api/session/ses_nobody/message", "SessionNotFoundError"),
        ("/api/session/ses_nobody/inbox", "SessionNotFoundError"),
        ("/api/session/ses_nobody/form", "SessionNotFoundError"),
        ("/api/experimental/session/ses_nobody/log", "SessionNotFoundError"),
    ],
)
async def test_unknown_sessions(client: Tui, path: str, tag: str) -> None:
    answer = await client.call("GET", path, status=404)
    assert (answer.body["_tag"], answer.body["sessionID"]) == (tag, "ses_nobody")


async def test_pages_of_sessions_go_both_ways(client: Tui) -> None:
    sessions = [await create_session(client, title=f"number {n}") for n in range(5)]
    ids = [one["id"] for one in sorted(sessions, key=lambda one: (one["time"]["updated"], one["id"]))]

    async def page(**query: str) -> tuple[list[str], dict[str, str]]:
        body = (await client.call("GET", "/api/session", limit="2", **query)).body
        return [one["id"] for one in body["data"]], body["cursor"]

    first, cursor = await page()
    second, cursor2 = await page(cursor=cursor["next"])
    third, cursor3 = await page(cursor=cursor2["next"])
    assert [*first, *second, *third] == ids[::-1]
    assert (await page(cursor=cursor3["next"])) == ([], {})
    assert (await page(cursor=cursor2["previous"]))[0] == first
    assert (await page(search="number 3"))[0] == [sessions[3]["id"]]
    assert (await page(order="asc"))[0] == ids[:2]
    bad = await client.call("GET", "/api/session", cursor="xyz", status=400)
    assert bad.body == {"_tag": "InvalidCursorError", "message": "Invalid cursor"}
    number = await client.call("GET", "/api/session", limit="abc", status=400)
    assert number.body["message"] == 'Expected an integer, got NaN\n  at ["limit"]'


async def test_pages_of_messages(client: Tui) -> None:
    for n in range(3):
        await client.turn(f"echo {n}")
    base = f"/api/session/{client.session}/message"
    everything = [one["id"] for one in (await client.call("GET", base)).body["data"]]
    first = (await client.call("GET", base, limit="4")).body
    second = (await client.call("GET", base, limit="4", cursor=first["cursor"]["next"])).body
    assert [one["id"] for one in first["data"] + second["data"]] == everything[:8]
    back = (await client.call("GET", base, limit="4", cursor=second["cursor"]["previous"])).body
    assert back["data"] == first["data"]
    users = (await client.call("GET", base, type="user")).body["data"]
    assert [one["text"] for one in users] == ["echo 2", "echo 1", "echo 0"]
    both = await client.call("GET", base, order="asc", cursor=first["cursor"]["next"], status=400)
    assert both.body["_tag"] == "InvalidRequestError"
    one = everything[0]
    assert (await client.call("GET", f"{base}/{one}")).body["data"]["id"] == one
    gone = await client.call("GET", f"{base}/msg_nosuch", status=404)
    assert gone.body["_tag"] == "MessageNotFoundError"
    zero = await client.call("GET", base, limit="0", status=400)
    assert zero.body["kind"] == "Query"


async def test_idle_marks_are_a_type_of_message(client: Tui) -> None:
    for _ in range(2):
        await client.turn("echo hello")
    found = (await client.call("GET", f"/api/session/{client.session}/message", type="idle")).body["data"]
    assert [(one["type"], one["outcome"]) for one in found] == [("idle", "succeeded")] * 2


async def session_ids(client: Tui, **query: str) -> list[str]:
    return [one["id"] for one in (await client.call("GET", "/api/session", **query)).body["data"]]


async def test_a_session_is_archived_and_restored(client: Tui) -> None:
    kept = (await create_session(client))["id"]
    await client.new()
    base = f"/api/session/{client.session}"
    await client.call("PATCH", base, {"archived": True}, status=204)
    time = (await client.call("GET", base)).body["data"]["time"]["archived"]
    assert isinstance(time, int)
    first = (await client.live.api.get(f"/session/{client.session}", status=200)).body
    assert first["time"]["archived"] == time
    assert await session_ids(client, archived="true") == [client.session]
    assert await session_ids(client, archived="false") == [kept]
    assert await session_ids(client) == [client.session, kept]
    await client.call("PATCH", base, {"archived": True}, status=204)
    assert (await client.call("GET", base)).body["data"]["time"]["archived"] == time, "again is no change"
    await client.call("PATCH", base, {"archived": False}, status=204)
    await client.call("PATCH", base, {"title": "over"}, status=204)
    while "session.renamed" not in client.types:
        await client.take_next()
    told = [kind for kind in client.types if "archived" in kind]
    assert told == ["session.archived", "session.unarchived"]
    assert await session_ids(client, archived="true") == []


async def test_a_page_of_archived_sessions_goes_on_with_archived_ones(client: Tui) -> None:
    ids = [(await create_session(client))["id"] for _ in range(4)]
    for id_ in ids[1:]:
        await client.call("PATCH", f"/api/session/{id_}", {"archived": True}, status=204)
    first = (await client.call("GET", "/api/session", archived="true", limit="2")).body
    rest = (await client.call("GET", "/api/session", limit="2", cursor=first["cursor"]["next"])).body["data"]
    assert len(first["data"]) == 2
    assert {one["id"] for one in [*first["data"], *rest]} == set(ids[1:])


async def test_a_session_archived_on_opencode1_is_archived_on_opencode2(client: Tui) -> None:
    """The TUI of 1.x sends a number with a fraction of none, as JavaScript writes it; some clients write `.0`."""
    await client.new()
    answer = await client.live.api.patch(f"/session/{client.session}", {"time": {"archived": 1795383022066.0}}, status=200)
    assert repr(answer.body["time"]["archived"]) == "1795383022066"
    shown = (await client.call("GET", f"/api/session/{client.session}")).body["data"]["time"]["archived"]
    assert repr(shown) == "1795383022066"
    assert await session_ids(client, archived="true") == [client.session]
    await client.live.api.patch(f"/session/{client.session}", {"time": {"archived": None}}, status=200)
    assert await session_ids(client, archived="true") == []


async def test_an_rpc_of_an_unknown_plugin_is_an_rpc_error(client: Tui) -> None:
    answer = (await client.call("POST", "/api/rpc/counter/add", {"input": {"amount": 2}}, status=400)).body
    assert (answer["_tag"], answer["type"]) == ("RpcError", "rpc.not_found")
    assert "counter" in answer["message"]


async def test_speech_is_refused_with_a_reason(client: Tui) -> None:
    body = {"model": "m", "transport": {"type": "websocket"}}
    answer = (await client.call("POST", "/api/experimental/voice/session", body, status=501)).body
    assert (answer["_tag"], answer["operation"]) == ("UnsupportedError", "experimental.voice.session")
    assert "voice model" in answer["message"]


async def test_a_session_change_is_published(client: Tui) -> None:
    await client.new()
    base = f"/api/session/{client.session}"
    await client.call("PATCH", base, {"title": "New", "metadata": {"k": [1]}}, status=204)
    rules = [{"action": "edit", "resource": "*", "effect": "deny"}, {"action": "subagent", "resource": "x", "effect": "ask"}]
    await client.call("PATCH", base, {"permissions": rules}, status=204)
    await client.call("POST", f"{base}/agent", {"agent": "plan"}, status=204)
    await client.call("POST", f"{base}/model", {"model": {"providerID": "mock", "id": "mock", "variant": "high"}}, status=204)
    await client.call("POST", f"{base}/view", {"idle": 17}, status=204)
    info = (await client.call("GET", base)).body["data"]
    assert (info["title"], info["metadata"], info["permissions"], info["agent"]) == ("New", {"k": [1]}, rules, "plan")
    assert info["time"]["viewed"] == 17
    while client.types[-1:] != ["session.viewed"]:
        await client.take_next()
    told = ["session.renamed", "session.metadata.updated", "session.permissions", "session.agent.selected"]
    assert [t for t in client.types if t in told] == told
    assert client.types.count("session.model.selected") == 1


async def test_a_fork_has_the_conversation_and_says_of_what(client: Tui) -> None:
    await client.turn("echo one")
    await client.turn("echo two")
    base = f"/api/session/{client.session}"
    users = [m for m in (await client.call("GET", f"{base}/message", order="asc")).body["data"] if m["type"] == "user"]
    fork = (await client.call("POST", f"{base}/fork", {"before": users[1]["id"]})).body["data"]
    assert fork["fork"] == {"sessionID": client.session, "boundary": {"type": "before", "messageID": users[1]["id"]}}
    told = [await client.events.next()]
    while told[-1]["data"].get("sessionID") != fork["id"]:
        told.append(await client.events.next())
    assert told[-1]["type"] == "session.forked"
    copied = (await client.call("GET", f"/api/session/{fork['id']}/message", order="asc")).body["data"]
    assert [m["text"] for m in copied if m["type"] == "user"] == ["echo one"]
    await client.call("POST", f"{base}/fork", {"before": "msg_nosuch"}, status=404)
    client.session, client.screen = fork["id"], {}
    await client.open()
    assert await client.turn("echo three") == "succeeded"
    await client.assert_matches_server()
    assert client.texts()[-1] == "three"


async def test_a_deleted_session_is_gone_for_everybody(client: Tui) -> None:
    await client.turn("echo x")
    await client.call("DELETE", f"/api/session/{client.session}", status=204)
    while client.types[-1] != "session.deleted":
        await client.take_next()
    await client.call("GET", f"/api/session/{client.session}", status=404)
    assert (await client.call("GET", "/api/session")).body["data"] == []


@pytest.mark.parametrize("scene", ["echo x", "error"])
async def test_a_list_shows_closed_sessions_like_open_ones(server: Live, scene: str) -> None:
    session = await server.session()
    await server.ask(session, scene)
    get = server.api.get
    [listed] = (await get("/api/session", status=200)).body["data"]
    assert listed["outcome"] == ("failed" if scene == "error" else "succeeded")
    opened = (await get(f"/api/session/{session}", status=200)).body["data"]
    assert {key: listed[key] for key in ("outcome", "time")} == {key: opened[key] for key in ("outcome", "time")}
    await server.api.post(f"/api/session/{session}/view", {"idle": opened["time"]["idle"]}, status=204)
    fork = (await server.api.post(f"/api/session/{session}/fork", {}, status=200)).body["data"]
    sessions = server.api.raw.server.app[SERVICES].sessions  # type: ignore[union-attr]
    loaded = (await get("/api/session", status=200)).body["data"]
    for row in loaded:
        sessions.index.find(row["id"]).state = None
    without = (await get("/api/session", status=200)).body["data"]
    assert [(i["id"], i["time"], i.get("fork")) for i in without] == [(i["id"], i["time"], i.get("fork")) for i in loaded]
    assert without[0]["fork"] == fork["fork"]


async def test_undo_in_three_steps(client: Tui) -> None:
    await client.turn("edit")
    file = client.live.directory / "mock.txt"
    written = file.read_text()
    base = f"/api/session/{client.session}"
    user = next(m for m in (await client.call("GET", f"{base}/message", order="asc")).body["data"] if m["type"] == "user")
    await client.call("DELETE", f"{base}/revert", status=204)
    shown = (await client.call("POST", f"{base}/revert/stage", {"messageID": user["id"], "files": False})).body["data"]
    assert (shown["messageID"], shown["files"]) == (user["id"], [])
    assert file.read_text() == written
    await client.call("DELETE", f"{base}/revert", status=204)
    staged = (await client.call("POST", f"{base}/revert/stage", {"messageID": user["id"]})).body["data"]
    assert [one["file"] for one in staged["files"]] == ["mock.txt"]
    assert not file.exists()
    assert (await client.call("GET", base)).body["data"]["revert"] == staged
    await client.call("DELETE", f"{base}/revert", status=204)
    assert file.read_text() == written
    await client.call("POST", f"{base}/revert/stage", {"messageID": user["id"], "files": True})
    await client.call("POST", f"{base}/revert/commit", status=204)
    left = (await client.call("GET", f"{base}/message")).body["data"]
    assert [m for m in left if m["type"] in ("user", "assistant")] == []
    missing = await client.call("POST", f"{base}/revert/stage", {"messageID": "msg_nosuch"}, status=404)
    assert missing.body["_tag"] == "MessageNotFoundError"


async def test_an_undo_that_is_staged_again_without_files_takes_back_what_the_first_one_did_to_them(client: Tui) -> None:
    await client.turn("edit")
    file = client.live.directory / "mock.txt"
    written = file.read_text()
    base = f"/api/session/{client.session}"
    user = next(m for m in (await client.call("GET", f"{base}/message", order="asc")).body["data"] if m["type"] == "user")
    await client.call("POST", f"{base}/revert/stage", {"messageID": user["id"]})
    assert not file.exists()
    await client.call("POST", f"{base}/revert/stage", {"messageID": user["id"], "files": False})
    assert file.read_text() == written
    await client.call("DELETE", f"{base}/revert", status=204)
    assert file.read_text() == written


async def test_the_diff_of_a_turn(client: Tui) -> None:
    await client.turn("edit")
    await client.turn("echo nothing")
    await client.turn("edit")
    base = f"/api/session/{client.session}"
    users = [m["id"] for m in (await client.call("GET", f"{base}/message", order="asc")).body["data"] if m["type"] == "user"]
    [newest] = (await client.call("GET", f"{base}/diff", context="0")).body["data"]
    assert (newest["file"], newest["status"], newest["additions"]) == ("mock.txt", "modified", 1)
    [first] = (await client.call("GET", f"{base}/diff", **{"from": users[0]})).body["data"]
    assert (first["status"], first["additions"]) == ("added", 1)
    [both] = (await client.call("GET", f"{base}/diff", **{"from": users[0], "to": users[2]})).body["data"]
    assert (both["status"], both["additions"]) == ("added", 2)
    assert (await client.call("GET", f"{base}/diff", **{"from": users[1]})).body["data"] == []


async def test_out_and_in_again(client: Tui) -> None:
    await client.turn("echo a secret")
    await client.turn("tool")
    base = f"/api/experimental/session/{client.session}/export"
    document = (await client.call("GET", base)).body["data"]
    hidden = (await client.call("GET", base, sanitize="true")).body["data"]
    assert [m["type"] for m in hidden["messages"]] == [m["type"] for m in document["messages"]]
    assert "secret" in str(document)
    assert "secret" not in str(hidden)
    await client.call("DELETE", f"/api/session/{client.session}", status=204)
    body = {**document, "location": {"directory": str(client.live.directory)}}
    info = (await client.call("POST", "/api/experimental/session/import", body)).body["data"]
    assert (info["id"], info["title"]) == (client.session, document["info"]["title"])
    again = (await client.call("GET", f"/api/session/{client.session}/message", order="asc", limit="200")).body["data"]

    def talk(messages: list[dict[str, Any]]) -> list[Any]:
        return [
            (m["type"], m.get("text"), [(p["type"], p.get("text"), p.get("name")) for p in m.get("content", [])])
            for m in messages
            if m["type"] in ("user", "assistant")
        ]

    assert talk(again) == talk(document["messages"])
    assert await client.turn("echo and on") == "succeeded"
    await client.call("DELETE", f"/api/session/{client.session}", status=204)
    # `opencode-shim import` sends what it is given to this route, whichever OpenCode wrote it.
    taken = (await client.live.api.post("/session/import", document, status=200)).body
    assert (taken["id"], taken["title"]) == (client.session, document["info"]["title"])
    broken = await client.call("POST", "/api/experimental/session/import", {"info": {"location": {}}, "messages": []}, status=400)
    assert broken.body["_tag"] == "InvalidRequestError"
