"""Builds and starts what requests need: the sessions, the host, the faces' services, the place in a cluster.

`shim.main.app` imports this module when there is something to do: at the first request, or at the start if a turn was left
running or other servers share the store. A server that waits has nothing of it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from aiohttp import BasicAuth, web

from shim.agents.command_files import CommandFiles
from shim.agents.directory_offers import DirectoryOffers
from shim.agents.install import Installer
from shim.agents.logins import Logins
from shim.agents.sandboxes import shell_sandbox
from shim.agents.spares.agent_room import AgentRoom
from shim.agents.spares.spare_agents import SpareAgents
from shim.faces.opencode1._generated.operations import OPENCODE_VERSION
from shim.faces.opencode1.routes.event import OPENCODE1
from shim.faces.opencode2.services import FaceServices
from shim.faces.opencode2.wire_event import FACE as OPENCODE2
from shim.faces.v1.nodes import Nodes
from shim.host.changes import (
    EVERYWHERE,
    RULES_TITLE,
    AllDisposed,
    DirectoryDisposed,
    HostChanged,
    HostFeed,
    ToastVariant,
    TuiToast,
)
from shim.host.config.instruction_files import InstructionFiles
from shim.host.config.opencode_config import ConfigFiles, OpenCodeConfig, unread_rules_notice
from shim.host.config.setups import Setups
from shim.host.files.formatters import Formatters
from shim.host.files.roots import folds_case, repository_above
from shim.host.files.watcher import Watchers
from shim.host.git.project_copies import ProjectCopies
from shim.host.git.projects import IDS as PROJECT_IDS
from shim.host.git.projects import ROWS as PROJECT_ROWS
from shim.host.git.projects import Projects
from shim.host.git.snapshot import Snapshots
from shim.host.git.worktrees import Worktrees
from shim.host.plugins.plugin_hosts import PluginHosts
from shim.host.terminals.shells import Shells
from shim.host.terminals.terminal_manager import Terminals
from shim.host.trust.project_settings import ProjectScanner
from shim.host.trust.trust_store import FILE as TRUST_FILE
from shim.host.trust.trust_store import ProjectTrust, TrustFile
from shim.host.tui_control import TuiControl
from shim.http.access import ACCESS
from shim.http.pairing import NAMESPACE as PAIRING
from shim.http.services import Services, Telemetry, Universal
from shim.inspector.trace import Traces
from shim.lib.settings import Settings
from shim.sessions.agent_tokens import AgentTokens
from shim.sessions.feed import ChangeFeed, Feed
from shim.sessions.index.accounts import NAMESPACE as SPENDING
from shim.sessions.index.accounts import Accounts
from shim.sessions.index.drain import Drain
from shim.sessions.index.manager import SessionManager
from shim.sessions.index.named_sessions import NAMESPACE as NAMES
from shim.sessions.index.named_sessions import NamedSessions
from shim.sessions.index.session_index import SessionIndex
from shim.sessions.mcp_servers import McpReports
from shim.sessions.placement import Placement
from shim.sessions.plan_limits import PlanReports
from shim.sessions.session.dependencies import SessionDeps
from shim.sessions.session.tape import Tapes, TapeStore
from shim.sessions.stored_sessions import NewState, Remotes, stored_sessions
from shim.sessions.transfer.conversations import NativeSessions
from shim.sessions.transfer.other_writers import OtherWriters
from shim.store.base import TERMINALS, OrderedStore
from shim.stream.hub import Hub
from shim.stream.streams import Streams
from shim.telemetry.hooks import Hooks
from shim.telemetry.meters import METERED
from shim.telemetry.reply_links import ReplyLinks
from universal.permissions import DirectoryRules, combine, rules_from_config, with_home
from universal.session.changes import LimitsReported, ServersReported, TurnEnded
from universal.session.model import Session
from universal.tools.accesses import Place

AGENT_BYTES = 512 * 2**20
"""Bytes of memory for one agent, to say how many a server of a cluster can run."""


@dataclass(frozen=True, slots=True)
class Backend:
    """The running parts. `ends` closes them."""

    services: Services
    hooks: Hooks
    drain: Drain
    ends: AsyncExitStack

    def end_streams(self) -> None:
        """End all event streams, after their waiting events. May be called again."""
        _end_streams(self.services)

    async def end_host(self) -> None:
        """End the streams, terminals and shell commands: the first step of a stop."""
        self.end_streams()
        await self.services.terminals.close()
        await self.services.logins.close()
        await self.services.shells.close()
        await self.services.worktrees.close()
        await self.services.watchers.close()

    async def close(self) -> None:
        """Close all parts, each of them even if another one fails."""
        await self.ends.aclose()

    def apply(self, settings: Settings) -> None:
        deps = self.services.sessions.deps
        deps.settings = settings
        if deps.spares is not None:
            deps.spares.limit = _spare_limit(settings)
        self.hooks.replace(settings.hooks)
        _listen(deps.feed, self.hooks)


def _listen(feed: Feed, hooks: Hooks) -> None:
    """Let hooks observe the events, if there are any."""
    if hooks.is_on:
        feed.observe(hooks.observe)
    else:
        feed.forget(hooks.observe)


def _toast(services: Services, title: str, variant: ToastVariant, directory: str, words: str) -> None:
    services.host.publish(TuiToast(words, variant, title=title), directory)


def _address(services: Services) -> tuple[str, Mapping[str, str]]:
    """Where plugins find this server, and how they log in."""
    password = services.settings.password
    if password is None:
        return services.url, {}
    return services.url, {"Authorization": BasicAuth(services.settings.username, password.get_secret_value()).encode()}


class Member(Protocol):
    """This server among those of a cluster. It makes the parts that are others in a cluster (`shim.cluster.member`)."""

    @property
    def placement(self) -> Placement: ...

    def make_remotes(
        self, deps: SessionDeps, index: SessionIndex, new_state: NewState, on_read: Callable[[Session], None]
    ) -> Remotes:
        """Make what reads the sessions of other servers (`MakeRemotes`)."""
        ...

    def is_wanted(self, directory: str) -> bool:
        """Whether another server wants to know of files and branches of a directory."""
        ...

    def nodes(self, services: Services, drain: Drain) -> Nodes:
        """What `/v1` tells of the cluster. After `make_remotes`."""
        ...

    async def join(self, services: Services) -> None:
        """Complete the services by those of the hub. After the start of the sessions. Raises StoreError."""
        ...

    async def leave(self) -> None:
        """Do nothing more for others. May be called before `join`."""
        ...


class Alone:
    """The `Member` of a server without a cluster. In: `labels` of this server."""

    def __init__(self, labels: Sequence[str]) -> None:
        self.placement = Placement(labels)
        self.make_remotes = stored_sessions

    def is_wanted(self, directory: str) -> bool:
        return False

    def nodes(self, services: Services, drain: Drain) -> Nodes:
        return Nodes()

    async def join(self, services: Services) -> None:
        """Serve readers from the hub alone, or from the journals too."""
        sessions, store = services.sessions, services.store
        services.streams = Streams()
        if sessions.deps.tapes is not None and isinstance(store, OrderedStore):
            from shim.sessions.history.journal_streams import JournalStreams  # imported here, because few servers have it

            def is_ours(session_id: str) -> bool:
                return sessions.others.owner(session_id) is None

            streams = JournalStreams(store, services.ids, sessions.index, is_ours, sessions.detached_state)
            services.hub.use_positions(await streams.positions())
            services.streams = streams

    async def leave(self) -> None:
        """Does nothing."""


Start: TypeAlias = Callable[
    [web.Application, Services, Mapping[str, str], str, Callable[[str], Awaitable[None]]], Coroutine[Any, Any, Backend]
]


async def start(
    app: web.Application,
    services: Services,
    environ: Mapping[str, str],
    owner: str,
    clean_up: Callable[[str], Awaitable[None]],
) -> Backend:
    """Complete the services and start them. If a part does not start, those before it are closed.

    In: `app`, to which a cluster's other servers send requests; `environ`, the person's environment; `owner`, the name that marks
    this server's processes; `clean_up`, which ends those of a dead server, by its id.
    """
    settings, clock, ids, store, agents = services.settings, services.clock, services.ids, services.store, services.agents
    assert services.telemetry is not None
    telemetry: Telemetry = services.telemetry
    home, roots = Path(environ.get("HOME") or Path.home()), tuple(map(str, settings.roots))
    config = ConfigFiles(home, environ, roots, settings.data_dir / "skills")
    hub = Hub(clock, ids, faces=(OPENCODE1,))
    feed = Feed(is_stored_first=settings.outlive)

    plugins = PluginHosts(
        config.folder,
        settings.data_dir / "plugins",
        environ,
        OPENCODE_VERSION,
        partial(_toast, services, "Tools and plugins", "error"),
        partial(_address, services),
    )
    formatters = Formatters(config.current, environ, partial(_toast, services, "Formatters", "warning"))
    setups = Setups(config.current, InstructionFiles(config.home, config.folder, config.skill_folders), plugins, formatters)
    trust = ProjectTrust(
        ProjectScanner(str(config.home)),
        TrustFile(settings.data_dir / TRUST_FILE, clock),
        roots=tuple(map(str, settings.trusted_roots)),
        trust_all=settings.trust_all,
    )

    def config_rules(directory: str, mode: str = "", at: OpenCodeConfig | None = None) -> DirectoryRules:
        """Return the rules of a directory in a mode, as its files are now or were. Of an untrusted project, no `allow` counts."""
        current = at or config.current(directory)
        if not current.sources and not current.has_unread_rules:
            return DirectoryRules(rules_from_config(current.permission))
        person = current.personal_rules(mode)
        projects = current.project_rules(mode)
        counted = tuple(r for r in projects if r.action != "allow" or trust.counts(directory, r.permission, r.pattern))
        rules = combine(person, counted, unread=current.has_unread_rules)
        return DirectoryRules(*(with_home(some, str(config.home)) for some in (rules, person)))

    async def find_place(directory: str) -> Place:
        repository = await asyncio.to_thread(repository_above, directory)
        return Place(directory, (repository,), str(config.home), os.path.realpath, os.path.isdir, folds_case)

    reported: dict[str, str] = {}

    async def config_refresh(directory: str) -> None:
        before = config.current(directory)
        now, _ = await asyncio.gather(config.fresh(directory), setups.refresh(directory))
        if now is not before:  # other files of instructions may be named
            await setups.refresh(directory)
        notice = unread_rules_notice(now)
        if notice and reported.get(directory) != notice:
            services.host.publish(TuiToast(notice, "warning", title=RULES_TITLE), directory)
        reported[directory] = notice

    trees = Snapshots(settings.data_dir / "snapshots", config.home, clock)

    def snapshots(directory: str) -> Snapshots | None:
        return None if config.current(directory).values.get("snapshot") is False else trees

    def has_listeners(directory: str, session_id: str) -> bool:
        has_reader = hub.wants(OPENCODE2) or hub.has_reader(directory) or feed.has_listener(session_id)
        return has_reader or hooks.want("question")

    def reread(directory: str) -> None:
        hub.emit(HostChanged(DirectoryDisposed(directory), directory))  # a TUI reads everything of its directory again

    def end_void(directory: str) -> None:
        reread(directory)
        hub.end_void(directory)

    agents.listeners.limits = reread
    tapes = _tapes(services)
    spares = SpareAgents(
        agents,
        clock=clock,
        ids=ids,
        limit=_spare_limit(settings),
        trust=trust,
        roots=roots,
        config_refresh=config_refresh,
        config_rules=config_rules,
        setups=setups,
        snapshots=snapshots,
        is_idle=lambda: len(sessions.index.busy()) < (os.cpu_count() or 1),
        new_tape=None if tapes is None else tapes.spare,
    )
    families = frozenset(family for agent in agents.list_agents() for family in agent.spec.rules.project_settings.reads)
    enclose_shell = partial(shell_sandbox, settings.sandbox, environ, partial(trust.is_trusted, families=families))
    room = AgentRoom(_agent_limit(settings), lambda: sessions.index.running_agents())
    host = HostFeed()
    member = _member(app, services, hub, host, room)
    sessions = SessionManager(
        SessionDeps(
            clock,
            ids,
            store,
            ChangeFeed(hub.bursts),
            agents,
            config_rules,
            settings,
            config_now=config.current,
            session_version=OPENCODE_VERSION,
            home=str(config.home),
            find_place=find_place,
            snapshots=snapshots,
            feed=feed,
            command_files=CommandFiles(environ, roots),
            local_offers=DirectoryOffers(agents, trust, config.current),
            setups=setups,
            trust=trust,
            listened=has_listeners,
            end_streams=end_void,
            config_refresh=config_refresh,
            clean_up=clean_up,
            placement=member.placement,
            room=room,
            tapes=tapes,
            agent_tokens=_agent_tokens(app, services),
            spares=spares,
            enclose_shell=enclose_shell,
        ),
        member.make_remotes,
    )
    names = NamedSessions(sessions, agents, store)
    installs = Installer(agents, settings.data_dir / "agents", clock)
    services.reply_links = ReplyLinks(clock, partial(_public_address, services))
    hooks = Hooks(settings.hooks, sessions.index.find_record, services.reply_links.add)
    feed.observe(telemetry.meters.observe, METERED)
    _listen(feed, hooks)
    if settings.otel:
        feed.observe(telemetry.spans.observe)
    host.observe(hub.emit)
    sessions.deps.changes.observe(hub.emit)
    sessions.deps.changes.observe(McpReports(reread).note, (ServersReported,))
    plans = PlanReports(partial(_warn, services))
    sessions.deps.changes.observe(plans.note, (LimitsReported,))
    opencode2 = FaceServices(sessions, store, hub, clock=clock, ids=ids)
    projects = Projects(store, clock)
    sessions.deps.find_project = projects.identity
    worktrees = Worktrees(settings.data_dir, projects, host)

    def is_watched(directory: str) -> bool:
        has_reader = not settings.no_agents and (hub.wants(OPENCODE2) or hub.has_reader(directory))
        return has_reader or member.is_wanted(directory)

    services.hub, services.host, services.sessions = hub, host, sessions
    services.native_sessions = NativeSessions(sessions)
    services.watchers = Watchers(host, is_watched, config.home)
    services.projects, services.config, services.worktrees = projects, config, worktrees
    end_streams = partial(_end_streams, services)
    drain = Drain(sessions, member.placement, store.ownership, name=settings.server_name, end_streams=end_streams)
    services.universal = Universal(names, installs, Traces(store), member.nodes(services, drain), plans)
    services.opencode2 = opencode2
    services.logins = Logins(clock, agents.environment, lambda: host.publish(AllDisposed(), EVERYWHERE))
    services.terminals = Terminals(
        clock=clock,
        ids=ids,
        environ=environ,
        owner=owner,
        changes=host,
        enclose=enclose_shell("auto"),
        held=_holders(settings),
        keep=partial(store.set_value, TERMINALS),
    )
    services.shells = Shells(
        settings.data_dir / "shell",
        clock=clock,
        ids=ids,
        environ=environ,
        owner=owner,
        changes=host,
        enclose=enclose_shell("auto"),
    )
    services.copies = ProjectCopies(store, projects, host)
    services.tui_control = TuiControl()

    async with AsyncExitStack() as ends:  # closes the parts in reverse order
        for part in (trees, plugins, sessions, services.native_sessions, hooks, installs, drain):
            ends.push_async_callback(part.close)
        _observe_values(app, services, names)
        await _take_up(services)
        await sessions.start()
        await names.start()
        trees.start()
        ends.push_async_callback(member.leave)
        await member.join(services)
        watching = asyncio.create_task(config.keep_current(sessions.index.directories_at_work), name="keep configuration current")
        ends.callback(watching.cancel)
        writers = OtherWriters(sessions)
        sessions.deps.catch_up = writers.catch_up
        looks = asyncio.create_task(writers.watch(), name="look at agents' own programs")
        ends.callback(looks.cancel)
        return Backend(services, hooks, drain, ends.pop_all())


async def _take_up(services: Services) -> None:
    """Show the terminals of the server before, and read what people have spent.

    Ids ascend from its own, also if the clock was set back.
    """
    await services.terminals.take_up(await services.store.values(TERMINALS))
    if (quotas := services.sessions.deps.quotas) is not None:
        await quotas.start()
    if services.settings.outlive and isinstance(services.store, OrderedStore):
        for newest in await services.store.newest(lambda event_id: True, 1):
            services.ids.pass_over(newest.event_id)


def _public_address(services: Services) -> str:
    """Where other devices reach this server."""
    return (services.settings.public_url or f"{services.url}{services.settings.base_path}").rstrip("/")


def _warn(services: Services, agent: str, words: str, directory: str) -> None:
    """Show a person how far a limit of their plan is used."""
    services.host.publish(TuiToast(words, "warning", title=f"{services.agents.title_of(agent)}: your plan"), directory)


def _member(app: web.Application, services: Services, hub: Hub, host: HostFeed, room: AgentRoom) -> Member:
    """This server in the cluster of its store, or alone."""
    settings, store = services.settings, services.store
    if not store.ownership.sessions_move:
        return Alone(settings.labels)
    from shim.cluster.member import ClusterMember  # imported here, because only a server of a cluster has it

    async def watch(directory: str) -> None:
        services.watchers.visit(directory, (await services.projects.identity(directory)).id)

    return ClusterMember(
        app,
        settings,
        store,
        services.agents,
        room,
        in_use=lambda: (*services.terminals.directories(), *services.shells.directories()),
        host=host,
        emit=hub.emit,
        has_reader=lambda directory: hub.wants(OPENCODE2) or hub.has_reader(directory),
        watch=watch,
    )


def _tapes(services: Services) -> Tapes | None:
    """What turns need to outlive this server, if they are to, and if its store can hold rows together."""
    settings, store = services.settings, services.store
    folder = _holders(settings)
    return Tapes(store, folder, services.clock) if folder is not None and isinstance(store, TapeStore) else None


def _holders(settings: Settings) -> Path | None:
    """Where holders are, if what runs on them is to outlive this server."""
    folder = settings.data_dir / "held"
    return folder if settings.outlive and not settings.has_cluster else None


def _agent_tokens(app: web.Application, services: Services) -> AgentTokens | None:
    """The tokens of agents, if they are to use `/mcp`."""
    if not services.settings.mcp:
        return None
    tokens = AgentTokens(lambda: f"{services.url}{services.settings.base_path}/mcp")
    app[ACCESS].agents.session_of = tokens.session_of
    return tokens


def _agent_limit(settings: Settings) -> int | None:
    """How many agents may run at once: in a cluster, as many as this machine has memory for; else any number."""
    if settings.max_agents is not None or not settings.has_cluster:
        return settings.max_agents
    return max(1, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // AGENT_BYTES)


def _spare_limit(settings: Settings) -> int:
    """How many spare agents there may be: none where a start needs to know its session, for its trace or its token."""
    return 0 if settings.otel or settings.no_agents or settings.mcp else settings.spare_agents


def _end_streams(services: Services) -> None:
    services.hub.close()
    services.sessions.deps.feed.close()
    services.tui_control.close()


def _observe_values(app: web.Application, services: Services, names: NamedSessions) -> None:
    """Take over the small values that other servers of a cluster change."""
    others, projects = services.sessions.others, services.projects
    others.observe_values(PAIRING, app[ACCESS].pairing.note)
    others.observe_values(PROJECT_ROWS, projects.note_row)
    others.observe_values(PROJECT_IDS, projects.note_id)
    others.observe_values(NAMES, names.note)
    if app[ACCESS].secrets is not None:
        sessions, clock = services.sessions, services.clock
        quotas = sessions.deps.quotas = Accounts(sessions.index, services.store, clock, app[ACCESS].pairing.quota_of)
        sessions.deps.changes.observe(quotas.charge, (TurnEnded,))
        others.observe_values(SPENDING, quotas.note)
