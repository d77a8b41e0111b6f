"""Renders meters as Prometheus' text. Only this module imports prometheus_client, and only `GET /metrics` imports it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from shim.sessions.plan_limits import PlanReport
from shim.telemetry.meters import Histogram, Meters

CONTENT_TYPE = CONTENT_TYPE_LATEST
PREFIX = "opencode_shim_"

F = TypeVar("F", CounterMetricFamily, GaugeMetricFamily)


@dataclass(frozen=True, slots=True)
class Gauges:
    """Values that are measured at the time of the request."""

    sessions: int
    busy: int
    opencode_readers: int
    universal_readers: int
    lag: int
    dropped: int
    cut_off: int
    events: Mapping[str, int]
    published: int
    tasks: Mapping[str, int]
    """Number of tasks by the first word of their names."""
    blocks: int
    """Allocated memory blocks of Python's values."""
    agents: Mapping[str, int]
    """Number of agents that run, by what for: `session`, `spare`."""
    open_asks: int
    oldest_ask_s: float
    """Seconds that the oldest open request waits, 0 without one."""
    asks_unattended: Mapping[str, int]
    late_lists: Mapping[str, int]
    sandbox_refusals: Mapping[str, int]
    """Requests that ended without a user's answer, by action: `timeout`, `rules`."""
    plans: Mapping[str, PlanReport]
    """What agents have told of the limits of the person's plan."""
    lines_dropped: Mapping[str, int]
    """Dropped lines of stdout and stderr, because nobody read them."""
    more: Iterable[Any] = ()
    """Families of metrics of other parts of the server."""


class _Collector:
    def __init__(self, meters: Meters, gauges: Gauges) -> None:
        self._meters = meters
        self._gauges = gauges

    def collect(self) -> Iterable[Any]:
        meters, gauges = self._meters, self._gauges
        yield counter("events", "Universal events by type.", "type", gauges.events)
        yield counter("turns", "Turns that have ended, by reason.", "reason", meters.turns)
        yield counter("errors", "Errors of agents, by code.", "code", meters.errors)
        yield counter("unparsed", "Native events that no rule knows, by kind.", "kind", meters.unparsed)
        yield _family(CounterMetricFamily, "http_requests", "Answers.", ("method", "route", "status"), meters.requests)
        durations = HistogramMetricFamily(f"{PREFIX}http_request_seconds", "Time to an answer's end.", labels=["route"])
        for route, values in meters.request_s.items():
            durations.add_metric([route], *_histogram(values))
        yield durations
        yield histogram("turn_seconds", "Duration of turns.", meters.turn_s)
        readers = {"opencode": gauges.opencode_readers, "universal": gauges.universal_readers}
        yield gauge_of("subscribers", "Open event streams.", "face", readers)
        yield gauge("sessions", "Sessions that are kept.", gauges.sessions)
        yield gauge("sessions_busy", "Sessions whose turn runs.", gauges.busy)
        yield gauge("subscriber_lag_events", "Events that the slowest reader is behind.", gauges.lag)
        dropped = {"opencode": gauges.dropped, "universal": gauges.cut_off}
        yield counter("subscribers_dropped", "Readers that were too slow.", "face", dropped)
        yield gauge_of("tasks", "Tasks of the event loop, by kind.", "kind", gauges.tasks)
        yield gauge_of("agents", "Agents that run: of a session, or spare ones.", "state", gauges.agents)
        yield gauge("memory_blocks", "Blocks of memory that Python's values take.", gauges.blocks)
        yield counter("asks_unattended", "Asks that were rejected without a person.", "action", gauges.asks_unattended)
        yield counter("native_lists_late", "Lists of agents' own sessions that came too late.", "agent", gauges.late_lists)
        yield counter("sandbox_refusals", "What sandboxes have refused, as far as it is known.", "kind", gauges.sandbox_refusals)
        yield gauge("asks_open", "Permission requests and questions that wait.", gauges.open_asks)
        yield gauge("asks_oldest_seconds", "How long the oldest of them waits.", gauges.oldest_ask_s)
        yield counter("output_lines_dropped", "Lines that nobody read in time.", "stream", gauges.lines_dropped)
        yield total("opencode_events", "OpenCode events that were published.", gauges.published)
        used = {(agent, window.name): window.used for agent, report in gauges.plans.items() for window in report.windows}
        yield _family(GaugeMetricFamily, "plan_used_ratio", "How far limits of plans are used.", ("agent", "window"), used)
        yield from gauges.more


def gauge(name: str, description: str, value: float) -> GaugeMetricFamily:
    """A family with one value that goes up and down."""
    return GaugeMetricFamily(f"{PREFIX}{name}", description, value=value)


def total(name: str, description: str, value: float) -> CounterMetricFamily:
    """A family with one value that only grows."""
    return CounterMetricFamily(f"{PREFIX}{name}", description, value=value)


def histogram(name: str, description: str, values: Histogram) -> HistogramMetricFamily:
    """A family with one histogram."""
    family = HistogramMetricFamily(f"{PREFIX}{name}", description, labels=[])
    family.add_metric([], *_histogram(values))
    return family


def counter(name: str, description: str, label: str, values: Mapping[str, int]) -> CounterMetricFamily:
    """A family with a value for each value of a label. They only grow."""
    return _family(CounterMetricFamily, name, description, (label,), {(key,): value for key, value in values.items()})


def gauge_of(name: str, description: str, label: str, values: Mapping[str, float]) -> GaugeMetricFamily:
    """A family with a value for each value of a label. They go up and down."""
    return _family(GaugeMetricFamily, name, description, (label,), {(key,): value for key, value in values.items()})


def _family(kind: type[F], name: str, description: str, labels: Sequence[str], values: Mapping[tuple[str, ...], float]) -> F:
    family = kind(f"{PREFIX}{name}", description, labels=labels)
    for key, value in values.items():
        family.add_metric(key, value)
    return family


def _histogram(histogram: Histogram) -> tuple[list[tuple[str, float]], float]:
    buckets = [(str(bound), float(count)) for bound, count in zip(histogram.bounds, histogram.counts, strict=True)]
    return [*buckets, ("+Inf", float(histogram.count))], histogram.total


def render(meters: Meters, gauges: Gauges) -> bytes:
    """Render the current values."""
    registry = CollectorRegistry()
    registry.register(_Collector(meters, gauges))  # pyright: ignore[reportArgumentType] - it asks for less than the base class
    ProcessCollector(registry=registry)
    return generate_latest(registry)
