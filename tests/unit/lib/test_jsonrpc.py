"""JSON-RPC over lines: requests, notifications and responses are told apart; ids of both sides do not mix."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from universal.lib.jsonline import parse
from universal.lib.jsonrpc import JOINED_LINES, JsonRpc, LineJoiner, MalformedMessage, Notification, Request, Response

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)


def line(**message: object) -> bytes:
    return json.dumps(message).encode()


def test_an_answer_is_published_by_its_id_and_once() -> None:
    rpc = JsonRpc()
    first, _ = rpc.request("initialize", {})
    second, written = rpc.request("session/new", {"cwd": "/x"})
    assert json.loads(written) == {"jsonrpc": "2.0", "id": second, "method": "session/new", "params": {"cwd": "/x"}}
    answer = rpc.classify(line(id=second, result={"sessionId": "s"}))
    assert isinstance(answer, Response)
    assert (answer.method, answer.result, answer.is_error) == ("session/new", {"sessionId": "s"}, False)
    again = rpc.classify(line(id=second, result=None))
    assert isinstance(again, Response)
    assert again.method == ""
    assert dict(rpc.waiting_requests) == {first: "initialize"}


def test_a_refusal_has_words() -> None:
    rpc = JsonRpc()
    id_, _ = rpc.request("x", {})
    answer = rpc.classify(line(id=id_, error={"code": -32600, "message": "no such thing"}))
    assert isinstance(answer, Response)
    assert (answer.is_error, answer.message, answer.method) == (True, "no such thing", "x")


@pytest.mark.parametrize("id_", [0, 7, "a-uuid", "", None, 1.5])
def test_the_peers_ids_are_returned_as_they_came(id_: object) -> None:
    rpc = JsonRpc(versioned=False)
    rpc.request("ours", {})
    asked = rpc.classify(line(id=id_, method="ask", params={"a": 1}))
    assert isinstance(asked, Request)
    assert (asked.id, asked.params) == (id_, {"a": 1})
    assert json.loads(rpc.response(asked.id, {"ok": True})) == {"id": id_, "result": {"ok": True}}
    assert json.loads(rpc.error(asked.id, "no"))["error"]["message"] == "no"


def test_a_notification_has_no_id() -> None:
    told = JsonRpc().classify(line(method="turn/started", params={"x": 1}))
    assert isinstance(told, Notification)
    assert told.params == {"x": 1}
    assert json.loads(JsonRpc(versioned=False).notification("initialized")) == {"method": "initialized"}


@pytest.mark.parametrize("bad", [b"", b"{", b"[]", b"3", b"{}", b'{"id":1}', b'{"id":[],"method":"x"}', b"\xff", b"[" * 5000])
def test_other_json_is_a_malformed_message(bad: bytes) -> None:
    assert isinstance(JsonRpc().classify(bad), MalformedMessage)


@given(st.dictionaries(st.sampled_from(["id", "method", "params", "result", "error", "jsonrpc"]), JSON))
def test_any_message_is_classified(message: dict[str, object]) -> None:
    rpc = JsonRpc()
    rpc.request("x", {})
    assert isinstance(rpc.classify(json.dumps(message).encode()), (Request, Notification, Response, MalformedMessage))


@given(st.binary(max_size=60))
def test_no_bytes_raise(data: bytes) -> None:
    JsonRpc().classify(data)


@given(st.lists(st.tuples(st.dictionaries(st.text(), JSON, min_size=1), st.integers(1, 4) | st.none()), max_size=4))
def test_messages_over_several_lines_are_joined(messages: list[tuple[dict[str, object], int | None]]) -> None:
    joiner = LineJoiner()
    lines = [line for message, indent in messages for line in json.dumps(message, indent=indent).encode().split(b"\n")]
    assert [json.loads(whole) for line in lines for whole in joiner.add(line)] == [message for message, _ in messages]


def test_an_object_that_is_never_closed_ends_with_the_next_message() -> None:
    joiner = LineJoiner()
    assert joiner.add(b'{"a": {') == []
    assert joiner.add(b'{"b": 1}') == [b'{"a": {', b'{"b": 1}']
    assert joiner.add(b"{") == []
    joined = [whole for _ in range(JOINED_LINES) for whole in joiner.add(b"  1,")]
    assert joined[0].startswith(b"{\n  1,")


@pytest.mark.parametrize(
    "around", [("\ufeff", ""), ("\x1b[?25h\x1b[0m", "\x1b[0m"), ("\x1b]0;me@host\x07", "\r"), ("\x1b(B\x00", "")]
)
def test_escape_sequences_around_a_line_are_ignored(around: tuple[str, str]) -> None:
    before, after = around
    assert parse(f'{before}{{"text": "\\u001b[0m kept"}}{after}'.encode()) == {"text": "\x1b[0m kept"}
