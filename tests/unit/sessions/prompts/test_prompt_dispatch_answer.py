"""Answers with nothing in them, for all agents alike."""

from __future__ import annotations

import pytest

from shim.sessions.prompts.prompt_dispatch import NO_ANSWER, NOTE_COUNT, Answer
from tests.support.scripted_model import World, ask
from universal.agents import kit
from universal.codec import Fact, Signal
from universal.events import ErrorData, EventType, ItemData, ItemDeltaData, PermissionData, TurnData
from universal.items import ImagePart, Item, ItemKind, ItemStatus, ReasoningPart, TextPart, ToolCallPart
from universal.turn import Input

CONTEXT = kit.Context("one", lambda kind: f"{kind}_1")


def whole_item(kind: ItemKind, *content: object) -> Fact:
    item = Item(item_id="i", kind=kind, status=ItemStatus.COMPLETED, content=content)  # type: ignore[arg-type]
    return Fact(EventType.ITEM_COMPLETED, ItemData(item=item))


def delta(kind: str) -> Fact:
    data = ItemDeltaData(item_id="i", delta="x", part_index=0, part_type=kind)  # type: ignore[arg-type]
    return Fact(EventType.ITEM_DELTA, data)


SOMETHING = {
    "a piece of text": delta("text"),
    "a piece of a call": delta("tool_input"),
    "a piece of output": delta("tool_output"),
    "a whole text": whole_item(ItemKind.MESSAGE, TextPart(text="hi")),
    "an image": whole_item(ItemKind.MESSAGE, ImagePart(path="a.png")),
    "a call": whole_item(ItemKind.TOOL_CALL, ToolCallPart(name="bash", arguments="{}", call_id="c")),
    "an error": Fact(EventType.ERROR, ErrorData(message="no", code="x")),
    "a request": Fact(EventType.PERMISSION_REQUESTED, PermissionData(permission_id="p", action="bash", status="requested")),
    "a subagent": delta("reasoning")._replace(child="c"),
    "a compaction": CONTEXT.status("compaction", "done", {"phase": "completed"}, None),
    "a list of todos": CONTEXT.status("todo", "1 todo", {"todos": []}, None),
}
NOTHING = {
    "a thought": delta("reasoning"),
    "a whole thought": whole_item(ItemKind.MESSAGE, ReasoningPart(text="hm")),
    "a message without a word": whole_item(ItemKind.MESSAGE),
    "an empty text": whole_item(ItemKind.MESSAGE, TextPart(text="")),
    "a mode": CONTEXT.status("mode", "plan", {"mode": "plan"}, None),
    "a retry": CONTEXT.status("retry", "again", {"attempt": 1}, None),
    "a turn": Fact(EventType.TURN_STARTED, TurnData(phase="started", turn_id="t")),
}


@pytest.mark.parametrize("what", SOMETHING)
def test_an_answer_with_something_in_it_has_no_error(what: str) -> None:
    answer = Answer()
    answer.note([SOMETHING[what]])
    assert answer.error("One") is None


@pytest.mark.parametrize("what", NOTHING)
def test_an_answer_with_nothing_in_it_has_an_error(what: str) -> None:
    answer = Answer()
    answer.note([NOTHING[what]])
    error = answer.error("One")
    assert error is not None
    assert (error.message, error.code) == ("One ended the turn without an answer.", NO_ANSWER)


def test_the_words_of_notes_are_the_error() -> None:
    answer = Answer()
    answer.note([CONTEXT.note("A hook has blocked the prompt.", None), CONTEXT.status("notice", "No key.", {}, None)])
    answer.note([CONTEXT.note("more", None)] * NOTE_COUNT)
    error = answer.error("One")
    assert error is not None
    assert error.message.split("\n") == ["A hook has blocked the prompt.", "No key.", *["more"] * (NOTE_COUNT - 2)]


async def test_a_turn_that_ends_without_a_word_has_failed(w: World) -> None:
    session = w.session()
    await ask(w, session)
    w.agent.end_turn()
    fold = w.hub.folds[session]
    assert fold.idles == 1
    assert [error["data"]["message"].split("\n")[0] for error in fold.errors] == ["one ended the turn without an answer."]
    await ask(w, session, "and now?")
    w.agent.text("here")
    w.agent.end_turn()
    assert (fold.idles, len(fold.errors)) == (2, 1)


async def test_a_note_that_ends_a_turn_is_its_error(w: World) -> None:
    session = w.session()
    await ask(w, session)
    w.agent.says(CONTEXT.note("Blocked by hook: no secrets", None))
    w.agent.end_turn()
    assert [error["data"]["message"] for error in w.hub.folds[session].errors] == ["Blocked by hook: no secrets"]


@pytest.mark.parametrize("text", ["/clear", "  /compact now", "!ls", "#remember"])
async def test_commands_of_the_agent_may_end_without_a_word(w: World, text: str) -> None:
    session = w.session()
    await ask(w, session, text)
    w.agent.end_turn()
    assert (w.hub.folds[session].idles, w.hub.folds[session].errors) == (1, [])


async def test_work_that_the_agent_began_itself_may_end_without_a_word(w: World) -> None:
    session = w.session()
    await ask(w, session)
    w.agent.text("done")
    w.agent.end_turn()
    w.agent.says(Signal(Input.ACTIVITY))
    w.agent.end_turn()
    assert (w.hub.folds[session].idles, w.hub.folds[session].errors) == (2, [])


async def test_an_aborted_turn_may_end_without_a_word(w: World) -> None:
    session = w.session()
    await ask(w, session)
    (await w.manager.actor(session)).abort()
    w.agent.end_turn()
    assert [error["name"] for error in w.hub.folds[session].errors] == ["MessageAbortedError"]
