"""Who is measured: our server, native OpenCode, its peer, the floor. Each is one process (and its children) on a fresh place.

start(place) -> Contender; close() ends it
url, pid                    of the process that serves
create() -> session id      over a kept connection
prompt(session, deltas=N, rate=R, parts=N)
mark, end                   what stands in the stream once for a piece of text, and once at a turn's end
"""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import socket
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from shim.dev.record.homes import OPENCODE_ENV
from tests.e2e.support.agents import native_config
from tests.e2e.support.children import Child
from tests.e2e.support.places import MODULES, REPO, Place, program
from tests.e2e.support.servers import Model, configure

HERE = Path(__file__).parent
START_S = 60
REQUEST_S = 60
"""For one answer."""
POLL_S = 0.005
TICKS = os.sysconf("SC_CLK_TCK")


class Usage(NamedTuple):
    """CPU seconds and resident bytes of a process."""

    cpu_s: float
    rss: int


def usage(pid: int) -> Usage:
    """Of one process, without its children: agents are not what is measured."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return Usage(_cpu_s(pid), pages * os.sysconf("SC_PAGE_SIZE"))


def _cpu_s(pid: int) -> float:
    """To the nanosecond where the kernel counts so for each thread, else to its tick, which is a fifth of what is measured."""
    nanoseconds = 0
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError, ValueError, IndexError):  # it may have ended meanwhile
            nanoseconds += int((thread / "schedstat").read_text().split()[0])
    if nanoseconds:
        return nanoseconds / 1e9
    stat = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(stat[11]) + int(stat[12])) / TICKS


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


@dataclass
class Contender:
    """A server that runs; `cold` is what it took until its health answered."""

    name: str
    place: Place
    child: Child
    port: int
    health: str = "/global/health"
    mark: str = '"message.part.delta"'
    end: str = '"session.idle"'
    stream: str = "/event"
    cold_s: float = 0.0
    cold_cpu_s: float = 0.0
    helpers: list[Any] = field(default_factory=list)
    _connection: http.client.HTTPConnection | None = None

    @property
    def pid(self) -> int:
        return self.child.pid

    def usage(self) -> Usage:
        return usage(self.pid)

    def request(self, method: str, path: str, body: Any = None) -> bytes:
        """One request on a kept connection. Raises RuntimeError for a status that is no success."""
        if self._connection is None:
            self._connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=REQUEST_S)
        data = None if body is None else json.dumps(body)
        try:
            self._connection.request(method, path, data, {"Content-Type": "application/json"} if data else {})
            answer = self._connection.getresponse()
            text = answer.read()
        except TimeoutError:
            self._connection.close()
            raise RuntimeError(f"{self.name}: {method} {path} was not answered within {REQUEST_S} s") from None
        if answer.status >= 300:
            raise RuntimeError(f"{self.name}: {method} {path} -> {answer.status} {text[:300]!r}")
        return text

    def reconnect(self) -> None:
        """Ask on a new connection from now on."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def until_healthy(self, began: float) -> None:
        """Asks for its health until it answers; notes time and CPU."""
        while time.monotonic() - began < START_S:
            try:
                self.request("GET", self.health)
            except (OSError, http.client.HTTPException, RuntimeError):
                self._connection = None
                if self.child.process.poll() is not None:
                    raise AssertionError(f"{self.name} ended: {self.child.log()[-2000:]}") from None
                time.sleep(POLL_S)
            else:
                self.cold_s, self.cold_cpu_s = time.monotonic() - began, self.usage().cpu_s
                return
        raise AssertionError(f"{self.name} is not healthy after {START_S} s: {self.child.log()[-2000:]}")

    def create(self) -> str:
        return json.loads(self.request("POST", "/session", {}))["id"]

    def prompt(self, session: str, *, deltas: int = 0, rate: int = 0, parts: int = 0) -> None:
        text = f"[deltas:{deltas}] [rate:{rate}] [parts:{parts}]"
        self.request("POST", f"/session/{session}/prompt_async", {"parts": [{"type": "text", "text": text}], **self.model})

    @property
    def model(self) -> dict[str, Any]:
        return {}

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self.child.close()
        for helper in self.helpers:
            helper.close()


class Shim(Contender):
    """opencode-shim, with the agent of `agent.py` as its Claude Code."""

    @property
    def model(self) -> dict[str, Any]:
        return {"model": {"providerID": "claude", "modelID": "default"}}


class Native(Contender):
    """`opencode serve` with the scripted model at no delay."""

    def prompt(self, session: str, *, deltas: int = 0, rate: int = 0, parts: int = 0) -> None:
        text = f"[scene:long:{deltas or 1}]"
        self.request("POST", f"/session/{session}/prompt_async", {"parts": [{"type": "text", "text": text}]})


class Floor(Contender):
    """`floor.py`: the answer that our server gave is written again, whatever is asked for."""


class Peer(Contender):
    """`sandbox-agent server`: started and created on only, since its sessions need agents of its own making."""


def shim(place: Place, data: Path | None = None, **settings: str) -> Contender:
    """`settings`: more of its environment."""
    port, agent = free_port(), place.root / "claude"
    shutil.copy(HERE / "agent.py", agent)
    agent.write_text(agent.read_text().replace("#!/usr/bin/env python3", f"#!{sys.executable} -S"))
    agent.chmod(0o755)
    argv = [str(REPO / ".venv" / "bin" / "opencode-shim"), "serve", "--port", str(port), "--directory", str(place.project),
            "--data-dir", str(data or place.home / "data"), "--default-agent", "claude", "--log-level", "warn"]  # fmt: skip
    began = time.monotonic()
    env = place.env(SHIM_CLAUDE_BIN=str(agent), **settings)
    found = Shim("opencode-shim", place, Child(argv, place.project, env, place.log("shim")), port)
    found.until_healthy(began)
    return found


def native(place: Place) -> Contender:
    model = Model(place)
    configure(place, native_config(model.url))
    argv = [program("opencode"), "serve", "--port", "0"]
    began = time.monotonic()
    child = Child(argv, place.project, place.env(**OPENCODE_ENV), place.log("native"))
    port = int(child.wait_log(lambda log: re.search(r"listening on \S*:(\d+)", log), START_S).group(1))
    found = Native("opencode 1.18.33", place, child, port, helpers=[model])
    found.until_healthy(began)
    return found


def peer(place: Place) -> Contender:
    port = free_port()
    binary = MODULES / "@sandbox-agent" / "cli" / "bin" / "sandbox-agent"
    argv = ["node", str(binary)] if binary.exists() and binary.read_bytes()[:2] == b"#!" else [str(binary)]
    argv += ["server", "--no-token", "--no-telemetry", "--port", str(port)]
    began = time.monotonic()
    found = Peer(
        "sandbox-agent 0.4.2", place, Child(argv, place.project, place.env(), place.log("peer")), port, health="/v1/health"
    )
    found.until_healthy(began)
    return found


def floor(place: Place, frames: Path | None = None) -> Contender:
    port = free_port()
    argv = [sys.executable, str(HERE / "floor.py"), str(port), *([str(frames)] if frames else [])]
    began = time.monotonic()
    found = Floor("floor", place, Child(argv, place.project, place.env(), place.log("floor")), port)
    found.until_healthy(began)
    return found


STARTERS = {"shim": shim, "native": native, "peer": peer, "floor": floor}
