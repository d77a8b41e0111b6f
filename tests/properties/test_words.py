"""What an agent tells the person reaches every face: each item of kind `system` or `status` with words has a form.

Source: universal/session/reducer.py. The recordings of all agents, and generated items, in a turn and between two.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable

from hypothesis import given, settings
from hypothesis import strategies as st

from shim.faces.opencode1.events import render as render1
from shim.faces.opencode2.events import render as render2
from tests.conftest import LAW_EXAMPLES
from universal.codec import Fact
from universal.events import EventType, ItemData, SessionStartedData, Source, TurnData, UniversalEvent
from universal.items import Item, ItemKind, ItemStatus, StatusPart, TextPart
from universal.session.reducer import QUIET_STATUSES, Reducer

FORMS = {"retry", "todo", "mcp", "compaction", "session", "mode", "moved", "project", "prompt", "command", "message.removed",
         "retracted", "part.removed", "part.updated", "child", "snapshot", "revert", "notice", "limits", "title",
         "structured"}  # fmt: skip
"""Labels with a form of their own, which their own tests hold (a status, a list, a message)."""
WORDS = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), min_size=1, max_size=40)


def event(number: int, type_: EventType, data: object) -> UniversalEvent:
    return UniversalEvent(
        event_id=f"evt_{number}", sequence=number, time="2026-01-01T00:00:00Z", session_id="ses_1", source=Source.AGENT,
        type=type_, data=data, synthetic=False,
    )  # type: ignore[call-arg]  # fmt: skip


def is_shown(item: Item, *, in_turn: bool) -> bool:
    """Whether both faces of OpenCode have the words of an item, in the events that it makes."""
    reducer, numbers = Reducer("ses_1", "claude"), itertools.count(1)
    reducer.apply(event(next(numbers), EventType.SESSION_STARTED, SessionStartedData(metadata={"directory": "/p"})), 1)
    if in_turn:
        reducer.apply(event(next(numbers), EventType.TURN_STARTED, TurnData(phase="started", turn_id="t")), 2)
    changes = reducer.apply(event(next(numbers), EventType.ITEM_COMPLETED, ItemData(item=item)), 3)
    first = json.dumps([e.properties for e in render1(changes, reducer.session, 3)], ensure_ascii=False)
    second = json.dumps([e.data for e in render2(changes, reducer.session, 3, lambda: "evt_x")], ensure_ascii=False, default=str)
    words = json.dumps(words_of(item), ensure_ascii=False)[1:-1]
    return words in first and words in second


def words_of(item: Item) -> str:
    """The words of a note or a status."""
    texts = [
        part.detail if isinstance(part, StatusPart) else part.text
        for part in item.content
        if isinstance(part, (StatusPart, TextPart))
    ]
    return "\n".join(filter(None, texts))


def label_of(item: Item) -> str:
    """The label of a status, "" for a note."""
    return next((part.label for part in item.content if isinstance(part, StatusPart)), "")


def needs_form(item: Item) -> bool:
    """Whether a person must be shown these words by themselves."""
    is_ours = item.kind is ItemKind.SYSTEM or (
        item.kind is ItemKind.STATUS and label_of(item) not in FORMS | QUIET_STATUSES.keys()
    )
    return is_ours and bool(words_of(item))


def hidden_items(facts: Iterable[Fact]) -> list[Item]:
    """Of these facts, the items with words for a person that a face does not show (`translate/test_recorded`)."""
    spoken = [fact.data.item for fact in facts if fact.type is EventType.ITEM_COMPLETED and needs_form(fact.data.item)]
    return [item for item in spoken if not (is_shown(item, in_turn=True) and is_shown(item, in_turn=False))]


def test_the_labels_with_a_form_are_those_of_the_reducer() -> None:
    assert Reducer._STATUSES.keys() == FORMS
    assert not FORMS & QUIET_STATUSES.keys()


LABELS = st.one_of(st.none(), st.text(max_size=12), st.sampled_from(["model", "conversation_lost", "unattended", "notice"]))


@given(LABELS, WORDS, st.booleans())
@settings(max_examples=LAW_EXAMPLES, deadline=None)
def test_words_of_any_note_or_status_reach_both_faces(label: str | None, words: str, in_turn: bool) -> None:
    part = TextPart(text=words) if label is None else StatusPart(label=label, detail=words)
    kind = ItemKind.SYSTEM if label is None else ItemKind.STATUS
    item = Item(item_id="i", kind=kind, status=ItemStatus.COMPLETED, content=(part,))
    if needs_form(item) or label == "notice":
        assert is_shown(item, in_turn=in_turn)
