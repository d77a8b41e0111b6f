"""Two servers on one data directory: what the second one answers about a session that the first one runs (docs/adr/0027)."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from shim.faces.opencode1._generated.operations import OPERATIONS
from shim.faces.opencode2._generated.operations import OPERATIONS as OPENCODE2_OPERATIONS
from shim.faces.opencode2.endpoint import PREVIEW
from shim.store.sqlite import SqliteStore
from tests.http.test_acp import backend_of
from tests.support.acp import allow, editor
from tests.support.live import Live, live

READ = ("GET", "HEAD")
NOT_SERVED = 501
CHANGES_NOTHING = {"/session/{sessionID}/fork", "/api/session/{sessionID}/fork"}
"""A fork is a session of the server that makes it."""


@pytest.fixture
async def servers(tmp_path: Path) -> AsyncIterator[tuple[Live, Live]]:
    """The first runs the sessions; the second shows them."""
    stores = [SqliteStore(tmp_path / "data" / "shim.db") for _ in range(2)]
    async with live(tmp_path, store=stores[0]) as first, live(tmp_path, store=stores[1]) as second:
        yield first, second


async def look(first: Live, second: Live) -> None:
    """Let the second server see what the first one has stored."""
    await backend_of(first).services.store.flush()
    await backend_of(second).services.sessions.others.look()


async def ask(first: Live, second: Live, scene: str) -> tuple[str, str]:
    """A session of the first server that waits for an answer, and the id of what it asks, as the second one lists it."""
    session = await first.session()
    async with first.api.stream("/event") as events:
        await first.prompt(session, scene)
        await events.until(f"{scene}.asked")
    await look(first, second)
    (request,) = [row for row in (await second.api.get(f"/{scene}", status=200)).body if row["sessionID"] == session]
    return session, str(request["id"])


def change_routes() -> set[tuple[str, str]]:
    """Method and path of each operation that changes a session or answers it."""
    rows = {**OPERATIONS, **{f"2 {name}": row for name, row in (PREVIEW | OPENCODE2_OPERATIONS).items()}}
    about = ("{sessionID}", "{requestID}", "{permissionID}", "{formID}")
    routes = {(row.method, row.path) for row in rows.values() if any(name in row.path for name in about)}
    return {(method, path) for method, path in routes if method not in READ and path not in CHANGES_NOTHING}


async def test_a_change_says_which_server_has_the_session(servers: tuple[Live, Live]) -> None:
    """Whatever its body is: the server that runs the session decides about that."""
    first, second = servers
    permission = await ask(first, second, "permission")
    question = await ask(first, second, "question")
    for method, path in sorted(change_routes()):
        session, request = question if re.search("question|form", path) else permission
        names = {"sessionID": session, "requestID": request, "permissionID": request, "formID": request.replace("que_", "frm_")}
        at = re.sub(r"\{(\w+)\}", lambda match, names=names: names.get(match[1], "msg_1"), path)
        async with second.api.raw.request(method, at, json={}) as response:
            body: Any = await response.json()
        if response.status != NOT_SERVED:
            assert (response.status, body.get("_tag"), body.get("sessionID")) == (409, "SessionBusyError", session), (path, body)
            assert "in another opencode-shim" in body["message"], path
    await _assert_open(first, permission[1], question[1])


@pytest.mark.parametrize(
    ("scene", "path", "body"),
    [
        ("permission", "/v1/sessions/{session}/permissions/{request}/reply", {"reply": "once"}),
        ("question", "/v1/sessions/{session}/questions/{request}/reply", {"answers": [["Red"]]}),
        ("question", "/v1/sessions/{session}/questions/{request}/reject", {}),
        ("permission", "/v1/sessions/{session}/terminate", {}),
        ("permission", "/v1/sessions/{session}/messages", {"message": "echo"}),
        ("permission", "/v1/sessions/{session}/messages/stream", {"message": "echo"}),
        ("permission", "/v1/x-sessions/{session}/mcp", {"mcp": {}}),
    ],
)
async def test_a_change_by_v1_says_which_server_has_the_session(
    servers: tuple[Live, Live], scene: str, path: str, body: dict[str, Any]
) -> None:
    first, second = servers
    session, request = await ask(first, second, scene)
    async with second.api.raw.post(path.format(session=session, request=request), json=body) as response:
        answer: Any = await response.json()
    assert (response.status, answer["sessionID"]) == (409, session)
    assert "in another opencode-shim" in answer["detail"]
    assert [row["id"] for row in (await first.api.get(f"/{scene}", status=200)).body] == [request]


async def test_an_answer_is_refused_without_a_list_of_requests_before_it(servers: tuple[Live, Live]) -> None:
    first, second = servers
    session = await first.session()
    async with first.api.stream("/event") as events:
        await first.prompt(session, "permission")
        request = (await events.until("permission.asked"))[-1]["properties"]["id"]
    await look(first, second)
    answer = (await second.api.post(f"/permission/{request}/reply", {"reply": "once"}, status=409)).body
    assert answer["sessionID"] == session


async def test_a_person_whose_client_shows_no_answers_sees_which_server_has_the_session(servers: tuple[Live, Live]) -> None:
    first, second = servers
    session, request = await ask(first, second, "permission")
    async with second.api.stream("/event") as events:
        await second.api.post(f"/permission/{request}/reply", {"reply": "once"}, status=409)
        error = (await events.until("session.error"))[-1]["properties"]
    assert error["sessionID"] == session
    assert "in another opencode-shim" in error["error"]["data"]["message"]


async def test_a_late_answer_is_no_error_of_the_session(servers: tuple[Live, Live]) -> None:
    """Two clients of one server answer: the second one is too late, and nobody is told of an error."""
    first, second = servers
    session, request = await ask(first, second, "permission")
    async with first.api.stream("/event") as events:
        for status in (200, 404):
            await first.api.post(f"/permission/{request}/reply", {"reply": "once"}, status=status)
        seen = await events.until("session.idle")
        assert "session.error" not in [event["type"] for event in seen]
    assert session not in (await first.api.get("/session/status", status=200)).body


async def test_an_editor_shows_that_its_answer_did_not_arrive(servers: tuple[Live, Live]) -> None:
    first, second = servers
    session, request = await ask(first, second, "permission")
    method = "session/request_permission"
    async with editor(second, notices=True) as client:
        await client.load(session)
        asked = next((row for row in client.seen if row.get("method") == method), None) or await client.request(method)
        await client.answer_with(asked["id"], allow(asked))
        notice = await client.update("notice")
    assert "in another opencode-shim" in notice["title"]
    assert [row["id"] for row in (await first.api.get("/permission", status=200)).body] == [request]


async def _assert_open(first: Live, *requests: str) -> None:
    rows = [*(await first.api.get("/permission", status=200)).body, *(await first.api.get("/question", status=200)).body]
    assert sorted(row["id"] for row in rows) == sorted(requests)
