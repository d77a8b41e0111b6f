"""An ask that is answered by link, without the password: by a page for a phone, and by the buttons of ntfy."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientResponse, ClientSession, web
from aiohttp.test_utils import TestServer

from shim.telemetry import reply_links
from tests.support.live import Live, live

pytestmark = pytest.mark.asyncio
RECIPE = Path(__file__).resolve().parents[2] / "docs" / "examples" / "ntfy.py"
WAIT_S = 20.0
TOPIC = "a-topic"


class Ntfy:
    """What ntfy does with a message that is published as JSON: it keeps it, and its app's buttons send what `actions` say."""

    def __init__(self) -> None:
        self.messages: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        app = web.Application()
        app.router.add_post("/", self._publish)
        self.server = TestServer(app)

    async def _publish(self, request: web.Request) -> web.Response:
        body = json.loads(await request.text())
        if not isinstance(body.get("topic"), str) or len(body.get("actions", [])) > 3:
            return web.json_response({"code": 40024, "http": 400, "error": "invalid request"}, status=400)
        self.messages.put_nowait(body)
        return web.json_response({"id": "m1", "event": "message", **body})

    async def next(self) -> dict[str, Any]:
        async with asyncio.timeout(WAIT_S):
            return await self.messages.get()


@pytest.fixture
async def ntfy() -> AsyncIterator[Ntfy]:
    made = Ntfy()
    async with made.server:
        yield made


@asynccontextmanager
async def start_server(tmp_path: Path, ntfy: Ntfy, *on: str, **hook: Any) -> AsyncIterator[Live]:
    """A server with a password and the recipe as its hook. `api` has the password."""
    command = [sys.executable, str(RECIPE), str(ntfy.server.make_url("/")), TOPIC]
    hooks = [{"on": list(on), "command": command, "reply": True, **hook}]
    async with live(tmp_path, hooks=hooks, password="secret") as server:
        server.api.raw.session.headers["Authorization"] = "Bearer secret"
        yield server


@asynccontextmanager
async def phone(server: Live, method: str, path: str) -> AsyncIterator[ClientResponse]:
    """A request without the password."""
    async with ClientSession() as session, session.request(method, server.api.raw.make_url(path)) as answer:
        yield answer


async def until_idle(server: Live, session: str) -> None:
    async with asyncio.timeout(WAIT_S):
        while session in (await server.api.get("/session/status", status=200)).body:
            await asyncio.sleep(0.01)


def local(url: str) -> str:
    """The path of a link: the test's server is reached by its own client."""
    return "/" + url.split("/", 3)[3] if "://" in url else url


async def press(server: Live, url: str, *, status: int) -> str:
    """Press a button: a request without the password."""
    async with phone(server, "POST", local(url)) as answer:
        assert answer.status == status
        return await answer.text()


async def test_buttons_of_ntfy_answer_a_permission_and_a_question(tmp_path: Path, ntfy: Ntfy) -> None:
    async with start_server(tmp_path, ntfy, "permission", "question") as server:
        session = await server.session()
        await server.prompt(session, "permission")
        message = await ntfy.next()
        assert message["topic"] == TOPIC
        once, reject = message["actions"]
        assert (once["label"], reject["label"], once["method"]) == ("once", "reject", "POST")
        assert "has your answer" in await press(server, once["url"], status=200)
        await press(server, once["url"], status=410)
        await press(server, reject["url"], status=410)
        await until_idle(server, session)
        await server.prompt(session, "question 1")
        message = await ntfy.next()
        first = message["actions"][0]
        await press(server, first["url"], status=200)
        await until_idle(server, session)
        assert first["label"] in str(await server.messages(session))


async def test_the_page_shows_the_ask_and_changes_nothing(tmp_path: Path, ntfy: Ntfy) -> None:
    async with start_server(tmp_path, ntfy, "permission") as server:
        session = await server.session(title="<b>bold</b>")
        await server.prompt(session, "permission")
        message = await ntfy.next()
        page = local(message["click"])
        for path in (page, page + "/once"):  # a preview follows links
            async with phone(server, "GET", path) as answer:
                html = await answer.text()
                assert answer.status == 200
                assert "May the agent use" in html
                assert "Allow once" in html
                assert "<b>bold" not in html
                assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
        assert len((await server.api.get("/permission", status=200)).body) == 1
        [request] = (await server.api.get("/permission", status=200)).body
        await server.api.post(f"/permission/{request['id']}/reply", {"reply": "reject"}, status=200)
        async with phone(server, "GET", page) as answer:
            assert answer.status == 410, "another client has answered"
        await press(server, page + "/once", status=410)


async def test_a_link_ends_with_its_time(tmp_path: Path, ntfy: Ntfy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reply_links, "REPLY_S", 0)
    async with start_server(tmp_path, ntfy, "permission") as server:
        await server.prompt(await server.session(), "permission")
        await press(server, (await ntfy.next())["actions"][0]["url"], status=410)


async def test_wrong_codes_are_limited_and_others_get_no_links(tmp_path: Path, ntfy: Ntfy) -> None:
    async with start_server(tmp_path, ntfy, "permission", reply=False) as server:
        await server.prompt(await server.session(), "permission")
        message = await ntfy.next()
        assert message["actions"] == []
        assert "click" not in message
        statuses = []
        for number in range(25):
            async with phone(server, "POST", f"/x-reply/wrong{number}/once") as answer:
                statuses.append(answer.status)
        assert statuses[0] == 410
        assert statuses[-1] == 429
