"""The dependencies of sessions on the rest of the server. `shim.main.backend` wires them; tests use fakes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, get_args

from shim.agents.command_files import CommandFiles
from shim.agents.directory import AgentDirectory
from shim.agents.directory_offers import DirectoryOffers
from shim.agents.spares.agent_room import AgentRoom
from shim.agents.spares.spare_agents import SpareAgents
from shim.host.config.opencode_config import OpenCodeConfig
from shim.host.config.setups import Setups
from shim.host.git.projects import Identity
from shim.host.git.snapshot import Snapshots
from shim.host.terminals.shell_command import Enclose, leave_command
from shim.host.trust.trust_store import ProjectTrust
from shim.lib.clock import Clock
from shim.lib.ids import Ids
from shim.lib.settings import Settings
from shim.sessions.agent_tokens import AgentTokens
from shim.sessions.feed import ChangeFeed, Feed
from shim.sessions.permissions.trust_gate import TrustQuestions
from shim.sessions.permissions.unattended_policy import Timer, UnattendedCounts, call_later
from shim.sessions.placement import Placement
from shim.sessions.session.tape import Tapes
from shim.store.base import Store
from universal.permissions import DirectoryRules
from universal.refusals import Kind
from universal.sandbox import Level
from universal.tools.accesses import Place
from universal.unattended_policy import UnattendedPolicy, parse

if TYPE_CHECKING:
    from shim.sessions.index.accounts import Accounts
    from shim.sessions.session.actor import SessionActor


async def _place_as_written(directory: str) -> Place:
    """A place without a repository and links, for tests."""
    return Place(directory)


async def _no_project(_directory: str) -> Identity | None:
    return None


async def _refresh_nothing(_directory: str) -> None:
    """Does nothing, for tests without configuration files."""


async def _catch_up_with_nothing(_session: SessionActor) -> None:
    """Does nothing, for tests without conversations of agents' own programs."""


@dataclass(slots=True)
class SessionDeps:
    """All injected dependencies.

    `config_now` returns a directory's configuration as last read. `config_rules` returns its permission rules in a mode, as they
    are now, or as they were in an earlier configuration."""

    clock: Clock
    ids: Ids
    store: Store
    changes: ChangeFeed
    agents: AgentDirectory
    config_rules: Callable[[str, str, OpenCodeConfig | None], DirectoryRules]
    settings: Settings
    """Only `LIVE` ones change, at a reload (`shim.main.app`)."""
    config_now: Callable[[str], OpenCodeConfig | None] = lambda _: None
    feed: Feed = field(default_factory=Feed)
    session_version: str = ""
    """The version in a new session's record: that of OpenCode."""
    home: str = "~"
    """The person's home, for `~/` in patterns and paths."""
    find_project: Callable[[str], Awaitable[Identity | None]] = _no_project
    """Returns the project that a directory is in now. None: that which its sessions were made in."""
    find_place: Callable[[str], Awaitable[Place]] = _place_as_written
    """Finds the place of a session's calls (`Place`). Awaited before an agent starts."""
    snapshots: Callable[[str], Snapshots | None] = lambda _directory: None
    """Returns the snapshots of a directory, or None if they are switched off (`snapshot: false` in its configuration)."""
    command_files: CommandFiles | None = None
    """Finds agents' commands in files. None: only what agents report counts."""
    local_offers: DirectoryOffers = field(default_factory=DirectoryOffers)
    """What agents offer in each directory."""
    setups: Setups = field(default_factory=Setups)
    """The set-ups of directories (`universal.setup`)."""
    trust: ProjectTrust | None = None
    """Decides whether a project's settings may be used. None: they always may."""
    trust_questions: TrustQuestions = field(default_factory=TrustQuestions)
    listened: Callable[[str, str], bool] = lambda _directory, _session_id: True
    """Whether a connected client could show a question of this session in this directory."""
    end_streams: Callable[[str], object] = lambda _directory: None
    """Ends the streams that get a directory's events, and lets their clients read everything anew: some events are void."""
    config_refresh: Callable[[str], Awaitable[None]] = _refresh_nothing
    """Reads a directory's configuration again if its files have changed. Awaited before an agent's start and each prompt."""
    catch_up: Callable[[SessionActor], Awaitable[None]] = _catch_up_with_nothing
    """Records what an agent's own program has said in its conversation, unless the agent runs. Awaited before each prompt."""
    clean_up: Callable[[str], Awaitable[None]] = _refresh_nothing
    """Ends processes that a dead server has left behind. In: the server's id."""
    placement: Placement = field(default_factory=Placement)
    """Decides which server takes a session."""
    quotas: Accounts | None = None
    """What named people may use. None: there are none, as on a server without a password."""
    room: AgentRoom = field(default_factory=lambda: AgentRoom(None, list))
    """Limits how many agents run at once."""
    tapes: Tapes | None = None
    """What the next server needs to go on with turns. None: agents end with this server."""
    agent_tokens: AgentTokens | None = None
    """The tokens by which agents use `/mcp`. None: they do not."""
    spares: SpareAgents | None = None
    """Agents that wait for a session. None: every agent is started for its session."""
    unattended_counts: UnattendedCounts = field(default_factory=UnattendedCounts)
    enclose_shell: Callable[[Level], Enclose] = lambda _level: leave_command
    """Returns what holds shell lines of a person and of commands. In: the level of the session."""
    refusal_counts: Counter[str] = field(default_factory=lambda: Counter(dict.fromkeys(get_args(Kind), 0)))
    """What sandboxes have refused since the server's start, as far as that is known, by kind."""
    call_later: Callable[[float, Callable[[], None]], Timer] = call_later
    """Calls a function after a delay, to reject a request."""

    @property
    def roots(self) -> tuple[str, ...]:
        """Directories that attached files must lie in; empty: anywhere."""
        return tuple(map(str, self.settings.roots))

    @property
    def unattended_policy(self) -> UnattendedPolicy:
        """The policy for unanswered requests, if neither the prompt nor the session has one."""
        return parse(self.settings.unattended)
