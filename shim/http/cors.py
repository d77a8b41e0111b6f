"""Decides which web pages may call this server, by native OpenCode's rules. Pure.

    http(s)://localhost, 127.0.0.1 and [::1] with any port, tauri://localhost, http(s)://tauri.localhost, oc://renderer (the
    desktop apps), https://opencode.ai and its subdomains, and what the setting `cors` names (`vscode-webview://*` too)

`shim.http.access` refuses pages of other origins.
Source: recording `endpoints` of 1.18.33, and a live 1.18.33 for `https://tauri.localhost` and deeper subdomains.
"""

from __future__ import annotations

import re
from collections.abc import Collection

ALLOWED_ORIGINS = re.compile(
    r"https?://(localhost|127\.0\.0\.1|\[::1\])(:\d{1,5})?|tauri://localhost|oc://renderer|https?://tauri\.localhost|https://([a-z0-9-]+\.)*opencode\.ai"
)
METHODS = "GET, HEAD, PUT, PATCH, POST, DELETE"
EXPOSED_HEADERS = "Link, X-Next-Cursor"
MAX_AGE_S = 86_400


def is_allowed_origin(origin: str, more: Collection[str]) -> bool:
    """Whether a page of this origin may read our answers."""
    return origin in more or ALLOWED_ORIGINS.fullmatch(origin) is not None or any(_matches(named, origin) for named in more)


def _matches(named: str, origin: str) -> bool:
    """Whether an origin matches a setting with `*`, which stands for any part of the host: webviews get a new one each time."""
    scheme, _, host = named.partition("://")
    if "*" not in host or not scheme or "*" in scheme:
        return False
    return re.fullmatch(re.escape(named).replace(r"\*", "[^/]*"), origin) is not None


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
