"""What sessions need of the rest of the server, as protocols; wired in `shim.app`, faked in tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from shim.agents.handle import AgentHandle, OnExit, OnLines
from shim.clock import Clock
from shim.ids import Ids
from shim.sessions.branch import Publisher
from shim.sessions.rules import Rule
from shim.store.base import Store
from universal.codec import AgentSpec, Catalogue, Codec, LaunchOptions


class LocatedLike(Protocol):
    """Where an agent's binary is; `why` says why not."""

    @property
    def path(self) -> str | None:
        """Absolute path; None if it was not found (or none is needed)."""
        ...

    @property
    def why(self) -> str:
        """Empty when it was found."""
        ...


class AgentLike(Protocol):
    """An agent of this machine."""

    @property
    def spec(self) -> AgentSpec:
        """Its row of the registry."""
        ...

    @property
    def located(self) -> LocatedLike:
        """Its binary."""
        ...

    @property
    def catalogue(self) -> Catalogue:
        """Models and commands."""
        ...


class Agents(Protocol):
    """`shim.agents.directory`, as far as sessions call it."""

    async def available(self) -> Sequence[AgentLike]:
        """Agents that can be used now; waits (bounded) for their catalogues."""
        ...

    def default(self) -> AgentLike:
        """Who answers a prompt that names no model."""
        ...

    def get(self, name: str) -> AgentLike | None:
        """By registry name, found or not."""
        ...

    def environment(self) -> Mapping[str, str]:
        """What a child process inherits."""
        ...

    async def spawn(
        self, agent: AgentLike, options: LaunchOptions, codec: Codec, on_lines: OnLines, on_exit: OnExit
    ) -> AgentHandle:
        """Start it. Raises AgentError with what to do."""
        ...


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


@dataclass(frozen=True, slots=True)
class SessionDeps:
    """Everything injected. `config_rules` gives the permission rules of a directory's config."""

    clock: Clock
    ids: Ids
    store: Store
    hub: Publisher
    agents: Agents
    config_rules: Callable[[str], list[Rule]]
    abort_timeout_s: float
    idle_reap_s: float
