"""The machines of a run: NATS servers with three copies of all, nodes, and a wire from each node to NATS."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import Mapping
from pathlib import Path

from shim.cluster.nats.connection import Connection
from shim.cluster.nats.layout import ClusterOptions, Layout
from shim.cluster.nats.leases import LEASE_S
from shim.lib.errors import StoreError
from tests.support.nats_server import NatsServer, nats_cluster
from tools.chaos.proxy import Wire
from tools.chaos.readings import have_all_copies
from tools.cluster import Server, start_server, stop_server

REPO = Path(__file__).resolve().parents[2]
AGENT = REPO / "tests" / "bench" / "agent.py"
"""An agent that is a process, and costs little: it speaks as Claude Code does."""
REPLICAS = 3
ROOM_BYTES = 192 * 2**20
"""Bytes that JetStream may keep on each NATS server: more than a run writes, and little enough to be filled."""
CURRENT_S = 90.0
"""Maximum seconds until each NATS server has what the others have."""
POLL_S = 0.25
MARK = "OPENCODE_SHIM_CHAOS"
"""Variable of all processes of a run, by which they are found."""
DRAIN_S = "4"
"""Seconds that turns have to end after SIGTERM. Some hang for longer."""
STARTS = 3
"""Tries to start a node: NATS may have no leader for longer than a node waits."""


class Node:
    """A server of the cluster, its data directory and its wire. Its URL stays the same after a restart."""

    def __init__(self, name: str, wire: Wire, directory: Path, data: Path, environment: Mapping[str, str]) -> None:
        self.name = name
        self.wire = wire
        self.url = ""
        self.is_paused = False
        self._directory = directory
        self._data = data
        self._environment = environment
        self._server: Server | None = None

    @property
    def pid(self) -> int:
        """Its process; 0 while it is dead."""
        return 0 if self._server is None else self._server.process.pid

    @property
    def log(self) -> Path:
        """What it writes to stderr."""
        return self._data / self.name / "server.log"

    async def start(self) -> None:
        """Start it on its data. Raises RuntimeError or TimeoutError."""
        port = int(self.url.rpartition(":")[2] or 0)
        for attempt in range(STARTS):
            try:
                self._server = await start_server(
                    self.name, self.wire.url, self._directory, self._data, port=port, environment=self._environment
                )
            except RuntimeError:
                if attempt == STARTS - 1:
                    raise
            else:
                self.url = self._server.url
                return

    async def kill(self) -> None:
        """End it with -9."""
        if self._server is not None:
            process, self._server = self._server.process, None
            process.kill()
            await process.wait()

    async def stop(self) -> None:
        """End it as its user would."""
        self.resume()
        if self._server is not None:
            await stop_server(self._server)
            self._server = None

    def pause(self) -> None:
        """Let it do nothing, while its connections stay."""
        if self._server is not None:
            self._server.process.send_signal(signal.SIGSTOP)
            self.is_paused = True

    def resume(self) -> None:
        """End a pause."""
        if self._server is not None and self.is_paused:
            self._server.process.send_signal(signal.SIGCONT)
        self.is_paused = False

    @property
    def process(self) -> Process | None:
        """Its process, or None."""
        return None if self._server is None else self._server.process


class Machines:
    """All machines. Numbers begin with 1."""

    def __init__(self, folder: Path, nodes: int, mark: str) -> None:
        self._folder = folder
        self.mark = mark
        settings = folder / "nats.conf"
        settings.write_text(f"jetstream {{ max_file_store: {ROOM_BYTES} }}\n")
        self.nats: list[NatsServer] = nats_cluster(folder, REPLICAS, "-c", str(settings))
        self.nodes: list[Node] = []
        self._count = nodes

    @property
    def options(self) -> ClusterOptions:
        """How to reach NATS without a wire."""
        return ClusterOptions(tuple(server.url for server in self.nats), replicas=REPLICAS)

    async def start(self) -> None:
        """Start all. Raises RuntimeError or TimeoutError."""
        for server in self.nats:
            await asyncio.to_thread(server.start)
        await self.wait_until_current()
        environment = self._environment()
        project = self._folder / "project"
        project.mkdir()
        for number in range(1, self._count + 1):
            wire = Wire([server.port for server in self.nats])
            await wire.open()
            self.nodes.append(Node(f"node{number}", wire, project, self._folder, environment))
        await asyncio.gather(*(node.start() for node in self.nodes))

    def _environment(self) -> dict[str, str]:
        """That of the nodes: a home of their own, and no agents but the mock and AGENT."""
        agent = self._folder / "claude"
        agent.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "{AGENT}" "$@"\n')
        agent.chmod(0o755)
        home = self._folder / "home"
        home.mkdir()
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("SHIM_", "OPENCODE", "XDG_"))}
        return kept | {
            "HOME": str(home),
            "PATH": "/usr/bin:/bin",
            MARK: self.mark,
            "SHIM_CLAUDE_BIN": str(agent),
            "SHIM_CLUSTER_REPLICAS": str(REPLICAS),
            "SHIM_DEFAULT_AGENT": "mock",
            "SHIM_DRAIN_SECONDS": DRAIN_S,
            "SHIM_MAX_AGENTS": "10000",
            "SHIM_MOCK_DELAY_FACTOR": "0.5",
            "SHIM_SPARE_AGENTS": "0",
        }

    async def stop(self) -> None:
        """End all."""
        for node in self.nodes:
            node.wire.mend()
        await asyncio.gather(*(node.stop() for node in self.nodes))
        for node in self.nodes:
            await node.wire.close()
        for server in self.nats:
            await asyncio.to_thread(server.stop)

    async def wait_until_current(self) -> None:
        """Wait until each stream has a leader and three current copies. Creates the streams. Raises TimeoutError."""
        async with asyncio.timeout(CURRENT_S):
            while not await self._is_current():  # noqa: ASYNC110 - NATS gives no event of it
                await asyncio.sleep(POLL_S)

    async def _is_current(self) -> bool:
        connection, layout = Connection(self.options, "chaos"), Layout(self.options.prefix, LEASE_S)
        try:
            await connection.open()
            await connection.prepare(layout)
            return await have_all_copies(self.options.servers, [stream.name for stream in layout.streams], REPLICAS)
        except StoreError:
            return False  # no leader yet
        finally:
            await connection.close()
