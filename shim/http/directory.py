"""Resolves the directory that a request names.

Source: `docs/clients.md`, "How each client names the project directory": the query `directory` (SDK, TUI, web UI), the
query `location[directory]` (the preview API), the header `x-opencode-directory`, percent-encoded by newer clients and
plain in those up to 1.3; else the server's own. Clients compare the result as a string: absolute, without trailing `/`.
"""

from __future__ import annotations

import asyncio
import os.path
from collections.abc import Mapping
from functools import lru_cache
from urllib.parse import unquote

import structlog

from shim.lib.errors import InvalidRequest

NAME_LIMIT_BYTES = 255
"""Maximum length of one name in a path, as in all common file systems. With a longer name, every file operation would fail."""
PATH_LIMIT_BYTES = 4096 - 256
"""Maximum length of a path, with room for the names of its entries."""
QUERY_NAMES = ("directory", "location[directory]")
HEADER = "x-opencode-directory"
LOOK_AGAIN_S = 0.25
"""Seconds for which it is cached where a directory's links lead: every request asks, and each look needs a thread."""
LOOK_LIMIT_S = 5.0
"""Maximum seconds for the disk to say where they lead."""
CACHED_DIRECTORIES = 1000

log = structlog.get_logger()


class Links:
    """Tells where directories are that are named with links. So a directory is one, however it is spelled, as in OpenCode."""

    def __init__(self) -> None:
        self._cache: dict[str, tuple[float, str]] = {}
        self._looks: dict[str, asyncio.Future[str]] = {}
        """One for each directory: a disk that hangs takes one thread, however many requests ask."""

    async def real(self, directory: str) -> str:
        """The directory without links on its way; as it is written if the disk does not answer within LOOK_LIMIT_S."""
        loop = asyncio.get_running_loop()
        until, place = self._cache.get(directory, (0.0, directory))
        if loop.time() < until:
            return place
        look = self._looks.get(directory)
        if look is None:
            look = self._looks[directory] = loop.run_in_executor(None, os.path.realpath, directory)
            look.add_done_callback(lambda _: self._looks.pop(directory, None))
        try:
            async with asyncio.timeout(LOOK_LIMIT_S):
                place = await asyncio.shield(look)
        except TimeoutError:
            log.warning("directory.slow", directory=directory, after_s=LOOK_LIMIT_S)
        if len(self._cache) >= CACHED_DIRECTORIES:
            self._cache.clear()
        self._cache[directory] = (loop.time() + LOOK_AGAIN_S, place)
        return place


def resolve(query: Mapping[str, str], headers: Mapping[str, str], default: str) -> str:
    """Return the directory of a request, which need not exist. Raises InvalidRequest for a NUL and for a too long path."""
    named = next(filter(None, map(query.get, QUERY_NAMES)), None) or _of_header(headers) or default
    return _absolute(default, named)


@lru_cache(maxsize=256)
def _absolute(default: str, named: str) -> str:
    """The named directory as a path from the root. It is cached, because every request asks for one of a few."""
    if "\0" in named:
        raise InvalidRequest("A directory may not contain NUL", "Query", ("directory",))
    encoded = named.encode("utf-8", "surrogatepass")
    if len(encoded) > PATH_LIMIT_BYTES or any(len(name) > NAME_LIMIT_BYTES for name in encoded.split(b"/")):
        limits = f"at most {PATH_LIMIT_BYTES} bytes, and {NAME_LIMIT_BYTES} in each name"
        raise InvalidRequest(f"A directory that is too long: {limits}", "Query", ("directory",))
    path = os.path.normpath(os.path.join(default, named))  # noqa: PTH118 - pure: pathlib would touch Windows rules, not the disk
    return path[1:] if path.startswith("//") else path  # which POSIX leaves as it is


def _of_header(headers: Mapping[str, str]) -> str:
    value = headers.get(HEADER, "")
    # aiohttp decodes invalid bytes in headers as surrogates, which JSON answers cannot hold.
    text = unquote(value) if "%" in value else value
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
