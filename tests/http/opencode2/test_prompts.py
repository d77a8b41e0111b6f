"""Prompts over OpenCode 2: accepted once, queued in the inbox, dispatched in order, withdrawn."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

from tests.http.opencode2.client import Tui

ID = "msg_01test0000000000000000000001"
PNG = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")


async def inbox(client: Tui) -> list[dict[str, Any]]:
    return (await client.call("GET", f"/api/session/{client.session}/{client.name('inbox')}")).body["data"]


async def test_the_same_prompt_twice_is_one_prompt(client: Tui) -> None:
    await client.new()
    first = await client.prompt("echo once", id=ID)
    assert first["id"] == ID
    again = await client.prompt("echo once", id=ID)
    assert {k: v for k, v in again.items() if k not in ("time", "timeCreated")} == {
        k: v for k, v in first.items() if k not in ("time", "timeCreated")
    }
    path = f"/api/session/{client.session}/prompt"
    other = await client.call("POST", path, {"text": "echo twice", "id": ID}, status=409)
    assert other.body == {
        "_tag": "ConflictError",
        "message": f"Prompt message ID conflicts with an existing durable record: {ID}",
        "resource": ID,
    }
    await client.end()
    await client.assert_matches_server()
    await client.prompt("echo once", id=ID)
    assert client.texts() == ["once"]


async def test_a_waiting_prompt_has_no_number_of_the_preview(client: Tui) -> None:
    await client.turn("echo one")
    waiting = await client.prompt("echo later", resume=False)
    [listed] = await inbox(client)
    assert listed == waiting
    assert "admittedSeq" not in waiting


async def test_two_at_the_same_moment_are_one(client: Tui) -> None:
    await client.new()
    answers = await asyncio.gather(*(client.prompt("echo once", id=ID) for _ in range(5)))
    assert {one["id"] for one in answers} == {ID}
    await client.end()
    await client.assert_matches_server()
    assert client.texts() == ["once"]


async def test_a_prompt_that_is_not_to_run_waits(client: Tui) -> None:
    await client.new()
    waiting = await client.prompt("echo later", resume=False)
    assert [one["id"] for one in await inbox(client)] == [waiting["id"]]
    assert client.session not in (await client.call("GET", "/api/session/active")).body["data"]
    assert (await client.call("GET", f"/api/session/{client.session}/message")).body["data"] == []
    await client.call("POST", f"/api/session/{client.session}/resume", status=204)
    await client.end()
    await client.assert_matches_server()
    assert client.texts() == ["later"]
    assert await inbox(client) == []


async def test_a_prompt_that_waits_goes_along_with_the_next(client: Tui) -> None:
    await client.new()
    waiting = await client.prompt("remember this", resume=False)
    await client.turn("echo now")
    await client.assert_matches_server()
    assert await inbox(client) == []
    assert next(iter(client.screen)) == waiting["id"]


async def test_steered_prompts_go_before_queued_ones_in_one_execution(client: Tui) -> None:
    await client.new()
    await client.prompt("slow 3")
    await client.prompt("echo queued", delivery="queue")
    await client.prompt("echo steered")
    await client.prompt("echo steered too", delivery="steer")
    waiting = [(one["delivery"], one[client.name("payload")]["text"]) for one in await inbox(client)]
    assert ("queue", "echo queued") in waiting
    assert await client.end() == "succeeded"
    await client.assert_matches_server()
    assert client.texts()[-3:] == ["steered", "steered too", "queued"]
    assert client.starts == 1


async def test_the_order_is_changed_while_they_wait(client: Tui) -> None:
    await client.new()
    await client.prompt("slow 3")
    first = await client.prompt("echo a", delivery="queue")
    await client.prompt("echo b", delivery="queue")
    last = await client.prompt("echo c", delivery="queue")
    base = f"/api/session/{client.session}/inbox"
    await client.call("PATCH", f"{base}/{last['id']}", {"delivery": "steer"}, status=204)
    assert next(one for one in await inbox(client) if one["id"] == last["id"])["delivery"] == "steer"
    await client.call("DELETE", f"{base}/{first['id']}", status=204)
    await client.call("DELETE", f"{base}/{first['id']}", status=204)
    assert first["id"] not in [one["id"] for one in await inbox(client)]
    await client.end()
    await client.assert_matches_server()
    assert client.texts()[-2:] == ["c", "b"]
    assert client.types.count("session.inbox.cancelled") == 1
    assert client.types.count("session.inbox.delivery.changed") == 1
    late = await client.call("PATCH", f"{base}/{last['id']}", {"delivery": "queue"}, status=409)
    assert late.body["_tag"] == "ConflictError"


async def test_an_interrupt_parks_what_waits_and_resume_goes_on(client: Tui) -> None:
    await client.new()
    await client.prompt("hang")
    parked = await client.prompt("echo parked")
    while client.types[-1:] != ["session.text.delta"]:
        await client.take_next()
    answer = await client.call("POST", f"/api/session/{client.session}/interrupt")
    assert answer.body == {"interrupted": True}
    assert await client.end() == "interrupted"
    assert [one["id"] for one in await inbox(client)] == [parked["id"]]
    answer = await client.call("POST", f"/api/session/{client.session}/interrupt", resume="true")
    assert answer.body == {"interrupted": False}
    assert await client.end() == "succeeded"
    await client.assert_matches_server()
    assert client.texts()[-1] == "parked"


async def test_files_and_agents_go_along(client: Tui) -> None:
    (client.live.directory / "notes.txt").write_text("one\ntwo\n")
    (client.live.directory / "dot.bin").write_bytes(PNG)
    await client.new()
    uri = (client.live.directory / "notes.txt").as_uri()
    files = [
        {"uri": uri, "name": "notes.txt"},
        {"uri": (client.live.directory / "dot.bin").as_uri()},
        {"uri": "data:image/png;base64," + base64.b64encode(PNG).decode(), "name": "dot.png"},
    ]
    mention = {"start": 0, "end": 8, "text": "@general"}
    made = await client.prompt("echo see", files=files, agents=[{"name": "general", "mention": mention}])
    payload = made[client.name("payload")]
    assert [(f["mime"], f["source"], base64.b64decode(f["data"])) for f in payload["files"]] == [
        ("text/plain", {"type": "uri", "uri": uri}, b"one\ntwo\n"),
        ("image/png", {"type": "uri", "uri": files[1]["uri"]}, PNG),
        ("image/png", {"type": "inline"}, PNG),
    ]
    assert payload["agents"] == [{"name": "general", "mention": mention}]
    await client.end()
    page = (await client.call("GET", f"/api/session/{client.session}/message", order="asc")).body["data"]
    user = next(m for m in page if m["type"] == "user")
    assert (user["text"], user["files"], user["agents"]) == ("echo see", payload["files"], payload["agents"])
    path = f"/api/session/{client.session}/prompt"
    for uri in ("https://example.org/x", "file:///no/such/file", "data:;base64,%%%"):
        bad = await client.call("POST", path, {"text": "x", "files": [{"uri": uri}]}, status=400)
        assert bad.body["_tag"] == "InvalidRequestError"
    skill = await client.call("POST", path, {"text": "x", "skills": [{"id": "demo"}]}, status=400)
    assert "demo" in skill.body["message"]


async def test_malformed_prompts_are_refused(client: Tui) -> None:
    await client.new()
    path = f"/api/session/{client.session}/prompt"
    assert (await client.call("POST", path, {}, status=400)).body["message"] == 'Missing key\n  at ["text"]'
    soon = await client.call("POST", path, {"text": "x", "delivery": "soon"}, status=400)
    assert soon.body["message"] == 'Expected "steer" | "queue", got "soon"\n  at ["delivery"]'
    gone = await client.call("POST", "/api/session/ses_nobody/prompt", {"text": "x"}, status=404)
    assert gone.body["_tag"] == "SessionNotFoundError"
    assert await inbox(client) == []


async def test_a_text_of_a_program(client: Tui) -> None:
    await client.new()
    body = {"text": "echo a note", "description": "note", "metadata": {"by": "test"}}
    made = (await client.call("POST", f"/api/session/{client.session}/synthetic", body)).body["data"]
    assert made["type"] == "synthetic"
    assert made[client.name("payload")] == body
    await client.end()
    page = (await client.call("GET", f"/api/session/{client.session}/message", order="asc")).body["data"]
    shown = next(m for m in page if m["id"] == made["id"])
    assert (shown["type"], shown["text"], shown["description"]) == ("synthetic", "echo a note", "note")


async def test_a_command_of_the_project(client: Tui) -> None:
    folder = client.live.directory / ".opencode" / "command"
    folder.mkdir(parents=True)
    (folder / "hello.md").write_text("echo Hello $1")
    await client.new()
    path = f"/api/session/{client.session}/command"
    await client.call("POST", path, {"name": "hello", "text": "world"}, status=204)
    await client.end()
    await client.assert_matches_server()
    assert client.texts() == ["Hello world"]
    unknown = await client.call("POST", path, {"name": "nosuch", "text": ""}, status=404)
    assert (unknown.body["_tag"], unknown.body["command"]) == ("CommandNotFoundError", "nosuch")


async def test_a_command_of_the_person(client: Tui) -> None:
    await client.new()
    await client.call("POST", f"/api/session/{client.session}/shell", {"command": "echo from the user"}, status=204)
    page = (await client.call("GET", f"/api/session/{client.session}/message")).body["data"]
    shell = next(m for m in page if m["type"] == "shell")
    assert (shell["command"], shell["output"]["output"].strip()) == ("echo from the user", "from the user")
    await client.end()
    assert client.types.count("session.shell.started") == client.types.count("session.shell.ended") == 1
    answer = await client.call("POST", f"/api/experimental/session/{client.session}/skill", {"id": "demo"}, status=404)
    assert answer.body["_tag"] == "SkillNotFoundError"


async def test_waiting(client: Tui) -> None:
    await client.new()
    path = f"/api/experimental/session/{client.session}/wait"
    await client.call("POST", path, status=204)
    await client.prompt("slow 2")
    await client.call("POST", path, status=204)
    assert client.session not in (await client.call("GET", "/api/session/active")).body["data"]


async def test_a_compaction(client: Tui) -> None:
    await client.turn("echo first")
    made = (await client.call("POST", f"/api/session/{client.session}/compact", {})).body["data"]
    assert made["type"] == "compaction"
    assert await client.end() == "succeeded"
    page = (await client.call("GET", f"/api/session/{client.session}/context")).body["data"]
    assert (page[0]["type"], page[0]["id"]) == ("compaction", made["id"])
