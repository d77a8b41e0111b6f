"""Keeps the grants of `always`: rules of a directory, in memory, as in OpenCode 1."""

from __future__ import annotations

from dataclasses import dataclass, replace

from shim.lib.clock import Clock
from shim.lib.ids import Ids
from universal.permissions import Access, Rule


@dataclass(frozen=True, slots=True)
class Grant:
    """One allowed pattern in a directory.

    `agent`: the only agent whose calls it allows, or ""; `tool`: the only tool of an MCP server, by the agent's name, or "" for
    what is none; `at_ms`: time of the answer; `updated_ms`: of the last change, or 0.
    """

    id: str
    directory: str
    permission: str
    pattern: str
    at_ms: int
    updated_ms: int = 0
    agent: str = ""
    tool: str = ""

    @property
    def place(self) -> tuple[str, ...]:
        """Directory, permission, pattern, agent and tool, which are unique among grants."""
        return self.directory, self.permission, self.pattern, self.agent, self.tool


class Grants:
    """All grants, oldest first."""

    def __init__(self, clock: Clock, ids: Ids) -> None:
        self._clock = clock
        self._ids = ids
        self._grants: list[Grant] = []

    def allow(self, directory: str, access: Access) -> None:
        """Allow there from now on what "always" allows of an access."""
        now, agent, tool = self._clock.now_ms(), access.agent, access.tool
        new = (Grant(self._ids.new("saved"), directory, access.permission, one, now, 0, agent, tool) for one in access.always)
        self._grants += new

    def rules(self, directory: str, agent: str) -> tuple[Rule, ...]:
        rules: list[Rule] = []
        for grant in self._grants:
            if grant.directory == directory and grant.agent in ("", agent):
                rules.append(Rule(grant.permission, grant.pattern, "allow", grant.tool))
        return tuple(rules)

    def list_grants(self) -> tuple[Grant, ...]:
        return tuple(self._grants)

    def change(self, id_: str, permission: str | None, pattern: str | None) -> Grant:
        """Change the permission or pattern of a grant. Raises KeyError (unknown grant), ValueError (an equal grant exists)."""
        index = next((index for index, grant in enumerate(self._grants) if grant.id == id_), None)
        if index is None:
            raise KeyError(id_)
        old = self._grants[index]
        new = replace(old, permission=permission or old.permission, pattern=pattern or old.pattern)
        new = replace(new, updated_ms=self._clock.now_ms(), tool=old.tool if new.permission == old.permission else "")
        if any(grant.place == new.place for grant in self._grants if grant.id != id_):
            raise ValueError(id_)
        self._grants[index] = new
        return new

    def revoke(self, id_: str) -> None:
        """Remove one grant; an unknown id is ignored."""
        self._grants = [grant for grant in self._grants if grant.id != id_]

    def clear(self, directory: str | None = None) -> None:
        """Remove the grants of a directory, or (None) all."""
        self._grants = [] if directory is None else [grant for grant in self._grants if grant.directory != directory]
