"""`opencode-shim export` and `import`: over HTTP to the server that has the sessions, or one that is started for it.

While a server listens, a file in its data directory says where: `server.json`, for its owner only. A file that a killed server
left behind leads nowhere; then a server is started, and the store's own lock decides.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import ssl
import sys
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from aiohttp import ClientError, ClientSession, ClientTimeout

from shim.errors import ShimError
from shim.settings import Settings
from universal.jsonvalue import obj

WHERE = "server.json"
LOOK_S = 2.0
"""For the server of the file to answer."""
SERVER_ERROR = 500
"""From this status on, a server does not work."""
LOCAL = ("https://127.0.0.1:", "https://[::1]:", "https://localhost:", "https://0.0.0.0:", "https://[::]:")
TRANSFER_S = 120.0
"""For one session, however long."""

Job = Callable[[str], Awaitable[int]]


@contextmanager
def told(settings: Settings, url: str) -> Generator[None]:
    """While it lasts, the data directory says that its server is at `url`. A full disk is no reason to fail."""
    path = settings.data_dir / WHERE
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            json.dump({"url": url + (settings.base_path or "").rstrip("/"), "pid": os.getpid()}, file)
    except OSError:
        yield
        return
    try:
        yield
    finally:
        with suppress(OSError):
            path.unlink()


async def running(settings: Settings, at: str | None = None) -> str | None:
    """The URL of the server on this data directory (or of the one `at` a URL); None if there is none that answers."""
    try:
        url = at or str(json.loads(await asyncio.to_thread((settings.data_dir / WHERE).read_text))["url"])
        async with _client(settings, LOOK_S) as client, client.get(f"{url}/global/health", ssl=trust(url)) as answer:
            await answer.read()
            return url if answer.status < SERVER_ERROR else None
    except (OSError, ValueError, KeyError, TypeError, ClientError, TimeoutError):
        return None


async def version_of(settings: Settings, url: str) -> str:
    """Which opencode-shim runs there; "" if it does not say."""
    with suppress(ShimError):
        return str(obj(await request(settings, "GET", f"{url}/v1/health")).get("version") or "")
    return ""


def authorization(settings: Settings) -> dict[str, str]:
    """The header that a server with the settings' password wants; {} without one."""
    if settings.password is None:
        return {}
    shown = f"{settings.username}:{settings.password.get_secret_value()}"
    return {"Authorization": f"Basic {base64.b64encode(shown.encode()).decode()}"}


def trust(url: str) -> ssl.SSLContext:
    """How the server's certificate is checked: its own one need not name the loopback address."""
    context = ssl.create_default_context()
    if url.startswith(LOCAL):
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _client(settings: Settings, total_s: float) -> ClientSession:
    return ClientSession(timeout=ClientTimeout(total=total_s), headers=authorization(settings))


async def request(settings: Settings, method: str, url: str, body: Any = None, *, params: Mapping[str, str] | None = None) -> Any:
    """JSON of the answer, None if it is empty. Raises ShimError with what the server says."""
    query = {"directory": str(settings.directory), **(params or {})}
    try:
        async with (
            _client(settings, TRANSFER_S) as client,
            client.request(method, url, params=query, json=body, ssl=trust(url)) as answer,
        ):
            text = await answer.text()
    except (ClientError, TimeoutError, ValueError) as error:
        raise ShimError(f"The server at {url} does not answer: {error or 'not in time'}.") from error
    if answer.status == 401:
        raise ShimError("The server wants a password, or another one. Set it in OPENCODE_SERVER_PASSWORD.")
    if answer.status >= 400:
        raise ShimError(_complaint(text) or f"The server answered with status {answer.status}.")
    try:
        return json.loads(text) if answer.status != 204 else None
    except ValueError as error:
        raise ShimError(f"{url} is no opencode-shim: it does not answer with JSON.") from error


def _complaint(text: str) -> str:
    """The message of an error: of OpenCode 1 in `data`, of OpenCode 2 beside its `_tag`."""
    with suppress(ValueError, KeyError, TypeError):
        body = json.loads(text)
        return str(body.get("data", body)["message"])
    return ""


async def export(settings: Settings, url: str, session: str | None) -> int:
    """Write the document of a session to stdout; without one, the newest of the directory's. Says which on stderr."""
    if session is None:
        found = await request(settings, "GET", f"{url}/session")
        if not found:
            raise ShimError(f"There is no session in {settings.directory}. Name one: opencode-shim export ses_...")
        session = str(found[0]["id"])
    document = await request(settings, "GET", f"{url}/session/{session}/export")
    sys.stderr.write(f"Exporting session: {session} ({document['info']['title']})\n")
    sys.stdout.write(json.dumps(document, ensure_ascii=False, indent=2) + "\n")
    return 0


async def import_(settings: Settings, url: str, document: Any) -> int:
    """Import a document into the directory; says the session's id."""
    info = await request(settings, "POST", f"{url}/session/import", document)
    sys.stdout.write(f"Imported session: {info['id']}\n")
    return 0


def read(file: str) -> Any:
    """The document in a file, `-` for stdin. Raises ShimError that says what is wrong."""
    if file.startswith(("http://", "https://")):
        raise ShimError("Sessions are imported from files, not from addresses: save it, then import the file.")
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
        return json.loads(text)
    except OSError as error:
        raise ShimError(f"Cannot read {file}: {error.strerror}.") from error
    except ValueError as error:
        raise ShimError(
            f"{file} is no JSON: {error}. Give a file that `opencode export` or `opencode-shim export` wrote."
        ) from error
