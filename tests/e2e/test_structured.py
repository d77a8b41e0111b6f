"""Answers in a JSON schema with real agents: by their own means, and by what they are told."""

from __future__ import annotations

import json
from typing import Any

import pytest

from .support.bench import CLAUDE, Bench, Watch, nightly
from .support.wire import Json, Stream, tools

CODEX, PI = "codex", "pi"
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]
PERSON: Json = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
ADA = '{"name": "Ada", "age": 36}'


def ask(server: Bench, watch: Watch, text: str, **format_: Any) -> Json:
    """The info of the answer's last message."""
    fields = (
        {"format": {"type": "json_schema", "schema": PERSON, **format_}} if format_ or "json" in text or "wrong" in text else {}
    )
    return watch.wait_for_answer(watch.prompt(text, **fields))[-1]["info"]


@pytest.mark.parametrize("server", [CLAUDE, CODEX, *nightly(PI)], indirect=True)
def test_an_answer_has_a_value_of_the_schema(server: Bench, stream: Stream) -> None:
    watch = Watch.on(server.api, stream)
    before = ask(server, watch, "[scene:text] hello")
    assert "structured" not in before
    assert ask(server, watch, f"[scene:json:{ADA}] one")["structured"] == json.loads(ADA)
    assert ask(server, watch, f"[scene:wrong:{ADA}] two")["structured"] == json.loads(ADA), "it is asked again"
    after = ask(server, watch, "[scene:text] bye")
    assert "structured" not in after, "the next prompt is answered as ever"


@pytest.mark.parametrize("server", [CLAUDE], indirect=True)
def test_claude_itself_refuses_what_does_not_match(server: Bench, stream: Stream) -> None:
    watch = Watch.on(server.api, stream)
    info = ask(server, watch, '[scene:json:{"name": "Ada", "age": "old"}] one')
    assert info["structured"] == {"name": "Ada", "age": 7}
    calls = [tool for tool in tools(server.api.messages(watch.session)) if tool["tool"] == "StructuredOutput"]
    assert [call["state"]["status"] for call in calls] == ["error", "completed"]


@pytest.mark.parametrize("server", [CODEX], indirect=True)
def test_an_answer_that_never_matches_is_an_error_of_its_message(server: Bench, stream: Stream) -> None:
    watch = Watch.on(server.api, stream)
    at = stream.mark()
    info = ask(server, watch, "[scene:json:no] one", retryCount=1)
    assert info["error"]["name"] == "StructuredOutputError"
    assert info["error"]["data"]["retries"] == 1
    assert not [event for event in watch.events(at) if event["type"] == "session.error"]
    schemas = [request["body"].get("text", {}).get("format", {}).get("schema") for request in server.model.requests()]
    assert PERSON in schemas, "Codex gives the model the schema"


@pytest.mark.parametrize("server", [CLAUDE, *nightly(CODEX)], indirect=True)
def test_the_other_wires_have_the_value_too(server: Bench, stream: Stream) -> None:
    format_ = {"type": "json_schema", "schema": PERSON}
    watch = Watch.on(server.api, stream)
    at = stream.mark()
    server.api.post(f"/api/session/{watch.session}/prompt", {"text": f"[scene:json:{ADA}] one", "metadata": {"format": format_}})
    stream.idle(watch.session, since=at)
    said = [row for row in server.api.get(f"/api/session/{watch.session}/message")["data"] if row["type"] == "assistant"]
    assert [row["metadata"]["structured"] for row in said if "metadata" in row] == [json.loads(ADA)]
    at = stream.mark()
    server.api.post(f"/v1/sessions/{watch.session}/messages", {"message": f"[scene:json:{ADA}] two", "format": format_})
    stream.idle(watch.session, since=at)
    items = [event["data"].get("item", {}) for event in server.api.get(f"/v1/sessions/{watch.session}/events")["events"]]
    values = [item["metadata"]["value"] for item in items if "value" in (item.get("metadata") or {})]
    assert values == [json.loads(ADA)] * 2
