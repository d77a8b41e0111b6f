"""What sessions need of the rest of the server; wired in `shim.app`, faked in tests."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol

from shim.agents.directory import AgentDirectory
from shim.clock import Clock
from shim.host.trust import ProjectTrust
from shim.ids import Ids
from shim.sessions.feed import ChangeFeed, Feed
from shim.sessions.permissions.requests import Timer, UnattendedCounts, call_later
from shim.sessions.permissions.trust_question import QUESTION_S, TrustQuestions
from shim.sessions.undo.step_snapshots import Trees
from shim.store.base import Store
from universal.permissions import Rule
from universal.tools.accesses import Place
from universal.unattended_policy import WAIT, UnattendedPolicy


class ProjectLike(Protocol):
    """A project, as far as sessions care."""

    @property
    def id(self) -> str:
        """Project id: the root commit, or `global`."""
        ...

    @property
    def worktree(self) -> str:
        """Root of the repository, `/` outside of git."""
        ...


async def _place_as_written(directory: str) -> Place:
    """A place without a repository and without links, in tests."""
    return Place(directory)


async def _nothing_to_refresh(_directory: str) -> None:
    """Sessions without configuration files, in tests."""


@dataclass(slots=True)
class SessionDeps:
    """Everything injected. Only limits and times ever change: at a reload of the settings (`shim.app`).

    `config_rules` gives the permission rules of a directory's config, as they were read last."""

    clock: Clock
    ids: Ids
    store: Store
    changes: ChangeFeed
    agents: AgentDirectory
    config_rules: Callable[[str], tuple[Rule, ...]]
    abort_timeout_s: float
    idle_reap_s: float
    feed: Feed = field(default_factory=Feed)
    session_version: str = ""
    """The version that a new session's record has: that of the OpenCode whose clients read it."""
    max_sessions: int = 100_000
    max_queued_prompts: int = 100
    home: str = "~"
    """The person's home, for `~/` in patterns and paths."""
    find_place: Callable[[str], Awaitable[Place]] = _place_as_written
    """Finds where the calls of a session in this directory are made; see `Place`. Awaited before an agent starts."""
    roots: tuple[str, ...] = ()
    """Directories that attached files must lie in; empty: anywhere."""
    snapshots: Callable[[str], Trees | None] = lambda _directory: None
    """Where snapshots of a directory are kept; None if there are to be none (`snapshot: false` in its config)."""
    trust: ProjectTrust | None = None
    """Whether the settings of a project may count; None: all do."""
    trust_questions: TrustQuestions = field(default_factory=TrustQuestions)
    trust_question_s: float = QUESTION_S
    """How long a person has to answer whether a project is trusted."""
    listened: Callable[[str, str], bool] = lambda _directory, _session_id: True
    """Whether a client is connected that could show a question of this session of this directory."""
    config_refresh: Callable[[str], Awaitable[None]] = _nothing_to_refresh
    """Reads a directory's config again if its files have changed; awaited before an agent starts, and before each prompt."""
    unattended: UnattendedPolicy = WAIT
    """What happens to asks that nobody answers, where neither the prompt nor the session says it."""
    clean_up: Callable[[str], Awaitable[None]] = _nothing_to_refresh
    """Ends what a server that died has left behind, by the server's id."""
    unattended_counts: UnattendedCounts = field(default_factory=UnattendedCounts)
    call_later: Callable[[float, Callable[[], None]], Timer] = call_later
    """How an ask is rejected after a while."""
