r"""Splits an agent's output into lines. Pure.

Owns one invariant: however the bytes are cut, the lines are the same (tests/properties/test_framing.py).
Lines end with `\n` only: U+2028, form feeds and lone carriage returns occur inside of JSON strings of agents, and
`bytes.splitlines` would cut there. A `\r` before the `\n` is dropped. Empty lines are lines.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TypeAlias

# --- lines over the limit ---------------------------------------------------------------------------------------

KEEP_BYTES = 256 * 1024
"""Bytes kept of a string's beginning, and of its end. OpenCode's own tools give their model 50 KB."""
NOTE = rb"\n\n[... %d bytes were left out here: the agent said too much in one line ...]\n\n"
"""Text that replaces the cut part, escaped for a JSON string."""
REQUEST_KEYS = ("id", "request_id")
"""Keys of requests and answers. Such lines are never shortened, since programs use their values."""

_INSIDE = re.compile(rb'(?:[^"\\]++|\\u[0-9a-fA-F]{4}|\\[^u])*+', re.DOTALL)
"""The rest of a string up to its quote, in whole escapes. Possessive: a long string costs no memory of the matcher."""
_ESCAPE_BYTES = 6
"""Length of the longest escape, in bytes."""
_PLAIN = re.compile(rb'[^"\\]{%d}' % _ESCAPE_BYTES)
"""Matches enough bytes without a backslash that no escape can be open behind them."""
_WORDS = re.compile(rb" |\\[nt]")
"""Matches blanks. A string without any is no text: an image in base 64 is worthless without its middle."""
_LOW = re.compile(rb"\\u[dD][c-fC-F][0-9a-fA-F]{2}")
"""Matches the second half of a UTF-16 pair, which must stay with the first."""
_NEAR_BYTES = 4096


class Shortener:
    """One line. `push` its pieces, then `close` gives the short line, or None if it cannot be shortened.

    In: `limit_bytes` that the short line may have; `keep_bytes` of each end of a string.
    """

    __slots__ = ("_dropped", "_head", "_in_string", "_keep", "_limit", "_out", "_rest", "_tail", "size_bytes")

    def __init__(self, limit_bytes: int, keep_bytes: int = KEEP_BYTES) -> None:
        self.size_bytes = 0
        """Of the line so far."""
        self._limit = limit_bytes
        self._keep = keep_bytes
        self._out: bytearray | None = bytearray()
        self._in_string = False
        self._head = b""
        """The kept beginning of the string that we are in, once it has more than that."""
        self._tail = bytearray()
        self._dropped = 0
        self._rest = b""
        """The beginning of an escape that has not come whole."""

    def push(self, piece: bytes | bytearray) -> None:
        """Add the next bytes of the line."""
        self.size_bytes += len(piece)
        data, at = self._rest + piece, 0
        self._rest = b""
        while at < len(data) and self._out is not None:
            at = self._string(data, at) if self._in_string else self._outside(data, at)
            self._give_up_if_long()

    def _give_up_if_long(self) -> None:
        if self._out is not None and len(self._out) + len(self._head) + len(self._tail) > self._limit:
            self._out, self._head, self._tail = None, b"", bytearray()

    def close(self) -> bytes | None:
        """Return the short line, or None for a line that is no JSON object, is a request or answer, or is long without texts."""
        if self._out is None or self._in_string:
            return None
        try:
            value = json.loads(self._out)  # takes lone surrogates, as agents say them
        except (ValueError, RecursionError):
            return None
        return bytes(self._out) if isinstance(value, dict) and not any(key in value for key in REQUEST_KEYS) else None

    def _outside(self, data: bytes, at: int) -> int:
        """Up to the next string; where that is."""
        assert self._out is not None
        quote = data.find(b'"', at)
        end = len(data) if quote < 0 else quote + 1
        self._out += data[at:end]
        self._in_string = quote >= 0
        return end

    def _string(self, data: bytes, at: int) -> int:
        """Up to the end of the string, or of what has come of it; where that is."""
        end = _end_of(data, at, len(data))
        self._keep_some(data[at:end])
        if end < len(data) and data[end : end + 1] == b'"':
            self._end_string()
            return end + 1
        if len(data) - end >= _ESCAPE_BYTES:  # no JSON
            self._out = None
        self._rest = data[end:]
        return len(data)

    def _keep_some(self, text: bytes) -> None:
        self._tail += text
        if not self._head and len(self._tail) > 2 * self._keep:
            cut = _place(self._tail, self._keep)
            self._head = bytes(self._tail[:cut])
            del self._tail[:cut]
        if self._head and len(self._tail) > 2 * self._keep:
            cut = _place(self._tail, len(self._tail) - self._keep)
            self._dropped += cut
            del self._tail[:cut]

    def _end_string(self) -> None:
        assert self._out is not None
        if self._dropped and not _WORDS.search(self._head + self._tail):
            self._out = None
        elif self._dropped:
            cut = _place(self._tail, len(self._tail) - self._keep)
            self._dropped += cut
            del self._tail[:cut]
            head = self._head.decode("utf-8", "ignore").encode()
            tail = bytes(self._tail).lstrip(bytes(range(0x80, 0xC0)))
            missing = self._dropped + len(self._head) - len(head) + len(self._tail) - len(tail)
            self._out += head + NOTE % missing + tail
        else:
            self._out += self._head + self._tail
        if self._out is not None:
            self._out += b'"'
        self._in_string, self._head, self._tail, self._dropped = False, b"", bytearray(), 0


def _end_of(text: bytes | bytearray, at: int, until: int) -> int:
    """Where the whole escapes and characters of a string that begin at `at` end: at its quote, or before `until`."""
    match = _INSIDE.match(text, at, until)
    assert match is not None  # it matches nothing, too
    return match.end()


def _place(text: bytearray, near: int) -> int:
    """Where the text of a string, which begins with a whole escape or character, can be cut; near this place."""
    if near <= 0:
        return 0
    match = _PLAIN.search(text, max(near - _ESCAPE_BYTES, 0), near + _NEAR_BYTES)
    if match is not None:
        return match.end()
    end = _end_of(text, 0, near)
    return end + (_ESCAPE_BYTES if _LOW.match(text, end) else 0)


# --- lines ------------------------------------------------------------------------------------------------------

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
    """A line over the limit, shortened by `universal.lib.framing`. `size_bytes` is its original size."""

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
