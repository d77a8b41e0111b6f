"""Finds out that a person has opened a session in OpenCode's TUI or web UI, by what the client reads.

A TUI reads messages, todos and diffs of a session at once when a person opens it, and at no other time (1.18.33). The web UI
reads its messages, as a page of the same origin. Clients that list or poll sessions give neither sign.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

Read: TypeAlias = Literal["messages", "todos", "diffs"]
"""A part of a session that a client has read."""

ALL_READS = frozenset[Read](("messages", "todos", "diffs"))
TOGETHER_MS = 5_000
"""Milliseconds within which a TUI reads all parts of a session that it opens."""
CLIENTS = 64
"""Number of clients whose last reads are kept."""


@dataclass(frozen=True, slots=True)
class _Reads:
    """What a client has read of its last session since `since_ms`."""

    session_id: str
    since_ms: int
    parts: frozenset[Read]


class OpenSigns:
    """The last reads of each client."""

    def __init__(self) -> None:
        self._reads: OrderedDict[str, _Reads] = OrderedDict()

    def note(self, client: str, session_id: str, read: Read, now_ms: int) -> bool:
        """Note a read of a client. True if it completes the sign that a person has opened the session."""
        reads = self._reads.get(client)
        if reads is None or reads.session_id != session_id or now_ms - reads.since_ms > TOGETHER_MS:
            reads = _Reads(session_id, now_ms, frozenset[Read]())
        elif read in reads.parts:
            return False
        reads = replace(reads, parts=reads.parts | {read})
        self._reads.pop(client, None)
        if reads.parts == ALL_READS:
            return True
        self._reads[client] = reads
        while len(self._reads) > CLIENTS:
            self._reads.popitem(last=False)
        return False
