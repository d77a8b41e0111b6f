"""Finds the agents of this machine, asks them what they offer, and starts them.

    start          looks for all programs (files only) and reads the results of earlier discoveries from the store
    (background)   asks each agent for version and catalogue, two agents at a time, and stores them
    available      waits for agents without a stored catalogue; one that fails to answer keeps the catalogue of its spec
    spawn          starts a process, or an agent that runs inside of the server

An `Agent` is a value. `get`, `all` and `available` return a new one after each discovery.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Any

import structlog

from shim.agents import discovery
from shim.agents.keys import KeyStore, key_variables
from shim.agents.plugins import BrokenPlugin
from shim.host.config import jsonc
from shim.lib import disk
from shim.lib.clock import Clock
from shim.lib.errors import AgentError, AgentNotFound, AgentStartFailed, StoreError
from shim.lib.ids import Ids
from shim.lib.tasks import end_tasks, wait_at_most
from shim.processes import process_family
from shim.processes.agent_pipes import AgentProcess
from shim.processes.child_environment import child_environment
from shim.processes.handle import AgentHandle, JudgeHost, OnExit, OnLines, refuse_host
from shim.processes.http_agent import HttpAgent, with_bridge
from shim.processes.inprocess import InProcessAgent, Program
from shim.processes.locate import ProgramLocation, VersionCache, find, locate, stamp_of
from shim.processes.mock.agent import mock_program
from shim.processes.recorder import RecordedHandle, Recorder
from shim.store.base import Store
from universal.agent_spec import AgentSpec
from universal.codec import Catalogue, Codec, Model
from universal.launch import Exit, LaunchOptions, LaunchSpec, SettingsFile
from universal.lib.jsonvalue import obj
from universal.lib.paths import expand

if TYPE_CHECKING:
    from shim.processes.egress import Egress
    from shim.processes.holder_link import Hold

# --- settings files of a process --------------------------------------------------------------------------------

OWN_LIMIT_BYTES = 2**20
"""Maximum size of the person's own settings."""
PREFIX = "opencode-shim-settings-"


def write(launch: LaunchSpec, settings: SettingsFile, held: Path | None = None) -> tuple[LaunchSpec, Path]:
    """Write the file. Out: the launch with its path at the end, and the folder to remove. Blocking. Raises AgentStartFailed.

    In: `held`, the folder of its holder, which removes it itself.
    """
    values = settings.change(_settings_of_person(settings))
    try:
        if held is not None:
            held.mkdir(parents=True, mode=0o700)
        folder = held or Path(tempfile.mkdtemp(prefix=PREFIX))  # for its owner alone
        file = folder / "settings.json"
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            json.dump(values, stream)
    except OSError as error:
        raise AgentStartFailed(
            f"The agent was not started: the file with your permission rules could not be written ({error}). "
            "Make room in the folder for temporary files (TMPDIR), then try again."
        ) from error
    return replace(launch, argv=(*launch.argv, settings.option, str(file)), settings=None), folder


def remove(folder: Path) -> None:
    """Remove the folder of a settings file; one that is gone is fine. Blocking."""
    rmtree(folder, ignore_errors=True)


def _settings_of_person(settings: SettingsFile) -> Mapping[str, Any]:
    """The person's own settings. Raises AgentStartFailed for those that cannot be read."""
    for source in map(Path, settings.sources):
        try:
            return obj(jsonc.loads(disk.read_small(source, OWN_LIMIT_BYTES).decode("utf-8")))
        except (FileNotFoundError, NotADirectoryError):
            continue
        except (OSError, ValueError) as error:
            raise AgentStartFailed(
                "The agent was not started: your permission rules are to stand before its own settings, but "
                f"{source} cannot be read: {error}. Correct that file, then try again."
            ) from error
    return {}


# --- launch values ----------------------------------------------------------------------------------------------

NAMES = ("native_session_id", "model", "variant", "mode")
"""Fields of `LaunchOptions` that come from clients, agents or imported files and that codecs put into argv."""


def refuse_options(options: LaunchOptions) -> None:
    """Raise AgentStartFailed for a value with a NUL, or one that an agent could take for an option (`--flag`)."""
    for name in NAMES:
        value = getattr(options, name)
        if value and (value.startswith("-") or "\0" in value):
            raise AgentStartFailed(
                f"The agent was not started: its {name.replace('_', ' ')} is {value[:60]!r}, which looks like an option."
            )


# --- the agents of this machine ---------------------------------------------------------------------------------

DISCOVERY_WAIT_S = 10.0
"""Seconds that `available` waits for discoveries, at the first start on a machine."""
HTTP_TIMES = 4
"""How much longer an agent behind HTTP may take: a server starts. OpenCode took over 20 s in 8 of 13 starts on loaded cores."""
LOGGED_OUT = frozenset({"authentication_failed"})
"""Error codes with which codecs report that the agent is not logged in."""
AT_ONCE = 2
"""Number of concurrent discoveries. Each takes a processor for a second or two."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Agent:
    """The facts about an agent so far.

    `trouble` says why `catalogue` is only the default of the spec; it is empty if the agent reported its own. `logged_out` is
    True if the agent reported that; `slow` if it ran and did not answer in time.
    """

    spec: AgentSpec
    located: ProgramLocation
    catalogue: Catalogue
    trouble: str = ""
    logged_out: bool = False
    slow: bool = False

    @property
    def usable(self) -> bool:
        """True if the agent can be started: it is installed, or needs no installation."""
        return not self.located.why


def _ignore(_: str) -> None:
    """Nobody is told."""


class Listeners:
    """Who is told of what happens to agents.

    spawned  a process has started, of this agent
    limits   an agent has told other limits of a model, in a session of this directory
    """

    def __init__(self) -> None:
        self.spawned: Callable[[str], None] = _ignore
        self.limits: Callable[[str], None] = _ignore


class AgentDirectory:
    """All agents of the registry on this machine.

    In: the registry, in order of preference; `default_agent` by name; `environ`, the person's environment;
    `delay_factor` for the mock's waits; `record_dir` for raw traffic; `programs` that run inside of the server, by agent;
    `owner`, the name that marks this server's processes, so that `start` ends those that an earlier server left behind;
    `broken`, entry points of packages that failed to load; `packages`, agent -> the package that added it.
    """

    def __init__(
        self,
        specs: Mapping[str, AgentSpec],
        *,
        clock: Clock,
        ids: Ids,
        store: Store,
        default_agent: str | None = None,
        environ: Mapping[str, str],
        is_root: bool | None = None,
        delay_factor: float = 1.0,
        programs: Mapping[str, Program] | None = None,
        discovery_timeout_s: float = discovery.DISCOVERY_TIMEOUT_S,
        record_dir: Path | None = None,
        keys: KeyStore | None = None,
        owner: str = "",
        orphans: Callable[[], Sequence[str]] = lambda: (),
        broken: Sequence[BrokenPlugin] = (),
        packages: Mapping[str, str] | None = None,
        traceparent: Callable[[], str | None] = lambda: None,
    ) -> None:
        self._specs = dict(specs)
        self.broken = tuple(broken)
        self.packages = dict(packages or {})
        self.listeners = Listeners()
        self.keys = keys or KeyStore(None)
        """API keys from clients. Agents are started with them."""
        self._clock = clock
        self._ids = ids
        self._store = store
        self._default_name = default_agent
        self._environ = process_family.with_owner(environ, owner) if owner else environ
        self._owner = owner
        self._orphans = orphans
        self._traceparent = traceparent
        self._is_root = hasattr(os, "geteuid") and os.geteuid() == 0 if is_root is None else is_root
        self._programs = {"mock": mock_program(delay_factor=delay_factor), **(programs or {})}
        self._discovery_timeout_s = discovery_timeout_s
        self._record_dir = record_dir
        self._agents: dict[str, Agent] = {}
        self.get: Callable[[str], Agent | None] = self._agents.get
        """Returns an agent, usable or not, or None if it is unknown. A prompt asks six times."""
        self._stamps: dict[str, str | None] = {}
        self._has_offer = {name: asyncio.Event() for name in self._specs}
        """Set once an agent's catalogue is known, or its discovery has failed."""
        self._asking: dict[str, asyncio.Task[Catalogue | None]] = {}
        self._versions = VersionCache()
        self._slots = asyncio.Semaphore(AT_ONCE)

    # --- start and stop ----------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """End the processes of killed servers, look for all programs, and start the discoveries.

        Raises AgentNotFound for an unknown `default_agent`.
        """
        for owner in self._orphans():
            if orphans := await asyncio.to_thread(process_family.end_owned, owner):
                log.warning("agent.orphans_ended", count=orphans)
        self.set_default(self._default_name)
        for broken in self.broken:
            log.warning("plugin.left_out", entry=broken.entry, package=broken.package, why=broken.why)
        offers = await self._stored_offers()
        programs = await asyncio.to_thread(lambda: list(map(self._find, self._specs.values())))
        for spec, (located, stamp) in zip(self._specs.values(), programs, strict=True):
            self._stamps[spec.name] = stamp
            self._agents[spec.name] = Agent(spec, located, spec.abilities.catalogue)
            offer = offers.get(spec.name)
            if offer is not None and offer.path == located.path and offer.stamp == stamp:
                self._agents[spec.name] = Agent(spec, replace(located, version=offer.version), offer.catalogue)
                self._has_offer[spec.name].set()
            if located.why and not spec.program.shared_binaries:
                self._has_offer[spec.name].set()
            if spec.program.transport == "stdio" and (not located.why or spec.program.shared_binaries):
                self._ask(spec.name)

    async def close(self) -> None:
        """Stop the discoveries and end leftover processes, above all background jobs of a person's `!command`.

        Running agents belong to the callers of `spawn`.
        """
        await end_tasks(*self._asking.values())
        if self._owner and (orphans := await asyncio.to_thread(process_family.end_owned, self._owner)):
            log.info("agent.left_ended", count=orphans, why="they had not ended with their server")

    async def settle(self) -> None:
        """Discover all, and wait for it. Bounded by the discovery's timeout and the time to stop a process."""
        for name in self._specs:
            self._ask_late(name)
        running = [task for task in self._asking.values() if not task.done()]
        if running:
            await asyncio.wait(running)

    # --- the agents ---------------------------------------------------------------------------------------

    def list_agents(self) -> list[Agent]:
        """Return every known agent, usable or not, in the order of preference."""
        return list(self._agents.values())

    def key_variables(self) -> dict[str, tuple[str, ...]]:
        """Agent or model provider that takes an API key -> the variables that hold the key."""
        return key_variables(agent.spec for agent in self._agents.values())

    @cached_property
    def rule_files(self) -> tuple[str, ...]:
        """Files that hold the rules of any agent, as patterns of `edit`."""
        settings = (spec.rules.project_settings for spec in self._specs.values())
        return tuple(dict.fromkeys(name for use in settings for name in use.rule_files))

    def title_of(self, name: str) -> str:
        """Return what people call an agent; its name if it is not here any more."""
        return self._specs[name].title if name in self._specs else name

    def set_default(self, name: str | None) -> None:
        """Set the agent for prompts that name no model. None means the first installed one. Raises AgentNotFound if unknown."""
        if name is not None and name not in self._specs:
            raise AgentNotFound(f'There is no agent named "{name}" (setting default_agent). Known: {", ".join(self._specs)}.')
        self._default_name = name

    def default(self) -> Agent:
        """Return the agent for prompts that name no model: of the settings, else the first installed one, else a built-in one.

        Raises AgentNotFound if there is none at all.
        """
        if self._default_name is not None:
            return self._agents[self._default_name]
        built_in = None
        for agent in self._agents.values():
            if agent.usable and agent.spec.program.binaries:
                return agent
            if agent.usable and built_in is None:
                built_in = agent
        if built_in is None:
            raise AgentNotFound("No agent is installed, and none is built in.")
        return built_in

    async def available(self, timeout_s: float = DISCOVERY_WAIT_S) -> list[Agent]:
        """Return the usable agents, the default first, after the discoveries of all, `timeout_s` at most.

        It waits for no agent behind HTTP, which takes 10 s and more. Such an agent is asked now if nothing is known of it.
        """
        for name, has_offer in self._has_offer.items():
            if not has_offer.is_set():
                self._ask_late(name)
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                for name, spec in self._specs.items():
                    if spec.program.transport == "stdio":
                        await self._has_offer[name].wait()
        return self.usable()

    def usable(self) -> list[Agent]:
        """Return the usable agents as far as they are known now, the default first."""
        first = self.default().spec.name
        return sorted((agent for agent in self._agents.values() if agent.usable), key=lambda agent: agent.spec.name != first)

    async def offer(self, name: str, timeout_s: float = DISCOVERY_WAIT_S) -> Agent | None:
        """Return a usable agent after its discovery, `timeout_s` at most; None if there is none of this name."""
        has_offer = self._has_offer.get(name)
        if has_offer is not None and not has_offer.is_set():
            self._ask_late(name)
            await wait_at_most(has_offer.wait(), timeout_s)
        agent = self._agents.get(name)
        return agent if agent is not None and not agent.located.why else None

    def environment(self) -> dict[str, str]:
        """Return the person's environment. `shim.processes.child_environment` decides what an agent gets of it."""
        return dict(self._environ)

    # --- starting an agent ------------------------------------------------------------------------------------------

    async def spawn(
        self,
        agent: Agent,
        options: LaunchOptions,
        codec: Codec,
        on_lines: OnLines,
        on_exit: OnExit,
        hold: Hold | None = None,
        judge_host: JudgeHost = refuse_host,
    ) -> AgentHandle:
        """Start this agent for a codec. The caller then writes the lines of `codec.start()`. It fills in `options.binary`.

        In: `hold`, where its holder is to be, for an agent that outlives this server; `judge_host` decides about hosts that no
        rule simply allows.

        Raises AgentNotFound if the program is missing, AgentStartFailed.
        """
        refuse_options(options)
        located = await self._still_there(agent.spec)
        keys = await asyncio.to_thread(self.keys.environment, agent.spec)  # the first call reads a file
        filled = replace(
            options,
            binary=located.path or "",
            environment=self.environment() | keys | dict(options.variables),
            is_root=self._is_root,
            version=located.version,
        )
        launch = codec.launch(filled)
        if (parent := self._traceparent()) is not None:
            launch = replace(launch, env={**launch.env, "TRACEPARENT": parent})
        name = agent.spec.name
        handle: AgentHandle
        if self._record_dir is not None:
            recorder = Recorder(self._record_dir, name, located.version, launch)
            inner = await self._spawn(
                agent, located, launch, keys, options, recorder.lines(on_lines), recorder.exits(on_exit), None, judge_host
            )
            handle = RecordedHandle(inner, recorder)
        else:
            handle = await self._spawn(agent, located, launch, keys, options, on_lines, on_exit, hold, judge_host)
        self.listeners.spawned(name)
        return handle

    async def _spawn(
        self,
        agent: Agent,
        located: ProgramLocation,
        launch: LaunchSpec,
        keys: Mapping[str, str],
        options: LaunchOptions,
        on_lines: OnLines,
        on_exit: OnExit,
        hold: Hold | None,
        judge_host: JudgeHost,
    ) -> AgentHandle:
        name = agent.spec.name
        env = {**keys, **child_environment(options.variables, {}), **launch.env}
        launch = replace(launch, env=env)  # after the recorder was created, so that it records no key
        if located.path is None:
            program = self._programs.get(name)
            if program is None:
                raise AgentNotFound(f"{agent.spec.title} names no program to look for, and no built-in one has its name.")
            return InProcessAgent.spawn(program, launch, self._environ, on_lines=on_lines, on_exit=on_exit, name=name)
        transport = HttpAgent if agent.spec.program.transport == "http" else AgentProcess
        folder: Path | None = None
        if launch.settings is not None:
            launch, folder = await asyncio.to_thread(write, launch, launch.settings, None if hold is None else hold.folder)
        egress: Egress | None = None
        try:
            if options.bounds is not None:
                from shim.agents import sandboxes  # late: few agents run in one

                also = [] if folder is None else [launch.argv[-1]]
                inherited = {**self._environ, **{name: value for name, value in launch.env.items() if value is not None}}
                given = agent.spec, options.bounds
                reach = await asyncio.to_thread(sandboxes.reach, *given, inherited, options.setup.shim_server)
                egress = sandboxes.Egress.open(reach, self._environ, name, judge_host) if reach is not None else None
                launch = await asyncio.to_thread(sandboxes.launch_inside, *given, launch, inherited, also, egress)
            if hold is not None:
                from shim.processes.held_process import HeldProcess  # late: with `outlive` alone

                environ = process_family.without_owner(self._environ, self._owner)
                launch = with_bridge(launch) if transport is HttpAgent else launch
                return await HeldProcess.spawn_on(hold, launch, environ, on_lines=on_lines, on_exit=on_exit, name=name)
            handle = await transport.spawn(
                launch, self._environ, on_lines=on_lines, on_exit=partial(_end, folder, egress, on_exit), name=name
            )
            if egress is not None:
                egress.hand_over()
            return handle
        except BaseException as error:  # a cancelled start leaves no file of settings
            _clean_up(folder, egress)
            if isinstance(error, AgentNotFound):
                raise AgentNotFound(f"{error} {agent.spec.program.install_hint}") from error
            raise

    async def _still_there(self, spec: AgentSpec) -> ProgramLocation:
        """Return where the program is now. It notices one that was moved, removed or replaced, and other settings."""
        agent = self._agents[spec.name]
        if not spec.program.binaries:
            return agent.located
        stamp = await asyncio.to_thread(self._stamp, spec, agent.located)
        if stamp is not None and stamp == self._stamps[spec.name]:
            return agent.located
        located, self._stamps[spec.name] = await self._look(spec)
        self._agents[spec.name] = replace(agent, located=located)
        if located.why:
            log.warning("agent.lost", agent=spec.name, path=agent.located.path)
            raise AgentNotFound(f"{spec.title} cannot be started: {located.why}")
        log.info("agent.changed", agent=spec.name, path=located.path)
        self._ask(spec.name)
        return located

    async def refresh(self, name: str) -> Agent:
        """Look for a program again after its installation, and start its discovery. `available` waits for the result."""
        spec = self._specs[name]
        located, self._stamps[name] = await self._look(spec)
        self._agents[name] = replace(self._agents[name], located=located, trouble="", slow=False)
        if not located.why:
            self._has_offer[name].clear()
            self._ask(name)
        return self._agents[name]

    def _find(self, spec: AgentSpec) -> tuple[ProgramLocation, str | None]:
        """Return the program's location and stamp. Blocks."""
        located = find(spec, self._environ)
        return located, self._stamp(spec, located)

    def _stamp(self, spec: AgentSpec, located: ProgramLocation) -> str | None:
        """A value that changes with the program, and with the person's settings where it is not asked at each start. Blocks."""
        stamp = stamp_of(located.path) if located.path else None
        if stamp is None or spec.program.transport == "stdio" or spec.program.spare is None:
            return stamp
        files = (expand(name, self._environ) for name in spec.program.spare.own_files)
        return " ".join((stamp, *(mark for file in files if file is not None and (mark := stamp_of(str(file))))))

    async def _look(self, spec: AgentSpec) -> tuple[ProgramLocation, str | None]:
        """Return the program's location and stamp. Only an agent of one major version is asked for its version."""
        if spec.program.major is None:
            return await asyncio.to_thread(self._find, spec)
        located = await locate(spec, self._environ, versions=self._versions)
        return located, await asyncio.to_thread(self._stamp, spec, located)

    # --- discovery ------------------------------------------------------------------------------------------------

    async def _stored_offers(self) -> dict[str, discovery.StoredOffer]:
        """Return the results of earlier discoveries from the store."""
        try:
            values = await self._store.values(discovery.NAMESPACE)
        except StoreError:
            log.warning("agent.kept_unreadable", exc_info=True)
            return {}
        return {name: offer for name, value in values.items() if (offer := discovery.from_store(value)) is not None}

    def _ask(self, name: str) -> None:
        """Start an agent's discovery in the background, unless one is running."""
        running = self._asking.get(name)
        if running is None or running.done():
            self._asking[name] = asyncio.get_running_loop().create_task(self._learn(name), name=f"ask {name}")

    def _ask_late(self, name: str) -> None:
        """Discover an agent that was left out at the start, since a server of its own takes long and writes into the home."""
        spec = self._specs[name]
        if (
            spec.program.transport != "stdio"
            and name not in self._asking
            and (self._agents[name].usable or spec.program.shared_binaries)
        ):
            self._ask(name)

    async def _learn(self, name: str) -> None:
        """Discover version and catalogue of one agent, and put them into `_agents` and the store."""
        spec, before_ms = self._specs[name], self._clock.now_ms()
        try:
            async with self._slots:
                located, stamp = await self._version(spec)
                if located.why:
                    return
                try:
                    await self._catalogue(spec, stamp)
                except discovery.DiscoveryFailed as error:
                    if error.code != discovery.SLOW or spec.program.transport == "stdio":
                        raise
                    await self._catalogue(spec, stamp)  # it was asked while a client started, which takes the processor
        except AgentError as error:
            log.warning("agent.discovery_failed", agent=name, why=str(error))
            out = isinstance(error, discovery.DiscoveryFailed) and error.code in LOGGED_OUT
            why = f"{str(error).rstrip('.')}. {spec.program.login_hint}" if out and spec.program.login_hint else str(error)
            slow = isinstance(error, discovery.DiscoveryFailed) and error.code == discovery.SLOW
            self._agents[name] = replace(self._agents[name], trouble=f"{spec.title}: {why}", logged_out=out, slow=slow)
        except Exception as error:  # a codec of another package may raise anything
            log.exception("agent.discovery_failed", agent=name)
            self._agents[name] = replace(self._agents[name], trouble=f"{spec.title}: {error}")
        finally:
            self._has_offer[name].set()
            log.debug("agent.asked", agent=name, duration_ms=self._clock.now_ms() - before_ms)

    async def _version(self, spec: AgentSpec) -> tuple[ProgramLocation, str | None]:
        """Find the program and its version again, since both may have changed since the start."""
        located = await locate(spec, self._environ, versions=self._versions)
        stamp = await asyncio.to_thread(self._stamp, spec, located)
        self._agents[spec.name] = replace(self._agents[spec.name], located=located)
        self._stamps[spec.name] = stamp
        return located, stamp

    async def ask_in(self, name: str, directory: str) -> Catalogue | None:
        """What an agent offers in this directory, with the project's settings. None if it does not tell. Raises AgentError.

        Who asks while it is asked gets the same answer.
        """
        key = f"{name} in {directory}"
        running = self._asking.get(key)
        if running is None:
            running = asyncio.get_running_loop().create_task(self._learn_in(self._specs[name], directory), name=f"ask {key}")
            self._asking[key] = running
            running.add_done_callback(lambda _: self._asking.pop(key, None))
        return await asyncio.shield(running)

    async def _learn_in(self, spec: AgentSpec, directory: str) -> Catalogue | None:
        found: list[Catalogue] = []
        async with self._slots:
            await self._discover(spec, directory, found.append)
        return found[0] if found else None

    async def _catalogue(self, spec: AgentSpec, stamp: str | None) -> None:
        home = self._environ.get("HOME", "")
        directory = home if home and await asyncio.to_thread(Path(home).is_dir) else os.sep

        def store_catalogue(catalogue: Catalogue) -> None:
            before = self._agents[spec.name]
            located = replace(before.located, version=before.located.version or catalogue.version)
            catalogue = discovery.with_limits(catalogue, before.catalogue.models, are_newer=False)
            agent = replace(before, located=located, catalogue=catalogue, trouble="", logged_out=False, slow=False)
            self._agents[spec.name] = agent
            _keep(self._store, agent, stamp)
            self._has_offer[spec.name].set()
            log.debug("agent.discovered", agent=spec.name, version=agent.located.version, models=len(catalogue.models))

        await self._discover(spec, directory, store_catalogue)

    async def _discover(self, spec: AgentSpec, directory: str, tell: Callable[[Catalogue], None]) -> None:
        async def spawn(codec: Codec, on_lines: OnLines, on_exit: OnExit) -> AgentHandle:
            return await self.spawn(self._agents[spec.name], LaunchOptions("", directory), codec, on_lines, on_exit)

        codec = spec.make(self._ids.new)
        if codec.catalogue is not None:  # the agent has a fixed catalogue
            tell(codec.catalogue)
            return
        times = HTTP_TIMES if spec.program.transport == "http" else 1
        await discovery.discover(codec, spawn, tell, timeout_s=times * self._discovery_timeout_s)

    def note_limits(self, name: str, models: Iterable[Model], directory: str) -> None:
        """Note limits of models that an agent has told in a turn there, and tell clients, which have read its models."""
        agent = self._agents.get(name)
        if agent is None:
            return
        catalogue = discovery.with_limits(agent.catalogue, models, are_newer=True)
        if catalogue != agent.catalogue:
            self._agents[name] = replace(agent, catalogue=catalogue)
            _keep(self._store, self._agents[name], self._stamps.get(name))
            self.listeners.limits(directory)


def _keep(store: Store, agent: Agent, stamp: str | None) -> None:
    """Keep what an agent offers for the next start of the server."""
    if agent.located.path is not None and stamp is not None:
        offer = discovery.StoredOffer(agent.located.path, stamp, agent.located.version, agent.catalogue)
        store.set_value(discovery.NAMESPACE, agent.spec.name, discovery.to_store(offer))


def _clean_up(folder: Path | None, egress: Egress | None) -> None:
    """Remove the settings of a process that has ended, one small file, and its connections."""
    if folder is not None:
        remove(folder)
    if egress is not None:
        egress.close()


def _end(folder: Path | None, egress: Egress | None, on_exit: OnExit, exit_: Exit) -> None:
    _clean_up(folder, egress)
    on_exit(exit_)
