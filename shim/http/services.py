"""All services of the server, for routes, in one value that `shim.main.app` and `shim.main.backend` build.

Routes see only the parts that they call, and not their construction. Tests replace them by fakes.
"""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aiohttp import web
from aiohttp.typedefs import Handler

from shim.http.directory import Links
from shim.http.unserved_requests import UnservedRequests
from shim.lib.errors import LimitReached

if TYPE_CHECKING:
    from shim.agents.directory import Agent, AgentDirectory
    from shim.agents.install import Installer
    from shim.agents.logins import Logins
    from shim.faces.opencode2.services import FaceServices
    from shim.faces.v1.nodes import Nodes
    from shim.host.changes import HostFeed
    from shim.host.config.opencode_config import ConfigFiles, OpenCodeConfig
    from shim.host.files.watcher import Watchers
    from shim.host.git.project_copies import ProjectCopies
    from shim.host.git.projects import Projects
    from shim.host.git.worktrees import Worktrees
    from shim.host.terminals.shells import Shells
    from shim.host.terminals.terminal_manager import Terminals
    from shim.host.tui_control import TuiControl
    from shim.http.audit import Audit
    from shim.inspector.trace import Traces
    from shim.lib.clock import Clock
    from shim.lib.ids import Ids
    from shim.lib.settings import Settings
    from shim.sessions.index.manager import SessionManager
    from shim.sessions.index.named_sessions import NamedSessions
    from shim.sessions.plan_limits import PlanReports
    from shim.sessions.transfer.conversations import NativeSessions
    from shim.store.base import Store
    from shim.stream.hub import Hub
    from shim.stream.streams import Streams
    from shim.telemetry.meters import Meters
    from shim.telemetry.reply_links import ReplyLinks
    from shim.telemetry.spans import Spans


class Relay:
    """Lets the server answer that has the session or the directory of a request. As it is, a server alone answers itself."""

    def serve(self, request: web.Request, handler: Handler) -> Awaitable[web.StreamResponse]:
        """Answer a request: with this server's handler, or with what another server answers."""
        return handler(request)

    async def close_sockets(self) -> None:
        """Close the WebSockets of clients that other servers serve, for the shutdown of this one."""


@dataclass(frozen=True, slots=True)
class Universal:
    """The services for `/v1` and the inspector: named sessions, installations, traces, servers of a cluster, limits of plans."""

    sessions: NamedSessions
    installs: Installer
    traces: Traces
    nodes: Nodes
    plans: PlanReports


@dataclass(frozen=True, slots=True)
class Telemetry:
    """The meters and spans of requests and events."""

    meters: Meters
    spans: Spans


@dataclass(slots=True)
class Services:
    """All services that a handler may use. Only `settings` changes later: a reload replaces its live values (`shim.main.app`).

    A server has the first ones from its start. `shim.main.app` adds the agents soon after it, and
    `shim.main.backend` the others before a handler is loaded that uses them.
    """

    settings: Settings
    clock: Clock
    ids: Ids
    store: Store
    telemetry: Telemetry | None = None
    """None only in tests."""
    links: Links = field(default_factory=Links)
    unserved_requests: UnservedRequests = field(default_factory=UnservedRequests)
    audit: Audit | None = None
    """None only in tests."""
    url: str = ""
    """Where this server listens; "" before it does."""

    reply_links: ReplyLinks = field(init=False)
    logins: Logins = field(init=False)
    agents: AgentDirectory = field(init=False)
    relay: Relay = field(init=False)
    hub: Hub = field(init=False)
    streams: Streams = field(init=False)
    host: HostFeed = field(init=False)
    sessions: SessionManager = field(init=False)
    native_sessions: NativeSessions = field(init=False)
    projects: Projects = field(init=False)
    config: ConfigFiles = field(init=False)
    terminals: Terminals = field(init=False)
    shells: Shells = field(init=False)
    worktrees: Worktrees = field(init=False)
    copies: ProjectCopies = field(init=False)
    tui_control: TuiControl = field(init=False)
    watchers: Watchers = field(init=False)
    universal: Universal | None = None
    """None only in tests that run OpenCode's face alone."""
    opencode2: FaceServices | None = None
    """The services of OpenCode 2 beside the sessions; None only in such tests."""


async def list_offers(services: Services, directory: str) -> tuple[OpenCodeConfig, list[Agent]]:
    """The configuration of a directory, and the usable agents that it offers, the default first."""
    config = await services.config.fresh(directory)
    offers, agents = services.sessions.deps.local_offers, await services.agents.available()
    return config, [offers.look(agent, directory) for agent in agents if config.offers(agent.spec.name)]


def need_room(services: Services) -> None:
    """Raise LimitReached if one more stream would exceed the limit."""
    limit = services.settings.max_streams
    followers = services.universal.sessions.manager.deps.feed.listeners if services.universal is not None else 0
    if services.hub.stats().readers + followers >= limit:
        raise LimitReached("max_streams", limit, "Too many event streams are open: close some.")


async def end_instance(services: Services, directory: str) -> None:
    """End a directory's turns, agents, terminals and `/event` streams, and tell clients to read everything again."""
    from shim.host.changes import DirectoryDisposed  # late: a start has no instances

    await services.sessions.dispose(directory)
    await services.terminals.dispose(directory)
    await services.shells.dispose(directory)
    await services.watchers.forget(directory)
    project = await services.projects.identity(directory)
    services.projects.forget(directory)
    services.host.publish(DirectoryDisposed(directory), directory, project.id)
    services.hub.end(directory)
