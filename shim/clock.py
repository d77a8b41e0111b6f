"""The only place that reads the time. Injected everywhere else."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from functools import lru_cache
from typing import Protocol


class Clock(Protocol):
    """Wall time in epoch milliseconds."""

    def now_ms(self) -> int:
        """Epoch milliseconds now."""
        ...


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        """Epoch milliseconds now."""
        return time.time_ns() // 1_000_000


class ManualClock:
    """A clock for tests: stands still until told; `step_ms` is added by each reading."""

    def __init__(self, start_ms: int = 1_795_293_784_083, step_ms: int = 1) -> None:
        self.value_ms = start_ms
        self.step_ms = step_ms

    def now_ms(self) -> int:
        """The current value; then goes on by `step_ms`."""
        value = self.value_ms
        self.value_ms += self.step_ms
        return value


def rfc3339(ms: int) -> str:
    """Epoch milliseconds as RFC3339 in UTC with three decimals: `2026-11-21T20:43:04.083Z`."""
    return f"{_second(ms // 1000)}.{ms % 1000:03d}Z"


@lru_cache(maxsize=4)
def _second(s: int) -> str:
    """Kept, since many events share their second."""
    return datetime.fromtimestamp(s, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def from_rfc3339(text: str) -> int:
    """The inverse of `rfc3339`, in epoch milliseconds. Raises ValueError for anything else."""
    ms = text[20:23]
    if len(text) != 24 or text[10] != "T" or text[19] != "." or text[23] != "Z" or not (ms.isascii() and ms.isdecimal()):
        raise ValueError(f"time data {text!r} is not as rfc3339 writes it")
    return _epoch(text[:19]) * 1000 + int(ms)


@lru_cache(maxsize=4)
def _epoch(second: str) -> int:
    """The inverse of `_second`."""
    return int(datetime.fromisoformat(second).replace(tzinfo=UTC).timestamp())
