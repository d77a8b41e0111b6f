"""OpenCode's ids: `prefix_` + 12 hex digits of time + 14 base-62 characters.

    value = unix_ms * 0x1000 + counter, lower 48 bits; sessions descend (`~value`), all others ascend

48 bits hold 36 bits of milliseconds, so the value wraps every 795 days (last on 2026-08-14, next in October
2028). Clients order parts, messages and sessions by id, so within one session ids must ascend even then:
`IdSequence` never goes back, it counts on from its last value instead.
Source: recordings of OpenCode 1.18.33, `docs/wire.md`.
"""

from __future__ import annotations

import hashlib

ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
MASK = (1 << 48) - 1
COUNTER_SPAN = 0x1000
SAME_CLOCK_MS = 24 * 3600 * 1000
"""A client's id counts as a time only within a day of our clock, so that `msg_zzz...` does not push our ids up."""
TAIL = 14
BYTE_TO_BASE_62 = bytes(ord(ALPHABET[b % 62]) for b in range(256))


def hashed_tail(seed: str) -> str:
    """Return 14 base-62 characters that depend only on `seed`, so that a rebuilt session has the same ids."""
    return hashlib.blake2b(seed.encode(), digest_size=TAIL).digest().translate(BYTE_TO_BASE_62).decode("ascii")


def render(prefix: str, value: int, tail: str, *, descending: bool = False) -> str:
    """Return the id with this 48-bit value and tail."""
    return f"{prefix}_{(~value if descending else value) & MASK:012x}{tail}"


def value_of(id_: str) -> int | None:
    """Return the 48-bit value of an ascending id, or None if it has another form."""
    _, _, rest = id_.partition("_")
    try:
        return int(rest[:12], 16) if len(rest) == 26 else None
    except ValueError:
        return None


class IdSequence:
    """Creates strictly ascending 48-bit values for one session, across clock jumps and the wrap.

    `next` takes the epoch ms of the thing that gets the id. The only state is the last value (at first `last`), so a replay
    gives the same ids.
    """

    __slots__ = ("_last",)

    def __init__(self, last: int = -1) -> None:
        self._last = last

    @property
    def last(self) -> int:
        """The last value that was created or observed, or -1 before the first."""
        return self._last

    def next(self, ms: int) -> int:
        """Return the next value: at least the value of `ms`, and above the last one."""
        value = (ms * COUNTER_SPAN + 1) & MASK
        if value <= self._last:
            value = self._last + 1
        self._last = value & MASK
        return self._last

    def saw(self, id_: str, ms: int) -> None:
        """Let later ids sort after an id that a client created, if the client's clock is within a day of ours."""
        self._last = highest(self._last, id_, ms)


def highest(last: int, id_: str, ms: int) -> int:
    """Return the higher value of `last` and an id. An id counts if its maker's clock was within a day of `ms`."""
    value = value_of(id_)
    if value is None:
        return last
    distance = (value - (ms * COUNTER_SPAN & MASK)) & MASK
    is_near = distance < SAME_CLOCK_MS * COUNTER_SPAN or distance > MASK - SAME_CLOCK_MS * COUNTER_SPAN
    return max(last, value) if is_near else last
