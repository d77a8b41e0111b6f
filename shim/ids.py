"""OpenCode's ids: `prefix_` + 12 hex digits of time + 14 base-62 characters.

    value = unix_ms * 0x1000 + counter, lower 48 bits; sessions descend (`~value`), all others ascend

48 bits hold 36 bits of milliseconds, so the value wraps every 795 days (last on 2026-08-14, next in October
2028). Clients order parts, messages and sessions by id, so within one session ids must ascend even then:
`IdSequence` never goes back, it counts on from its last value instead.
Source: recordings of OpenCode 1.18.33, `docs/wire.md`.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Callable, Iterator
from typing import Literal, TypeAlias

from shim.clock import Clock

ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
MASK = (1 << 48) - 1
COUNTER_SPAN = 0x1000
SAME_CLOCK_MS = 24 * 3600 * 1000
"""A client's id is taken as a time only if it is within a day of ours; `msg_zzz...` must not push ours up."""

Kind: TypeAlias = Literal["item", "permission", "question", "event", "session", "pty", "workspace", "turn", "saved", "shell"]

_PREFIX: dict[Kind, str] = {
    "item": "itm",
    "permission": "per",
    "question": "que",
    "event": "evt",
    "session": "ses",
    "pty": "pty",
    "workspace": "wrk",
    "turn": "trn",
    "saved": "psv",
    "shell": "sh",
}


ID_LIMIT = 128
"""Characters of an id. Ours have 30; clients and other servers make longer ones."""
ID_FORM = f"an id of letters, digits, _ and -, at most {ID_LIMIT} characters"
NAME_LIMIT = 200
"""Characters of a name of `/v1`."""
TAIL = 14
_ID = re.compile(r"[A-Za-z0-9_-]+")
_MOD_62 = bytes(ord(ALPHABET[b % 62]) for b in range(256))
_TAILS_AT_ONCE = 256


def random_tails() -> Iterator[str]:
    """Without end: 14 random base-62 characters, a byte mod 62 each, as OpenCode makes them.

    Drawn by the block: a call of the system for each id is what most of an id costs.
    """
    while True:
        block = secrets.token_bytes(TAIL * _TAILS_AT_ONCE).translate(_MOD_62).decode("ascii")
        yield from (block[at : at + TAIL] for at in range(0, len(block), TAIL))


def hashed_tail(seed: str) -> str:
    """14 base-62 characters that depend on `seed` alone: a rebuilt projection has the same ids."""
    return hashlib.blake2b(seed.encode(), digest_size=TAIL).digest().translate(_MOD_62).decode("ascii")


def render(prefix: str, value: int, tail: str, *, descending: bool = False) -> str:
    """One id from its 48-bit value and tail."""
    return f"{prefix}_{(~value if descending else value) & MASK:012x}{tail}"


def is_id(text: object, prefix: str) -> bool:
    """Whether a text may be an id that a client or a document brings: names of files and addresses are made of them."""
    return isinstance(text, str) and len(text) <= ID_LIMIT and text.startswith(prefix) and _ID.fullmatch(text) is not None


def is_name(text: str) -> bool:
    """Whether a text may be the name of a session of `/v1`, which clients choose: printable, and no step of a path."""
    return 0 < len(text) <= NAME_LIMIT and text.isprintable() and not {"/", "\\"} & set(text) and text not in (".", "..")


def value_of(id_: str) -> int | None:
    """The 48-bit value of an ascending id, None if it has another form."""
    _, _, rest = id_.partition("_")
    try:
        return int(rest[:12], 16) if len(rest) == 26 else None
    except ValueError:
        return None


class IdSequence:
    """Strictly ascending 48-bit values for one session, across clock jumps and the wrap.

    In: epoch ms of the thing that gets the id. State: the last value, so a replay gives the same ids.
    """

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last = -1

    @property
    def last(self) -> int:
        """The last value that was given out or seen; -1 before the first."""
        return self._last

    def next(self, ms: int) -> int:
        """The next value, at least the one of `ms` and always above the last."""
        value = (ms * COUNTER_SPAN + 1) & MASK
        if value <= self._last:
            value = self._last + 1
        self._last = value & MASK
        return self._last

    def saw(self, id_: str, ms: int) -> None:
        """A client made this id itself: ours must sort after it, if its clock is about ours."""
        value = value_of(id_)
        if value is None:
            return
        distance = (value - (ms * COUNTER_SPAN & MASK)) & MASK
        if distance < SAME_CLOCK_MS * COUNTER_SPAN or distance > MASK - SAME_CLOCK_MS * COUNTER_SPAN:
            self._last = max(self._last, value)


class Ids:
    """Ids that need not be reproducible, for the whole server."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last = 0
        self._tails = random_tails()

    def _value(self) -> int:
        self._last = max(self._clock.now_ms() * COUNTER_SPAN + 1, self._last + 1)
        return self._last

    def new(self, kind: Kind) -> str:
        """A new id: `itm_`, `per_`, `que_`, `evt_`, `pty_`, `wrk_`, `trn_`, `sh_` ascend, `ses_` descends."""
        if kind == "session":
            return render(_PREFIX[kind], self._value(), next(self._tails), descending=True)
        return f"{_PREFIX[kind]}_{self._value() & MASK:012x}{next(self._tails)}"

    def moment(self) -> str:
        """The id of an event on a stream: `evt_` and 12 hex digits of time and counter, ascending. One for each piece of text
        goes over the wire, and its place in the stream beside it (`shim.stream.frame`), so it has no random tail."""
        return f"evt_{self._value() & MASK:012x}"

    def factory(self) -> Callable[[Literal["item", "permission", "question"]], str]:
        """The id factory that codecs are given."""
        return self.new
