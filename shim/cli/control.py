"""`opencode-shim stop` and `opencode-shim restart`: say what runs, then end or renew the servers of a data directory.

stop      a Ctrl-C: agents end
restart   the server ends and begins again in its place, with the program as it is installed now; with `outlive` turns go on
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from http.client import HTTPException
from typing import Any

from shim.cli import screen, service
from shim.cli.local_server import ask
from shim.lib.errors import ShimError
from shim.lib.settings import Settings
from shim.store.servers import ServerRef, present

EXTRA_S = 30.0
"""Seconds beside `drain_seconds` for a server to end, or to begin again."""
LOOK_S = 0.05
"""Seconds between looks."""


def stop(settings: Settings, out: screen.Console) -> int:
    """End all servers of the data directory, and their agents. Raises ShimError if none runs, or one does not end."""
    servers = _say(settings, out, goes_on=False)
    code = service.act(settings, "stop") if service.state(settings) == "active" else 0
    for server in servers:
        _send(server, signal.SIGINT)
    _wait(settings, lambda living: not living.keys() & {server.id for server in servers}, "end")
    screen.line(out, "stopped", "bold")
    return code


def restart(settings: Settings, out: screen.Console) -> int:
    """Let all servers of the data directory begin again. Raises ShimError if none runs, or one does not begin again."""
    servers = _say(settings, out, goes_on=True)
    code = service.act(settings, "restart") if service.state(settings) == "active" else 0
    left = [server for server in servers if server.id in present(settings.data_dir).living]  # those of terminals
    for server in left:
        _send(server, signal.SIGUSR2)

    def have_begun(living: dict[str, ServerRef]) -> bool:
        again = {server.pid for server in living.values() if server.url and server.id not in {old.id for old in left}}
        return again >= {server.pid for server in left}

    _wait(settings, have_begun, "begin again")
    for server in present(settings.data_dir).living.values():
        screen.line(out, f"runs     {server}", "bold")
    return code


def _say(settings: Settings, out: screen.Console, *, goes_on: bool) -> list[ServerRef]:
    """Say which servers and turns there are, and what becomes of them. Out: the servers. Raises ShimError if there are none.

    In: whether turns go on that can.
    """
    servers = [server for server in present(settings.data_dir).living.values() if server.pid and not server.host]
    if not servers:
        raise ShimError(f"No server runs on {settings.data_dir}. Another one: --data-dir.")
    for server in servers:
        screen.line(out, f"server   {server}")
        sessions: list[Any] | None = None
        with suppress(OSError, ValueError, KeyError, HTTPException):
            sessions = json.loads(ask(settings, f"{server.url}/v1/sessions")[1])["sessions"]
        if sessions is None:
            screen.line(out, "note     it does not say which turns run", "yellow")
        for session in sessions or ():
            if session.get("status") not in (None, "idle"):
                name = session.get("title") or session["sessionId"]
                what = "goes on" if goes_on and session.get("outlives") else "ends"
                screen.line(out, f"turn     {what}: {name} ({session['agent']}, {session.get('directory')})", "yellow")
    return servers


def _send(server: ServerRef, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(server.pid, number)


def _wait(settings: Settings, is_over: Callable[[dict[str, ServerRef]], bool], what: str) -> None:
    """Wait until the living servers are as they should be. Raises ShimError."""
    until = time.monotonic() + settings.drain_s + EXTRA_S
    while not is_over(living := present(settings.data_dir).living):
        if time.monotonic() > until:
            names = ", ".join(map(str, living.values())) or "no server"
            raise ShimError(f"Not all servers did {what}: there is {names}. One of a TUI or another program ends with it.")
        time.sleep(LOOK_S)
