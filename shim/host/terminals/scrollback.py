"""Keeps the last part of a terminal's output by position, and feeds its watchers.

Positions count UTF-16 units from the terminal's start, since clients count in JavaScript's string lengths (OpenCode 1.18.33:
`é€\\r\\n` is 4, and a cursor beyond the end is the end). Writers never wait for watchers.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator

LIMIT_UNITS = 2**20
"""UTF-16 units that are kept: 2 MiB of memory for each terminal with so much output."""
SLACK_UNITS = 2**16
"""UTF-16 units above the limit before the front is cut off, so that not every piece moves a mebibyte."""
LAG_UNITS = 2**21
"""UTF-16 units by which a watcher may lag before it is cut off. It can come back with its cursor."""
PIECE_UNITS = 2**16
"""Maximum UTF-16 units of one piece of text."""


class Watcher:
    """One reader; iterate over it for texts. `lagged`: it was cut off for reading too slowly, or its server stops."""

    def __init__(self) -> None:
        self._texts: deque[str] = deque()
        self._units = 0
        self._wake = asyncio.Event()
        self._ended = False
        self.lagged = False

    def put(self, text: str) -> None:
        """Queue a text. Never waits."""
        if self._ended:
            return
        self._texts.append(text)
        self._units += len(text)
        if self._units > LAG_UNITS:
            self.lagged = True
            self._texts.clear()
            self._ended = True
        self._wake.set()

    def end(self, *, may_return: bool = False) -> None:
        """End the iteration after the queued texts. In: whether it is told to come back with its cursor."""
        self.lagged = self.lagged or may_return
        self._ended = True
        self._wake.set()

    async def __aiter__(self) -> AsyncIterator[str]:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._texts:
                text = "".join(self._texts)
                self._texts.clear()
                self._units = 0
                yield text
            if self._ended:
                return


class Scrollback:
    """The last part of a terminal's output."""

    def __init__(self, limit_units: int = LIMIT_UNITS, slack_units: int = SLACK_UNITS) -> None:
        self._data = bytearray()
        self._start = 0
        self._limit = limit_units
        self._slack = slack_units

    @property
    def cursor(self) -> int:
        return self._start + len(self._data) // 2

    def begin(self, position: int, text: str) -> None:
        """Take what another server has shown. In: the position of its first unit."""
        self._start = position
        self.add(text)

    def add(self, text: str) -> None:
        self._data += text.encode("utf-16-le")
        over = len(self._data) // 2 - self._limit
        if over > self._slack:
            del self._data[: 2 * over]
            self._start += over

    def since(self, cursor: int) -> list[str]:
        """Return the kept output from a position on, in pieces. -1 and positions beyond the end return []."""
        if cursor < 0 or cursor >= self.cursor:
            return []
        begin = max(0, cursor - self._start)
        # A piece that began in the middle of a character gets a replacement for it.
        text = self._data[2 * begin :].decode("utf-16-le", "replace")
        return [text[at : at + PIECE_UNITS] for at in range(0, len(text), PIECE_UNITS)]
