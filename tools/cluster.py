"""Starts a cluster on this machine, for a trial: NATS, servers with agents, and a front without.

    python -m tools.cluster [--nodes 3] [--directory .] [--data DIR]

It prints what to attach to. Ctrl-C ends all; a server that is killed meanwhile is named, and the others go on. `--data` keeps the
sessions for the next time; without it they are in a temporary directory, and gone at the end.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import tempfile
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from shim.cluster.nats.nats_process import EmbeddedServer
from shim.lib.errors import StoreError

START_S = 180.0
"""Maximum seconds until a server listens."""
STOP_S = 15.0
"""Maximum seconds for a server to end; then it is killed."""
RUN = "import sys; from shim.cli import main; sys.exit(main())"


@dataclass(frozen=True, slots=True)
class Server:
    """One server of the cluster."""

    name: str
    process: Process
    url: str
    log: Path


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


async def start_server(
    name: str, nats_url: str, directory: Path, data: Path, *arguments: str, port: int = 0, environment: Mapping[str, str]
) -> Server:
    """Start a server, on a free port unless one is named. Its log is continued.

    Raises RuntimeError or TimeoutError if it does not listen within START_S.
    """
    folder = data / name
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "server.log"
    argv = ["serve", "--port", str(port), "--directory", str(directory), "--data-dir", str(folder), "--cluster-name", name]
    with log.open("ab") as errors:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", RUN, *argv, "--cluster", nats_url, *arguments),
            env=dict(environment),
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=errors,
            start_new_session=True,  # Ctrl-C is for this program, which ends the servers before NATS
        )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(START_S):
            line = (await process.stdout.readline()).decode()
            if "listening on" not in line:
                raise RuntimeError(f"{name} did not start: see {log}")
    except (RuntimeError, TimeoutError):
        await stop_server(Server(name, process, "", log))
        raise
    return Server(name, process, line.split()[-1], log)


async def stop_server(server: Server) -> None:
    """End a server as its user would. May be called again."""
    if server.process.returncode is not None:
        return
    server.process.send_signal(signal.SIGTERM)
    try:
        async with asyncio.timeout(STOP_S):
            await server.process.wait()
    except TimeoutError:
        server.process.kill()
        await server.process.wait()


async def watch(server: Server) -> None:
    """Read what a server prints, and say when it has ended."""
    assert server.process.stdout is not None
    while await server.process.stdout.readline():
        pass
    code = await server.process.wait()
    say(f"{server.name} has ended with {code}; the others go on. Log: {server.log}")


async def run(nodes: int, directory: Path, data: Path) -> None:
    """Run a cluster until this task is cancelled."""
    async with AsyncExitStack() as ends:
        nats = EmbeddedServer(data)
        await nats.start()
        ends.push_async_callback(nats.stop)
        say(f"NATS     {nats.url}, data and logs in {data}")
        names = [*(f"node{number}" for number in range(1, nodes + 1)), "front"]
        servers: list[Server] = []
        environment = {**os.environ, "SHIM_CLUSTER_PASSWORD": nats.token}
        for name in names:
            arguments = ("--no-agents",) if name == "front" else ()
            server = await start_server(name, nats.url, directory, data, *arguments, environment=environment)
            ends.push_async_callback(stop_server, server)
            servers.append(server)
            say(f"{name:<8} {server.url}   pid {server.process.pid}")
        say(f"\nattach   opencode attach {servers[-1].url} --dir {directory}   (or any of the others)")
        say("Kill a node to see its sessions go on in another. Ctrl-C ends all.")
        watchers = [asyncio.create_task(watch(server)) for server in servers]
        try:
            await asyncio.Event().wait()
        finally:
            for watcher in watchers:
                watcher.cancel()
            say("ending ...")
            await asyncio.gather(*watchers, *map(stop_server, servers), return_exceptions=True)


async def run_until_signal(nodes: int, directory: Path, data: Path) -> int:
    """Run a cluster until Ctrl-C or SIGTERM. Returns the exit code."""
    task = asyncio.ensure_future(run(nodes, directory, data))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, task.cancel)
    try:
        await task
    except asyncio.CancelledError:
        return 0
    except (StoreError, RuntimeError, TimeoutError) as error:
        sys.stderr.write(f"cluster: {error}\n")
        return 1
    return 0


def main() -> int:
    """Start a cluster."""
    parser = argparse.ArgumentParser(description="Start a cluster on this machine.")
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--directory", type=Path, default=Path())
    parser.add_argument("--data", type=Path)
    options = parser.parse_args()
    directory = options.directory.resolve()
    if options.data is not None:
        return asyncio.run(run_until_signal(options.nodes, directory, options.data.resolve()))
    with tempfile.TemporaryDirectory(prefix="opencode-shim-cluster-") as folder:
        return asyncio.run(run_until_signal(options.nodes, directory, Path(folder)))


if __name__ == "__main__":
    sys.exit(main())
