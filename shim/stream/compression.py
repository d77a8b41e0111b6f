"""Compresses a stream with gzip, if its client accepts it. Pure but for its own state.

Each write is flushed, so that nothing waits in the compressor. A piece of text then costs a tenth of its JSON. The window is
small, because each of a thousand readers has one.
"""

from __future__ import annotations

import ipaddress
import zlib
from typing import Literal, TypeAlias

When: TypeAlias = Literal["auto", "always", "never"]
"""`auto`: only for clients on other machines. Between programs of one machine, compression only costs time."""

WINDOW_BITS = 13
MEMORY_LEVEL = 5
GZIP = 16
"""Added to the window, zlib writes gzip's header and trailer."""


class Gzip:
    """The gzip compressor of one stream. A client can decode each `write` at once."""

    def __init__(self) -> None:
        self._zlib = zlib.compressobj(6, zlib.DEFLATED, GZIP + WINDOW_BITS, MEMORY_LEVEL)

    def write(self, data: bytes) -> bytes:
        """Compress all of `data`."""
        return self._zlib.compress(data) + self._zlib.flush(zlib.Z_SYNC_FLUSH)

    def end(self) -> bytes:
        """Return the trailer."""
        return self._zlib.flush(zlib.Z_FINISH)


def wants_gzip(accept_encoding: str, peer: str | None, when: When) -> bool:
    """Whether a client gets gzip. In: its Accept-Encoding, and its address as the server sees it."""
    if when == "never" or not _takes_gzip(accept_encoding):
        return False
    return when == "always" or not _is_here(peer)


def _takes_gzip(accept_encoding: str) -> bool:
    for choice in accept_encoding.lower().split(","):
        name, _, weight = choice.strip().partition(";")
        if name.strip() in ("gzip", "x-gzip"):
            return weight.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


def _is_here(peer: str | None) -> bool:
    try:
        return peer is None or ipaddress.ip_address(peer).is_loopback
    except ValueError:
        return False
