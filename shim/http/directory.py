"""Resolves the directory that a request names. Pure.

Source: `docs/clients.md`, "How each client names the project directory": the query `directory` (SDK, TUI, web UI), the
query `location[directory]` (the preview API), the header `x-opencode-directory`, percent-encoded by newer clients and
plain in those up to 1.3; else the server's own. Clients compare the result as a string: absolute, without trailing `/`.
"""

from __future__ import annotations

import os.path
from collections.abc import Mapping
from functools import lru_cache
from urllib.parse import unquote

from shim.lib.errors import InvalidRequest

NAME_LIMIT_BYTES = 255
"""Maximum length of one name in a path, as in all common file systems. With a longer name, every file operation would fail."""
PATH_LIMIT_BYTES = 4096 - 256
"""Maximum length of a path, with room for the names of its entries."""
QUERY_NAMES = ("directory", "location[directory]")
HEADER = "x-opencode-directory"


def resolve(query: Mapping[str, str], headers: Mapping[str, str], default: str) -> str:
    """Return the directory of a request, which need not exist. Raises InvalidRequest for a NUL and for a too long path."""
    named = next((query[name] for name in QUERY_NAMES if query.get(name)), None) or _of_header(headers) or default
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
    return os.path.normpath(os.path.join(default, named))  # noqa: PTH118 - pure: pathlib would touch Windows rules, not the disk


def _of_header(headers: Mapping[str, str]) -> str:
    value = headers.get(HEADER, "")
    # aiohttp decodes invalid bytes in headers as surrogates, which JSON answers cannot hold.
    text = unquote(value) if "%" in value else value
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
