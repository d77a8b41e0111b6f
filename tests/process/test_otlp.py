"""Traces as a receiver of OTLP gets them from the real command: decoded with OpenTelemetry's own messages."""

from __future__ import annotations

import json
import signal
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest, ExportTraceServiceResponse
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from tests.process.test_serve import SLACK_S, START_S, STOP_S, run_server

CALLER = ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331")
"""A trace and a span of whoever calls."""
TURNS = 6
"""The prompts below, and one that the agent begins by itself."""
SAID = "wordsthatareinnospan"


class Receiver:
    """An OTLP/HTTP endpoint for traces. Keeps what it is sent, in the order in which it came."""

    def __init__(self) -> None:
        self.requests: list[ExportTraceServiceRequest] = []
        self.spans: list[Span] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                assert (self.path, self.headers["Content-Type"]) == ("/v1/traces", "application/x-protobuf")
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.take(ExportTraceServiceRequest.FromString(body))
                answer = ExportTraceServiceResponse().SerializeToString()
                self.send_response(200)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"

    def take(self, request: ExportTraceServiceRequest) -> None:
        self.requests.append(request)
        self.spans += [span for resource in request.resource_spans for scope in resource.scope_spans for span in scope.spans]

    def spans_named(self, name: str) -> list[Span]:
        return sorted((span for span in self.spans if span.name == name), key=lambda span: span.start_time_unix_nano)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    thread = threading.Thread(target=made.server.serve_forever)
    thread.start()
    yield made
    made.server.shutdown()
    thread.join()
    made.server.server_close()


@contextmanager
def post_json(url: str, body: object, **headers: str) -> Iterator[Any]:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json", **headers})
    with urllib.request.urlopen(request, timeout=START_S) as answer:
        yield answer


def attributes(span: Span) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in span.attributes}


def test_a_receiver_gets_the_spans_of_turns(tmp_path: Path, receiver: Receiver) -> None:
    settings = {"SHIM_OTEL": "1", "SHIM_MOCK_DELAY_FACTOR": "0", "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url, "NO_PROXY": "*"}
    with run_server(tmp_path, **settings) as (process, url):
        session = f"{url}/v1/sessions/mine"
        with post_json(session, {"agent": "mock"}) as answer:
            core = json.load(answer)["openCodeSessionId"]
        stream = f"{session}/messages/stream"
        with post_json(stream, {"message": "tool"}, traceparent=f"00-{CALLER[0]}-{CALLER[1]}-01") as answer:
            answer.read()
        for message in (f"echo {SAID}", "error"):
            with post_json(stream, {"message": message}) as answer:
                answer.read()
        with post_json(stream, {"message": "permission"}) as answer:
            while b"permission.requested" not in answer.readline():
                pass
            with post_json(f"{url}/v1/x-sessions/mine/abort", {}):
                pass
            answer.read()
        with post_json(stream, {"message": "wake"}) as answer:
            answer.read()
        turns_ended = 0
        with urllib.request.urlopen(f"{session}/events/sse", timeout=START_S) as events:
            while turns_ended < TURNS:
                turns_ended += b'"turn.ended"' in events.readline()
        process.send_signal(signal.SIGTERM)
        assert process.wait(STOP_S + SLACK_S) == 0
    said = (tmp_path / "stderr").read_text()
    assert "Traceback" not in said
    assert "ended span" not in said, "OpenTelemetry: a span was ended, or told something, after its end"
    ids = [span.span_id for span in receiver.spans]
    assert len(ids) == len(set(ids)), "a span was sent twice"
    assert all(0 < span.start_time_unix_nano <= span.end_time_unix_nano for span in receiver.spans)
    resources = {one.value.string_value for r in receiver.requests for s in r.resource_spans for one in s.resource.attributes}
    assert "opencode-shim" in resources
    assert SAID not in str(receiver.requests)

    turns = receiver.spans_named("turn")
    assert [attributes(turn)["turn.reason"] for turn in turns] == [
        *("completed", "completed", "error", "aborted", "completed", "completed")
    ]
    assert {attributes(turn)["session.id"] for turn in turns} == {core}
    assert len({attributes(turn)["turn.id"] for turn in turns}) == len(turns)
    assert [turn.status.code == Status.STATUS_CODE_ERROR for turn in turns] == [False, False, True, False, False, False]

    asked = receiver.spans_named("POST /v1/sessions/{session_id}/messages/stream")
    assert [attributes(request)["http.response.status_code"] for request in asked] == [200] * 5
    assert {request.kind for request in asked} == {Span.SPAN_KIND_SERVER}
    assert (asked[0].trace_id.hex(), asked[0].parent_span_id.hex()) == CALLER
    *prompted, own = turns
    assert [turn.parent_span_id for turn in prompted] == [request.span_id for request in asked]
    assert [turn.trace_id for turn in prompted] == [request.trace_id for request in asked]
    assert own.parent_span_id == b"", "a turn that the agent begins by itself is part of no request"
    assert own.trace_id not in {request.trace_id for request in asked}

    tools = [span for span in receiver.spans if span.name.startswith("tool ")]
    spans = {turn.span_id: turn for turn in turns}
    assert {turns[0].span_id, turns[3].span_id} <= {tool.parent_span_id for tool in tools}, "one was cut off with its turn"
    for tool in tools:
        turn = spans[tool.parent_span_id]
        assert tool.trace_id == turn.trace_id
        assert attributes(tool)["tool.name"] == tool.name.removeprefix("tool ")
        assert attributes(tool)["tool.call_id"]
        assert turn.start_time_unix_nano <= tool.start_time_unix_nano
        assert tool.end_time_unix_nano <= turn.end_time_unix_nano
