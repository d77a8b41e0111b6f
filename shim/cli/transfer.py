"""`opencode-shim export`, `import` and `prune`, and the HTTP requests of commands to a server.

If no running server accepts the person's password (`shim.cli.local_server`), one is started for the job: several servers can
share the data.
"""

from __future__ import annotations

import asyncio
import codecs
import json
import os
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from aiohttp import ClientError, ClientSession, ClientTimeout

from shim.cli.local_server import authorization, trust
from shim.lib import disk
from shim.lib.errors import ShimError
from shim.lib.settings import Settings
from shim.store.rows import Kin, idle_families
from universal.lib.jsonvalue import JsonObject, arr, obj

TRANSFER_S = 120.0
"""Timeout in seconds of one request, enough for the longest session."""

Job = Callable[[str], Awaitable[int]]


async def version_of(settings: Settings, url: str) -> str:
    """Return the version of the opencode-shim at `url`, or "" if it does not report one."""
    with suppress(ShimError):
        return str(obj(await request(settings, "GET", f"{url}/v1/health")).get("version") or "")
    return ""


async def request(settings: Settings, method: str, url: str, body: Any = None, *, params: Mapping[str, str] | None = None) -> Any:
    """Make a request and return the JSON of the response, None for an empty one. Raises ShimError with the server's message."""
    query = {"directory": str(settings.directory), **(params or {})}
    try:
        async with (
            ClientSession(timeout=ClientTimeout(total=TRANSFER_S), headers=authorization(settings)) as client,
            client.request(method, url, params=query, json=body, ssl=trust(url)) as answer,
        ):
            text = await answer.text()
    except (ClientError, TimeoutError, ValueError) as error:
        raise ShimError(f"The server at {url} does not answer: {error or 'timeout'}. Check that it runs.") from error
    if answer.status == 401:
        raise ShimError("The server needs a password, or a different one. Set it in OPENCODE_SERVER_PASSWORD.")
    if answer.status >= 400:
        raise ShimError(_complaint(text) or f"The server answered with status {answer.status}.")
    try:
        return json.loads(text) if answer.status != 204 else None
    except ValueError as error:
        raise ShimError(f"{url} is no opencode-shim: its response is not JSON. Check the address.") from error


def _complaint(text: str) -> str:
    """Return the message of an error body: OpenCode 1 has it in `data`, OpenCode 2 beside `_tag`, `/v1` as `detail`."""
    with suppress(ValueError, KeyError, TypeError):
        body = json.loads(text)
        return str(body.get("detail") or body.get("data", body)["message"])
    return ""


async def export(settings: Settings, url: str, session: str | None) -> int:
    """Write a session's document to stdout and its title to stderr. Default: the newest session of the directory."""
    if session is None:
        sessions = await request(settings, "GET", f"{url}/session")
        if not sessions:
            raise ShimError(f"There is no session in {settings.directory}. Name one: opencode-shim export ses_...")
        session = str(sessions[0]["id"])
    document = await request(settings, "GET", f"{url}/session/{session}/export")
    sys.stderr.write(f"Exporting session: {session} ({document['info']['title']})\n")
    sys.stdout.write(json.dumps(document, ensure_ascii=False, indent=2) + "\n")
    return 0


async def import_(settings: Settings, url: str, document: Any) -> int:
    """Import a document into the directory and print the session's id."""
    info = await request(settings, "POST", f"{url}/session/import", document)
    sys.stdout.write(f"Imported session: {info['id']}\n")
    return 0


async def prune(
    settings: Settings,
    url: str,
    archive: Path | None,
    may_remove: Callable[[str], bool] | None,
    *,
    days: float,
    before_ms: int,
) -> int:
    """Remove the sessions that have not changed since `before_ms`, each with all below it. Returns 1 if one was left as it is.

    In: `archive`, a folder for a document of each, which `import` reads; `may_remove`, which is asked once, None for a rehearsal.
    Raises ShimError in a cluster, whose sessions have a command of their own.
    """
    answer = obj(await request(settings, "GET", f"{url}/v1/sessions"))
    rows = [row for row in map(obj, arr(answer.get("sessions"))) if row.get("eventCount")]  # not those of an agent's own program
    if any(row.get("node") for row in rows):
        raise ShimError("The server is in a cluster: use `opencode-shim cluster prune` (docs/cluster.md).")
    names = {row["sessionId"]: row["openCodeSessionId"] for row in rows}
    by_id = {str(row["openCodeSessionId"]): row for row in rows}
    parents = {id_: names.get(row.get("parentSessionId")) for id_, row in by_id.items()}
    kin = (Kin(id_, parents[id_], row["updatedAt"], row["status"] != "idle") for id_, row in by_id.items())
    families = idle_families(kin, before_ms)
    for top, *below in families:
        row, more = by_id[top], f" and {len(below)} below" if below else ""
        sys.stdout.write(f"{top}{more}  {row.get('directory')}  {row.get('title') or ''}".rstrip() + "\n")
    count, events = sum(map(len, families)), sum(by_id[id_]["eventCount"] for family in families for id_ in family)
    found = f"{count} of {len(by_id)} sessions, with {events:,} events, have not changed for {days:g} days."
    if may_remove is None or not families or not await asyncio.to_thread(may_remove, f"{found} Remove them?"):
        sys.stdout.write(f"{found} Nothing was removed.\n")
        return 0
    left = [why for family in families if (why := await _remove(settings, url, [by_id[id_] for id_ in family], archive))]
    sys.stdout.writelines(f"Left as it is: {why}\n" for why in left)
    sys.stdout.write(f"Removed {len(families) - len(left)} of {len(families)}.\n")
    return 1 if left else 0


async def _remove(settings: Settings, url: str, family: Sequence[JsonObject], archive: Path | None) -> str:
    """Remove a session and all below it, after copies of them. Returns which one was left, and why; "" if all are gone."""
    top = str(family[0]["openCodeSessionId"])
    try:
        for row in family:
            place = f"{url}/session/{row['openCodeSessionId']}"
            if archive is not None:
                document = await request(settings, "GET", f"{place}/export")
                await asyncio.to_thread(_keep, archive, f"{row['openCodeSessionId']}.json", document)
            if (await request(settings, "GET", place))["time"]["updated"] != row["updatedAt"]:
                return f"{top} was used meanwhile"
        await request(settings, "DELETE", f"{url}/session/{top}")
    except (ShimError, OSError) as error:
        return f"{top}: {error}"
    return ""


def _keep(folder: Path, name: str, document: Any) -> None:
    """Write a document into a folder that only this user may read. Blocking."""
    disk.private_folder(folder.absolute())
    data = json.dumps(document, ensure_ascii=False).encode("utf-8", "surrogatepass")
    disk.put(folder / name, data, (os.path.realpath(folder),), 0o600)


async def conversations(settings: Settings, url: str, agent: str, id_: str | None, days: int) -> int:
    """Print the conversations of an agent's own program in the directory, or open one here."""
    base = f"{url}/v1/agents/{agent}/x-sessions"
    if id_ is not None:
        opened = await request(settings, "POST", f"{base}/{id_}")
        sys.stdout.write(f"Opened as {opened['sessionId']}: {opened['title']}\n")
        return 0
    rows = (await request(settings, "GET", base, params={"days": str(days)}))["sessions"]
    for row in rows:
        when = f"{datetime.fromtimestamp(row['updatedAt'] / 1000, UTC):%Y-%m-%d %H:%M}"
        where = f"here as {row['sessionId']}" if row.get("sessionId") else ""
        sys.stdout.write(f"{when}  {row.get('command') or row['id']}  {row['title']}  {where}".rstrip() + "\n")
    if not rows:
        sys.stdout.write(f"{agent} has stored no conversation of {settings.directory} in the last {days} days.\n")
    return 0


def _text_of(raw: bytes) -> str:
    """A document's text, as editors and shells save it: with a byte order mark, in UTF-16, with a status line in front."""
    text = raw.decode("utf-16" if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8-sig")
    first, _, rest = text.lstrip().partition("\n")
    return rest if not first.startswith("{") and rest.lstrip().startswith("{") else text


def read(file: str) -> Any:
    """Return the document in a file, or on stdin for `-`. Raises ShimError that says what is wrong."""
    if file.startswith(("http://", "https://")):
        raise ShimError("Sessions are imported from files, not from addresses. Save the document, then import the file.")
    try:
        return json.loads(_text_of(sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()))
    except OSError as error:
        raise ShimError(f"Cannot read {file}: {error.strerror}.") from error
    except ValueError as error:
        raise ShimError(
            f"{file} is no JSON: {error}. Give a file that `opencode export` or `opencode-shim export` wrote."
        ) from error
