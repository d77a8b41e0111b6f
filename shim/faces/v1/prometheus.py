"""Renders meters as Prometheus' text. Only this module imports prometheus_client, and only `GET /metrics` imports it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from shim.store.peers import Overview
from shim.telemetry.meters import Histogram, Meters

CONTENT_TYPE = CONTENT_TYPE_LATEST
PREFIX = "opencode_shim_"


@dataclass(frozen=True, slots=True)
class ClusterGauges:
    """Values of a server in a cluster.

    lag  events that this server is behind in the worst session of another one that somebody watches here"""

    overview: Overview
    lag: int


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
    """Requests that ended without a user's answer, by action: `timeout`, `rules`."""
    lines_dropped: Mapping[str, int]
    """Dropped lines of stdout and stderr, because nobody read them."""
    cluster: ClusterGauges | None = None


class _Collector:
    def __init__(self, meters: Meters, gauges: Gauges) -> None:
        self._meters = meters
        self._gauges = gauges

    def collect(self) -> Iterable[Any]:
        """Yield all metrics."""
        meters, gauges = self._meters, self._gauges
        yield _counter("events", "Universal events by type.", "type", meters.events)
        yield _counter("turns", "Turns that have ended, by reason.", "reason", meters.turns)
        yield _counter("errors", "Errors of agents, by code.", "code", meters.errors)
        yield _counter("unparsed", "Native events that no rule knows, by kind.", "kind", meters.unparsed)
        requests = CounterMetricFamily(f"{PREFIX}http_requests", "Answers.", labels=["method", "route", "status"])
        for labels, value in meters.requests.items():
            requests.add_metric(list(labels), value)
        yield requests
        durations = HistogramMetricFamily(f"{PREFIX}http_request_seconds", "Time to an answer's end.", labels=["route"])
        for route, histogram in meters.request_s.items():
            durations.add_metric([route], *_histogram(histogram))
        yield durations
        turns = HistogramMetricFamily(f"{PREFIX}turn_seconds", "Duration of turns.", labels=[])
        turns.add_metric([], *_histogram(meters.turn_s))
        yield turns
        readers = GaugeMetricFamily(f"{PREFIX}subscribers", "Open event streams.", labels=["face"])
        readers.add_metric(["opencode"], gauges.opencode_readers)
        readers.add_metric(["universal"], gauges.universal_readers)
        yield readers
        yield GaugeMetricFamily(f"{PREFIX}sessions", "Sessions that are kept.", value=gauges.sessions)
        yield GaugeMetricFamily(f"{PREFIX}sessions_busy", "Sessions whose turn runs.", value=gauges.busy)
        yield GaugeMetricFamily(f"{PREFIX}subscriber_lag_events", "Events that the slowest reader is behind.", value=gauges.lag)
        dropped = CounterMetricFamily(f"{PREFIX}subscribers_dropped", "Readers that were too slow.", labels=["face"])
        dropped.add_metric(["opencode"], gauges.dropped)
        dropped.add_metric(["universal"], gauges.cut_off)
        yield dropped
        tasks = GaugeMetricFamily(f"{PREFIX}tasks", "Tasks of the event loop, by kind.", labels=["kind"])
        for kind, number in gauges.tasks.items():
            tasks.add_metric([kind], number)
        yield tasks
        agents = GaugeMetricFamily(f"{PREFIX}agents", "Agents that run: of a session, or spare ones.", labels=["state"])
        for state, number in gauges.agents.items():
            agents.add_metric([state], number)
        yield agents
        yield GaugeMetricFamily(f"{PREFIX}memory_blocks", "Blocks of memory that Python's values take.", value=gauges.blocks)
        yield _counter("asks_unattended", "Asks that were rejected without a person.", "action", gauges.asks_unattended)
        yield GaugeMetricFamily(f"{PREFIX}asks_open", "Permission requests and questions that wait.", value=gauges.open_asks)
        yield GaugeMetricFamily(f"{PREFIX}asks_oldest_seconds", "How long the oldest of them waits.", value=gauges.oldest_ask_s)
        yield _counter("output_lines_dropped", "Lines that nobody read in time.", "stream", gauges.lines_dropped)
        yield CounterMetricFamily(f"{PREFIX}opencode_events", "OpenCode events that were published.", value=gauges.published)
        if gauges.cluster is not None:
            yield from _cluster(gauges.cluster)


def _cluster(cluster: ClusterGauges) -> Iterable[Any]:
    overview = cluster.overview
    for name, description, value in (
        ("nodes", "Servers that live, this one included.", len(overview.nodes)),
        ("connected", "Whether NATS can be reached (1) or not (0).", int(overview.is_connected)),
        ("sessions_owned", "Sessions that this server has.", overview.here.sessions),
        ("room", "Agents that this server can still start.", overview.here.node.offer.room),
        ("lease_age_seconds", "Since the last renewal of this server's lease.", overview.here.lease_age_s),
        ("writes_waiting", "Rows that NATS has not acknowledged.", overview.waiting),
        ("spool_bytes", "Bytes on disk of the events among them.", overview.spooled_bytes),
        ("read_lag_events", "Events that are stored and not yet published here, in the worst watched session.", cluster.lag),
    ):
        yield GaugeMetricFamily(f"{PREFIX}cluster_{name}", description, value=value)
    yield _counter("cluster_renewals", "Renewals of this server's lease.", "result", overview.renewals)
    yield _counter("cluster_requests", "Requests that other servers were asked to do.", "result", overview.asked)
    for name, description, value in (
        ("appends_refused", "Appends to journals that NATS has refused.", overview.refused_appends),
        ("reconnects", "Connections to NATS after a lost one.", overview.reconnects),
    ):
        yield CounterMetricFamily(f"{PREFIX}cluster_{name}", description, value=value)
    for name, description, histogram in (
        ("append_seconds", "Time until an append was acknowledged.", overview.append_s),
        ("answer_seconds", "Time until another server began to answer.", overview.answer_s),
    ):
        family = HistogramMetricFamily(f"{PREFIX}cluster_{name}", description, labels=[])
        family.add_metric([], *_histogram(histogram))
        yield family


def _counter(name: str, description: str, label: str, values: Mapping[str, int]) -> CounterMetricFamily:
    family = CounterMetricFamily(f"{PREFIX}{name}", description, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
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
