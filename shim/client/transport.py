"""HTTP requests and event streams of the client. It knows no operation of the API."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeAlias, cast
from urllib.parse import quote

import aiohttp

from universal.events import UniversalEvent

CONNECT_S = 10.0
READ_S = 60.0
"""Seconds without any byte after which a stream is dead. The server sends a comment every 15 s."""
ANSWER_S = 700.0
"""Timeout in seconds of a request. The installation of an agent takes minutes."""
MAX_EVENT_BYTES = 256 * 2**20

Query: TypeAlias = Mapping[str, str | int | bool | None]


class Problem(Exception):
    """An error response. `kind` is the last part of the problem's type: `session_not_found`, `invalid_request` ..."""

    def __init__(self, status: int, kind: str, detail: str, body: Mapping[str, Any]) -> None:
        super().__init__(detail or kind)
        self.status = status
        self.kind = kind
        self.detail = detail
        self.body = dict(body)


class Transport:
    """The connection to one server. `password` is the server's OPENCODE_SERVER_PASSWORD."""

    def __init__(self, url: str, *, password: str | None = None, session: aiohttp.ClientSession | None = None) -> None:
        self._url = url.rstrip("/")
        self._headers = {"Authorization": f"Bearer {password}"} if password else {}
        self._owns_session = session is None
        self._session = session

    def _http(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession()
        return self._session

    async def close(self) -> None:
        """Close the HTTP session, unless the caller supplied it."""
        if self._owns_session and self._session is not None:
            await self._session.close()
            self._session = None

    async def request(
        self, method: str, path: str, *, query: Query | None = None, body: object = None, data: bytes | None = None
    ) -> Any:
        """Make a request. Returns JSON, other content as bytes, None for an empty body. Raises Problem, aiohttp.ClientError."""
        timeout = aiohttp.ClientTimeout(total=ANSWER_S, connect=CONNECT_S)
        payload: dict[str, Any] = {"data": data} if data is not None else {"json": body} if body is not None else {}
        async with self._http().request(
            method, self._url + path, params=_params(query), headers=self._headers, timeout=timeout, **payload
        ) as response:
            raw = await response.read()
            if response.status >= 400:
                raise problem_of(response.status, raw)
            if not raw:
                return None
            return json.loads(raw) if response.content_type == "application/json" else raw

    @asynccontextmanager
    async def events(
        self, method: str, path: str, *, query: Query | None = None, body: object = None, last_event_id: int | None = None
    ) -> AsyncGenerator[AsyncIterator[UniversalEvent]]:
        """Open an event stream. Raises Problem. Its iterator ends normally or raises aiohttp.ClientError, TimeoutError."""
        timeout = aiohttp.ClientTimeout(total=None, connect=CONNECT_S, sock_read=READ_S)
        headers = {**self._headers, "Accept": "text/event-stream"}
        if last_event_id is not None:
            headers["Last-Event-ID"] = str(last_event_id)
        payload: dict[str, Any] = {"json": body} if body is not None else {}
        async with self._http().request(
            method, self._url + path, params=_params(query), headers=headers, timeout=timeout, **payload
        ) as response:
            if response.status >= 400:
                raise problem_of(response.status, await response.read())
            yield _read(response)


async def _read(response: aiohttp.ClientResponse) -> AsyncIterator[UniversalEvent]:
    rest = b""
    async for chunk in response.content.iter_any():
        *blocks, rest = (rest + chunk).split(b"\n\n")
        if len(rest) > MAX_EVENT_BYTES:
            raise aiohttp.ClientPayloadError(f"an event of more than {MAX_EVENT_BYTES} bytes")
        for block in blocks:
            data = b"\n".join(line[6:] for line in block.split(b"\n") if line.startswith(b"data: "))
            if data:
                yield UniversalEvent.model_validate(json.loads(data))


def _params(query: Query | None) -> dict[str, str]:
    """Return query parameters with booleans as the server reads them and without None."""
    values = {name: value for name, value in (query or {}).items() if value is not None}
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in values.items()}


def problem_of(status: int, raw: bytes) -> Problem:
    """Return the error of an error response."""
    try:
        value = json.loads(raw)
    except ValueError:
        value = {}
    body: dict[str, Any] = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    kind = str(body.get("type", "error")).rpartition(":")[2]
    return Problem(status, kind, str(body.get("detail") or raw.decode("utf-8", "replace")[:500]), body)


def segment(name: str) -> str:
    """Return a name quoted as one segment of a path."""
    return quote(name, safe="")
