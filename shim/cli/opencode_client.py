"""The commands of `opencode` that ask a server: `api`, `session list`, `export`, `import`, `models`, `agent list`.

They use the server of `--attach`, the one on the person's data directory, or one that starts for the command. Their output
has the format of OpenCode 1.18.33.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from aiohttp import ClientError, ClientSession, ClientTimeout
from pydantic import SecretStr

from shim.cli import serve_command, transfer
from shim.cli.local_server import authorization, trust, usable
from shim.cli.transfer import request
from shim.lib.errors import ShimError
from shim.lib.logging import configure
from shim.lib.settings import Settings
from shim.processes import child_process
from shim.processes.child_environment import DENIED, DENIED_PREFIX, child_environment
from universal.lib.jsonvalue import arr, obj, text

Options = argparse.Namespace
Job = Callable[[Settings, str], Awaitable[int]]

START_S = 20.0
"""Seconds for a server that `api` started to answer."""
LOOK_EVERY_S = 0.1
"""Seconds between looks for that server."""
API_S = 100.0
"""Timeout in seconds of one request. `opencode-fleet` waits 120 s for the whole command."""
LEAST_ID, LEAST_TITLE = 20, 25
"""Least widths of the columns of `session list`, in characters."""
LEAST_ERROR_STATUS = 400
"""Least status of an answer that reports an error."""


def settings_of(options: Options) -> Settings:
    """Return the settings, changed by the server options of a command."""
    settings = Settings.load({"directory": options.dir, "username": options.username})
    changes = {"password": SecretStr(options.password)} if options.password else {}
    return settings.model_copy(update=changes)


def on_server(options: Options, job: Job) -> int:
    """Run a job on the server that the options name, on a running one, or on one that starts for the job."""
    settings = settings_of(options)
    return serve_command.with_server(settings, options.attach, lambda url: job(settings, url))


# --- api ---------------------------------------------------------------------------------------------------


def api(options: Options) -> int:
    """Make one request and write the response body to stdout. Returns 1 for an error status, which goes to stderr.

    Without a server it starts one that stays, since the answer to a prompt goes on long after this command.
    """
    settings = settings_of(options)
    return asyncio.run(_api(settings, options))


async def _api(settings: Settings, options: Options) -> int:
    url = options.attach or await asyncio.to_thread(usable, settings) or await _start(settings)
    params = [tuple(param.partition("=")[::2]) for param in options.param]
    body = None if options.data is None else options.data.encode()
    headers = {"content-type": "application/json"} if body is not None else {}
    path = options.path if options.path.startswith("/") else f"/{options.path}"
    try:
        async with (
            ClientSession(timeout=ClientTimeout(total=API_S), headers=authorization(settings)) as client,
            client.request(
                options.method.upper(), url.rstrip("/") + path, params=params, data=body, headers=headers, ssl=trust(url)
            ) as answer,
        ):
            body_text = await answer.text()
    except (ClientError, TimeoutError, ValueError) as error:
        raise ShimError(f"The server at {url} does not answer: {error or 'timeout'}. Check that it runs.") from error
    if body_text:
        sys.stdout.write(body_text + "\n")
    if answer.status >= LEAST_ERROR_STATUS:
        sys.stderr.write(f"{answer.status} {answer.reason}\n")
        return 1
    return 0


async def _start(settings: Settings) -> str:
    """Start a server that outlives this command, and return its URL once it answers. Raises ShimError if it does not."""
    argv = [sys.executable, "-P", "-m", "shim.cli.opencode", "opencode", "serve", "--port", "0"]
    secrets = {name: value for name, value in os.environ.items() if name in DENIED or name.startswith(DENIED_PREFIX)}
    with serve_command.open_log(settings) as log:
        pid = child_process.detach(argv, environment=child_environment(os.environ, secrets), log=log)
    try:
        async with asyncio.timeout(START_S):
            return await _wait_for_server(settings, pid)
    except TimeoutError:
        log_file = settings.data_dir / serve_command.LOG_FILE
        raise ShimError(f"The new server (pid {pid}) did not answer within {START_S:g} s. See its log: {log_file}.") from None


async def _wait_for_server(settings: Settings, pid: int) -> str:
    url = await asyncio.to_thread(usable, settings)
    while url is None:
        await asyncio.sleep(LOOK_EVERY_S)
        url = await asyncio.to_thread(usable, settings)
    sys.stderr.write(f"Started a server at {url}; it stays. To stop it: kill {pid}\n")
    return url


# --- lists ---------------------------------------------------------------------------------------------------


def session_list(options: Options) -> int:
    """Print the sessions of the directory, the last changed first, as a table or as JSON."""
    configure("error", "console", sys.stderr)

    async def show(settings: Settings, url: str) -> int:
        params = {"roots": "true", **({"limit": str(options.max_count)} if options.max_count else {})}
        rows = [obj(row) for row in arr(await request(settings, "GET", f"{url}/session", params=params))]
        if options.format == "json":
            sys.stdout.write(json.dumps([_session(row) for row in rows], indent=2, ensure_ascii=False) + "\n")
        elif rows:
            sys.stdout.write("\n".join(_table(rows)) + "\n")
        return 0

    return on_server(options, show)


def _session(row: Mapping[str, Any]) -> dict[str, Any]:
    time = obj(row.get("time"))
    return {
        "id": row["id"],
        "title": row["title"],
        "updated": time.get("updated"),
        "created": time.get("created"),
        "projectId": row.get("projectID"),
        "directory": row.get("directory"),
    }


def _table(rows: list[dict[str, Any]]) -> list[str]:
    wide_id = max(LEAST_ID, *(len(row["id"]) for row in rows))
    wide_title = max(LEAST_TITLE, *(len(row["title"]) for row in rows))
    head = f"{'Session ID':<{wide_id}}  {'Title':<{wide_title}}  Updated"
    lines = [f"{row['id']:<{wide_id}}  {row['title']:<{wide_title}}  {_when(obj(row['time'])['updated'])}" for row in rows]
    return [head, "─" * len(head), *lines]


def _when(epoch_ms: float) -> str:
    return f"{datetime.fromtimestamp(epoch_ms / 1000).astimezone():%Y-%m-%d %H:%M}"


def models(options: Options) -> int:
    """Print `PROVIDER/MODEL`, a line each. `--verbose` adds the model's JSON below its line."""

    async def show(settings: Settings, url: str) -> int:
        providers = [obj(row) for row in arr(obj(await request(settings, "GET", f"{url}/config/providers"))["providers"])]
        matches = [row for row in providers if options.provider in (None, row["id"])]
        if options.provider and not matches:
            names = ", ".join(text(row["id"]) for row in providers)
            raise ShimError(f'There is no provider "{options.provider}". Choose one of: {names}.')
        for provider in matches:
            for name, model in sorted(obj(provider["models"]).items()):
                sys.stdout.write(f"{provider['id']}/{name}\n")
                if options.verbose:
                    sys.stdout.write(json.dumps(model, indent=2, ensure_ascii=False) + "\n")
        return 0

    return on_server(options, show)


def agent_list(options: Options) -> int:
    """Print each agent with its mode, and its permission rules as JSON below it."""

    async def show(settings: Settings, url: str) -> int:
        for row in map(obj, arr(await request(settings, "GET", f"{url}/agent"))):
            sys.stdout.write(f"{row['name']} ({row['mode']})\n")
            sys.stdout.write(f"  {json.dumps(row.get('permission', []), indent=2, ensure_ascii=False)}\n")
        return 0

    return on_server(options, show)


# --- export and import -----------------------------------------------------------------------------------------


def export(options: Options) -> int:
    """Write a session to stdout. `--sanitize` is refused: a partly cleaned document would look safe."""
    if options.sanitize:
        raise ShimError(
            "This server cannot do --sanitize. `GET /v1/sessions/{id}/export` makes an archive without paths and keys."
        )
    return on_server(options, lambda settings, url: transfer.export(settings, url, options.session))


def import_(options: Options) -> int:
    """Import a session from a file."""
    document = transfer.read(options.file)
    return on_server(options, lambda settings, url: transfer.import_(settings, url, document))


def file_part(name: str, directory: Path) -> dict[str, Any]:
    """Return a file or folder as a part of a prompt. Raises ShimError if it does not exist."""
    import mimetypes

    path = (directory / name).resolve()
    if not path.exists():
        raise ShimError(f"There is no file {path}.")
    guess = mimetypes.guess_type(path.name)[0] or ""
    file_mime = guess if guess.startswith("image/") or guess == "application/pdf" else "text/plain"
    mime = "application/x-directory" if path.is_dir() else file_mime
    return {"type": "file", "url": f"file://{quote(str(path))}", "filename": path.name, "mime": mime}
