"""Counts the server's work in plain numbers, for Prometheus and the inspector.

The server calls `observe` with each universal event of METERED, and `request` with every answer, so both must be cheap.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from shim.lib.clock import Clock, from_rfc3339
from universal.events import EVENT_DATA, ErrorData, EventType, TurnData, UniversalEvent, UnparsedData
from universal.lib.jsonvalue import obj, text

BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of the buckets for request durations, in seconds."""
TURN_BUCKETS_S = (1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0)
METERED = frozenset(kind for kind, data in EVENT_DATA.items() if data in (TurnData, ErrorData, UnparsedData))
MAX_KINDS = 200
"""Maximum different labels of a counter. Further ones count as `other`."""


@dataclass(slots=True)
class Histogram:
    """A histogram of durations in seconds."""

    bounds: tuple[float, ...]
    counts: list[int] = field(default_factory=list[int])
    total: float = 0.0
    count: int = 0

    def __post_init__(self) -> None:
        self.counts = [0] * len(self.bounds)

    def add(self, seconds: float) -> None:
        self.count += 1
        self.total += seconds
        for index, bound in enumerate(self.bounds):
            if seconds <= bound:
                self.counts[index] += 1


class Meters:
    """All counts since the start of the server."""

    def __init__(self, clock: Clock) -> None:
        self._turn_starts: dict[str, int] = {}
        self.started_ms = clock.now_ms()
        self.turns: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self.unparsed: Counter[str] = Counter()
        self.requests: Counter[tuple[str, str, str]] = Counter()
        self.request_s: dict[str, Histogram] = {}
        self.turn_s = Histogram(TURN_BUCKETS_S)

    def observe(self, event: UniversalEvent) -> None:
        data = event.data
        if isinstance(data, TurnData):
            self._turn(event, data)
        elif isinstance(data, ErrorData):
            _count(self.errors, data.code or "unknown")
        elif isinstance(data, UnparsedData):
            _count(self.unparsed, f"{data.location}: {data.error[:80]}")

    def _turn(self, event: UniversalEvent, data: TurnData) -> None:
        if event.type is EventType.TURN_STARTED:
            self._turn_starts[event.session_id] = from_rfc3339(event.time)
            return
        self.turns[text(obj(data.metadata).get("reason"), "unknown")] += 1
        start_ms = self._turn_starts.pop(event.session_id, None)
        if start_ms is not None:
            self.turn_s.add((from_rfc3339(event.time) - start_ms) / 1000)

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count an answer. `route`: the route's pattern, not the path."""
        key = (method, route, str(status))
        self.requests[key if key in self.requests or len(self.requests) < MAX_KINDS * 5 else (method, "other", str(status))] += 1
        if route not in self.request_s:
            route = route if len(self.request_s) < MAX_KINDS * 2 else "other"
            self.request_s.setdefault(route, Histogram(BUCKETS_S))
        self.request_s[route].add(seconds)

    @property
    def running_turns(self) -> int:
        return len(self._turn_starts)


def _count(counter: Counter[str], key: str) -> None:
    counter[key if key in counter or len(counter) < MAX_KINDS else "other"] += 1


def memory_bytes() -> int | None:
    """Return the resident memory of this process; None if /proc does not have it."""
    try:
        with open("/proc/self/statm", "rb") as file:  # noqa: PTH123 - a file of the kernel, read at once
            return int(file.read().split()[1]) * 4096
    except (OSError, ValueError, IndexError):
        return None
