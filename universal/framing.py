r"""Bytes to lines, pure: the first thing that happens to what an agent writes.

Owns one invariant: however the bytes are cut, the lines are the same (tests/properties/test_framing.py).
Lines end with `\n` only: U+2028, form feeds and lone carriage returns occur inside of JSON strings of agents, and
`bytes.splitlines` would cut there. A `\r` before the `\n` is dropped. Empty lines are lines.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from universal.shortening import KEEP_BYTES, Shortener

LIMIT_BYTES = 32 * 1024 * 1024
"""The longest line that is kept. Agents put whole files and images into one line; 10 MB were seen."""
LONG_BYTES = 2**20
"""From here on a line is also shortened, piece by piece: all at once would take a quarter of a second at the limit."""
HEAD_BYTES = 256
"""How much of a dropped line is kept, to say what it was."""


@dataclass(frozen=True, slots=True)
class FrameError:
    """A line of `size_bytes` that was over the limit and was dropped; `head` is its beginning."""

    size_bytes: int
    head: bytes

    def stand_in(self) -> bytes:
        """A short line to put in its place. Never JSON, so that a codec reports it as it reports any garbage."""
        return self.head + b" ... [dropped: a line of %d bytes is over the limit]" % self.size_bytes


class ShortLine(bytes):
    """A line that was over the limit and could be shortened (`universal.shortening`); `size_bytes` is what it had."""

    size_bytes: int


Framed: TypeAlias = bytes | FrameError


class LineFramer:
    """Collects bytes and gives back whole lines, each without its end.

    In: `push` any cut of the stream, `close` at its end. Out: lines in order; in the place of each that was longer than
    `limit_bytes` (its `\\r` counted) a `ShortLine`, or a `FrameError` where it cannot be shortened. Memory: one line, never more
    than the limit, the bytes pushed and two strings' kept ends. Cost: each byte is copied twice at most, however long the line
    and small the cuts; those of a line over LONG_BYTES a few times more.
    """

    __slots__ = ("_head", "_keep_bytes", "_limit_bytes", "_long", "_over", "_partial")

    def __init__(self, limit_bytes: int = LIMIT_BYTES, keep_bytes: int = KEEP_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._keep_bytes = keep_bytes
        self._partial = bytearray()
        self._long: Shortener | None = None
        """The line so far, if it is long."""
        self._over = False
        """It is over the limit: `_partial` has nothing of it, `_head` its beginning."""
        self._head = b""

    def push(self, data: bytes) -> list[Framed]:
        """The lines that these bytes complete."""
        *ended, rest = data.split(b"\n")
        if self._partial or self._over or len(data) > self._limit_bytes:
            lines = [self._end(piece) for piece in ended]
        else:  # nothing waits for its end: as nearly always
            lines: list[Framed] = [piece.removesuffix(b"\r") for piece in ended]
        if rest:
            self._keep(rest)
        return lines

    def close(self) -> list[Framed]:
        """The last line, if the stream did not end with a newline. The framer is empty after it."""
        return [self._end(b"")] if self._partial or self._over else []

    def _end(self, piece: bytes) -> Framed:
        """The line that ends with `piece`."""
        if self._partial or self._over or len(piece) > self._limit_bytes:
            self._keep(piece)
            long, self._long = self._long, None
            if self._over and long is not None:
                return self._short(long)
            piece = bytes(self._partial)
            self._partial = bytearray()
        return piece.removesuffix(b"\r")

    def _short(self, long: Shortener) -> Framed:
        head, self._head, self._over = self._head, b"", False
        if (short := long.close()) is None:
            return FrameError(long.size_bytes, head)
        line = ShortLine(short)
        line.size_bytes = long.size_bytes
        return line

    def _keep(self, piece: bytes) -> None:
        """Add to the line that has not ended. A long one is shortened while it comes, for the case that it gets too long."""
        if self._long is not None:
            self._long.push(piece)
        if not self._over:
            self._partial += piece
            if self._long is None and len(self._partial) > min(LONG_BYTES, self._limit_bytes):
                self._long = Shortener(self._limit_bytes, self._keep_bytes)
                self._long.push(self._partial)
            if len(self._partial) > self._limit_bytes:
                self._over, self._head, self._partial = True, bytes(self._partial[:HEAD_BYTES]), bytearray()
        elif len(self._head) < HEAD_BYTES:
            self._head += piece[: HEAD_BYTES - len(self._head)]
