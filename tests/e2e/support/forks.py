"""Starts our servers by a fork of a process that has imported their modules: 0.2 s of CPU instead of 1.2 s.

In /proc a fork has the command line and the environment of that process; it is a server in all else. That `opencode-shim` itself
starts is shown by tests/process and by the tests of services, sandboxes and documents here.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

IMPORTED = (
    *("shim.cli.commands", "shim.cli.serve_command", "shim.main.app", "shim.main.choose_store", "shim.store.sqlite"),
    *("universal.registry", "universal.agents.claude.codec", "universal.agents.mock.codec", "watchfiles"),
    "anyio._backends._asyncio",
)
"""What a server imports until the end of its first turn, beside its routes."""
LINE_BYTES = 2**20
START_S = 60
WAIT_S = 0.01


class Forks:
    """The process that forks. It ends with this one."""

    def __init__(self) -> None:
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket, self._lock = ours, threading.Lock()
        ours.settimeout(START_S)
        argv = [sys.executable, "-m", __name__, str(its.fileno())]
        self._process = subprocess.Popen(argv, pass_fds=(its.fileno(),), cwd=Path(__file__).parents[3], start_new_session=True)
        its.close()

    def ask(self, **what: Any) -> Any:
        with self._lock:
            self._socket.send(json.dumps(what).encode())
            return json.loads(self._socket.recv(LINE_BYTES))


@cache
def forks() -> Forks:
    return Forks()


class Fork:
    """As `subprocess.Popen`, of a module with this command line."""

    def __init__(self, argv: Sequence[str], cwd: Path, env: Mapping[str, str], log: Path) -> None:
        log.open("ab").close()  # who starts it reads it at once
        self.pid: int = forks().ask(argv=list(argv), cwd=str(cwd), env=dict(env), log=str(log))
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = forks().ask(pid=self.pid)
        return self.returncode

    def wait(self, timeout: float) -> int:
        end = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired("a fork", timeout)
            time.sleep(WAIT_S)
        return code


def serve(connection: socket.socket) -> list[str]:
    """Fork for each request. Out, in each child: its command line, without the program."""
    while request := connection.recv(LINE_BYTES):
        what = json.loads(request)
        if (pid := what.get("pid")) is not None:
            ended, status = os.waitpid(pid, os.WNOHANG)
            connection.send(json.dumps(os.waitstatus_to_exitcode(status) if ended else None).encode())
        elif pid := os.fork():
            connection.send(json.dumps(pid).encode())
        else:
            connection.close()
            become(**what)
            return what["argv"]
    os._exit(0)


def become(argv: list[str], cwd: str, env: dict[str, str], log: str) -> None:
    os.setsid()
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    time.tzset()
    output = os.open(log, os.O_WRONLY | os.O_APPEND)
    for number in (1, 2):
        os.dup2(output, number)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.argv = argv


def main() -> None:
    gc.disable()  # as `shim.cli.imports`
    for name in IMPORTED:
        importlib.import_module(name)
    from shim.cli import main as run
    from shim.dev.scripted.__main__ import main as serve_model
    from shim.routes import FACES, modules
    from shim.routes.table import _shared_table  # pyright: ignore[reportPrivateUsage] - the table without services

    _shared_table(FACES, tuple(modules()))
    gc.freeze()
    gc.enable()
    argv = serve(socket.socket(fileno=int(sys.argv[1])))
    if argv[0] == "scripted":
        asyncio.run(serve_model(int(argv[1]), Path(argv[2])))
    else:
        run()


if __name__ == "__main__":
    main()
