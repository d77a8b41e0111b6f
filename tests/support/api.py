"""An HTTP client of an application in this process that checks every answer and event against OpenCode's documents.

    api = await client(app)                         # the fixture `api`, or `async with ApiClient(app) as api`
    answer = await api.get("/session/status", status=200)
    async with api.stream("/event", params=...) as events:
        await events.until("session.idle")

JSON of an operation must satisfy its schema for that status (or a listed divergence); JSON of a path that is no
operation must have the form of an error. Waits are bounded; HTML is never right.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from fnmatch import fnmatch
from typing import Any
from urllib.parse import urlsplit

import pytest
from aiohttp import ClientResponse, web
from aiohttp.test_utils import TestClient, TestServer
from aiohttp.web_runner import BaseRunner

from tests.support import opencode2_oracle, oracle

LONGEST_LINE_BYTES = 2**22
"""Of an event; the longest tell a tool's output."""
WAIT_S = 10.0
"""For one answer or event. Not a sleep: the longest that a test hangs when something is wrong."""
EXTRAS = ("/doc", "/openapi.json", "/health", "/session/import", "/session/*/export")
"""Routes that the document does not have, with answers of their own."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A checked answer. `body`: parsed JSON, None if it was empty, else the text."""

    status: int
    body: Any
    headers: Mapping[str, str]


class EventStream:
    """An open event stream. Every event that comes out was checked."""

    def __init__(self, response: ClientResponse, path: str, dialect: str = "v2_0") -> None:
        self.response = response
        self.ids: list[str] = []
        """What the `id:` lines said, in order."""
        self._wrapped = path.startswith("/global/")
        self._second = path.startswith("/api/")
        self._dialect = dialect
        self._log = path.endswith("/log")

    async def next(self, timeout_s: float = WAIT_S) -> dict[str, Any]:
        """The next event (an item with `payload` on /global/event). Raises EOFError at the end of the stream."""
        async with asyncio.timeout(timeout_s):
            data: list[str] = []
            while True:
                raw = await self.response.content.readline()
                if not raw:
                    raise EOFError("the stream has ended")
                line = raw.decode().rstrip("\r\n")
                if line.startswith("data:"):
                    data.append(line.removeprefix("data:").removeprefix(" "))
                elif line.startswith("id:"):
                    self.ids.append(line.removeprefix("id:").strip())
                elif not line and data:
                    return self._check(json.loads("\n".join(data)))

    async def until(self, wanted: str | Callable[[dict[str, Any]], bool], timeout_s: float = WAIT_S) -> list[dict[str, Any]]:
        """All events up to the first of this type, or that satisfies, with it last. Payloads alone, on both streams."""
        seen: list[dict[str, Any]] = []
        async with asyncio.timeout(timeout_s):
            while True:
                event = await self.next(timeout_s)
                event = event["payload"] if self._wrapped else event
                seen.append(event)
                if event["type"] == wanted if isinstance(wanted, str) else wanted(event):
                    return seen

    def _check_second(self, event: dict[str, Any]) -> None:
        if self._dialect != "v2_0":
            return
        if self._log:
            opencode2_oracle.check_log_item(event)
        else:
            opencode2_oracle.check_event(event)

    def _check(self, event: dict[str, Any]) -> dict[str, Any]:
        if self._second:
            self._check_second(event)
        elif self._wrapped:
            oracle.check_global_event(event)
        else:
            oracle.check_event(event)
        return event


class _Server(TestServer):
    """As in production: a handler is not cancelled when its client goes away; aiohttp's test server would."""

    async def _make_runner(self, **options: Any) -> BaseRunner[Any]:
        return await super()._make_runner(**{**options, "handler_cancellation": False, "auto_decompress": False})


class ApiClient:
    """Use as an async context manager. `raw` is aiohttp's own test client, for what must not be checked."""

    def __init__(self, app: web.Application) -> None:
        self.raw: TestClient[web.Request, web.Application] = TestClient(_Server(app), read_bufsize=LONGEST_LINE_BYTES)

    async def __aenter__(self) -> ApiClient:
        await self.raw.start_server()
        return self

    async def __aexit__(self, *_: object) -> None:
        async with asyncio.timeout(WAIT_S):
            await self.raw.close()

    async def request(self, method: str, path: str, *, status: int | None = None, **options: Any) -> Answer:
        """One request, its answer checked. In: `status` that must come; the rest as for aiohttp (params, json, data, headers)."""
        async with asyncio.timeout(WAIT_S), self.raw.request(method, path, **options) as response:
            text = await response.text(errors="replace")
        answer = Answer(response.status, self._parse(response, text), response.headers)
        if status is not None:
            assert answer.status == status, f"{method} {path}: {answer.status} instead of {status}: {text[:2000]}"
        if method not in ("HEAD", "OPTIONS"):
            check(method, urlsplit(path).path, answer, response.content_type, dialect_of(options))
        return answer

    async def get(self, path: str, **options: Any) -> Answer:
        """GET."""
        return await self.request("GET", path, **options)

    async def post(self, path: str, body: Any = None, **options: Any) -> Answer:
        """POST; `body` is sent as JSON, nothing at all if it is None."""
        return await self.request("POST", path, **({"json": body} if body is not None else {}), **options)

    async def patch(self, path: str, body: Any, **options: Any) -> Answer:
        """PATCH with a JSON body."""
        return await self.request("PATCH", path, json=body, **options)

    async def put(self, path: str, body: Any, **options: Any) -> Answer:
        """PUT with a JSON body."""
        return await self.request("PUT", path, json=body, **options)

    async def delete(self, path: str, **options: Any) -> Answer:
        """DELETE."""
        return await self.request("DELETE", path, **options)

    def stream(self, path: str, **options: Any) -> AbstractAsyncContextManager[EventStream]:
        """Open an event stream; it is closed at the end of the block."""
        return self._stream(path, options)

    @asynccontextmanager
    async def _stream(self, path: str, options: dict[str, Any]) -> AsyncIterator[EventStream]:
        async with asyncio.timeout(WAIT_S):
            response = await self.raw.get(path, **options)
        try:
            assert response.status == 200, f"{path}: {response.status}: {await response.text()}"
            assert response.content_type == "text/event-stream"
            yield EventStream(response, urlsplit(path).path, dialect_of(options))
        finally:
            response.close()

    @staticmethod
    def _parse(response: ClientResponse, text: str) -> Any:
        assert response.content_type != "text/html", "HTML is never an answer of the API"
        if not text:
            return None
        return json.loads(text) if response.content_type == "application/json" else text


def dialect_of(options: Mapping[str, Any]) -> str:
    """In which dialect of OpenCode 2's wire such a request is answered: `preview` for clients of 1.x, else what it says, else
    `v2_0`."""
    agent = str((options.get("headers") or {}).get("User-Agent", ""))
    if agent.startswith("opencode/1."):
        return "preview"
    return str((options.get("params") or {}).get("dialect", "v2_0"))


def check(method: str, path: str, answer: Answer, content_type: str, dialect: str = "v2_0") -> None:
    """Hold one answer against the document: OpenCode 2's for `dialect` `v2_0`, else OpenCode 1's. Raises oracle.Violation."""
    if path.startswith("/api/") and (dialect != "preview" or answer.status >= 400):
        _check_second(method, path, answer, content_type, dialect)
        return
    operation = oracle.oracle().operation_of(method, path)
    if operation is not None:
        oracle.check_response(operation, answer.status, answer.body, content_type)
    elif answer.status >= 400 or not any(fnmatch(path.rstrip("/"), extra) for extra in EXTRAS):
        _check_error(f"{method} {path}", answer)


def _check_second(method: str, path: str, answer: Answer, content_type: str, dialect: str) -> None:
    """Check the errors alone of other dialects than `v2_0`: their answers have tests of their own."""
    known = opencode2_oracle.opencode2_oracle().operation_of(method, path) if dialect == "v2_0" else None
    if known is not None:
        opencode2_oracle.check_response(known, answer.status, answer.body, content_type)
    elif answer.status >= 400:
        _check_tagged(f"{method} {path}", answer)


def _check_error(what: str, answer: Answer) -> None:
    body = answer.body
    if not (isinstance(body, dict) and set(body) == {"name", "data"} and isinstance(body["data"].get("message"), str)):
        raise oracle.Violation(f"{what} {answer.status}: no error of the form {{name, data: {{message}}}}: {body}")
    assert answer.status >= 400, f"{what}: {answer.status} for a path that is no operation"


def _check_tagged(what: str, answer: Answer) -> None:
    body = answer.body
    if not (isinstance(body, dict) and isinstance(body.get("_tag"), str) and isinstance(body.get("message"), str)):
        raise oracle.Violation(f"{what} {answer.status}: no error of the form {{_tag, message}}: {body}")


Connect = Callable[[web.Application], Awaitable[ApiClient]]


@pytest.fixture
async def api() -> AsyncIterator[Connect]:
    """Starts an application and gives its client; all are closed at the end of the test."""
    opened: list[ApiClient] = []

    async def connect(app: web.Application) -> ApiClient:
        client = await ApiClient(app).__aenter__()
        opened.append(client)
        return client

    yield connect
    for client in opened:
        await client.__aexit__()
