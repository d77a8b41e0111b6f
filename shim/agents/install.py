"""Installs agents with npm into the server's data directory. Nothing else on the machine changes.

    <data dir>/agents/<agent>/node_modules/.bin/<program>     found there before PATH (`shim.processes.locate`)

Each agent has one installation at a time, bounded in time; further calls wait for the running one. The last lines of npm's output
are kept, so that a person can watch.
"""

from __future__ import annotations

import asyncio
import shutil
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import structlog

from shim.agents.directory import AgentDirectory
from shim.lib.clock import Clock
from shim.lib.disk import private_folder
from shim.lib.errors import AgentError
from shim.lib.tasks import end_tasks
from shim.processes.agent_pipes import AgentProcess
from universal.launch import Exit, LaunchSpec

INSTALL_TIMEOUT_S = 600.0
"""Timeout in seconds of one installation. Agents have up to 400 MB."""
LOG_LINES = 40

log = structlog.get_logger(__name__)


class InstallFailed(AgentError):
    """The agent was not installed. The text says why and what to do."""


@dataclass(frozen=True, slots=True)
class Installation:
    """The state of an installation: running, done or failed. Times in epoch milliseconds; `lines`: npm's last lines."""

    state: str
    packages: tuple[str, ...]
    started_ms: int
    ended_ms: int | None = None
    error: str | None = None
    lines: tuple[str, ...] = ()


@dataclass(slots=True)
class _RunningInstall:
    task: asyncio.Task[None]
    lines: deque[str] = field(default_factory=lambda: deque[str](maxlen=LOG_LINES))
    process: AgentProcess | None = None


class Installer:
    """The installations of this server. `folder` is `<data dir>/agents`."""

    def __init__(self, agents: AgentDirectory, folder: Path, clock: Clock, *, timeout_s: float = INSTALL_TIMEOUT_S) -> None:
        self._agents = agents
        self._folder = folder
        self._clock = clock
        self._timeout_s = timeout_s
        self._running: dict[str, _RunningInstall] = {}
        self._installations: dict[str, Installation] = {}

    def state(self, agent: str) -> Installation | None:
        """The running or last installation of an agent, or None if there was none since the server's start."""
        installation, running = self._installations.get(agent), self._running.get(agent)
        return installation if installation is None or running is None else replace(installation, lines=_last_lines(running))

    async def install(self, agent: str) -> None:
        """Install or update an agent. Returns when the program is found. Raises InstallFailed."""
        running = self._running.get(agent)
        if running is None:
            registered = self._agents.get(agent)
            packages = registered.spec.program.npm if registered is not None else ()
            if not packages:
                hint = registered.spec.program.install_hint if registered is not None else ""
                raise InstallFailed(f"{agent} is not installed with npm, so it cannot be done from here. {hint}".rstrip())
            self._installations[agent] = Installation("running", packages, self._clock.now_ms())
            task = asyncio.create_task(self._run(agent, packages), name=f"install {agent}")
            running = self._running[agent] = _RunningInstall(task)
        await asyncio.shield(running.task)

    async def close(self) -> None:
        await end_tasks(*(running.task for running in self._running.values()))

    async def _run(self, agent: str, packages: tuple[str, ...]) -> None:
        log.info("install.started", agent=agent, packages=packages)
        error: str | None = "The server was stopped."
        try:
            await self._npm(agent, packages)
            installed = await self._agents.refresh(agent)
            if not installed.usable:
                raise InstallFailed(f"npm has installed {', '.join(packages)}, but: {installed.located.why}")
            error = None
        except AgentError as failure:
            error = str(failure)
            raise
        finally:
            ended = self._running.pop(agent)
            installation = self._installations[agent]
            state = "failed" if error else "done"
            self._installations[agent] = replace(
                installation, state=state, ended_ms=self._clock.now_ms(), error=error, lines=_last_lines(ended)
            )
            log.info("install.ended", agent=agent, state=state)

    async def _npm(self, agent: str, packages: tuple[str, ...]) -> None:
        environment = self._agents.environment()
        npm = shutil.which("npm", path=environment.get("PATH", ""))
        if npm is None:
            registered = self._agents.get(agent)
            hint = registered.spec.program.install_hint if registered is not None else ""
            raise InstallFailed(
                f"npm was not found on PATH. Install Node.js 22 or newer (nodejs.org), then try again. Or: {hint}"
            )
        folder = self._folder / agent
        try:
            await asyncio.to_thread(private_folder, folder)
        except OSError as error:
            raise InstallFailed(f"Cannot make {folder}: {error.strerror}.") from error
        options = ("--no-audit", "--no-fund", "--no-progress", "--loglevel=http", "--no-save")
        spec = LaunchSpec((npm, "install", "--prefix", str(folder), *options, *packages), cwd=str(folder))
        over: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()
        running = self._running[agent]

        def on_exit(exit_: Exit) -> None:
            if not over.done():
                over.set_result(exit_)

        def on_lines(lines: list[bytes]) -> None:
            running.lines.extend(line.decode("utf-8", "replace") for line in lines)

        running.process = process = await AgentProcess.spawn(spec, environment, on_lines=on_lines, on_exit=on_exit, name="npm")
        process.close_input()
        try:
            async with asyncio.timeout(self._timeout_s):
                exit_ = await asyncio.shield(over)
        except TimeoutError:
            raise InstallFailed(
                f"npm was not done within {self._timeout_s:g} s and was ended. Is its registry reachable?"
            ) from None
        finally:
            process.kill()
            with suppress(asyncio.CancelledError):
                await process.stop()
        if exit_.code != 0:
            output = "\n".join(_last_lines(running)[-15:])
            raise InstallFailed(f"npm failed ({exit_.code if exit_.signal is None else f'signal {exit_.signal}'}):\n{output}")


def _last_lines(running: _RunningInstall) -> tuple[str, ...]:
    """npm's last lines: of stderr, which shows the progress, then of stdout."""
    stderr = running.process.stderr.split("\n") if running.process is not None and running.process.stderr else []
    return tuple([*stderr, *running.lines][-LOG_LINES:])
