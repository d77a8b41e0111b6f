"""Whatever comes on stdout, Claude Code's codec does not raise, and what it says can be stored."""

from __future__ import annotations

import json
import random
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.claude_lines import Story, init
from tests.support.recordings import load, load_all
from tests.support.replay import Replay, encode
from universal.agents.claude.codec import ClaudeCodec
from universal.agents.claude.wire import IGNORED, parse
from universal.codec import Fact, Interrupt, PermissionReply, QuestionReply
from universal.events import EventType, Source, UniversalEvent
from universal.items import ItemKind, ItemRole
from universal.launch import Exit
from universal.lib.jsonvalue import obj
from universal.lib.jsonvalue import text as as_text

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
)


def storable(story: Replay) -> None:
    """Each fact becomes an event that can be written and read again."""
    for number, fact in enumerate(out for out in story.outputs if isinstance(out, Fact)):
        event = UniversalEvent(
            event_id=f"evt_{number}",
            sequence=number + 1,
            time="2026-11-21T20:43:04.083Z",
            session_id="ses_1",
            source=Source.DAEMON if fact.synthetic else Source.AGENT,
            synthetic=fact.synthetic,
            type=fact.type,
            data=fact.data,
            raw=fact.raw,
        )
        written = orjson.dumps(event.model_dump(mode="json", by_alias=True))
        assert UniversalEvent.model_validate(orjson.loads(written)) == event


def shape(msg: dict[str, Any]) -> str:
    """What kind of line it is, more finely than the codec's table."""
    event, request = obj(msg.get("event")), obj(msg.get("request"))
    content = obj(msg.get("message")).get("content")
    blocks = [block.get("type") for block in content] if isinstance(content, list) else type(content).__name__
    inner = obj(event.get("delta") or event.get("content_block")).get("type")
    kinds = [msg["type"], msg.get("subtype"), event.get("type"), inner, request.get("subtype"), request.get("tool_name")]
    return str([kinds, blocks, sorted(obj(msg.get("tool_use_result")))])


def lines_of_all_kinds() -> list[Any]:
    """One line of each kind that the recordings show, and of each kind that only the tables know."""
    found: dict[str, Any] = {}
    for recording in load_all("claude"):
        for msg in recording.agent_messages():
            found.setdefault(shape(msg), msg)
    for kind in [*ClaudeCodec.HANDLERS, *IGNORED]:
        type_, _, sub = kind.partition("/")
        inside = {"subtype": sub} if type_ == "system" else {"event": {"type": sub}} if type_ == "stream_event" else {}
        asked = {"request": {"subtype": sub}, "request_id": "r"} if type_ == "control_request" else {}
        found.setdefault(kind, {"type": type_, **inside, **asked})
    return list(found.values())


KINDS = lines_of_all_kinds()


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths of all values inside of a value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(deeper for key, item in inner for deeper in places(item, (*path, key)))]


def replace_at(value: Any, path: tuple[Any, ...], by: Any) -> Any:
    """A copy with another value at a path."""
    if not path:
        return by
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = replace_at(value[path[0]], path[1:], by)
    return copy


def test_the_recordings_have_many_kinds_of_lines() -> None:
    assert len(KINDS) > 120


@given(st.lists(VALUES, max_size=5))
def test_any_json(values: list[Any]) -> None:
    story = Story()
    story.prompts()
    for value in values:
        story.receive(encode(value) if not isinstance(value, str) else json.dumps(value).encode())
    story.take(story.codec.eof(Exit(0)))
    storable(story)


@given(st.lists(st.binary(max_size=200), max_size=5))
def test_any_bytes(lines: list[bytes]) -> None:
    story = Story()
    for line in lines:
        story.receive(line)
    storable(story)


@given(st.data())
def test_known_lines_with_something_wrong_in_them(data: st.DataObject) -> None:
    """Lines of all kinds in any order, each with any of its values replaced by any other."""
    story = Story()
    story.take(story.codec.start())
    story.prompts()
    for _ in range(data.draw(st.integers(1, 12))):
        line = data.draw(st.sampled_from(KINDS))
        if data.draw(st.booleans()):
            line = replace_at(line, data.draw(st.sampled_from(places(line))), data.draw(VALUES))
        story.receive(json.dumps(line).encode())
        if data.draw(st.integers(0, 9)) == 0:
            story.does(Interrupt())
    story.take(story.codec.send(PermissionReply("permission_1", "accept")))
    story.take(story.codec.send(QuestionReply("question_1", [["x"], []])))
    story.take(story.codec.eof(Exit(1, stderr="error: unknown option '--x'")))
    storable(story)
    for fact in story.facts(EventType.UNPARSED):
        assert fact.data.error


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("scene", ["task_edit", "interrupt_tool", "drop", "queue_text", "slash", "todo"])
def test_recordings_out_of_order(scene: str, seed: int) -> None:
    """Lost, doubled and exchanged lines: each item still has one life, and nothing is left open."""
    rng = random.Random(seed)
    lines = load("claude", "2.1.330", scene).agent_messages()
    lines = [line for line in lines for _ in range(rng.choice([0, 1, 1, 1, 1, 2]))]
    for _ in range(len(lines) // 10):
        a, b = rng.randrange(len(lines)), rng.randrange(len(lines))
        lines[a], lines[b] = lines[b], lines[a]
    story = Story()
    story.prompts()
    for line in lines:
        story.receive(encode(line))
    story.take(story.codec.eof(Exit(0)))
    started = [fact.data.item.item_id for fact in story.facts(EventType.ITEM_STARTED)]
    completed = [fact.data.item.item_id for fact in story.facts(EventType.ITEM_COMPLETED)]
    assert len(started) == len(set(started))
    assert len(completed) == len(set(completed))
    assert set(started) <= set(completed)
    texts: dict[tuple[str, int], str] = {}
    for fact in story.facts(EventType.ITEM_DELTA):
        if fact.data.part_type != "tool_input":
            place = (fact.data.item_id, fact.data.part_index)
            texts[place] = texts.get(place, "") + fact.data.delta
    messages = [item for item in story.items(ItemKind.MESSAGE) if item.role is ItemRole.ASSISTANT]
    assert texts == {(m.item_id, place): part.text for m in messages for place, part in enumerate(m.content)}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"", "not JSON"),
        (b"this is no JSON", "not JSON"),
        (b"\xff\xfe{", "not JSON"),
        (b'{"type":NaN}', "not JSON"),
        (b'{"type":"x","n":1e999}', "not JSON"),
        (b'{"a":' * 200 + b"1" + b"}" * 200, "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[1,2]", "no object"),
        (b"7", "no object"),
        (b'"text"', "no object"),
        (b"null", "no object"),
        (b"{}", "?"),
        (b'{"type":7}', "?"),
        (b'{"type":"system"}', "system/?"),
        (b'{"type":"system","subtype":"brand_new"}', "system/brand_new"),
        (b'{"type":"stream_event","event":[]}', "stream_event/?"),
        (b'{"type":"novelty"}', "novelty"),
    ],
)
def test_unknown_lines_are_kept_as_unparsed(line: bytes, said: str) -> None:
    story = Story()
    story.receive(line)
    (fact,) = story.facts()
    assert (fact.type, fact.synthetic) == (EventType.UNPARSED, True)
    assert fact.data.location == f"claude stdout: {said}"
    assert fact.data.raw_hash.startswith("sha256:")
    assert story.codec.counters() == {f"unparsed:{said}": 1}
    storable(story)


def test_unknown_parts_of_known_lines_are_reported() -> None:
    story = Story()
    story.prompts()
    started = {"type": "message_start", "message": {"id": "m1"}}
    novel = {"type": "content_block_start", "index": 0, "content_block": {"type": "novelty"}}
    delta = {"type": "content_block_delta", "index": 0, "delta": {"type": "novel_delta"}}
    story.hears(init(), *({"type": "stream_event", "event": event} for event in (started, novel, delta)))
    assert [data.location.rpartition(" ")[2] for data in story.unparsed_lines()] == ["block/novelty", "delta/novel_delta"]


def test_numbers_and_texts_that_cannot_be_stored_become_ones_that_can() -> None:
    value = parse(
        b'{"big":123456789012345678901234567890,"most":9223372036854775807,"more":9223372036854775808,"text":"a\\ud800b"}'
    )
    assert value == {"big": 1.2345678901234568e29, "most": 2**63 - 1, "more": 2.0**63, "text": "a\ufffdb"}
    assert parse(b'{"ok":"\\ud83d\\ude00"}') == {"ok": "\U0001f600"}
    assert as_text(parse(b'"\xff"')) == "\ufffd"


def test_brackets_in_strings_are_no_depth() -> None:
    words = "[{" * 30 + "}]" * 30
    assert parse(json.dumps({"text": words * 10}).encode()) == {"text": words * 10}
