r"""Splits an agent's output into lines. Pure.

Owns one invariant: however the bytes are cut, the lines are the same (tests/properties/test_framing.py).
Lines end with `\n` only: U+2028, form feeds and lone carriage returns occur inside of JSON strings of agents, and
`bytes.splitlines` would cut there. A `\r` before the `\n` is dropped. Empty lines are lines.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from universal.lib.line_shortener import KEEP_BYTES, Shortener

LIMIT_BYTES = 32 * 1024 * 1024
"""Maximum bytes of a line. Agents put whole files and images into one line; lines of 10 MB occur."""
LONG_BYTES = 2**20
"""Bytes above which a line is also shortened piece by piece. Shortening 32 MiB at once would take 0.25 s."""
HEAD_BYTES = 256
"""Bytes of a dropped line that are kept to identify it."""


@dataclass(frozen=True, slots=True)
class FrameError:
    """A line of `size_bytes` that was dropped because it exceeded the limit. `head` is its beginning."""

    size_bytes: int
    head: bytes

    def stand_in(self) -> bytes:
        """Return a short line to replace it. It is never JSON, so a codec reports it as `agent.unparsed`."""
        return self.head + b" ... [dropped: a line of %d bytes is over the limit]" % self.size_bytes


class ShortLine(bytes):
    """A line over the limit, shortened by `universal.lib.line_shortener`. `size_bytes` is its original size."""

    size_bytes: int


Framed: TypeAlias = bytes | FrameError


class LineFramer:
    """Collects bytes and returns whole lines, each without its end.

    Call `push` with each chunk of the stream and `close` at its end. Both return lines in order. A line longer than `limit_bytes`
    (with its `\\r`) becomes a `ShortLine`, or a `FrameError` if it cannot be shortened. Memory: one line up to the limit, the
    pushed bytes and the kept ends of two strings. Each byte is copied twice at most, however long the line and small the chunks;
    bytes of a line over LONG_BYTES a few times more.
    """

    __slots__ = ("_head", "_keep_bytes", "_limit_bytes", "_long", "_over", "_partial")

    def __init__(self, limit_bytes: int = LIMIT_BYTES, keep_bytes: int = KEEP_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._keep_bytes = keep_bytes
        self._partial = bytearray()
        self._long: Shortener | None = None
        """Shortener of the current line, if it is long."""
        self._over = False
        """True if the current line exceeds the limit. `_partial` is then empty and `_head` holds its beginning."""
        self._head = b""

    def push(self, data: bytes) -> list[Framed]:
        """Return the lines that these bytes complete."""
        *ended, rest = data.split(b"\n")
        if len(data) > self._limit_bytes:
            lines = [self._end(piece) for piece in ended]
        else:
            lines: list[Framed] = [piece.removesuffix(b"\r") for piece in ended] if b"\r" in data else [*ended]
            if ended and (self._partial or self._over):
                lines[0] = self._end(ended[0])
        if rest:
            self._keep(rest)
        return lines

    def close(self) -> list[Framed]:
        """Return the last line if the stream did not end with a newline, and reset the framer."""
        return [self._end(b"")] if self._partial or self._over else []

    def _end(self, piece: bytes) -> Framed:
        """Return the line that ends with `piece`."""
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
        """Add to the current line. A long one is shortened as it arrives, in case it exceeds the limit."""
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
