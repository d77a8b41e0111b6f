"""Which client gets which dialect (docs/clients.md has the table), and whole conversations of the preview's clients."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from aiohttp.test_utils import make_mocked_request

from shim.faces.opencode2.negotiation import dialect_of
from shim.lib.errors import InvalidRequest
from tests.support.api import EventStream
from tests.support.live import TURN_S, Live
from tests.support.oracle import check_preview_event, check_response

Wire = dict[str, Any]
TUI_1 = {"User-Agent": "opencode/1.18.33"}
BROWSER = {"User-Agent": "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36"}
ANY = {"User-Agent": "node"}
DIRECTORY = {"x-opencode-directory": "%2Fa"}
TWICE = "?directory=%2Fa&location%5Bdirectory%5D=%2Fa"
SESSION = "/api/session/ses_1"


def dialect(server: Live, method: str, path: str, headers: dict[str, str]) -> str:
    """The dialect of one request."""
    app = server.api.raw.server.app  # type: ignore[union-attr]
    return dialect_of(make_mocked_request(method, path, headers=headers, app=app).clone(remote="127.0.0.1")).name


@pytest.mark.parametrize(
    ("method", "path", "headers", "wanted"),
    [
        ("GET", "/api/session", {}, "v2_0"),
        ("GET", "/api/session", {"User-Agent": "opencode/latest/2.0.26/cli"}, "v2_0"),
        ("GET", "/api/event", BROWSER, "v2_0"),
        ("GET", "/api/session", TUI_1, "preview"),
        ("GET", "/api/session", {"User-Agent": "lildax/1.18.18"}, "preview"),
        # the SDK of 1.19, as it names its directory
        ("GET", f"/api/event{TWICE}", ANY, "preview"),
        ("POST", f"{SESSION}/prompt", {**ANY, **DIRECTORY}, "preview"),
        # which others do too, elsewhere
        ("GET", "/api/session?directory=%2Fa", ANY, "v2_0"),
        ("GET", "/api/model?location%5Bdirectory%5D=%2Fa", ANY, "v2_0"),
        ("POST", "/api/pty", {**ANY, **DIRECTORY}, "v2_0"),
        ("POST", "/api/session/global/form/frm_1/reply", {**ANY, **DIRECTORY}, "v2_0"),
        # who says it
        ("GET", "/api/session?dialect=preview", ANY, "preview"),
        ("GET", "/api/session", {**TUI_1, "x-opencode-dialect": "v2_0"}, "v2_0"),
    ],
)
async def test_each_client_gets_its_dialect(server: Live, method: str, path: str, headers: dict[str, str], wanted: str) -> None:
    assert dialect(server, method, path, headers) == wanted


async def test_an_unknown_dialect_is_refused_with_the_list_of_names(server: Live) -> None:
    with pytest.raises(InvalidRequest, match=r"Unknown dialect 'X'. Give one of v2_0, preview, or leave it out."):
        dialect(server, "GET", "/api/session?dialect=X", {})
    async with server.api.raw.get("/api/session", params={"dialect": "v2_1"}) as answer:
        assert answer.status == 400
        assert "v2_0, preview" in await answer.text()


async def test_the_home_page_of_the_web_ui_gets_its_five_thousand(server: Live) -> None:
    """Before it knows which protocol it speaks."""
    session = await server.session()
    params = {"limit": "5000", "order": "desc"}
    async with server.api.raw.get("/api/session", params=params, headers=BROWSER) as answer:
        assert [one["id"] for one in (await answer.json())["data"]] == [session]


# --- the preview ------------------------------------------------------------------------------------------------


class Preview:
    """A client of `preview`; each answer and event is checked against OpenCode's document."""

    def __init__(self, server: Live, events: EventStream) -> None:
        self.server = server
        self.events = events

    async def call(self, operation: str, method: str, path: str, body: Any = None, *, status: int = 200) -> Any:
        """The answer of one of the document's operations."""
        async with self.server.api.raw.request(method, path, json=body, headers=TUI_1) as answer:
            said = await answer.json() if answer.status != 204 else None
            assert answer.status == status, said
        check_response(operation, status, said)
        return None if said is None else said["data"]

    async def begin(self, text: str) -> str:
        """A new session with a prompt."""
        location = {"directory": str(self.server.directory)}
        session = (await self.call("v2.session.create", "POST", "/api/session", {"location": location}))["id"]
        await self.call("v2.session.prompt", "POST", f"/api/session/{session}/prompt", {"prompt": {"text": text}})
        return session

    async def until(self, kind: str) -> Wire:
        """The data of the first event of a type from now on."""
        async with asyncio.timeout(TURN_S):
            while True:
                event = await self.events.next()
                check_preview_event(event)
                if event["type"] == kind:
                    return event["data"]

    async def over(self, session: str) -> list[Wire]:
        """The messages when nothing runs any more, oldest first."""
        await self.call("v2.session.wait", "POST", f"/api/session/{session}/wait", status=204)
        return await self.call("v2.session.messages", "GET", f"/api/session/{session}/message?order=asc")


@pytest.fixture
async def preview(server: Live) -> Any:
    async with server.api.stream("/api/event", params={"dialect": "preview"}) as events:
        assert (await events.next())["type"] == "server.connected"
        yield Preview(server, events)


async def test_a_turn_of_the_preview(preview: Preview) -> None:
    session = await preview.begin("echo hello")
    admitted = await preview.until("session.next.prompt.admitted")
    prompted = await preview.until("session.next.prompted")
    assert {**admitted, "timestamp": 0} == {**prompted, "timestamp": 0}
    assert (await preview.until("session.next.text.ended"))["text"] == "hello"
    assert (await preview.until("session.next.step.ended"))["finish"] == "stop"
    user, said = [one for one in await preview.over(session) if one["type"] in ("user", "assistant")]
    assert (user["type"], user["text"]) == ("user", "echo hello")
    assert said["content"] == [{"type": "text", "id": "text-0", "text": "hello"}]


async def test_a_permission_of_the_preview(preview: Preview) -> None:
    session = await preview.begin("permission")
    asked = await preview.until("permission.v2.asked")
    assert asked["action"] == "bash"
    [listed] = await preview.call("v2.session.permission.list", "GET", f"/api/session/{session}/permission")
    assert listed == asked
    path = f"/api/session/{session}/permission/{asked['id']}/reply"
    await preview.call("v2.session.permission.reply", "POST", path, {"reply": "once"}, status=204)
    assert (await preview.until("permission.v2.replied"))["reply"] == "once"
    messages = await preview.over(session)
    [tool] = [part for one in messages if one["type"] == "assistant" for part in one["content"] if part["type"] == "tool"]
    assert (tool["name"], tool["state"]["status"]) == ("bash", "completed")


async def test_questions_of_the_preview_are_no_forms(preview: Preview) -> None:
    session = await preview.begin("question")
    asked = await preview.until("question.v2.asked")
    base = f"/api/session/{session}/question"
    assert [one["id"] for one in await preview.call("v2.session.question.list", "GET", base)] == [asked["id"]]
    answers = [[question["options"][0]["label"]] for question in asked["questions"]]
    await preview.call("v2.session.question.reply", "POST", f"{base}/{asked['id']}/reply", {"answers": answers}, status=204)
    assert (await preview.until("question.v2.replied"))["answers"] == answers
    async with preview.server.api.raw.post(f"{base}/{asked['id']}/reject", headers=TUI_1) as again:
        assert (again.status, (await again.json())["_tag"]) == (404, "QuestionNotFoundError")
    await preview.over(session)


async def test_clients_that_know_forms_are_not_asked_twice(preview: Preview, server: Live) -> None:
    session = await preview.begin("question")
    asked = await preview.until("question.v2.asked")
    for path, wanted in (
        (f"/api/session/{session}/question", 0),
        ("/api/question/request", 0),
        (f"/api/session/{session}/form", 1),
    ):
        async with server.api.raw.get(path, params={"location[directory]": str(server.directory)}) as answer:
            assert len((await answer.json())["data"]) == wanted, path
    path = f"/api/session/{session}/question/{asked['id']}/reject"
    await preview.call("v2.session.question.reject", "POST", path, status=204)
    assert (await preview.until("question.v2.rejected"))["requestID"] == asked["id"]


async def test_a_prompt_in_the_previews_form_says_who_its_client_is(server: Live) -> None:
    session = await server.session()
    async with server.api.raw.post(f"/api/session/{session}/prompt", json={"prompt": {"text": "echo x"}}, headers=ANY) as answer:
        said = (await answer.json())["data"]
    check_response("v2.session.prompt", 200, {"data": said})
    assert said["prompt"] == {"text": "echo x"}


async def test_a_sessions_events_can_be_read_later(preview: Preview, server: Live) -> None:
    session = await preview.begin("echo hello")
    await preview.over(session)
    base = f"/api/session/{session}"
    async with server.api.raw.get(f"{base}/history", params={"limit": "1000"}) as answer:
        whole = await answer.json()
    check_response("v2.session.history", 200, whole)
    kinds = [event["type"] for event in whole["data"]]
    assert kinds[0] == "session.next.prompt.admitted"
    assert "session.next.prompted" in kinds
    assert (kinds[-1], whole["hasMore"]) == ("session.next.step.ended", False)
    second = whole["data"][1]["durable"]["seq"]
    async with server.api.raw.get(f"{base}/history", params={"limit": "1", "after": str(second)}) as answer:
        assert await answer.json() == {"data": whole["data"][2:3], "hasMore": True}
    async with asyncio.timeout(TURN_S), server.api.raw.get(f"{base}/event", params={"after": str(second)}) as answer:
        told: list[Wire] = []
        while len(told) < len(whole["data"]) - 2:
            line = (await answer.content.readline()).decode()
            told += [json.loads(line.removeprefix("data:"))] if line.startswith("data:") else []
    assert told == whole["data"][2:]
