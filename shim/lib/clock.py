"""Reads the wall time. All other modules get an injected clock."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from functools import lru_cache
from typing import Protocol

DAY_MS = 86_400_000


class Clock(Protocol):
    """A clock of wall time in epoch milliseconds."""

    def now_ms(self) -> int: ...


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000


class ManualClock:
    """A clock for tests. It advances by `step_ms` with each reading."""

    def __init__(self, start_ms: int = 1_795_293_784_083, step_ms: int = 1) -> None:
        self.value_ms = start_ms
        self.step_ms = step_ms

    def now_ms(self) -> int:
        """Return the current value, then advance by `step_ms`."""
        value = self.value_ms
        self.value_ms += self.step_ms
        return value


def rfc3339(ms: int) -> str:
    """Format epoch milliseconds as RFC 3339 in UTC with three decimals: `2026-11-21T20:43:04.083Z`."""
    return f"{_second(ms // 1000)}.{ms % 1000:03d}Z"


@lru_cache(maxsize=4)
def _second(s: int) -> str:
    """Format whole seconds. The result is cached because many events share a second."""
    return datetime.fromtimestamp(s, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def from_rfc3339(text: str) -> int:
    """Parse the format of `rfc3339` into epoch milliseconds. Raises ValueError for anything else."""
    ms = text[20:23]
    if len(text) != 24 or text[10] != "T" or text[19] != "." or text[23] != "Z" or not (ms.isascii() and ms.isdecimal()):
        raise ValueError(f"time data {text!r} does not have the form 2026-11-21T20:43:04.083Z")
    return _epoch(text[:19]) * 1000 + int(ms)


@lru_cache(maxsize=4)
def _epoch(second: str) -> int:
    return int(datetime.fromisoformat(second).replace(tzinfo=UTC).timestamp())
