"""What a terminal has said: the last part of it, by position, and those who watch it.

Positions are counted in UTF-16 units from the terminal's start, since clients count what they got in JavaScript's string
lengths (a live OpenCode 1.18.33: `é€\\r\\n` is 4, and a cursor beyond the end is the end). Nothing here waits for anybody.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator

LIMIT_UNITS = 2**20
"""What is kept; 2 MiB of memory for each terminal that has said so much."""
SLACK_UNITS = 2**16
"""So much more may be kept before the front is cut off, so that not every piece moves a mebibyte."""
LAG_UNITS = 2**21
"""A watcher that is behind by more is cut off; it can come back with its cursor."""
PIECE_UNITS = 2**16
"""The longest text that a watcher is given at once."""


class Watcher:
    """One reader: iterate for its texts. `lagged`: it was cut off because it read too slowly."""

    def __init__(self) -> None:
        self._texts: deque[str] = deque()
        self._units = 0
        self._wake = asyncio.Event()
        self._ended = False
        self.lagged = False

    def put(self, text: str) -> None:
        """Never waits."""
        if self._ended:
            return
        self._texts.append(text)
        self._units += len(text)
        if self._units > LAG_UNITS:
            self.lagged = True
            self._texts.clear()
            self._ended = True
        self._wake.set()

    def end(self) -> None:
        """No more comes; what waits is still given."""
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
    """The end of a terminal's output."""

    def __init__(self, limit_units: int = LIMIT_UNITS, slack_units: int = SLACK_UNITS) -> None:
        self._data = bytearray()
        self._start = 0
        self._limit = limit_units
        self._slack = slack_units

    @property
    def cursor(self) -> int:
        """The position after the last unit."""
        return self._start + len(self._data) // 2

    def add(self, text: str) -> None:
        """More output."""
        self._data += text.encode("utf-16-le")
        over = len(self._data) // 2 - self._limit
        if over > self._slack:
            del self._data[: 2 * over]
            self._start += over

    def since(self, cursor: int) -> list[str]:
        """The kept output from a position on, in pieces; -1, and positions that are not reached yet, give nothing."""
        if cursor < 0 or cursor >= self.cursor:
            return []
        begin = max(0, cursor - self._start)
        # A piece that began in the middle of a character gets a replacement for it.
        text = self._data[2 * begin :].decode("utf-16-le", "replace")
        return [text[at : at + PIECE_UNITS] for at in range(0, len(text), PIECE_UNITS)]
