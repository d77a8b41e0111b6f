"""What routes are given: every service of the server in one frozen value, wired in `shim.app`.

Routes see the parts that they call and nothing of how they are made; tests put fakes in their place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shim.agents.directory import AgentDirectory
    from shim.clock import Clock
    from shim.host.opencode_config import ConfigFiles
    from shim.host.projects import Projects
    from shim.ids import Ids
    from shim.sessions.manager import SessionManager
    from shim.settings import Settings
    from shim.sse.hub import Hub
    from shim.store.base import Store


@dataclass(frozen=True, slots=True)
class Services:
    """Everything a handler may use."""

    settings: Settings
    clock: Clock
    ids: Ids
    hub: Hub
    store: Store
    sessions: SessionManager
    agents: AgentDirectory
    projects: Projects
    config: ConfigFiles
