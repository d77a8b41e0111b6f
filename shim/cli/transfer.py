"""`opencode-shim export` and `import`: over HTTP to the server that has the sessions, or one that is started for it.

While a server listens, a file in its data directory says where (`shim.store.servers`). Where none listens that takes the
person's password, one is started for the job: servers share the data.
"""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from aiohttp import ClientError, ClientSession, ClientTimeout

from shim.errors import ShimError
from shim.settings import Settings
from shim.store.servers import present
from universal.jsonvalue import obj

LOOK_S = 2.0
"""For a server of the data directory to answer."""
OK = 200
SERVER_ERROR = 500
"""From this status on, a server does not work."""
LOCAL = ("https://127.0.0.1:", "https://[::1]:", "https://localhost:", "https://0.0.0.0:", "https://[::]:")
TRANSFER_S = 120.0
"""For one session, however long."""

Job = Callable[[str], Awaitable[int]]


async def running_server_url(settings: Settings, at: str | None = None) -> str | None:
    """The URL of a server on this data directory (or of the one `at` a URL); None if there is none that answers.

    One that takes our password comes first.
    """
    answers = {url: await _status(settings, url) for url in ([at] if at else await _urls(settings))}
    working = [url for url, status in answers.items() if status < SERVER_ERROR]
    return next((url for url in working if answers[url] == OK), next(iter(working), None))


async def usable(settings: Settings) -> str | None:
    """The URL of a server on this data directory that takes our password; None if there is none."""
    for url in await _urls(settings):
        if await _status(settings, url) == OK:
            return url
    return None


async def _urls(settings: Settings) -> list[str]:
    servers = await asyncio.to_thread(present, settings.data_dir)
    return [server.url for server in servers.living.values() if server.url]


async def _status(settings: Settings, url: str) -> int:
    """What a server answers when it is asked for its health; `SERVER_ERROR` if it does not answer."""
    try:
        async with _client(settings, LOOK_S) as client, client.get(f"{url}/global/health", ssl=trust(url)) as answer:
            await answer.read()
            return answer.status
    except (OSError, ValueError, ClientError, TimeoutError):
        return SERVER_ERROR


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
