"""Remembers which dialect of OpenCode 2 each client speaks, by the route that it called first. Bounded.

A client calls `/api/health` or `/api/info` once, at its start, and does not call it again when the server restarts. So dialects
that the User-Agent does not tell are kept in a file (`shim.faces.opencode2.probe_file`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeAlias

from shim.faces.opencode2.dialects import V2_0, V2_JULY

CLIENTS = 1024
"""Maximum of clients remembered. The client that has been silent for the longest time is forgotten first."""
JULY_AGENT = "opencode2/"
"""Beginning of the User-Agent of July's builds, which call `/api/health`. That of 2.0 is `opencode/latest/2.0.26/cli`."""

Client: TypeAlias = tuple[str, str]
"""Address and User-Agent."""


class Probe(NamedTuple):
    """A client and the name of the dialect that its last probe stands for."""

    address: str
    user_agent: str
    dialect: str


def dialect_by_agent(user_agent: str) -> str:
    """The name of the dialect of a client that has called neither `/api/health` nor `/api/info`."""
    return (V2_JULY if user_agent.startswith(JULY_AGENT) else V2_0).name


class Probes:
    """The last probe of each client. `changed` is called when a client's dialect becomes another one."""

    def __init__(self, size: int = CLIENTS) -> None:
        self._size = size
        self._last: dict[Client, str] = {}
        self.changed: Callable[[], None] = lambda: None

    def note(self, client: Client, dialect: str) -> None:
        """Remember that the client has called a probe of this dialect."""
        before = self._last.pop(client, None)
        self._last[client] = dialect
        self._shrink()
        if before != dialect:
            self.changed()

    def last(self, client: Client) -> str | None:
        """The name of the dialect of the client's last probe, or None. The client counts as heard."""
        dialect = self._last.get(client)
        if dialect is not None:
            self.note(client, dialect)
        return dialect

    def unusual(self) -> list[Probe]:
        """Probes whose dialect differs from what the User-Agent tells, the longest silent client first."""
        return [Probe(*client, dialect) for client, dialect in self._last.items() if dialect != dialect_by_agent(client[1])]

    def restore(self, probes: Iterable[Probe]) -> None:
        """Add the probes of before a restart. Probes of clients that have called since then win."""
        older = {(probe.address, probe.user_agent): probe.dialect for probe in probes}
        newer = self._last
        self._last = {**{client: dialect for client, dialect in older.items() if client not in newer}, **newer}
        self._shrink()

    def _shrink(self) -> None:
        while len(self._last) > self._size:
            del self._last[next(iter(self._last))]
