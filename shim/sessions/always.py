"""What a person has allowed for good, by answering `always`: rules of a directory, in memory, as OpenCode 1 keeps them."""

from __future__ import annotations

from collections.abc import Iterable

from shim.clock import Clock
from shim.ids import Ids
from shim.sessions.rules import Rule
from universal.frozen import frozen


@frozen
class Saved:
    """One of them. `at_ms`: when it was given."""

    id: str
    directory: str
    permission: str
    pattern: str
    at_ms: int


class Always:
    """All of them, oldest first."""

    def __init__(self, clock: Clock, ids: Ids) -> None:
        self._clock = clock
        self._ids = ids
        self._saved: list[Saved] = []

    def allow(self, directory: str, permission: str, patterns: Iterable[str]) -> None:
        """From now on these need no answer there."""
        now = self._clock.now_ms()
        self._saved += [Saved(self._ids.new("saved"), directory, permission, pattern, now) for pattern in patterns]

    def rules(self, directory: str) -> list[Rule]:
        """As rules, for a session of that directory."""
        found = [one for one in self._saved if one.directory == directory]
        return [{"permission": one.permission, "pattern": one.pattern, "action": "allow"} for one in found]

    def all(self) -> tuple[Saved, ...]:
        """All of them."""
        return tuple(self._saved)

    def forget(self, id_: str) -> None:
        """It is asked again. An unknown one is fine."""
        self._saved = [one for one in self._saved if one.id != id_]

    def clear(self, directory: str | None = None) -> None:
        """Forget those of a directory, or (None) all."""
        self._saved = [] if directory is None else [one for one in self._saved if one.directory != directory]
