"""Counts what clients asked for that this server does not have, for `opencode-shim doctor --client`.

The counts are of this process. What the limits below leave no room for is counted together.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

CLIENTS, ROUTES = 32, 64
"""Maximum User-Agents, and requests of each that differ in method, path or status."""
OTHERS = "others"
"""The User-Agent and the path under which the rest is counted."""
AGENT_CHARS = 200
SEGMENTS = 12
"""Maximum parts of a path that are shown."""
_WORD = re.compile(r"[A-Za-z][A-Za-z_.:-]{0,31}\d?")
"""A part of a path that names something of the API. All others, such as ids and encoded directories, are shown as `*`."""


class UnservedRequests:
    """Requests that no route of this server serves, by User-Agent."""

    def __init__(self) -> None:
        self._asked: dict[str, Counter[tuple[str, str, int]]] = {}

    def note(self, user_agent: str, method: str, path: str, status: int) -> None:
        """Count a request that was answered with this status."""
        client = user_agent[:AGENT_CHARS] or "-"
        if client not in self._asked and len(self._asked) >= CLIENTS:
            client = OTHERS
        asked = self._asked.setdefault(client, Counter())
        row = (method, _pattern(path), status)
        asked[row if row in asked or len(asked) < ROUTES else (OTHERS, OTHERS, status)] += 1

    def rows(self) -> Iterator[tuple[str, str, str, int, int]]:
        """Yield User-Agent, method, path, status and count, the most frequent of a client first."""
        for client, asked in self._asked.items():
            for (method, path, status), count in asked.most_common():
                yield client, method, path, status, count


def _pattern(path: str) -> str:
    parts = path.split("/")
    return "/".join(part if not part or _WORD.fullmatch(part) else "*" for part in parts[: SEGMENTS + 1])
