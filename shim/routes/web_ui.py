"""Serves OpenCode's own web UI on our origin. Its files come from an OpenCode server; its API is ours.

The UI calls its API at `location.origin`, so one origin must serve both. A request belongs to the UI if we have no route for it
and its path looks like one of the UI's (`is_document`, `is_file`). Other paths are not answered here, so that an unknown API path
gets a JSON 404, and not the web page that native OpenCode sends for it.
Source: `opencode serve` 1.18.33, which contains the files (920 files, 33 MB), and their router.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass

from aiohttp import ClientError, ClientSession, ClientTimeout, web

from shim.lib.errors import AgentStartFailed
from shim.processes import hidden_opencode

FETCH_S = 20.0
"""Seconds to fetch one file from the hidden server, on loopback."""
CACHE_BYTES = 64 * 2**20
"""Size of the cache, enough for all files of the UI (33 MB in 1.18.33). Others are fetched each time."""
PASSED_HEADERS = ("Content-Type", "Content-Security-Policy", "Cache-Control", "ETag", "Last-Modified")
HASHED = "/assets/"
"""Files below it have a hash of their content in their names."""
FOR_GOOD = "max-age=31536000, immutable"
"""Native sends no `Cache-Control`: a browser loads and compiles 5 MB of scripts anew for each page."""
DOCUMENT_PATHS = re.compile(r"/(index\.html|new-session|server/[^/]+(/session(/[^/]+)?)?)?")
DIRECTORY_PATHS = re.compile(r"/([A-Za-z0-9_-]+)(/session(/[^/]+)?)?")
FILE_PATHS = re.compile(r"/(assets/[^/]+|[^/]+\.(js|css|png|svg|ico|webmanifest|woff2?|aac|mp3|txt|xml))")


def is_document(path: str) -> bool:
    """A path of the UI's router: `/`, `/new-session`, `/server/KEY/session/ID`, and `/DIR[/session[/ID]]` with DIR an
    absolute path in base64url. They all get the same page."""
    if DOCUMENT_PATHS.fullmatch(path):
        return True
    match = DIRECTORY_PATHS.fullmatch(path)
    return match is not None and _is_directory(match[1])


def is_file(path: str) -> bool:
    """Whether a path is a file of the UI: `/assets/*`, and icons, scripts and the like at the top."""
    return FILE_PATHS.fullmatch(path) is not None


def _is_directory(text: str) -> bool:
    try:
        decoded = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return False
    return re.match(r"/|[A-Za-z]:[\\/]", decoded) is not None


@dataclass(frozen=True, slots=True)
class _File:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def is_page(self) -> bool:
        return self.headers.get("Content-Type", "").startswith("text/html")


class WebUI:
    """The UI's files, from a hidden `opencode serve` (source None) or from the OpenCode server at the URL `source`.

    `start()` must have returned before `handle()` is called; `close()` ends the hidden server.
    """

    def __init__(self, source: str | None = None, *, environ: Mapping[str, str] | None = None) -> None:
        self._source = source
        self._environ = environ
        self._hidden_server: hidden_opencode.HiddenServer | None = None
        self._session: ClientSession | None = None
        self._base = ""
        self._cache: dict[str, _File] = {}
        self._cached_bytes = 0

    async def start(self) -> None:
        """Raises: AgentNotFound (no `opencode`), AgentStartFailed (it does not start, or has no web UI inside)."""
        headers: dict[str, str] = {}
        if self._source is None:
            self._hidden_server = await hidden_opencode.start(self._environ)
            self._base = self._hidden_server.url
            headers["Authorization"] = "Basic " + base64.b64encode(":".join(self._hidden_server.auth).encode()).decode()
        else:
            self._base = self._source.rstrip("/")
        # No proxy of the environment may come between (trust_env is off by default).
        self._session = ClientSession(headers=headers, timeout=ClientTimeout(total=FETCH_S))
        try:
            page = await self._fetch("/")
            if page.status != 200 or not page.is_page:
                raise AgentStartFailed(f"its page was answered with {page.status}; old versions have no UI inside, 1.18 has.")
        except (ClientError, TimeoutError, AgentStartFailed) as error:
            await self.close()
            origin = self._source or "the installed `opencode`"
            raise AgentStartFailed(f"The web UI could not be loaded from {origin}: {error or 'no answer in time'}") from error
        except asyncio.CancelledError:
            await self.close()
            raise

    async def close(self) -> None:
        """End the hidden server. It may be called twice, and after a failed start."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()
        server, self._hidden_server = self._hidden_server, None
        if server is not None:
            await hidden_opencode.stop(server)

    async def handle(self, request: web.Request) -> web.StreamResponse | None:
        """Answer a GET or HEAD without a route; None if the path is not the UI's."""
        if request.method not in ("GET", "HEAD") or self._session is None:
            return None
        if is_document(request.path):
            path = "/"
        elif is_file(request.path):
            path = request.path
        else:
            return None
        try:
            file = await self._fetch(path)
        except (ClientError, TimeoutError) as error:
            text = (
                f"The web UI's file {path} could not be loaded from the OpenCode server behind it: {error or 'no answer in time'}"
            )
            return web.json_response({"name": "UnknownError", "data": {"message": text}}, status=502)
        # The native server sends its page for a missing file, which must not reach a script.
        if file.is_page and path != "/":
            return None
        headers = dict(file.headers)
        if path.startswith(HASHED) and file.status == 200:
            headers.setdefault("Cache-Control", FOR_GOOD)
        return web.Response(status=file.status, headers=headers, body=file.body)

    async def _fetch(self, path: str) -> _File:
        cached = self._cache.get(path)
        if cached is not None:
            return cached
        assert self._session is not None
        async with self._session.get(self._base + path, allow_redirects=False) as answer:
            headers = {name: answer.headers[name] for name in PASSED_HEADERS if name in answer.headers}
            file = _File(answer.status, headers, await answer.read())
        if file.status == 200 and self._cached_bytes + len(file.body) <= CACHE_BYTES and not (file.is_page and path != "/"):
            self._cache[path] = file
            self._cached_bytes += len(file.body)
        return file
