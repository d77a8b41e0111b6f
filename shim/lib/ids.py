"""Creates random ids, and checks the ids of clients. `universal.lib.ids` defines their form."""

from __future__ import annotations

import hashlib
import re
import secrets
from typing import Literal, TypeAlias

from shim.lib.clock import Clock
from universal.lib.ids import BYTE_TO_BASE_62, COUNTER_SPAN, MASK, SAME_CLOCK_MS, TAIL, hashed_tail, render

Kind: TypeAlias = Literal["item", "permission", "question", "event", "session", "pty", "turn", "saved", "shell"]

_PREFIX: dict[Kind, str] = {
    "item": "itm",
    "permission": "per",
    "question": "que",
    "event": "evt",
    "session": "ses",
    "pty": "pty",
    "turn": "trn",
    "saved": "psv",
    "shell": "sh",
}


ID_LIMIT = 128
"""Maximum characters of an id. Ours have 30; clients and other servers create longer ones."""
ID_FORM = f"an id of letters, digits, _ and -, at most {ID_LIMIT} characters"
AGENT_TOKEN = "agent_"  # noqa: S105 - a prefix
"""Beginning of an agent's token for `/mcp` (`shim.sessions.agent_tokens`)."""
NAME_LIMIT = 200
"""Maximum characters of a session name of `/v1`."""
_ID = re.compile(r"[A-Za-z0-9_-]+")
_TAILS_AT_ONCE = 256


def random_tails(count: int = _TAILS_AT_ONCE) -> list[str]:
    """Tails of 14 random base-62 characters (a byte mod 62 each), as OpenCode creates them.

    They are drawn in blocks, because a system call for each id would be most of the id's cost. The last one is to be used first.
    """
    block = secrets.token_bytes(TAIL * count).translate(BYTE_TO_BASE_62).decode("ascii")
    return [block[at : at + TAIL] for at in reversed(range(0, len(block), TAIL))]


def is_id(text: object, prefix: str) -> bool:
    """Whether a client's text is a valid id. The check matters because ids become parts of file names and URLs."""
    return isinstance(text, str) and len(text) <= ID_LIMIT and text.startswith(prefix) and _ID.fullmatch(text) is not None


def is_name(text: str) -> bool:
    """Whether a text may be a client's name for a session of `/v1`: printable, and no path segment such as `..`."""
    return 0 < len(text) <= NAME_LIMIT and text.isprintable() and not {"/", "\\"} & set(text) and text not in (".", "..")


class Ids:
    """Creates the server's random ids. They ascend with time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last = 0
        self._tails: list[str] = []

    def new(self, kind: Kind) -> str:
        """Create an id: `itm_`, `per_`, `que_`, `evt_`, `pty_`, `wrk_`, `trn_`, `sh_` ascend, `ses_` descends."""
        if not self._tails:
            self._tails = random_tails()
        tail = self._tails.pop()
        value = self._last = max(self._clock.now_ms() * COUNTER_SPAN, self._last) + 1
        if kind == "session":
            return render(_PREFIX[kind], value, tail, descending=True)
        return f"{_PREFIX[kind]}_{value & MASK:012x}{tail}"

    def pass_over(self, id_: str) -> None:
        """Let later ids ascend from an id of an earlier server, unless the clock was more than a day ahead then."""
        now = self._clock.now_ms() * COUNTER_SPAN
        ahead = (int(id_[4:16], 16) - now) & MASK
        if ahead < SAME_CLOCK_MS * COUNTER_SPAN:
            self._last = max(self._last, now + ahead)

    def events(self, count: int, at_ms: int) -> list[str]:
        """Create the ids of events of the same moment (epoch milliseconds), which their writer has read from the clock."""
        before = max(at_ms * COUNTER_SPAN, self._last)
        self._last = before + count
        if len(self._tails) < count:
            self._tails = random_tails(max(count, _TAILS_AT_ONCE)) + self._tails
        ids: list[str] = []
        for value in range(before + 1, self._last + 1):
            ids.append(f"evt_{value & MASK:012x}{self._tails.pop()}")
        return ids

    def moments(self, count: int) -> list[str]:
        """Create several ids like that of `moment`. The clock is read once."""
        before = max(self._clock.now_ms() * COUNTER_SPAN, self._last)
        self._last = before + count
        ids: list[str] = []
        for value in range(before + 1, self._last + 1):
            ids.append(f"evt_{value & MASK:012x}")
        return ids

    def moment(self) -> str:
        """Create the id of a stream event: `evt_` and 12 ascending hex digits of time and counter.

        Every piece of text carries one, beside its position in the stream (`shim.stream.frame`), so it has no random tail.
        """
        return self.moments(1)[0]


def tied_id(kind: str, at_ms: int, number: int, seed: str) -> str:
    """An id that hangs on a time (epoch ms), a number and a seed alone; those of one seed ascend with their numbers."""
    prefix = {"item": "itm", "permission": "per", "question": "que"}[kind]
    return render(prefix, at_ms * COUNTER_SPAN + number, hashed_tail(f"{seed} {number}"))


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
    """Return an `adjective-noun` name that depends only on the id."""
    digest = hashlib.blake2b(session_id.encode(), digest_size=2).digest()
    return f"{_ADJECTIVES[digest[0] % len(_ADJECTIVES)]}-{_NOUNS[digest[1] % len(_NOUNS)]}"
