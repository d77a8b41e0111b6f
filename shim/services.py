"""What routes are given: every service of the server in one frozen value, wired in `shim.app`.

Routes see the parts that they call and nothing of how they are made; tests put fakes in their place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shim.agents.directory import AgentDirectory
    from shim.agents.install import Installer
    from shim.clock import Clock
    from shim.faces.opencode2.services import FaceServices
    from shim.host.changes import HostFeed
    from shim.host.opencode_config import ConfigFiles
    from shim.host.project_copies import ProjectCopies
    from shim.host.projects import Projects
    from shim.host.shells import Shells
    from shim.host.terminals import Terminals
    from shim.host.tui_control import TuiControl
    from shim.host.watcher import Watchers
    from shim.host.workspaces import Workspaces
    from shim.host.worktrees import Worktrees
    from shim.ids import Ids
    from shim.inspector.traces import Traces
    from shim.sessions.manager import SessionManager
    from shim.sessions.named_sessions import NamedSessions
    from shim.settings import Settings
    from shim.store.base import Store
    from shim.stream.hub import Hub
    from shim.telemetry.meters import Meters
    from shim.telemetry.spans import Spans


@dataclass(frozen=True, slots=True)
class Universal:
    """What the universal face has beside the other's: names of sessions, installations, replays, counts, traces."""

    sessions: NamedSessions
    installs: Installer
    traces: Traces
    meters: Meters
    spans: Spans


@dataclass(slots=True)
class Services:
    """Everything a handler may use. Only `settings` ever changes: at a reload, in its live values (`shim.app`)."""

    settings: Settings
    clock: Clock
    ids: Ids
    hub: Hub
    host: HostFeed
    store: Store
    sessions: SessionManager
    agents: AgentDirectory
    projects: Projects
    config: ConfigFiles
    terminals: Terminals
    shells: Shells
    worktrees: Worktrees
    copies: ProjectCopies
    tui_control: TuiControl
    watchers: Watchers
    workspaces: Workspaces
    universal: Universal | None = None
    """None only where OpenCode's face stands alone, in tests."""
    opencode2: FaceServices | None = None
    """What OpenCode 2 has beside the sessions; None as above."""
