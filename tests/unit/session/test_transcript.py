"""Calls whose id the model server uses again: each has its card, its output and its permission. Plans: each is shown once.

Answers stand below a prompt that exists, and each prompt that fails has its error.
"""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from universal.events import (
    ErrorData,
    EventType,
    ItemData,
    PermissionData,
    QuestionData,
    SessionStartedData,
    Source,
    TurnData,
    UniversalEvent,
)
from universal.items import Item, ItemKind, ItemRole, ItemStatus, StatusPart, TextPart, ToolCallPart, ToolResultPart
from universal.session.reducer import Reducer
from universal.session.transcript import NO_RESULT
from universal.session.values import StepInfo, Text, ToolCall


class Story:
    """One session, whose events are written here."""

    def __init__(self, agent: str = "codex") -> None:
        self.reducer = Reducer("ses_1", agent)
        self._numbers = itertools.count(1)
        self.events: list[UniversalEvent] = []
        self.write(EventType.SESSION_STARTED, SessionStartedData(metadata={"directory": "/p", "agent": agent}))

    def write(self, type_: EventType, data: Any) -> None:
        number = next(self._numbers)
        event = UniversalEvent(event_id=f"evt_{number}", sequence=number, time="2026-01-01T00:00:00Z", session_id="ses_1",
                               source=Source.AGENT, type=type_, data=data, synthetic=False)  # fmt: skip
        self.events.append(event)
        self.reducer.apply(event, number)

    def turn(self, *, phase: str) -> None:
        type_ = EventType.TURN_STARTED if phase == "started" else EventType.TURN_ENDED
        self.write(type_, TurnData(phase=phase, turn_id="t", metadata={}))  # type: ignore[arg-type]

    def call(self, native_id: str, item_id: str, command: str) -> None:
        arguments = f'{{"command": "{command}"}}'
        for type_, status in ((EventType.ITEM_STARTED, ItemStatus.IN_PROGRESS), (EventType.ITEM_COMPLETED, ItemStatus.COMPLETED)):
            part = ToolCallPart(name="shell", arguments=arguments, call_id=native_id)
            item = Item(item_id=item_id, kind=ItemKind.TOOL_CALL, status=status, content=(part,))
            self.write(type_, ItemData(item=item))

    def result(self, native_id: str, item_id: str, output: str) -> None:
        part = ToolResultPart(call_id=native_id, output=output)
        item = Item(item_id=item_id, kind=ItemKind.TOOL_RESULT, status=ItemStatus.COMPLETED, content=(part,))
        self.write(EventType.ITEM_COMPLETED, ItemData(item=item))

    def ask(self, native_id: str, permission_id: str) -> None:
        data = PermissionData(permission_id=permission_id, action="bash", status="requested", metadata={"call_id": native_id})
        self.write(EventType.PERMISSION_REQUESTED, data)

    def calls(self) -> list[ToolCall]:
        messages = self.reducer.session.messages.values()
        return [part for message in messages for part in message.parts.values() if isinstance(part, ToolCall)]


@pytest.mark.parametrize("turns", [1, 2])
def test_each_call_with_the_same_native_id_has_its_card_and_output(turns: int) -> None:
    story, numbers = Story(), itertools.count(1)
    for _ in range(turns):
        story.turn(phase="started")
        for _ in range(2):
            number = next(numbers)
            story.call("call_0", f"call_item_{number}", f"echo {number}")
            story.result("call_0", f"result_{number}", f"out {number}")
        story.turn(phase="ended")
    outputs = [f"out {number}" for number in range(1, 2 * turns + 1)]
    calls = story.calls()
    assert [call.output for call in calls] == outputs
    assert len({call.call_id for call in calls}) == len(calls), "ids are unique for the clients"
    assert calls[0].call_id == "call_0", "an id that is used once stays as it is"
    rebuilt = Reducer("ses_1", "codex")
    for number, event in enumerate(story.events, 1):
        rebuilt.load(event, number)
    assert rebuilt.session.calls == story.reducer.session.calls


def test_a_permission_points_to_the_newest_call_and_never_to_one_that_is_over() -> None:
    story = Story()
    story.turn(phase="started")
    story.call("call_0", "one", "echo 1")
    story.result("call_0", "result_1", "out 1")
    story.ask("call_0", "per_early")
    story.call("call_0", "two", "echo 2")
    story.ask("call_0", "per_2")
    asked = story.reducer.session.permissions
    assert asked["per_early"].call is None
    assert asked["per_2"].call is not None
    assert asked["per_2"].call.call_id == story.calls()[1].call_id != "call_0"


def test_a_repeated_id_ends_a_call_that_is_still_open() -> None:
    story = Story()
    story.turn(phase="started")
    story.call("call_0", "one", "echo 1")
    story.call("call_0", "two", "echo 2")
    story.result("call_0", "result", "out 2")
    first, second = story.calls()
    assert (first.status, first.error) == ("error", NO_RESULT)
    assert (second.status, second.output) == ("completed", "out 2")


PLAN = "# Plan\n1. Read.\n2. Write.\n"


def plan_call(story: Story, arguments: str) -> None:
    part = ToolCallPart(name="ExitPlanMode", arguments=arguments, call_id="c")
    item = Item(item_id="call", kind=ItemKind.TOOL_CALL, status=ItemStatus.COMPLETED, content=(part,))
    story.write(EventType.ITEM_COMPLETED, ItemData(item=item))


def says(story: Story, words: str) -> None:
    content = (TextPart(text=words),)
    item = Item(item_id="said", kind=ItemKind.MESSAGE, role=ItemRole.ASSISTANT, status=ItemStatus.COMPLETED, content=content)
    story.write(EventType.ITEM_COMPLETED, ItemData(item=item))


def asks(story: Story) -> None:
    metadata = {"call_id": "c", "plan": PLAN}
    data = QuestionData(question_id="q", prompt="Proceed?", options=("Yes", "No"), status="requested", metadata=metadata)
    story.write(EventType.QUESTION_REQUESTED, data)


PLANS = {
    "of its call": lambda story: plan_call(story, f'{{"plan": {json.dumps(PLAN)}}}'),
    "of its question": lambda story: plan_call(story, "{}"),
    "said by the agent before": lambda story: (says(story, PLAN), plan_call(story, "{}")),
    "said, and of its call": lambda story: (says(story, PLAN), plan_call(story, f'{{"plan": {json.dumps(PLAN)}}}')),
    "of a question without a call": lambda story: says(story, "Look."),
}


@pytest.mark.parametrize("place", PLANS)
def test_a_plan_is_a_text_once_and_its_question_is_short(place: str) -> None:
    story = Story("claude")
    story.turn(phase="started")
    PLANS[place](story)
    asks(story)
    session = story.reducer.session
    texts = [part.text for message in session.messages.values() for part in message.parts.values() if isinstance(part, Text)]
    assert [text for text in texts if "1. Read." in text] == [PLAN]
    assert [question.question for question in session.questions["q"].questions] == ["Proceed?"]
    assert all("plan" not in call.input for call in story.calls())


def test_a_plan_that_no_message_can_show_stands_in_its_question() -> None:
    story = Story("claude")
    story.turn(phase="started")
    asks(story)
    assert story.reducer.session.questions["q"].questions[0].question == f"{PLAN}\nProceed?"


def prompt(story: Story, words: str) -> str:
    """Dispatch a prompt in a new turn; the id of its message."""
    item = Item(
        item_id="prompt", kind=ItemKind.MESSAGE, role=ItemRole.USER, status=ItemStatus.COMPLETED, content=(TextPart(text=words),)
    )
    story.write(EventType.ITEM_COMPLETED, ItemData(item=item))
    story.turn(phase="started")
    status(story, "prompt", state="handed", item_id="prompt", agent="codex")
    return story.reducer.transcript.prompt_of_item["prompt"]


def status(story: Story, label: str, **metadata: Any) -> None:
    part = StatusPart(label=label, detail=metadata.pop("detail", None))
    item = Item(item_id=label, kind=ItemKind.STATUS, status=ItemStatus.COMPLETED, content=(part,), metadata=metadata)
    story.write(EventType.ITEM_COMPLETED, ItemData(item=item))


@pytest.mark.parametrize(("words", "is_asked"), [("Go on.", False), ("/compact", True)])
def test_a_prompt_whose_compaction_has_failed_has_its_own_error(words: str, is_asked: bool) -> None:
    story = Story()
    asked = prompt(story, words)
    status(story, "compaction", phase="started")
    status(story, "compaction", phase="failed", detail="It cannot be compacted.")
    story.write(EventType.ERROR, ErrorData(message="The prompt is too long."))
    story.turn(phase="ended")
    infos = [message.info for message in story.reducer.session.messages.values()]
    errors = [(info.parent_id == asked, info.error.message) for info in infos if isinstance(info, StepInfo) and info.error]
    own = [] if is_asked else [(True, "The prompt is too long.")]
    assert errors == [(is_asked, "It cannot be compacted."), *own]


def test_an_answer_to_no_prompt_stands_below_one_that_says_so() -> None:
    story = Story()
    story.turn(phase="started")
    story.call("call_0", "one", "echo 1")
    story.result("call_0", "result", "out 1")
    message = Item(item_id="text", kind=ItemKind.MESSAGE, role=ItemRole.ASSISTANT, status=ItemStatus.COMPLETED,
                   content=(TextPart(text="Done."),))  # fmt: skip
    story.write(EventType.ITEM_COMPLETED, ItemData(item=message))
    story.turn(phase="ended")
    messages = list(story.reducer.session.messages.values())
    assert [message.is_user for message in messages] == [True, False, False]
    assert {info.parent_id for message in messages if isinstance(info := message.info, StepInfo)} == {messages[0].info.id}
    (part,) = messages[0].parts.values()
    assert isinstance(part, Text)
    assert part.synthetic, "clients show the answers, and not this text"
