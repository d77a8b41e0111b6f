"""Forms that a client makes: told to all, answered once, validated by their fields."""

from __future__ import annotations

from typing import Any

from shim.faces.opencode2.forms import MAX_OPEN
from tests.http.opencode2.client import Tui
from tests.support.live import live

FIELDS = [
    {"key": "name", "type": "string", "title": "Name", "required": True, "maxLength": 10},
    {"key": "age", "type": "integer", "minimum": 0},
    {"key": "colours", "type": "multiselect", "options": [{"value": "r", "label": "Red"}], "custom": False},
]


async def create(client: Tui, session: str = "", status: int = 200, **more: Any) -> Any:
    body = {"title": "Who?", "fields": FIELDS, **more}
    return (await client.call("POST", f"/api/session/{session or client.session}/form", body, status=status)).body


async def next_event(client: Tui, type_: str) -> dict[str, Any]:
    while (event := await client.events.next())["type"] != type_:
        pass
    return event["data"]


async def test_a_form_is_created_published_listed_and_answered(client: Tui) -> None:
    await client.new()
    form = (await create(client, metadata={"kind": "mine"}))["data"]
    assert form["fields"] == FIELDS
    assert (await next_event(client, "form.created"))["form"] == form
    base = f"/api/session/{client.session}/form"
    assert (await client.call("GET", base)).body["data"] == [form]
    place = {"location[directory]": str(client.live.directory)}
    listed = await client.call("GET", "/api/form", **place)
    assert listed.body["data"] == [form]
    assert client.session not in (await client.call("GET", "/api/session/active")).body["data"], "nothing runs"
    wrong = await client.call("POST", f"{base}/{form['id']}/reply", {"answer": {"name": "x" * 11}}, status=400)
    assert wrong.body["_tag"] == "FormInvalidAnswerError"
    answer = {"name": "Ann", "age": 7, "colours": ["r"]}
    await client.call("POST", f"{base}/{form['id']}/reply", {"answer": answer}, status=204)
    replied = await next_event(client, "form.replied")
    assert (replied["id"], replied["sessionID"], replied["answer"]) == (form["id"], client.session, answer)
    again = await client.call("POST", f"{base}/{form['id']}/reply", {"answer": answer}, status=409)
    assert again.body["_tag"] == "FormAlreadySettledError"
    assert (await client.call("GET", base)).body["data"] == []


async def test_cancelled_with_the_reason(client: Tui) -> None:
    await client.new()
    form = (await create(client, id="frm_mine"))["data"]
    assert form["id"] == "frm_mine"
    assert (await create(client, id="frm_mine", status=409))["_tag"] == "ConflictError"
    path = f"/api/session/{client.session}/form/frm_mine"
    assert (await client.call("GET", path)).body["data"]["state"] == {"status": "pending"}
    await client.call("DELETE", path, status=204, message="not now")
    assert (await next_event(client, "form.cancelled"))["id"] == "frm_mine"
    assert (await client.call("GET", path)).body["data"]["state"] == {"status": "cancelled", "message": "not now"}
    await client.call("DELETE", path, status=409)


async def test_a_global_form_belongs_to_no_session(client: Tui) -> None:
    form = (await create(client, "global"))["data"]
    assert form["sessionID"] == "global"
    assert (await client.call("GET", "/api/session/global/form")).body["data"] == [form]
    await client.call("POST", f"/api/session/global/form/{form['id']}/reply", {"answer": {"name": "Ann"}}, status=204)
    detail = (await client.call("GET", f"/api/session/global/form/{form['id']}")).body["data"]
    assert detail["state"] == {"status": "answered", "answer": {"name": "Ann"}}
    missing = await create(client, "ses_none", status=404)
    assert missing["_tag"] == "SessionNotFoundError"


async def test_beside_an_agents_question(client: Tui) -> None:
    await client.new()
    await client.prompt("question")
    asked = (await next_event(client, "form.created"))["form"]
    made = (await create(client))["data"]
    assert [one["id"] for one in (await client.call("GET", f"/api/session/{client.session}/form")).body["data"]] == [
        asked["id"],
        made["id"],
    ]
    assert (await create(client, id=asked["id"], status=409))["_tag"] == "ConflictError"
    await client.call("DELETE", f"/api/session/{client.session}/form/{asked['id']}", status=204)
    assert [one["id"] for one in (await client.call("GET", f"/api/session/{client.session}/form")).body["data"]] == [made["id"]]
    await client.interrupt()


async def test_clients_that_know_only_questions_are_not_troubled(tmp_path: Any) -> None:
    async with live(tmp_path) as server, server.api.stream("/api/event", params={"dialect": "preview"}) as events:
        session = await server.session()
        body = {"title": "Who?", "fields": FIELDS, "metadata": {"kind": "question"}}
        await server.api.post(f"/api/session/{session}/form", body, status=200)
        await server.prompt(session, "echo on")
        while not (await events.next())["type"].endswith(".admitted"):
            pass


async def test_open_forms_are_limited(client: Tui) -> None:
    await client.new()
    for _ in range(MAX_OPEN):
        await create(client)
    async with client.live.api.raw.post(
        f"/api/session/{client.session}/form", json={"title": "Who?", "fields": FIELDS}
    ) as answer:
        assert answer.status == 429
