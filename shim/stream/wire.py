"""Which generation of OpenCode's wire a client speaks.

Text streams differently since 1.2: up to 1.1 as `message.part.updated` with the text so far, from then on as
`message.part.delta`. A client must get one of them and never both. 1.0 has other permissions besides (`oldest.py`). All
OpenCode programs say their version in `User-Agent: opencode/1.1.53`; SDKs and browsers do not, and are modern. See
docs/adr/0012-wire-generation.md.
"""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

from aiohttp import web

from shim.errors import InvalidRequest

Wire: TypeAlias = Literal["v1.18", "v1.1", "v1.0"]

LAST_LEGACY = (1, 1)
"""The newest version that does not know `message.part.delta`; 1.2.27 does (both recorded)."""
FIRST_SYNC = (1, 14)
"""The first recorded version whose server sends `sync` twins."""
OLDEST = 1
"""Major versions below are development builds (`0.0.0-main-...`), which are newer than all."""

NAMED: dict[str, Wire] = {"1.0": "v1.0", "v1.0": "v1.0", "1.1": "v1.1", "v1.1": "v1.1", "1.18": "v1.18", "v1.18": "v1.18"}
"""What `?wire=` may say."""

_PROGRAM = re.compile(r"opencode/(?:[a-z][\w-]*/)?(\d+)\.(\d+)\.")
"""`opencode/1.1.53`, and with a channel between, as some builds say it: `opencode/latest/1.1.53/cli`."""


def wire_of(request: web.BaseRequest) -> Wire:
    """The wire of a request: what `?wire=` says, else by its User-Agent, else the modern one.

    Raises: InvalidRequest for an unknown `?wire=`.
    """
    named = request.query.get("wire")
    if named is not None:
        if named not in NAMED:
            raise InvalidRequest(f"Unknown wire {named!r}. Give one of {', '.join(NAMED)}, or leave it out.", "Query")
        return NAMED[named]
    return wire_of_agent(request.headers.get("User-Agent", ""))


def takes_twins(request: web.BaseRequest) -> bool:
    """Whether this client knows `sync` twins on `/global/event`: programs since 1.14, and whoever does not say its version."""
    program = _PROGRAM.match(request.headers.get("User-Agent", ""))
    if wire_of(request) != "v1.18" or program is None:
        return program is None
    version = (int(program[1]), int(program[2]))
    return version[0] < OLDEST or version >= FIRST_SYNC


def wire_of_agent(user_agent: str) -> Wire:
    """The wire of a program by its User-Agent."""
    program = _PROGRAM.match(user_agent)
    if program is None:
        return "v1.18"
    version = (int(program[1]), int(program[2]))
    if version[0] < OLDEST or version > LAST_LEGACY:
        return "v1.18"
    return "v1.1" if version == LAST_LEGACY else "v1.0"
