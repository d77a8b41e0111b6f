"""Traces of requests, turns and tool calls with OpenTelemetry: an extra (`pip install opencode-shim[otel]`), off by default.

    request                     one span each, child of the caller's `traceparent`
    turn                        one span for each turn, child of its request; a root span if the agent began the turn itself
      tool call                 from its first event to its result
    TRACEPARENT                 in the environment of a started agent: the turn that started it

`NoSpans` replaces this if tracing is off, so that OpenTelemetry is not imported. No span contains words of people or agents.
OpenTelemetry's own variables configure the export (OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_SERVICE_NAME ...).
"""

from __future__ import annotations

import importlib
from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Protocol

from shim.lib.errors import ShimError
from universal.events import EventType, ItemData, TurnData, UniversalEvent
from universal.items import ItemKind, ItemStatus, ToolCallPart, ToolResultPart
from universal.lib.jsonvalue import obj, text

MAX_OPEN = 10_000
"""Maximum open spans of tool calls without a result."""


class RequestSpan(Protocol):
    """A request's span."""

    def set_status(self, status: int) -> None:
        """Set the answer's status. The context manager ends the span."""
        ...


class Spans(Protocol):
    """The interface of tracing."""

    def observe(self, event: UniversalEvent) -> None: ...

    def request(self, method: str, route: str, headers: Mapping[str, str]) -> AbstractContextManager[RequestSpan]: ...

    def traceparent(self, session_id: str) -> str | None: ...

    def close(self) -> None: ...


class _NoSpan:
    def set_status(self, status: int) -> None:
        """Nothing."""


class NoSpans:
    """Tracing is off: all methods do nothing."""

    def observe(self, event: UniversalEvent) -> None:
        """Nothing."""

    def request(self, method: str, route: str, headers: Mapping[str, str]) -> AbstractContextManager[RequestSpan]:
        return nullcontext(_NoSpan())

    def traceparent(self, session_id: str) -> str | None:
        return None

    def close(self) -> None:
        """Nothing."""


class OtelSpans:
    """Tracing with OpenTelemetry. In: its tracer, and a function that sends all queued spans."""

    def __init__(self, tracer: Any, flush: Any = None) -> None:
        self._tracer = tracer
        self._flush = flush
        self._turns: dict[str, Any] = {}
        self._tools: dict[tuple[str, str], Any] = {}

    def observe(self, event: UniversalEvent) -> None:
        """Start and end spans of turns and tool calls."""
        data = event.data
        if isinstance(data, TurnData):
            self._turn(event, data)
        elif isinstance(data, ItemData) and data.item.kind in (ItemKind.TOOL_CALL, ItemKind.TOOL_RESULT):
            self._tool(event, data)

    def _turn(self, event: UniversalEvent, data: TurnData) -> None:
        if event.type is EventType.TURN_STARTED:
            attributes = {"session.id": event.session_id, "turn.id": data.turn_id}
            self._turns[event.session_id] = self._tracer.start_span("turn", context=_parent_context(data), attributes=attributes)
            return
        for key in [key for key in self._tools if key[0] == event.session_id]:
            self._tools.pop(key).end()
        span = self._turns.pop(event.session_id, None)
        if span is not None:
            reason = text(obj(data.metadata).get("reason"))
            span.set_attribute("turn.reason", reason)
            if reason in ("error", "agent_exited"):
                span.set_status(_error_status())
            span.end()

    def _tool(self, event: UniversalEvent, data: ItemData) -> None:
        for part in data.item.content:
            if isinstance(part, ToolCallPart):
                key = (event.session_id, part.call_id)
                if key not in self._tools and len(self._tools) < MAX_OPEN and event.session_id in self._turns:
                    from opentelemetry import trace

                    context = trace.set_span_in_context(self._turns[event.session_id])
                    attributes = {"session.id": event.session_id, "tool.name": part.name, "tool.call_id": part.call_id}
                    self._tools[key] = self._tracer.start_span(f"tool {part.name}", context=context, attributes=attributes)
            elif isinstance(part, ToolResultPart) and event.type is EventType.ITEM_COMPLETED:
                span = self._tools.pop((event.session_id, part.call_id), None)
                if span is not None:
                    if data.item.status is ItemStatus.FAILED:
                        span.set_status(_error_status())
                    span.end()

    def request(self, method: str, route: str, headers: Mapping[str, str]) -> AbstractContextManager[RequestSpan]:
        """Trace a request as a child of the caller's `traceparent`."""
        return self._request(method, route, headers)

    @contextmanager
    def _request(self, method: str, route: str, headers: Mapping[str, str]) -> Generator[RequestSpan]:
        from opentelemetry import propagate, trace

        context = propagate.extract({key.lower(): value for key, value in headers.items()})
        attributes = {"http.request.method": method, "http.route": route}
        with self._tracer.start_as_current_span(
            f"{method} {route}", context=context, kind=trace.SpanKind.SERVER, attributes=attributes
        ) as span:
            yield _Answer(span)

    def traceparent(self, session_id: str) -> str | None:
        span = self._turns.get(session_id)
        if span is None:
            return None
        from opentelemetry import propagate, trace

        carrier: dict[str, str] = {}
        propagate.inject(carrier, context=trace.set_span_in_context(span))
        return carrier.get("traceparent")

    def close(self) -> None:
        for span in (*self._tools.values(), *self._turns.values()):
            span.end()
        if self._flush is not None:
            self._flush()


class _Answer:
    def __init__(self, span: Any) -> None:
        self._span = span

    def set_status(self, status: int) -> None:
        """Set the status. The context manager ends the span."""
        self._span.set_attribute("http.response.status_code", status)
        if status >= 500:
            self._span.set_status(_error_status())


def _parent_context(data: TurnData) -> Any:
    """Return the parent context of a turn: the running request, or an empty context for a turn that the agent began.

    The server reads an agent's output in the context of the request that started its process, which is not that turn's parent.
    """
    from opentelemetry.context import Context

    return Context() if obj(data.metadata).get("origin") == "agent" else None


def _error_status() -> Any:
    from opentelemetry.trace import Status, StatusCode

    return Status(StatusCode.ERROR)


def spans(*, on: bool) -> Spans:
    """Create the tracing of the settings. Raises ShimError if it is on and the extra is not installed."""
    if not on:
        return NoSpans()
    try:
        exporter: Any = importlib.import_module("opentelemetry.exporter.otlp.proto.http.trace_exporter")
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise ShimError("The setting otel needs OpenTelemetry: pip install 'opencode-shim[otel]'.") from error
    provider = TracerProvider(resource=Resource.create({"service.name": "opencode-shim"}))
    provider.add_span_processor(BatchSpanProcessor(exporter.OTLPSpanExporter()))
    return OtelSpans(provider.get_tracer("opencode-shim"), provider.shutdown)
