"""Traces: requests, turns and tool calls as spans; TRACEPARENT for agents; nothing of it when it is off."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import shim.main.app
from shim.telemetry.spans import NoSpans, OtelSpans, spans
from tests.support.live import live, prompt_body


class SpanRecorder:
    """Spans that are kept in memory."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.spans = OtelSpans(provider.get_tracer("test"))

    def spans_with_prefix(self, prefix: str) -> list[Any]:
        return [span for span in self.exporter.get_finished_spans() if span.name.startswith(prefix)]


async def test_a_turn_and_its_tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    traced = SpanRecorder()
    monkeypatch.setattr(shim.main.app, "spans", lambda *, on: traced.spans if on else NoSpans())
    caller = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    async with live(tmp_path, otel=True) as server:
        session = await server.session()
        body = prompt_body("tool")
        await server.api.post(f"/session/{session}/message", body, status=200, headers={"traceparent": caller})
    [request] = traced.spans_with_prefix("POST /session/{sessionID}/message")
    [turn] = traced.spans_with_prefix("turn")
    [tool] = traced.spans_with_prefix("tool ")
    assert f"{request.parent.span_id:016x}" == "b7ad6b7169203331"
    assert turn.parent.span_id == request.context.span_id
    assert tool.parent.span_id == turn.context.span_id
    assert turn.attributes["session.id"] == session
    assert turn.attributes["turn.reason"] == "completed"
    assert request.attributes["http.response.status_code"] == 200


async def test_traceparent_is_that_of_the_running_turn() -> None:
    from tests.unit.telemetry.test_hooks import ENDED, event
    from universal.events import EventType, TurnData

    traced = SpanRecorder()
    assert traced.spans.traceparent("s") is None
    traced.spans.observe(event(EventType.TURN_STARTED, TurnData(phase="started", turn_id="t")))
    parent = traced.spans.traceparent("s")
    traced.spans.observe(ENDED)
    [turn] = traced.spans_with_prefix("turn")
    assert parent is not None
    assert parent.startswith(f"00-{turn.context.trace_id:032x}-{turn.context.span_id:016x}-")
    assert traced.spans.traceparent("s") is None


def test_off_means_that_nothing_is_loaded() -> None:
    assert isinstance(spans(on=False), NoSpans)
    program = "import shim.main.app, sys; print([m for m in sys.modules if m.startswith(('opentelemetry', 'prometheus_client'))])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_tool_call_without_a_result_ends_with_its_turn_and_what_comes_after_is_no_span() -> None:
    from tests.unit.telemetry.test_hooks import ENDED, event
    from universal.events import EventType, ItemData, TurnData
    from universal.items import Item, ItemKind, ItemStatus, ToolCallPart

    traced = SpanRecorder()
    part = ToolCallPart(name="bash", arguments="{}", call_id="c")
    item = Item(item_id="i", kind=ItemKind.TOOL_CALL, status=ItemStatus.IN_PROGRESS, content=(part,))
    call = event(EventType.ITEM_STARTED, ItemData(item=item))
    traced.spans.observe(event(EventType.TURN_STARTED, TurnData(phase="started", turn_id="t")))
    traced.spans.observe(call)
    traced.spans.observe(call)
    assert traced.spans_with_prefix("tool ") == []
    traced.spans.observe(ENDED)
    traced.spans.observe(call)
    traced.spans.observe(ENDED)
    [turn] = traced.spans_with_prefix("turn")
    [tool] = traced.spans_with_prefix("tool ")
    assert (tool.name, tool.parent.span_id) == ("tool bash", turn.context.span_id)
    traced.spans.close()
    assert len(traced.exporter.get_finished_spans()) == 2
