"""What agents are told of an undo, and where one that can takes its conversation up."""

from __future__ import annotations

from typing import Any

from shim.sessions.undo.undo_plan import UndoNotes, anchor_in
from universal.events import EventType, Source, TurnData, UniversalEvent
from universal.session.messages import Message
from universal.session.model import Session
from universal.session.values import ModelRef, SessionRecord, StepInfo, Text, UserInfo


def conversation(*prompts: str, known: str = "pi") -> Session:
    made = Session(SessionRecord("ses_1", directory="/p"), "pi")
    for number, prompt in enumerate(prompts):
        part = Text(f"prt_{number}", prompt)
        info = UserInfo(f"msg_{number}", number, "build", ModelRef("pi", "default"))
        made.messages[info.id] = Message(info, {part.id: part}, {known})
    return made


def turn_end(second: int, anchor: Any = None) -> UniversalEvent:
    data = TurnData(phase="ended", turn_id="t", metadata={"anchor": anchor} if anchor else {})
    return UniversalEvent(
        event_id="e", sequence=1, time=f"1970-01-01T00:00:0{second}.000Z", session_id="s", source=Source.DAEMON,
        synthetic=True, type=EventType.TURN_ENDED, data=data,
    )  # fmt: skip


def test_an_agent_gets_each_known_setting_once() -> None:
    notes = UndoNotes()
    notes.add(conversation("one", "two", "three"), ["msg_1", "msg_2"], whole=True, leave_out=frozenset())
    assert notes.note("codex") == ""
    said = notes.note("pi")
    assert 'the last 2 prompts, from "two" on' in said
    assert notes.note("pi") == ""


def test_an_agent_that_forgets_by_itself_gets_no_notice() -> None:
    notes = UndoNotes()
    notes.add(conversation("one"), ["msg_0"], whole=True, leave_out=frozenset({"pi"}))
    assert notes.note("pi") == ""


def test_a_part_of_an_answer_names_its_prompt() -> None:
    notes = UndoNotes()
    talk = conversation("one")
    info = StepInfo("msg_1", "msg_0", 1, "build", ModelRef("pi", "default"), "/p", "/p")
    talk.messages["msg_1"] = Message(info, {}, {"pi"})
    notes.add(talk, ["msg_1"], whole=False, leave_out=frozenset())
    assert 'a part of your answer to "one"' in notes.note("pi")


def test_an_agent_learns_whether_its_files_were_restored() -> None:
    notes = UndoNotes()
    notes.add(conversation("one"), ["msg_0"], whole=True, leave_out=frozenset())
    assert "are what they were before" in notes.note("pi")
    notes.add(conversation("one"), ["msg_0"], whole=True, files=False, leave_out=frozenset())
    said = notes.note("pi")
    assert "were not put back" in said
    assert "are what they were before" not in said


def test_the_last_answer_of_this_agent_that_stays() -> None:
    mine, other = {"agent": "claude", "id": "u1"}, {"agent": "codex", "id": "t1"}
    assert anchor_in([turn_end(1, mine), turn_end(2, other), turn_end(3)], "claude") == ("u1", 1000)
    assert anchor_in([turn_end(2, other)], "claude") == ("", 0)
