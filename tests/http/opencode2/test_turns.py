"""Whole turns as the TUI of 17 July ran them: what is on its screen is what the server says."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.http.opencode2.client import Tui


@pytest.mark.parametrize(
    "scene",
    [
        "echo hello there",
        "markdown",
        "think",
        "tool",
        "edit",
        "parallel",
        "failtool",
        "todo",
        "subagent",
        "background",
        "retry",
        "burst 500",
        "late",
        "unparsed",
        "image",
    ],
)
async def test_a_scene_is_shown_as_it_is(client: Tui, scene: str) -> None:
    assert await client.turn(scene) == "succeeded"
    await client.assert_matches_server()
    assert await client.turn("echo and again") == "succeeded"
    await client.assert_matches_server()
    assert client.texts()[-1] == "and again"


@pytest.mark.parametrize("scene", ["error", "crash", "exit"])
async def test_a_turn_that_fails_ends_once(client: Tui, scene: str) -> None:
    assert await client.turn(scene) == "failed"
    await client.assert_matches_server()
    assert client.types.count("session.step.failed") == 1
    assert client.types.index("session.step.failed") < client.types.index("session.execution.failed")


async def test_three_turns(client: Tui) -> None:
    for number in range(3):
        assert await client.turn(f"echo number {number}") == "succeeded"
    await client.assert_matches_server()
    assert client.texts() == [f"number {number}" for number in range(3)]


def reply_to_permission(decision: str, **more: str) -> Any:
    async def act(client: Tui, event: dict[str, Any]) -> None:
        if event["type"] == client.name("permission.asked"):
            request = event["data"]
            listed = (await client.call("GET", f"/api/session/{client.session}/permission")).body["data"]
            assert [one["id"] for one in listed] == [request["id"]]
            assert client.session in (await client.call("GET", "/api/session/active")).body["data"]
            await client.reply(request, decision, **more)
            path = f"/api/session/{client.session}/permission/{request['id']}/reply"
            again = await client.call("POST", path, {client.name("decision"): decision}, status=404)
            assert again.body["_tag"] == "PermissionNotFoundError"

    return act


@pytest.mark.parametrize(("decision", "status"), [("once", "completed"), ("always", "completed"), ("reject", "error")])
async def test_a_permission(client: Tui, decision: str, status: str) -> None:
    await client.turn("permission", reply_to_permission(decision))
    await client.assert_matches_server()
    assert client.tools() == [("shell", status)]
    assert client.types.count(client.name("permission.replied")) == 1


async def test_always_is_not_asked_again_and_can_be_taken_back(client: Tui) -> None:
    """By the rules; whether the agent asks again is its own affair (the mock does not)."""
    await client.turn("permission", reply_to_permission("always"))
    [saved] = (await client.call("GET", "/api/permission/saved")).body["data"]
    assert (saved["action"], saved["resource"]) == ("shell", "git push *")
    await client.turn("permission")
    assert client.types.count(client.name("permission.asked")) == 1
    await client.call("DELETE", f"/api/permission/saved/{saved['id']}", status=204)
    assert (await client.call("GET", "/api/permission/saved")).body["data"] == []


async def test_a_lasting_grant_can_be_changed(client: Tui) -> None:
    """A changed rule allows what it says now, and no more what it said."""
    await client.turn("permission", reply_to_permission("always"))
    [saved] = (await client.call("GET", "/api/permission/saved")).body["data"]
    path = f"/api/permission/saved/{saved['id']}"
    changed = (await client.call("PATCH", path, {"resource": "git fetch *"})).body["data"]
    assert {**changed, "time": None} == {**saved, "resource": "git fetch *", "time": None}
    assert changed["time"]["updated"] >= changed["time"]["created"] == saved["time"]["created"]
    assert (await client.call("GET", "/api/permission/saved")).body["data"] == [changed]
    ask = f"/api/session/{client.session}/permission"
    effects = [
        (await client.call("POST", ask, {"action": "shell", "resources": [line]})).body["data"]["effect"]
        for line in ("git fetch origin", "git push origin")
    ]
    assert effects == ["allow", "ask"]
    moved = (await client.call("PATCH", path, {"action": "subagent"})).body["data"]
    assert (moved["action"], moved["resource"]) == ("subagent", "git fetch *")
    unknown = await client.call("PATCH", "/api/permission/saved/psv_none", {"resource": "x"}, status=404)
    assert (unknown.body["_tag"], unknown.body["id"]) == ("PermissionSavedNotFoundError", "psv_none")
    assert (await client.call("PATCH", path, {"resource": ""}, status=400)).body["field"] == "resource"


async def test_a_form(client: Tui) -> None:
    base = "/api/session/{}/form"

    async def act(client: Tui, event: dict[str, Any]) -> None:
        if event["type"] != "form.created":
            return
        form = event["data"]["form"]
        path = f"{base.format(client.session)}/{form['id']}"
        assert (await client.call("GET", base.format(client.session))).body["data"] == [form]
        wrong = await client.call("POST", f"{path}/reply", {"answer": {"q0": 17}}, status=400)
        assert wrong.body == {
            "_tag": "FormInvalidAnswerError",
            "id": form["id"],
            "message": "Expected string for form field: q0",
        }
        answer = {}
        for one in form["fields"]:
            value = one["options"][0]["value"]
            answer[one["key"]] = [value] if one["type"] == "multiselect" else value
        await client.call("POST", f"{path}/reply", {"answer": answer}, status=204)
        late = await client.call("POST", f"{path}/reply", {"answer": answer}, status=409)
        assert late.body["_tag"] == "FormAlreadySettledError"
        state = (await client.call("GET", path)).body["data"]["state"]
        assert state == {"status": "answered", "answer": answer}

    assert await client.turn("question", act) == "succeeded"
    await client.assert_matches_server()
    assert client.types.count("form.created") == 0  # it has no sessionID beside its form
    assert (await client.call("GET", base.format(client.session))).body["data"] == []


async def test_a_form_that_is_cancelled(client: Tui) -> None:
    async def act(client: Tui, event: dict[str, Any]) -> None:
        if event["type"] == "form.created":
            path = f"/api/session/{client.session}/form/{event['data']['form']['id']}"
            await client.call("DELETE", path, status=204)

    await client.turn("question", act)
    await client.assert_matches_server()


async def test_an_interrupt(client: Tui) -> None:
    asked = asyncio.Event()

    async def act(client: Tui, event: dict[str, Any]) -> None:
        if event["type"] == "session.text.delta" and not asked.is_set():
            asked.set()
            await client.interrupt()

    assert await client.turn("hang", act) == "interrupted"
    await client.assert_matches_server()
    assert "session.text.ended" in client.types
    idle = await client.call("POST", f"/api/session/{client.session}/interrupt", status=200)
    assert idle.body == {"interrupted": False}


async def test_active_and_the_outcome_agree_at_every_moment(client: Tui) -> None:
    """A turn has been asked for before the first event is read, so there is an outcome whenever nothing runs."""

    async def runs() -> bool:
        return client.session in (await client.call("GET", "/api/session/active")).body["data"]

    async def act(client: Tui, event: dict[str, Any]) -> None:
        if event["data"].get("sessionID") != client.session:
            return
        before = await runs()
        info = (await client.call("GET", f"/api/session/{client.session}")).body["data"]
        listed = (await client.call("GET", "/api/session")).body["data"][0]
        if before == await runs() and info == listed:
            assert ("outcome" in info) == (not before)
            checked.append(before)

    checked: list[bool] = []
    for scene in ("tool", "error", "echo x"):
        await client.turn(scene, act)
    await client.assert_matches_server()
    assert len(checked) > 10
