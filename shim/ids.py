"""Ids that this server makes (random), and whether a client's id is one. Their form: `universal.ids`."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Callable, Iterator
from typing import Literal, TypeAlias

from shim.clock import Clock
from universal.ids import BYTE_TO_BASE_62, COUNTER_SPAN, MASK, TAIL, render

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
_ID = re.compile(r"[A-Za-z0-9_-]+")
_TAILS_AT_ONCE = 256


def random_tails() -> Iterator[str]:
    """Without end: 14 random base-62 characters, a byte mod 62 each, as OpenCode makes them.

    Drawn by the block: a call of the system for each id is what most of an id costs.
    """
    while True:
        block = secrets.token_bytes(TAIL * _TAILS_AT_ONCE).translate(BYTE_TO_BASE_62).decode("ascii")
        yield from (block[at : at + TAIL] for at in range(0, len(block), TAIL))


def is_id(text: object, prefix: str) -> bool:
    """Whether a text may be an id that a client or a document brings: names of files and addresses are made of them."""
    return isinstance(text, str) and len(text) <= ID_LIMIT and text.startswith(prefix) and _ID.fullmatch(text) is not None


def is_name(text: str) -> bool:
    """Whether a text may be the name of a session of `/v1`, which clients choose: printable, and no step of a path."""
    return 0 < len(text) <= NAME_LIMIT and text.isprintable() and not {"/", "\\"} & set(text) and text not in (".", "..")


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


# --- names ------------------------------------------------------------------------------------------

_ADJECTIVES = (
    "brave", "calm", "clever", "cosmic", "crisp", "eager", "gentle", "glowing", "happy", "hidden", "jolly", "kind",
    "lucky", "mighty", "misty", "neon", "nimble", "playful", "proud", "quick", "quiet", "shiny", "silent", "stellar",
    "sunny", "swift", "tidy", "witty",
)  # fmt: skip
_NOUNS = (
    "cabin", "cactus", "canyon", "comet", "engine", "falcon", "forest", "garden", "harbor", "island", "knight",
    "lagoon", "meadow", "moon", "nebula", "orchid", "otter", "panda", "pixel", "planet", "river", "rocket", "sailor",
    "squid", "star", "tiger", "wizard", "wolf",
)  # fmt: skip


def slug(session_id: str) -> str:
    """adjective-noun, the same for the same session."""
    digest = hashlib.blake2b(session_id.encode(), digest_size=2).digest()
    return f"{_ADJECTIVES[digest[0] % len(_ADJECTIVES)]}-{_NOUNS[digest[1] % len(_NOUNS)]}"
