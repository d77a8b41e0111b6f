"""What clients asked first, by which their dialect is known. Pure but for its own state; bounded."""

from __future__ import annotations

from typing import TypeAlias

CLIENTS = 1024
"""So many are remembered; the one that has asked nothing for the longest time is forgotten first."""

Client: TypeAlias = tuple[str, str]
"""Address and User-Agent."""


class Probes:
    """Client -> the name of the dialect that its last probe was of."""

    def __init__(self, size: int = CLIENTS) -> None:
        self._size = size
        self._last: dict[Client, str] = {}

    def note(self, client: Client, dialect: str) -> None:
        """It has asked for something of this dialect."""
        self._last.pop(client, None)
        self._last[client] = dialect
        if len(self._last) > self._size:
            del self._last[next(iter(self._last))]

    def last(self, client: Client) -> str | None:
        """The dialect of its last probe."""
        found = self._last.get(client)
        if found is not None:
            self.note(client, found)
        return found
