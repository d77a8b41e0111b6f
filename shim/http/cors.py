"""Decides which web pages may call this server, by native OpenCode's rules. Pure.

    http://localhost:PORT, http://127.0.0.1:PORT, tauri://localhost, http(s)://tauri.localhost, oc://renderer (the desktop
    apps), https://opencode.ai and its subdomains, and what the setting `cors` names

`shim.http.access` refuses pages of other origins.
Source: recording `endpoints` of 1.18.33, and a live 1.18.33 for `https://tauri.localhost` and deeper subdomains.
"""

from __future__ import annotations

import re
from collections.abc import Collection

ALLOWED_ORIGINS = re.compile(
    r"http://(localhost|127\.0\.0\.1):\d{1,5}|tauri://localhost|oc://renderer|https?://tauri\.localhost|https://([a-z0-9-]+\.)*opencode\.ai"
)
METHODS = "GET, HEAD, PUT, PATCH, POST, DELETE"
EXPOSED_HEADERS = "Link, X-Next-Cursor"
MAX_AGE_S = 86_400


def is_allowed_origin(origin: str, more: Collection[str]) -> bool:
    """Whether a page of this origin may read our answers."""
    return origin in more or ALLOWED_ORIGINS.fullmatch(origin) is not None


def headers(origin: str | None, more: Collection[str]) -> dict[str, str]:
    """Return the CORS headers of every answer, including streams and errors."""
    result = {"Vary": "Origin"}
    if origin and is_allowed_origin(origin, more):
        result |= {"Access-Control-Allow-Origin": origin, "Access-Control-Expose-Headers": EXPOSED_HEADERS}
    return result


def preflight(asked_headers: str) -> dict[str, str]:
    """Return the headers that an answer to OPTIONS has in addition to `headers`."""
    return {
        "Access-Control-Allow-Methods": METHODS,
        "Access-Control-Allow-Headers": asked_headers,
        "Access-Control-Max-Age": str(MAX_AGE_S),
    }
