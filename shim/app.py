"""Builds the application. This is the only place that wires the parts together.

    start   store -> agents -> sessions
    stop    hub (all streams end at once) and terminals, then sessions -> agents -> store

`app[SERVICES]` holds everything that routes use.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import structlog
from aiohttp import web

from shim.agents import plugins
from shim.agents.directory import AgentDirectory
from shim.agents.install import Installer, environment_for
from shim.agents.keys import KeyStore
from shim.clock import Clock, SystemClock
from shim.faces.opencode1.operations import OPENCODE_VERSION
from shim.faces.opencode1.publisher import OPENCODE1
from shim.faces.opencode2.events import FACE as OPENCODE2
from shim.faces.opencode2.probe_file import FILE as PROBE_FILE
from shim.faces.opencode2.probe_file import ProbeFile
from shim.faces.opencode2.services import FaceServices
from shim.host.changes import HostFeed
from shim.host.opencode_config import ConfigFiles
from shim.host.project_copies import ProjectCopies
from shim.host.project_settings import ProjectScanner
from shim.host.projects import IDS as PROJECT_IDS
from shim.host.projects import ROWS as PROJECT_ROWS
from shim.host.projects import Projects
from shim.host.roots import repository_above
from shim.host.shells import Shells
from shim.host.snapshot import Snapshots
from shim.host.terminals import Terminals
from shim.host.trust import FILE as TRUST_FILE
from shim.host.trust import ProjectTrust, TrustFile
from shim.host.tui_control import TuiControl
from shim.host.watcher import Watchers
from shim.host.workspaces import Workspaces
from shim.host.worktrees import Worktrees
from shim.http.access import ACCESS
from shim.http.operation import SERVICES
from shim.http.pairing import NAMESPACE as PAIRING
from shim.http.relay import RELAY, Relay, close_sockets
from shim.ids import Ids
from shim.inspector.traces import Traces
from shim.process_family import end_owned
from shim.routes import EARLY, application, modules
from shim.routes.web_ui import WebUI
from shim.runtime.inprocess import Program
from shim.services import Services, Universal
from shim.sessions.agent_room import AgentRoom
from shim.sessions.dependencies import SessionDeps
from shim.sessions.drain import Drain
from shim.sessions.feed import ChangeFeed, Feed
from shim.sessions.manager import SessionManager
from shim.sessions.named_sessions import NAMESPACE as NAMES
from shim.sessions.named_sessions import NamedSessions
from shim.sessions.placement import Placement
from shim.sessions.remote_changes import RemoteChanges
from shim.sessions.replays import Replays
from shim.sessions.spare_agents import SpareAgents
from shim.settings import CustomAgent, Settings
from shim.store.base import Store
from shim.store.choose import DATABASE, store_of
from shim.store.ownership import Ownership
from shim.store.peers import Peers
from shim.stream.hub import Hub
from shim.telemetry.hooks import Hooks
from shim.telemetry.meters import Meters
from shim.telemetry.spans import spans
from universal.agents.acp.spec import custom_spec
from universal.agents.opencode2.spec import configured_spec as configured_opencode2_spec
from universal.agents.opencode2.wire import NAME as OPENCODE2_AGENT
from universal.codec import AgentSpec
from universal.permissions import Rule, rules_from_config, with_home
from universal.registry import agents as known_agents
from universal.tools.accesses import Place
from universal.unattended_policy import parse as parse_unattended

__all__ = ["ANNOUNCE", "DATABASE", "DRAIN", "SERVICES", "apply_settings", "build_app"]

AGENT_BYTES = 512 * 2**20
"""Bytes of memory for one agent, to say how many a server of a cluster can run."""
HOOKS: web.AppKey[Hooks] = web.AppKey("HOOKS", Hooks)
ANNOUNCE: web.AppKey[Callable[[str], None]] = web.AppKey("announce")
"""Publishes the URL of this server to other servers on the same store, and to the user's programs."""

DRAIN: web.AppKey[Drain] = web.AppKey("drain", Drain)
"""Ends the work of this server before it stops."""

log = structlog.get_logger()


def owner_of(data_dir: Path) -> str:
    """The name that marks agents of servers on this data directory, so that a later server finds them after a kill."""
    return "data-" + hashlib.blake2b(str(data_dir.resolve()).encode(), digest_size=8).hexdigest()


class _Leftovers:
    """Processes that dead servers on the same data may have left. In: `data`, their common name; empty without data."""

    def __init__(self, data: str, ownership: Ownership) -> None:
        self._data = data
        self._ownership = ownership

    @property
    def owner(self) -> str:
        """The name that marks the processes of this server."""
        return self._name(self._ownership.server_id) if self._data else ""

    def names(self) -> list[str]:
        """The names of processes that dead servers may have left. Servers of earlier versions all used the name `data`."""
        return [self._data, *map(self._name, self._ownership.dead())] if self._data else []

    async def forget(self) -> None:
        """Drop the records of dead servers, after the processes of `names` were ended."""
        for server_id in self._ownership.dead():
            await asyncio.to_thread(self._ownership.forget, server_id)

    async def clean_up(self, server_id: str) -> None:
        """End the processes of a server that just died."""
        if self._data and (count := await asyncio.to_thread(end_owned, self._name(server_id))):
            log.warning("agent.orphans_ended", count=count, server=server_id)
        await asyncio.to_thread(self._ownership.forget, server_id)

    def _name(self, server_id: str) -> str:
        return f"{self._data}-{server_id}"


def agents_of(settings: Settings, added: Mapping[str, AgentSpec] | None = None) -> dict[str, AgentSpec]:
    """Merge the registry, the agents that packages `added`, and the user's own agents; later ones win by name.

    Agents that the user did not add (`AgentSpec.is_fallback`) come last.
    """
    configured = {name: _configured_spec(name, agent) for name, agent in settings.agents.items()}
    specs = {**known_agents(), **(added or {})}
    fallbacks = {name for name, spec in specs.items() if spec.is_fallback}
    return dict(sorted({**specs, **configured}.items(), key=lambda row: row[0] in fallbacks))


def _configured_spec(name: str, agent: CustomAgent) -> AgentSpec:
    """Return the spec of an agent of the settings: a program that speaks ACP, or that of OpenCode 2."""
    env = {key: value.get_secret_value() for key, value in agent.env.items()}
    if name == OPENCODE2_AGENT:
        return configured_opencode2_spec(agent.command, agent.title, env)
    return custom_spec(name, agent.command, agent.title, env)


def _agent_limit(settings: Settings) -> int | None:
    """How many agents may run at once: in a cluster, as many as this machine has memory for; else any number."""
    if settings.max_agents is not None or settings.cluster is None:
        return settings.max_agents
    return max(1, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // AGENT_BYTES)


def _spare_limit(settings: Settings) -> int:
    """How many spare agents there may be: none with traces, since an agent gets the id of its session's trace when it starts."""
    return 0 if settings.otel or settings.no_agents else settings.spare_agents


def _end_streams(services: Services) -> None:
    """End all event streams, after their waiting events. May be called again."""
    if services.opencode2 is not None:
        services.opencode2.close()
    services.hub.close()
    services.sessions.deps.feed.close()
    services.tui_control.close()


async def _close_connection(request: web.Request, response: web.StreamResponse) -> None:
    """Close the connections of a server that is about to stop: a client that keeps one does not reach another server."""
    drain = request.config_dict.get(DRAIN)  # below a base path, the request's application is an inner one
    if drain is not None and drain.is_active:
        response.force_close()


def _file_watchers(
    hub: Hub, host: HostFeed, projects: Projects, home: Path, *, runs_agents: bool
) -> tuple[RemoteChanges, Watchers]:
    """Build what tells clients of changes beside the sessions: those of other servers, and of watched files."""

    def has_reader(directory: str) -> bool:
        return hub.wants(OPENCODE2) or hub.has_reader(directory)

    async def watch(directory: str) -> None:
        watchers.visit(directory, (await projects.identity(directory)).id)

    def is_watched(directory: str) -> bool:
        return (runs_agents and has_reader(directory)) or remote_changes.is_wanted(directory)

    remote_changes = RemoteChanges(host, hub.emit, has_reader, watch)
    watchers = Watchers(host, is_watched, home)
    return remote_changes, watchers


def build_app(
    settings: Settings,
    *,
    store: Store | None = None,
    environ: Mapping[str, str] | None = None,
    clock: Clock | None = None,
    specs: Mapping[str, AgentSpec] | None = None,
    programs: Mapping[str, Program] | None = None,
) -> web.Application:
    """Build an application that is ready to run. It opens and starts nothing before aiohttp's startup.

    In, all for tests: `store` replaces the store of the settings, `environ` this process's environment, `clock` the
    system clock, `specs` the registry of agents, and `programs` adds agents that run in this process.
    """
    environment = os.environ if environ is None else environ
    clock = clock or SystemClock()
    ids = Ids(clock)
    hub = Hub(clock, ids, faces=(OPENCODE1,))
    actual_store = store if store is not None else store_of(settings)
    config = ConfigFiles(Path(environment.get("HOME") or Path.home()), environment, tuple(map(str, settings.roots)))
    added = plugins.load(agents_of(settings))
    leftovers = _Leftovers(owner_of(settings.data_dir) if store is None else "", actual_store.ownership)
    feed, meters, traced = Feed(), Meters(clock), spans(on=settings.otel)
    agents = AgentDirectory(
        agents_of(settings, added.specs) if specs is None else specs,
        clock=clock,
        ids=ids,
        store=actual_store,
        default_agent=settings.default_agent,
        environ={**environment, **environment_for(settings.data_dir / "agents")},
        delay_factor=settings.mock_delay_factor,
        record_dir=settings.record_dir,
        keys=KeyStore(settings.data_dir / "auth.json"),
        owner=leftovers.owner,
        orphans=leftovers.names,
        broken=added.broken,
        packages=added.packages,
        programs=programs,
        traceparent=lambda: traced.traceparent(structlog.contextvars.get_contextvars().get("session_id", "")),
    )

    trust = ProjectTrust(
        ProjectScanner(str(config.home)),
        TrustFile(settings.data_dir / TRUST_FILE, clock),
        roots=tuple(map(str, settings.trusted_roots)),
        trust_all=settings.trust_all,
    )

    def config_rules(directory: str) -> tuple[Rule, ...]:
        """Return the rules of a directory. Of an untrusted project, only `deny` and `ask` rules count."""
        current = config.current(directory)
        projects = rules_from_config(current.project_permission)
        counted = tuple(r for r in projects if r.action != "allow" or trust.counts(directory, r.permission, r.pattern))
        personal = rules_from_config(current.personal_permission)
        rules = rules_from_config(current.permission) if counted == projects else (*personal, *counted)
        return with_home(rules, str(config.home))

    async def find_place(directory: str) -> Place:
        repository = await asyncio.to_thread(repository_above, directory)
        return Place(directory, (repository,), str(config.home), os.path.realpath, os.path.isdir)

    async def config_refresh(directory: str) -> None:
        await config.fresh(directory)

    trees = Snapshots(settings.data_dir / "snapshots", config.home, clock)

    def snapshots(directory: str) -> Snapshots | None:
        return None if config.current(directory).values.get("snapshot") is False else trees

    def has_listeners(directory: str, session_id: str) -> bool:
        return hub.wants(OPENCODE2) or hub.has_reader(directory) or feed.has_listener(session_id)

    spares = SpareAgents(
        agents,
        clock=clock,
        ids=ids,
        limit=_spare_limit(settings),
        trust=trust,
        roots=tuple(map(str, settings.roots)),
        config_refresh=config_refresh,
        config_rules=config_rules,
        snapshots=snapshots,
        is_idle=lambda: len(sessions.index.busy()) < (os.cpu_count() or 1),
    )
    room = AgentRoom(_agent_limit(settings), lambda: sessions.index.running_agents())
    placement = Placement(
        actual_store.ownership,
        agents,
        runs_agents=not settings.no_agents,
        room=room,
        roots=tuple(map(str, settings.roots)),
        in_use=lambda: (*services.terminals.directories(), *services.shells.directories()),
        labels=settings.labels,
    )
    sessions = SessionManager(
        SessionDeps(
            clock,
            ids,
            actual_store,
            ChangeFeed(hub.burst),
            agents,
            config_rules,
            settings.abort_timeout_s,
            settings.idle_reap_s,
            session_version=OPENCODE_VERSION,
            max_sessions=settings.max_sessions,
            max_queued_prompts=settings.max_queued_prompts,
            home=str(config.home),
            find_place=find_place,
            roots=tuple(map(str, settings.roots)),
            snapshots=snapshots,
            feed=feed,
            trust=trust,
            trust_question_s=settings.trust_question_s,
            listened=has_listeners,
            config_refresh=config_refresh,
            unattended=parse_unattended(settings.unattended),
            clean_up=leftovers.clean_up,
            placement=placement,
            room=room,
            spares=spares,
        )
    )
    names = NamedSessions(sessions, agents, actual_store)
    installs = Installer(agents, settings.data_dir / "agents", clock)
    hooks = Hooks(settings.hooks, sessions.index.find_record)
    for observer, on in ((meters.observe, True), (traced.observe, settings.otel), (hooks.observe, True)):
        if on:
            feed.observe(observer)
    host = HostFeed()
    host.observe(hub.emit)
    host.observe(placement.note_change)
    sessions.deps.changes.observe(hub.emit)
    opencode2 = FaceServices(sessions, actual_store, hub, clock=clock, ids=ids)
    probe_file = ProbeFile(settings.data_dir / PROBE_FILE, opencode2.probes)
    projects = Projects(actual_store, clock)
    worktrees = Worktrees(settings.data_dir, projects, host)

    remote_changes, watchers = _file_watchers(hub, host, projects, config.home, runs_agents=not settings.no_agents)
    services = Services(
        settings=settings,
        clock=clock,
        ids=ids,
        hub=hub,
        host=host,
        store=actual_store,
        sessions=sessions,
        agents=agents,
        projects=projects,
        config=config,
        universal=Universal(names, installs, Traces(actual_store), meters, traced),
        opencode2=opencode2,
        terminals=Terminals(clock=clock, ids=ids, environ=environment, owner=leftovers.owner, changes=host),
        shells=Shells(
            settings.data_dir / "shell", clock=clock, ids=ids, environ=environment, owner=leftovers.owner, changes=host
        ),
        worktrees=worktrees,
        workspaces=Workspaces(actual_store, projects, worktrees, clock=clock, ids=ids, changes=host),
        copies=ProjectCopies(actual_store, projects, host),
        tui_control=TuiControl(),
        watchers=watchers,
    )
    web_ui = (
        WebUI(settings.web_ui if isinstance(settings.web_ui, str) else None, environ=environment) if settings.web_ui else None
    )
    app = application(services, modules, early=EARLY, unknown=web_ui.handle if web_ui is not None else None)

    app[HOOKS] = hooks

    async def life(_app: web.Application) -> AsyncIterator[None]:
        # The stack closes the parts in reverse order, each of them even if another one fails.
        async with AsyncExitStack() as ends:
            ends.callback(traced.close)
            await actual_store.open()
            ends.push_async_callback(actual_store.close)
            app[ACCESS].pairing.restore(await actual_store.values(PAIRING), partial(actual_store.set_value, PAIRING))
            if web_ui is not None:
                ends.push_async_callback(web_ui.close)
            for part in (agents, trees, sessions, hooks, installs, probe_file):
                ends.push_async_callback(part.close)
            await probe_file.start()
            await agents.start()
            await leftovers.forget()
            _observe_values(app, services)
            await sessions.start()
            await names.start()
            trees.start()
            if (peers := actual_store.ownership.peers) is not None:
                peers.announce_offer(placement.offer)
                await remote_changes.start(peers, actual_store.ownership.server_id)
                ends.push_async_callback(remote_changes.close)
                ends.push_async_callback(await _join_cluster(app, services, peers, remote_changes))
            watching = asyncio.create_task(
                config.keep_current(sessions.index.directories_at_work), name="keep configuration current"
            )
            ends.callback(watching.cancel)
            if web_ui is not None:
                await web_ui.start()
            yield

    end_streams = partial(_end_streams, services)

    async def end_host(_app: web.Application) -> None:
        end_streams()
        await services.terminals.close()
        await services.shells.close()
        await services.worktrees.close()
        await services.watchers.close()

    app[ANNOUNCE] = actual_store.announce
    app.cleanup_ctx.append(life)
    app.on_shutdown.extend((end_host, close_sockets))
    app[DRAIN] = Drain(sessions, placement, actual_store.ownership, name=settings.server_name, end_streams=end_streams)
    app.on_response_prepare.append(_close_connection)
    return app


def _observe_values(app: web.Application, services: Services) -> None:
    """Take over the small values that other servers of a cluster change."""
    others, projects = services.sessions.others, services.projects
    others.observe_values(PAIRING, app[ACCESS].pairing.note)
    others.observe_values(PROJECT_ROWS, projects.note_row)
    others.observe_values(PROJECT_IDS, projects.note_id)
    if services.universal is not None:
        others.observe_values(NAMES, services.universal.sessions.note)


async def _join_cluster(
    app: web.Application, services: Services, peers: Peers, remote_changes: RemoteChanges
) -> Callable[[], Awaitable[None]]:
    """Let clients go on at any server of the cluster, and do commands of other servers. Returns what ends the latter."""
    sessions, store = services.sessions, services.store
    if (places := sessions.others.places) is not None:
        services.hub.use_positions(places)
        services.replays = Replays(store, sessions.index, sessions.others, places, peers, sessions.detached_state)
    relay = Relay(app, peers, remote_changes.note_host)
    sessions.others.delete_elsewhere = relay.delete_session
    await relay.start()
    app[RELAY].append(relay)
    return relay.close


def apply_settings(app: web.Application, settings: Settings) -> None:
    """Apply the live settings (`shim.settings.LIVE`) to a running application. Raises ShimError, and then changes nothing.

    In: the current settings, with new values of live settings only.
    """
    services = app[SERVICES]
    services.agents.set_default(settings.default_agent)
    deps = services.sessions.deps
    deps.abort_timeout_s = settings.abort_timeout_s
    deps.idle_reap_s = settings.idle_reap_s
    deps.max_sessions = settings.max_sessions
    deps.max_queued_prompts = settings.max_queued_prompts
    deps.trust_question_s = settings.trust_question_s
    deps.unattended = parse_unattended(settings.unattended)
    if deps.spares is not None:
        deps.spares.limit = _spare_limit(settings)
    app[HOOKS].replace(settings.hooks)
    services.settings = settings
