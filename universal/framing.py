r"""Bytes to lines, pure: the first thing that happens to what an agent writes.

Owns one invariant: however the bytes are cut, the lines are the same (tests/properties/test_framing.py).
Lines end with `\n` only: U+2028, form feeds and lone carriage returns occur inside of JSON strings of agents, and
`bytes.splitlines` would cut there. A `\r` before the `\n` is dropped. Empty lines are lines.
"""

from __future__ import annotations

from typing import TypeAlias

from universal.frozen import frozen

LIMIT_BYTES = 32 * 1024 * 1024
"""The longest line that is kept. Agents put whole files and images into one line; 10 MB were seen."""
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


Framed: TypeAlias = bytes | FrameError


class LineFramer:
    """Collects bytes and gives back whole lines, each without its end.

    In: `push` any cut of the stream, `close` at its end. Out: lines in order, a `FrameError` in the place of each that
    was longer than `limit_bytes` (its `\\r` counted). Memory: one line, never more than the limit and the bytes pushed.
    Cost: each byte is copied twice at most, however long the line and small the cuts.
    """

    __slots__ = ("_dropped_bytes", "_head", "_limit_bytes", "_partial")

    def __init__(self, limit_bytes: int = LIMIT_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._partial = bytearray()
        self._dropped_bytes = 0
        """Length so far of a line that is over the limit; 0 when it is not."""
        self._head = b""

    def push(self, data: bytes) -> list[Framed]:
        """The lines that these bytes complete."""
        *ended, rest = data.split(b"\n")
        lines = [self._end(piece) for piece in ended]
        self._keep(rest)
        return lines

    def close(self) -> list[Framed]:
        """The last line, if the stream did not end with a newline. The framer is empty after it."""
        return [self._end(b"")] if self._partial or self._dropped_bytes else []

    def _end(self, piece: bytes) -> Framed:
        """The line that ends with `piece`."""
        if self._partial or self._dropped_bytes or len(piece) > self._limit_bytes:
            self._keep(piece)
            if self._dropped_bytes:
                error = FrameError(self._dropped_bytes, self._head)
                self._dropped_bytes, self._head = 0, b""
                return error
            piece = bytes(self._partial)
            self._partial = bytearray()
        return piece.removesuffix(b"\r")

    def _keep(self, piece: bytes) -> None:
        """Add to the line that has not ended; over the limit only its length and its head are kept."""
        size_bytes = (self._dropped_bytes or len(self._partial)) + len(piece)
        if size_bytes <= self._limit_bytes:
            self._partial += piece
            return
        if not self._dropped_bytes:
            self._head, self._partial = bytes(self._partial[:HEAD_BYTES]), bytearray()
        self._head += piece[: HEAD_BYTES - len(self._head)]
        self._dropped_bytes = size_bytes
