r"""Bytes to lines, pure: the first thing that happens to what an agent writes.

Owns one invariant: however the bytes are cut, the lines are the same (tests/properties/test_framing.py).
Lines end with `\n` only: U+2028, form feeds and lone carriage returns occur inside of JSON strings of agents, and
`bytes.splitlines` would cut there. A `\r` before the `\n` is dropped. Empty lines are lines.
"""

from __future__ import annotations

from typing import TypeAlias

from universal.frozen import frozen
from universal.shortening import KEEP_BYTES, Shortener

LIMIT_BYTES = 32 * 1024 * 1024
"""The longest line that is kept. Agents put whole files and images into one line; 10 MB were seen."""
STEP_BYTES = 2**20
HEAD_BYTES = 256
"""How much of a dropped line is kept, to say what it was."""


@frozen
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
    and small the cuts; those of a line over the limit a few times more.
    """

    __slots__ = ("_head", "_keep_bytes", "_limit_bytes", "_long", "_partial")

    def __init__(self, limit_bytes: int = LIMIT_BYTES, keep_bytes: int = KEEP_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._keep_bytes = keep_bytes
        self._partial = bytearray()
        self._long: Shortener | None = None
        """The line so far, if it is over the limit."""
        self._head = b""

    def push(self, data: bytes) -> list[Framed]:
        """The lines that these bytes complete."""
        *ended, rest = data.split(b"\n")
        lines = [self._end(piece) for piece in ended]
        self._keep(rest)
        return lines

    def close(self) -> list[Framed]:
        """The last line, if the stream did not end with a newline. The framer is empty after it."""
        return [self._end(b"")] if self._partial or self._long is not None else []

    def _end(self, piece: bytes) -> Framed:
        """The line that ends with `piece`."""
        if self._partial or self._long is not None or len(piece) > self._limit_bytes:
            self._keep(piece)
            if (long := self._long) is not None:
                self._long = None
                return self._short(long)
            piece = bytes(self._partial)
            self._partial = bytearray()
        return piece.removesuffix(b"\r")

    def _short(self, long: Shortener) -> Framed:
        head, self._head = self._head, b""
        if (short := long.close()) is None:
            return FrameError(long.size_bytes, head)
        line = ShortLine(short)
        line.size_bytes = long.size_bytes
        return line

    def _keep(self, piece: bytes) -> None:
        """Add to the line that has not ended; one over the limit is shortened while it comes."""
        if self._long is None:
            if len(self._partial) + len(piece) <= self._limit_bytes:
                self._partial += piece
                return
            self._long = Shortener(self._limit_bytes, self._keep_bytes)
            self._head = bytes(self._partial[:HEAD_BYTES])
            for at in range(0, len(self._partial), STEP_BYTES):  # not whole: it would be copied twice
                self._long.push(self._partial[at : at + STEP_BYTES])
            self._partial = bytearray()
        self._head += piece[: HEAD_BYTES - len(self._head)]
        self._long.push(piece)
