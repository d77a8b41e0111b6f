"""Runs a hidden `opencode serve` to get the files of OpenCode's web UI.

Its home is a scratch directory that is removed at the end, so it reads and writes none of the person's files. It needs a random
password, so that no other program on this machine finds an open OpenCode server. It cannot outlive this process, even after
`kill -9`: a shell waits at the other end of a pipe that we hold, and ends it when the pipe closes.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import signal
import tempfile
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from shim.lib.errors import AgentNotFound, AgentStartFailed
from shim.lib.tasks import wait_at_most
from shim.processes import child_process
from shim.processes.aliases import find_program, is_alias
from shim.processes.child_environment import ChildEnvironment, child_environment
from shim.processes.http_agent import LISTENING, free_port

ENV_BINARY = "SHIM_OPENCODE_BIN"
INSTALL_HINT = "Install it (npm install -g opencode-ai), put it on PATH, or name it in SHIM_OPENCODE_BIN."
START_S = 30.0
"""Seconds to wait for the server to listen. A first start creates a database and took 1 to 5 s, more on a busy machine."""
STOP_S = 3.0
"""Seconds between the close of its pipe and the kill of its group."""
USER = "opencode"
PREFIX = "opencode-shim-ui-"
KEEPER = (
    'scratch=$1; shift; exec 3<&0; "$@" </dev/null 3<&- & child=$!; exec >/dev/null 2>&1; cat <&3; '
    f'kill "$child"; wait "$child"; case "$scratch" in */{PREFIX}*) cd / && rm -rf -- "$scratch";; esac'
)
"""`sh -c KEEPER sh SCRATCH ARGV...` runs ARGV until stdin closes, then removes SCRATCH.

The shell closes its own stdout, so that we see the end of a child that exits by itself.
"""


@dataclass(frozen=True, slots=True)
class HiddenServer:
    """A running hidden server. Each request to `url` must carry `auth` (user, password)."""

    url: str
    auth: tuple[str, str] = field(repr=False)
    process: Process = field(repr=False)
    scratch: str = field(repr=False)
    drain: asyncio.Task[None] = field(repr=False)


def find_binary(environ: Mapping[str, str]) -> str:
    """Return the path of `opencode`: $SHIM_OPENCODE_BIN, else the first on PATH. Raises AgentNotFound, which says what to do."""
    named = environ.get(ENV_BINARY)
    if named:
        path = shutil.which(named, path=environ.get("PATH"))
        if path is None:
            raise AgentNotFound(f"{ENV_BINARY} is {named}, which is not an executable file.")
        if is_alias(path):
            raise AgentNotFound(f"{ENV_BINARY} is {named}, which is opencode-shim itself under another name. {INSTALL_HINT}")
        return path
    path = find_program("opencode", environ.get("PATH", os.defpath))
    if path is None:
        raise AgentNotFound(f"The web UI's files are inside of the `opencode` program, which is not on PATH. {INSTALL_HINT}")
    return path


def environment(environ: Mapping[str, str], scratch: str, password: str) -> ChildEnvironment:
    """Return the person's environment without variables that lead to the person's files and settings."""
    removed: dict[str, str | None] = {name: None for name in environ if name.startswith(("OPENCODE", "XDG_"))}
    home = {name: scratch for name in ("HOME", "USERPROFILE", "TMPDIR")}
    off = ("DISABLE_AUTOUPDATE", "DISABLE_MODELS_FETCH", "DISABLE_DEFAULT_PLUGINS", "DISABLE_LSP_DOWNLOAD", "DISABLE_CLAUDE_CODE")
    switches = {f"OPENCODE_{name}": "1" for name in off}
    return child_environment(environ, {**removed, **home, **switches, "OPENCODE_SERVER_PASSWORD": password})


async def start(environ: Mapping[str, str] | None = None) -> HiddenServer:
    """Start a hidden server on a free loopback port. Raises AgentNotFound, AgentStartFailed (with the end of its output)."""
    variables = os.environ if environ is None else environ
    binary = find_binary(variables)
    password = secrets.token_urlsafe(24)
    scratch = tempfile.mkdtemp(prefix=PREFIX)
    argv = [binary, "serve", "--hostname", "127.0.0.1", "--port", str(free_port())]
    process = await child_process.start(
        ("/bin/sh", "-c", KEEPER, "sh", scratch, *argv),
        cwd=scratch,
        environment=environment(variables, scratch, password),
        stdin=PIPE,
        stderr=STDOUT,
    )
    try:
        async with asyncio.timeout(START_S):
            url = await _wait_for_listening(process, binary)
    except (TimeoutError, AgentStartFailed, asyncio.CancelledError) as error:
        await _end(process, scratch)
        if isinstance(error, TimeoutError):
            raise AgentStartFailed(f"{binary} serve did not print its address within {START_S:.0f} s.") from error
        raise
    drain = asyncio.create_task(_drain(process), name="hidden opencode output")
    return HiddenServer(url=url, auth=(USER, password), process=process, scratch=scratch, drain=drain)


async def stop(server: HiddenServer) -> None:
    """End the server and remove its home, within little more than STOP_S. May be called after its end."""
    await _end(server.process, server.scratch)
    await server.drain


async def _drain(process: Process) -> None:
    """Read its output until the pipe closes, so that the server never waits for a full pipe."""
    assert process.stdout is not None
    while await process.stdout.read(65536):
        pass


async def _wait_for_listening(process: Process, binary: str) -> str:
    assert process.stdout is not None
    output = b""
    while chunk := await process.stdout.read(65536):
        output += chunk
        match = LISTENING.search(output)
        if match and output.find(b"\n", match.end()) >= 0:
            return match[1].decode()
    tail = output[-2000:].decode("utf-8", "replace").strip()
    raise AgentStartFailed(f"{binary} serve ended before it listened: {tail or 'it printed nothing'}")


async def _end(process: Process, scratch: str) -> None:
    if process.stdin is not None:
        process.stdin.close()
    await wait_at_most(process.wait(), STOP_S)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()
    shutil.rmtree(Path(scratch), ignore_errors=True)
