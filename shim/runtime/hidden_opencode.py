"""A hidden `opencode serve`, for what only OpenCode itself has: the files of its web UI.

It sees a home of its own (a scratch directory, removed at the end), so nothing of the person's is read or written, and
it wants a random password, so that no other program on this machine finds an open OpenCode server.
It cannot outlive us, even after `kill -9`: a shell waits at the other end of a pipe that we hold, and ends it when that closes.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import shutil
import signal
import socket
import tempfile
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from shim.errors import AgentNotFound, AgentStartFailed
from shim.runtime import child
from shim.runtime.aliases import find_program, is_alias
from shim.runtime.environment import ChildEnvironment, child_environment

ENV_BINARY = "SHIM_OPENCODE_BIN"
INSTALL_HINT = "Install it (npm install -g opencode-ai), put it on PATH, or name it in SHIM_OPENCODE_BIN."
START_S = 30.0
"""A first start in a fresh home makes a database; 1 to 5 s were seen, more on a machine that is busy."""
STOP_S = 3.0
"""After its pipe has closed; then the group is killed."""
USER = "opencode"
PREFIX = "opencode-shim-ui-"
KEEPER = (
    'scratch=$1; shift; exec 3<&0; "$@" </dev/null 3<&- & child=$!; exec >/dev/null 2>&1; cat <&3; '
    f'kill "$child"; wait "$child"; case "$scratch" in */{PREFIX}*) cd / && rm -rf -- "$scratch";; esac'
)
"""`sh -c KEEPER sh SCRATCH ARGV...`: runs ARGV until stdin closes, then removes SCRATCH. It lets go of stdout, so that a child
that ends by itself is seen."""
LISTENING = re.compile(rb"listening on (https?://\S+)")


@dataclass(frozen=True, slots=True)
class HiddenServer:
    """A running one: its base `url`, and `auth` (user, password) that each request must carry."""

    url: str
    auth: tuple[str, str] = field(repr=False)
    process: Process = field(repr=False)
    scratch: str = field(repr=False)
    drain: asyncio.Task[None] = field(repr=False)


def find_binary(environ: Mapping[str, str]) -> str:
    """The `opencode` to use: $SHIM_OPENCODE_BIN, else the first on PATH. Raises: AgentNotFound, with what to do."""
    named = environ.get(ENV_BINARY)
    if named:
        found = shutil.which(named, path=environ.get("PATH"))
        if found is None:
            raise AgentNotFound(f"{ENV_BINARY} is {named}, which is not an executable file.")
        if is_alias(found):
            raise AgentNotFound(f"{ENV_BINARY} is {named}, which is opencode-shim itself under another name. {INSTALL_HINT}")
        return found
    found = find_program("opencode", environ.get("PATH", os.defpath))
    if found is None:
        raise AgentNotFound(f"The web UI's files are inside of the `opencode` program, which is not on PATH. {INSTALL_HINT}")
    return found


def environment(environ: Mapping[str, str], scratch: str, password: str) -> ChildEnvironment:
    """The person's environment less what would lead it to the person's files and settings."""
    gone: dict[str, str | None] = {name: None for name in environ if name.startswith(("OPENCODE", "XDG_"))}
    home = {name: scratch for name in ("HOME", "USERPROFILE", "TMPDIR")}
    off = ("DISABLE_AUTOUPDATE", "DISABLE_MODELS_FETCH", "DISABLE_DEFAULT_PLUGINS", "DISABLE_LSP_DOWNLOAD", "DISABLE_CLAUDE_CODE")
    switches = {f"OPENCODE_{name}": "1" for name in off}
    return child_environment(environ, {**gone, **home, **switches, "OPENCODE_SERVER_PASSWORD": password})


async def start(environ: Mapping[str, str] | None = None) -> HiddenServer:
    """Starts one on a free loopback port. Raises: AgentNotFound, AgentStartFailed (with the end of what it said)."""
    variables = os.environ if environ is None else environ
    binary = find_binary(variables)
    password = secrets.token_urlsafe(24)
    scratch = tempfile.mkdtemp(prefix=PREFIX)
    argv = [binary, "serve", "--hostname", "127.0.0.1", "--port", str(_free_port())]
    process = await child.start(
        ("/bin/sh", "-c", KEEPER, "sh", scratch, *argv),
        cwd=scratch,
        environment=environment(variables, scratch, password),
        stdin=PIPE,
        stderr=STDOUT,
    )
    try:
        url = await asyncio.wait_for(_wait_for_listening(process, binary), START_S)
    except (TimeoutError, AgentStartFailed, asyncio.CancelledError) as error:
        await _end(process, scratch)
        if isinstance(error, TimeoutError):
            raise AgentStartFailed(f"{binary} serve did not say within {START_S:.0f} s where it listens.") from error
        raise
    drain = asyncio.create_task(_drain(process), name="hidden opencode output")
    return HiddenServer(url=url, auth=(USER, password), process=process, scratch=scratch, drain=drain)


def _free_port() -> int:
    """Not `--port 0`: OpenCode tries 4096 first then, which is where we serve ourselves."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


async def stop(server: HiddenServer) -> None:
    """Ends it and removes its home. Within STOP_S + a moment; may be called when it has ended already."""
    await _end(server.process, server.scratch)
    await server.drain


async def _drain(process: Process) -> None:
    """Reads on, so that it never waits for a full pipe; ends when the pipe is closed."""
    assert process.stdout is not None
    while await process.stdout.read(65536):
        pass


async def _wait_for_listening(process: Process, binary: str) -> str:
    assert process.stdout is not None
    said = b""
    while chunk := await process.stdout.read(65536):
        said += chunk
        found = LISTENING.search(said)
        if found and said.find(b"\n", found.end()) >= 0:
            return found[1].decode()
    tail = said[-2000:].decode("utf-8", "replace").strip()
    raise AgentStartFailed(f"{binary} serve ended before it listened: {tail or 'it said nothing'}")


async def _end(process: Process, scratch: str) -> None:
    if process.stdin is not None:
        process.stdin.close()
    with suppress(TimeoutError):
        await asyncio.wait_for(process.wait(), STOP_S)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()
    shutil.rmtree(Path(scratch), ignore_errors=True)
