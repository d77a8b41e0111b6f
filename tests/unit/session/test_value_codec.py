"""Typed values as JSON and back: what is read equals what was written, and what has no stored form is refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, make_dataclass
from typing import Any, Literal

import pytest

from universal.items import Item, ItemKind, ItemStatus, TextPart
from universal.session.entries import EndEntry, Entries, Entry, NoteEntry, StepEntry, TextPiece, Timeline
from universal.session.messages import Message, Messages
from universal.session.model import Session
from universal.session.value_codec import ENTRIES, MESSAGES, encode, read, shape_of
from universal.session.values import ModelRef, Reasoning, SessionRecord, Text, ToolCall, UserInfo


@dataclass(frozen=True, slots=True)
class Leaf:
    name: str
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Berry:
    name: str


@dataclass(frozen=True, slots=True)
class Tree:
    left: Tree | None = None
    fruit: Leaf | Berry | None = None
    leaves: tuple[Leaf, ...] = ()
    place: tuple[str, int] = ("", 0)
    seen: set[str] = field(default_factory=set[str])
    by_number: dict[int, Leaf] = field(default_factory=dict[int, Leaf])
    by_name: Mapping[str, Leaf] = field(default_factory=dict[str, Leaf])
    free: dict[str, Any] = field(default_factory=dict[str, Any])
    kind: Literal["oak", "ash"] = "oak"


TREE = Tree(
    left=Tree(fruit=Berry("red")),
    fruit=Leaf("a"),
    leaves=(Leaf("b", 2), Leaf("c", 0.5)),
    place=("north", 3),
    seen={"y", "x"},
    by_number={7: Leaf("seven")},
    by_name={"z": Leaf("last"), "a": Leaf("first")},
    free={"Leaf": ["name", None, 1.5, True]},
    kind="ash",
)


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        (TREE, Tree),
        (Tree(), Tree),
        (None, Tree | None),
        ((Leaf("a"), Berry("a")), tuple[Leaf | Berry, ...]),
        (frozenset({"b", "a"}), frozenset[str]),
        ([["Leaf", ["x", 1]]], list[Any]),
        (Item(item_id="i", kind=ItemKind.MESSAGE, status=ItemStatus.COMPLETED, content=(TextPart(text="hi"),)), Item),
    ],
)
def test_a_value_is_read_as_it_was_written(value: Any, hint: Any) -> None:
    assert read(encode(value, hint), hint) == value


def test_whole_numbers_and_order_stay_as_they_are() -> None:
    again: Tree = read(encode(TREE, Tree), Tree)
    assert [type(leaf.weight) for leaf in again.leaves] == [int, float]
    assert list(again.by_name) == ["z", "a"]


def test_types_with_the_same_fields_are_distinguished() -> None:
    values = (Text("p", "words"), Reasoning("p", "words"))
    assert read(encode(values, tuple[Text | Reasoning, ...]), tuple[Text | Reasoning, ...]) == values


def test_a_set_is_written_the_same_each_time() -> None:
    assert encode({"b", "c", "a"}, set[str]) == '["a","b","c"]'


@pytest.mark.parametrize(("value", "hint"), [(object(), bytes), ("x", str | Leaf), (1j, complex)])
def test_a_type_without_a_stored_form_is_refused(value: Any, hint: Any) -> None:
    with pytest.raises(TypeError, match="has no stored form"):
        encode(value, hint)


def test_a_value_that_is_no_json_is_refused() -> None:
    with pytest.raises(TypeError):
        encode(Tree(free={"x": object()}), Tree)


@pytest.mark.parametrize("text", ['["a"]', '["a",1,2]', "{}", "null", '"a"'])
def test_a_row_of_other_fields_is_refused(text: str) -> None:
    with pytest.raises((ValueError, TypeError)):
        read(text, Leaf)


def test_an_unknown_name_of_a_type_is_refused() -> None:
    with pytest.raises(KeyError):
        read('["Stone",["a"]]', Leaf | Berry)


def test_messages_and_entries_are_not_in_the_text_of_a_session() -> None:
    message = Message(UserInfo("msg_1", 1, "build", ModelRef("mock", "m")), {"prt_1": Text("prt_1", "words")})
    timeline = Timeline(entries=Entries({"msg_1": NoteEntry("msg_1", 1, "words")}))
    session = Session(SessionRecord("ses_1"), "mock", messages=Messages.of([message]), timeline=timeline)
    text = encode(session, Session)
    assert "words" not in text
    again: Session = read(text, Session)
    assert (len(again.messages), len(again.timeline.entries)) == (0, 0)
    assert type(again.timeline.entries) is Entries


def test_packed_messages_come_back_without_who_knows_them() -> None:
    call = ToolCall("prt_2", "call_1", "bash", input={"command": "ls"}, status="completed", output="a\nb")
    parts = {"prt_1": Text("prt_1", "wörds\n"), call.id: call}
    message = Message(UserInfo("msg_1", 1, "build", ModelRef("mock", "m")), dict(parts), {"mock"}, is_over=True)
    [again] = MESSAGES.unpack(MESSAGES.pack([MESSAGES.encode(message)]))
    assert again.known_by == set()
    again.known_by = {"mock"}
    assert again == message


def test_packed_entries_come_back_as_what_they_were() -> None:
    step = StepEntry(
        "msg_2",
        "msg_2",
        2,
        "build",
        ModelRef("mock", "m"),
        "/work",
        (TextPiece("prt_1", is_thought=True, ordinal=0, created_ms=2),),
    )
    entries: list[Entry] = [NoteEntry("msg_1", 1, "text", metadata={"a": [1]}), step, EndEntry("msg_3", 3, "succeeded")]
    assert ENTRIES.unpack(ENTRIES.pack([ENTRIES.encode(entry) for entry in entries])) == entries


def test_another_field_anywhere_below_is_another_shape() -> None:
    def tree_of(leaf: type[Any]) -> type[Any]:
        @dataclass
        class Top:
            leaves: tuple[leaf, ...]  # pyright: ignore[reportInvalidTypeForm]

        Top.__annotations__["leaves"] = tuple[leaf, ...]
        return Top

    @dataclass
    class OtherLeaf:
        name: str
        weight: float
        color: str

    OtherLeaf.__name__ = "Leaf"
    assert shape_of(tree_of(Leaf)) == shape_of(tree_of(Leaf))
    assert shape_of(tree_of(Leaf)) != shape_of(tree_of(OtherLeaf))
    assert len({shape_of(Leaf), shape_of(Berry), shape_of(Tree), shape_of(Session)}) == 4


def test_a_class_that_is_moved_keeps_its_shape() -> None:
    def holder_in(module: str) -> type[Any]:
        leaf = make_dataclass("Leaf", [("name", str)])
        leaf.__module__ = module
        return make_dataclass("Holder", [("leaves", tuple[leaf, ...])])

    assert shape_of(holder_in("orchard.apples")) == shape_of(holder_in("garden.pears"))


def test_a_long_text_is_compressed() -> None:
    texts = [json.dumps("word " * 1000)] * 3
    assert len(MESSAGES.pack(texts)) < sum(map(len, texts)) / 20
