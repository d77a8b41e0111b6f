"""One conversation, two faces: whatever agents say, in whatever order, clients of OpenCode 1 and 2 believe the same.

For any history: folding the first stream, folding the second one, and reading either give the same; one start, one end, nothing
after it; a projection that is built from the journal says the same as the one that lived, with the same ids and numbers.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from shim.faces.opencode2.dialects import DIALECTS, PREVIEW
from tests.conftest import LAW_EXAMPLES
from tests.properties.walk import Walk
from tests.support.opencode1_fold import Fold
from tests.support.opencode2_fold import ENDS, OpenCode2Fold
from tests.support.opencode2_oracle import check_event, check_type
from tests.support.two_faces import opencode1_normal, opencode2_normal, second_of
from universal.session.log import LogEvent, WentIdle
from universal.session.timeline.asides import AsidesWriter
from universal.session.timeline.log_writer import LogWriter
from universal.session.timeline.steps import StepsWriter
from universal.session.timeline.writer import StatusesWriter
from universal.session.values import Reasoning, StepInfo, Text

HISTORY = st.binary(min_size=40, max_size=160)


def compare(history: bytes) -> None:
    """Everything beside everything."""
    story = Walk(history).story
    first, second = Fold(story.id), OpenCode2Fold(story.id)
    for event in story.told_first:
        first.feed(event.type, event.properties)
    for made in story.told:
        second.feed(made)
    second.check(story.now)
    one = opencode1_normal(first.wire())
    assert one == opencode1_normal(m.wire() for m in story.opencode1.messages.values())
    two = opencode2_normal(story.now.messages.values(), story.now.inbox.values())
    assert two == opencode2_normal(second.messages.values(), story.now.inbox.values())
    assert [(key, one[key], two[key]) for key in one if one[key] != two[key]] == []
    assert story.now.is_running == story.opencode1.busy


FAILED_AFTER_COMPACTION = b"\x00\x00vM" + bytes(10) + b"(\x01\x00\x00(\xdf" + bytes(16) + b"p\x00\x00\x00"
"""OpenCode 1 gave the error to the completed compaction, OpenCode 2 to no message."""


@settings(max_examples=LAW_EXAMPLES, deadline=None)
@given(HISTORY)
@example(FAILED_AFTER_COMPACTION)
def test_both_faces_say_the_same(history: bytes) -> None:
    compare(history)


@settings(max_examples=LAW_EXAMPLES // 4, deadline=None)
@given(HISTORY)
def test_a_rebuilt_face_is_the_one_that_lived(history: bytes) -> None:
    story = Walk(history).story
    rebuilt, told = second_of(story.journal, "mock")
    assert told == story.told
    assert rebuilt == story.reducer.session


@settings(max_examples=LAW_EXAMPLES // 4, deadline=None)
@given(HISTORY, st.sampled_from([0, 1, 7]))
def test_ids_ascend_and_everything_is_as_the_wire_has_it(history: bytes, step_ms: int) -> None:
    """Also when the clock stands still: clients compare ids of messages as strings."""
    story = Walk(history, step_ms=step_ms).story
    ids = [event.id for event in story.told]
    assert ids == sorted(ids)
    made_in_order = [id_ for id_, m in story.now.messages.items() if m["type"] not in ("user", "synthetic", "compaction")]
    assert made_in_order == sorted(made_in_order)
    for event in story.told:
        check_event(event.wire())
        for dialect in DIALECTS.values():
            dialect.event(event)
    for message in story.now.messages.values():
        check_type("SessionMessageInfo", message)
        for dialect in DIALECTS.values():
            dialect.message(message)
    check_type("SessionInfo", story.now.info)


@settings(max_examples=LAW_EXAMPLES // 4, deadline=None)
@given(HISTORY)
def test_an_execution_starts_once_and_ends_once(history: bytes) -> None:
    """What else comes while nothing runs is of the session, not of a turn."""
    running = False
    for event in Walk(history).story.told:
        if event.type == "session.execution.started":
            assert not running
            running = True
        elif event.type in ENDS:
            assert running
            running = False
        elif not running:
            assert not event.type.startswith(("session.step.", "session.text.", "session.reasoning.", "session.tool."))
    assert not running


@settings(max_examples=LAW_EXAMPLES // 4, deadline=None)
@given(HISTORY)
def test_idle_fires_once_right_behind_each_end(history: bytes) -> None:
    """On this wire too: one `session.idle` for each end of an execution, and nothing of the turn after it."""
    told = [event.type for event in Walk(history).story.told]
    ends = [place for place, kind in enumerate(told) if kind in ENDS]
    assert [told[place + 1 : place + 3] for place in ends] == [["session.status", "session.idle"]] * len(ends)
    assert told.count("session.idle") == len(ends)


@settings(max_examples=LAW_EXAMPLES // 4, deadline=None)
@given(HISTORY)
def test_the_preview_is_not_sent_idle_and_status(history: bytes) -> None:
    for event in Walk(history).story.told:
        if event.type in ("session.idle", "session.status"):
            assert PREVIEW.event(event) is None


# --- tests of the test ----------------------------------------------------------------------------------------


def _silent(*_: object, **__: object) -> None:
    """Nothing is done."""


def _no_ordinal(self: StepsWriter, message_id: str, part: Text | Reasoning) -> int:
    """Each text is the first one."""
    index = ADD_TEXT(self, message_id, part)
    entry = self.entry(message_id)
    assert entry is not None
    self._replace(entry, index, replace(entry.content[index], ordinal=0))
    return index


def _forgets_the_promise(self: StepsWriter, info: StepInfo, snapshot: str | None, *, since_ms: int | None = None) -> None:
    """A retry's step is never taken up."""
    self._timeline.promised = ""
    BEGIN(self, info, snapshot, since_ms=since_ms)


def _idle_twice(self: LogWriter, event: LogEvent) -> None:
    """Idle is sent once more, as native OpenCode 1 does."""
    for _ in range(1 + isinstance(event, WentIdle)):
        ACCOMPANY(self, event)


ADD_TEXT = StepsWriter._add_text
BEGIN = StepsWriter.begin
ACCOMPANY = LogWriter.accompany
MUTANTS: dict[str, tuple[type, str, Callable[..., Any]]] = {
    "no step fails after its end": (StepsWriter, "_fail_late", _silent),
    "a piece of another text": (StepsWriter, "_add_text", _no_ordinal),
    "a retry's promise is forgotten": (StepsWriter, "begin", _forgets_the_promise),
    "an interrupted retry stays open": (StepsWriter, "give_up", _silent),
    "shell commands do not end": (AsidesWriter, "_end_shell", _silent),
    "an undo leaves everything": (StatusesWriter, "_cut", _silent),
    "no idle at the end": (LogWriter, "accompany", _silent),
    "two idles at the end": (LogWriter, "accompany", _idle_twice),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_bug_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, method, instead = MUTANTS[name]
    monkeypatch.setattr(owner, method, instead)
    drawn = random.Random(1)
    with pytest.raises(AssertionError):
        for _ in range(2000):
            compare(drawn.randbytes(120))
