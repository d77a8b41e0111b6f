"""What codecs of agents with an HTTP server share: requests, their answers, events, and URLs of attachments."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.unit.agents.kit import counting_ids
from universal.agents import kit
from universal.codec import Attachment, Fact, Output, WriteLine
from universal.events import EventType, ItemData
from universal.items import TextPart


class Codec(kit.HttpCodec[kit.Context]):
    """A codec that notes each event and each answer."""

    def __init__(self) -> None:
        super().__init__(kit.Context("parrot", counting_ids()))

    def ask(self, body: Any = None) -> WriteLine:
        return self._request("list", "POST", "/list", body)

    def _event(self, event: dict[str, Any], hash_: str) -> Iterator[Output]:
        yield self._ctx.note("Event", event)

    def _answer(self, purpose: str, answer: dict[str, Any]) -> Iterator[Output]:
        yield self._ctx.note(f"Answer to {purpose or 'nobody'}", answer)


def names(outputs: list[Output]) -> list[str]:
    datas = [output.data for output in outputs if isinstance(output, Fact)]
    parts = [part for data in datas if isinstance(data, ItemData) for part in data.item.content]
    return [part.text for part in parts if isinstance(part, TextPart)]


def test_a_request_without_a_body_sends_none() -> None:
    codec = Codec()
    assert json.loads(codec.ask().data) == {"id": "r1", "method": "POST", "path": "/list"}
    assert json.loads(codec.ask({}).data) == {"id": "r2", "method": "POST", "path": "/list", "body": {}}


def test_an_answer_belongs_to_its_request_once() -> None:
    codec = Codec()
    codec.ask()
    answer = b'{"id":"r1","status":200,"body":[]}'
    assert names(codec.receive(answer)) == ["Answer to list"]
    assert names(codec.receive(answer)) == ["Answer to nobody"]


def test_a_line_is_an_event_an_answer_or_unparsed() -> None:
    codec = Codec()
    assert names(codec.receive(b'{"event":{"type":"x"}}')) == ["Event"]
    [fact] = codec.receive(b'{"id":"r1"}')
    assert isinstance(fact, Fact)
    assert fact.type is EventType.UNPARSED


@pytest.mark.parametrize(
    ("attachment", "url"),
    [
        (Attachment("image/png", base64="aGk="), "data:image/png;base64,aGk="),
        (Attachment("text/plain", path="/a b.txt"), "file:///a%20b.txt"),
        (Attachment("text/plain", text="a b"), "data:text/plain,a%20b"),
        (Attachment("text/plain", text=""), "data:text/plain,"),
        (Attachment("text/plain"), ""),
    ],
)
def test_an_attachment_is_a_data_url_or_a_file_url(attachment: Attachment, url: str) -> None:
    assert kit.attachment_url(attachment) == url
