"""What all codecs share: stamping, and lines that are no JSON object or of an unknown kind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from tests.unit.agents.kit import counting_ids
from universal.agents import kit
from universal.codec import Fact, Output, ToolCheck
from universal.events import EventType, UnparsedData


class Codec(kit.LineCodec[kit.Context]):
    """A codec of two kinds of lines."""

    def __init__(self) -> None:
        super().__init__(kit.Context("parrot", counting_ids()))
        self.asks = kit.OpenAsks[kit.Ask]()

    def _kind_of(self, message: dict[str, Any]) -> str:
        return str(message.get("type"))

    def _on_hello(self, message: dict[str, Any]) -> Iterator[Output]:
        yield self._ctx.note("Hello", message)
        self.native_session_id = "native-1"

    def _on_check(self, message: dict[str, Any]) -> Iterator[Output]:
        ask = kit.Ask(ask_id="per_1", action="bash", metadata={})
        yield ToolCheck(self.asks.begin(ask, message))

    IGNORED: ClassVar[frozenset[str]] = frozenset({"ping"})
    HANDLERS: ClassVar[kit.Handlers] = {"hello": _on_hello, "check": _on_check}


def unparsed_data(outputs: list[Output]) -> UnparsedData:
    [fact] = outputs
    assert isinstance(fact, Fact)
    assert fact.type is EventType.UNPARSED
    assert isinstance(fact.data, UnparsedData)
    return fact.data


def test_a_line_that_is_no_json_object_is_reported_and_counted() -> None:
    codec = Codec()
    assert unparsed_data(codec.receive(b"\xff{")).location == "parrot stdout: not JSON"
    assert unparsed_data(codec.receive(b"[1]")).location == "parrot stdout: no object"
    assert dict(codec.counters()) == {"unparsed:not JSON": 1, "unparsed:no object": 1}


def test_a_line_of_an_unknown_kind_is_reported_with_the_hash_of_the_line() -> None:
    data = unparsed_data(Codec().receive(b'{"type":"new"}'))
    assert data.location == "parrot stdout: new"
    assert str(data.raw_hash).startswith("sha256:")


def test_a_line_of_an_ignored_kind_is_only_counted() -> None:
    codec = Codec()
    assert codec.receive(b'{"type":"ping"}') == []
    assert dict(codec.counters()) == {"ignored:ping": 1}


def test_a_fact_has_the_id_of_its_line() -> None:
    codec = Codec()
    [fact] = codec.receive(b'{"type":"hello"}')
    assert isinstance(fact, Fact)
    assert fact.native_session_id == "native-1"


def test_the_request_of_a_check_is_stamped_too() -> None:
    codec = Codec()
    codec.native_session_id = "native-1"
    [check] = codec.receive(b'{"type":"check"}')
    assert isinstance(check, ToolCheck)
    assert check.request.native_session_id == "native-1"
