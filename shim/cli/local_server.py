"""Finds the running server of a data directory, with the standard library alone: `health` is often called.

While a server listens, a file in its data directory says where (`shim.store.servers`).
"""

from __future__ import annotations

import base64
import ssl
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import HTTPSHandler, ProxyHandler, Request, build_opener

from shim.lib.settings import Settings
from shim.store.servers import present

LOOK_S = 2.0
"""Timeout in seconds of each step of the health request to a server of the data directory."""
OK = 200
SERVER_ERROR = 500
"""Lowest status that means that a server does not work."""
LOCAL = ("https://127.0.0.1:", "https://[::1]:", "https://localhost:", "https://0.0.0.0:", "https://[::]:")


def running_server_url(settings: Settings, at: str | None = None) -> str | None:
    """Return the URL of a server that answers, on this data directory or `at` a URL, or None. Blocks.

    A server that accepts our password is preferred.
    """
    answers = {url: _status(settings, url) for url in ([at] if at else _urls(settings.data_dir))}
    working = [url for url, status in answers.items() if status < SERVER_ERROR]
    return next((url for url in working if answers[url] == OK), next(iter(working), None))


def usable(settings: Settings) -> str | None:
    """Return the URL of a server on this data directory that accepts our password, or None. Blocks."""
    return next((url for url in _urls(settings.data_dir) if _status(settings, url) == OK), None)


def authorization(settings: Settings) -> dict[str, str]:
    """Return the headers that carry the settings' password, or {} without one."""
    if settings.password is None:
        return {}
    credentials = f"{settings.username}:{settings.password.get_secret_value()}"
    return {"Authorization": f"Basic {base64.b64encode(credentials.encode()).decode()}"}


def trust(url: str) -> ssl.SSLContext:
    """Return the TLS context for a server. On loopback no certificate is checked, since it rarely names that address."""
    context = ssl.create_default_context()
    if url.startswith(LOCAL):
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _urls(data_dir: Path) -> list[str]:
    return [server.url for server in present(data_dir).living.values() if server.url]


def ask(settings: Settings, url: str) -> tuple[int, bytes]:
    """Return status and body of a request to a server. Raises OSError (also for a refusal), ValueError, HTTPException. Blocks."""
    if not url.startswith(("http://", "https://")):
        raise ValueError("no URL of HTTP")
    # No proxy: it would see the password, and could not reach a server on loopback.
    handlers = [ProxyHandler({}), *([HTTPSHandler(context=trust(url))] if url.startswith("https:") else [])]
    request = Request(url, headers=authorization(settings))  # noqa: S310 - of HTTP, see above
    with build_opener(*handlers).open(request, timeout=LOOK_S) as answer:
        return int(answer.status), answer.read()


def _status(settings: Settings, url: str) -> int:
    """Return the status of a server's health request, or `SERVER_ERROR` if it does not answer."""
    try:
        return ask(settings, f"{url}/global/health")[0]
    except HTTPError as error:
        return error.code
    except (OSError, ValueError, HTTPException):
        return SERVER_ERROR
