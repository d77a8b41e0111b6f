"""Which build of OpenCode 2 a client is of, by its User-Agent and by what it asked first. Pure but for its own state; bounded.

A client asks `/api/health` or `/api/info` once, when it starts, and goes on with a server that was restarted meanwhile. So what
its User-Agent says needs no memory, and what it does not say is kept beyond a restart (`shim.faces.opencode2.probe_file`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeAlias

CLIENTS = 1024
"""So many are remembered; the one that has asked nothing for the longest time is forgotten first."""
JULY_AGENT = "opencode2/"
"""How the User-Agent of the builds before 2.0 begins that ask `/api/health`. 2.0's is `opencode/latest/2.0.26/cli`."""

Client: TypeAlias = tuple[str, str]
"""Address and User-Agent."""


class Probe(NamedTuple):
    """What one client has asked last: the name of the dialect that this stands for."""

    address: str
    user_agent: str
    dialect: str


def dialect_by_agent(user_agent: str) -> str:
    """The name of the dialect of a client of OpenCode 2 that has asked neither `/api/health` nor `/api/info`."""
    return "J" if user_agent.startswith(JULY_AGENT) else "R"


class Probes:
    """Client -> the name of the dialect that its last probe was of. `changed` is called when a client's is another one."""

    def __init__(self, size: int = CLIENTS) -> None:
        self._size = size
        self._last: dict[Client, str] = {}
        self.changed: Callable[[], None] = lambda: None

    def note(self, client: Client, dialect: str) -> None:
        """It has asked for something of this dialect."""
        before = self._last.pop(client, None)
        self._last[client] = dialect
        self._shrink()
        if before != dialect:
            self.changed()

    def last(self, client: Client) -> str | None:
        """The dialect of its last probe."""
        found = self._last.get(client)
        if found is not None:
            self.note(client, found)
        return found

    def unusual(self) -> list[Probe]:
        """All that say something else than their User-Agents do, the longest silent client first."""
        return [Probe(*client, dialect) for client, dialect in self._last.items() if dialect != dialect_by_agent(client[1])]

    def restore(self, probes: Iterable[Probe]) -> None:
        """What was known before a restart. What clients have asked since counts more."""
        older = {(probe.address, probe.user_agent): probe.dialect for probe in probes}
        newer = self._last
        self._last = {**{client: dialect for client, dialect in older.items() if client not in newer}, **newer}
        self._shrink()

    def _shrink(self) -> None:
        while len(self._last) > self._size:
            del self._last[next(iter(self._last))]
