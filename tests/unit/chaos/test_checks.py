"""The checks of a chaos run find every planted violation, and nothing in a run that kept all promises."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tools.chaos.checks import CHECKS, violations_of
from tools.chaos.evidence import (
    AgentProcess,
    Event,
    EventDigest,
    Evidence,
    FollowerRecord,
    JournalMessage,
    Message,
    Prompt,
    SessionReading,
    Sign,
    StreamRecord,
    Token,
)
from tools.chaos.screens import Screen, SessionScreen

SESSION = "ses_1"
NODES = ("node1", "node2")
BUSY, IDLE = Token(Sign.BUSY), Token(Sign.IDLE)


def sight(number: int) -> Token:
    return Token(Sign.PROMPT, f"msg_{number}")


def event(sequence: int, type_: str, **data: object) -> Event:
    return Event(sequence, f"evt_{sequence}", type_, data)


def user(sequence: int, number: int) -> Event:
    item = {"item_id": f"itm_{number}", "role": "user", "metadata": {"opencode": {"message_id": f"msg_{number}"}}}
    return event(sequence, "item.completed", item=item)


def dispatch(sequence: int, number: int, *carried: str) -> Event:
    metadata = {"state": "handed", "item_id": f"itm_{number}", "carried": list(carried)}
    return event(sequence, "item.completed", item={"item_id": f"itm_s{sequence}", "metadata": metadata})


def end(sequence: int, reason: str) -> Event:
    return event(sequence, "turn.ended", metadata={"reason": reason})


EVENTS = [
    *(user(1, 1), event(2, "turn.started"), dispatch(3, 1), end(4, "completed")),
    *(user(5, 2), event(6, "turn.started"), dispatch(7, 2), end(8, "agent_exited")),
    *(user(9, 3), event(10, "turn.started"), dispatch(11, 3), end(12, "completed")),
]
"""Three turns: the second one ended when its server was lost."""
MESSAGES = [
    Message("msg_1", "user"),
    Message("msg_a1", "assistant", "msg_1", is_over=True),
    Message("msg_2", "user"),
    Message("msg_3", "user"),
    Message("msg_a3", "assistant", "msg_3", is_over=True, parts={"prt_3": "three"}),
]
WHOLE = [sight(1), BUSY, IDLE, sight(2), BUSY, sight(2), IDLE, sight(3), BUSY, IDLE, sight(3)]


def screen() -> Screen:
    """What a client shows that has seen all of it."""
    parts = {"prt_3": ("msg_a3", "three")}
    return Screen({SESSION: SessionScreen({message.id for message in MESSAGES}, parts)})


def on_screen(evidence: Evidence) -> SessionScreen:
    return evidence.streams[0].screen.sessions[SESSION]


def batch(number: int, owner: str, epoch: int, first: int, last: int) -> JournalMessage:
    return JournalMessage(number, owner, epoch, first, last, events=[(n, f"evt_{n}") for n in range(first, last + 1)])


JOURNAL = [batch(1, "a", 1, 1, 4), batch(2, "a", 1, 5, 7), batch(5, "b", 2, 8, 7), batch(6, "b", 2, 8, 12)]


def kept_promises() -> Evidence:
    """The evidence of a run without a violation: the session went from node1 to node2 in its second turn."""
    reading = SessionReading(SESSION, list(JOURNAL), "b", 2, list(EVENTS), {node: list(MESSAGES) for node in NODES})
    seen = [EventDigest.of(event.sequence, event.id, event.data) for event in EVENTS]
    return Evidence(
        nodes={"node1": "a", "node2": "b"},
        prompts=[Prompt(SESSION, f"msg_{number}", "echo", is_acknowledged=True) for number in (1, 2, 3)],
        streams=[
            StreamRecord("node2 #1", {SESSION: list(WHOLE)}, is_whole=True, screen=screen()),
            StreamRecord("node1 #1", {SESSION: [sight(1), BUSY, IDLE, sight(2), BUSY]}),
            StreamRecord("node1 #2", {SESSION: [BUSY, sight(2), IDLE, sight(3), BUSY, IDLE]}, is_whole=True),
        ],
        followers=[FollowerRecord(SESSION, 2, seen)],
        sessions={SESSION: reading},
        processes=[AgentProcess(7, SESSION, "node2")],
        busy={"node1": [], "node2": []},
        listed={node: {SESSION: ""} for node in NODES},
        dialogs={node: [] for node in NODES},
        deleted=["ses_gone"],
        entries={SESSION},
    )


def tokens(evidence: Evidence, *signs: Token, stream: int = 0) -> None:
    evidence.streams[stream].tokens[SESSION] = list(signs)


def hop(evidence: Evidence, *signs: Token) -> None:
    evidence.streams[1].hops = 1
    tokens(evidence, *signs, stream=1)


def events(evidence: Evidence, *changes: Event) -> None:
    """Replace events of the journal, by their sequences, wherever they are shown."""
    reading = evidence.sessions[SESSION]
    by_sequence = {event.sequence: event for event in changes}
    reading.events = [by_sequence.get(event.sequence, event) for event in reading.events]


def messages(evidence: Evidence, *left: Message) -> None:
    evidence.sessions[SESSION].messages["node2"] = list(left)


def journal(evidence: Evidence, *left: JournalMessage) -> None:
    evidence.sessions[SESSION].journal = list(left)


def alter(evidence: Evidence, change: Callable[[list[EventDigest]], object]) -> None:
    change(evidence.followers[0].events)


PLANTED: dict[str, tuple[str, Callable[[Evidence], object]]] = {
    "an acknowledged prompt is not stored": ("prompts", lambda e: e.prompts.append(Prompt(SESSION, "msg_4", "echo", True))),
    "its session is gone": ("prompts", lambda e: e.prompts.append(Prompt("ses_2", "msg_4", "echo", is_acknowledged=True))),
    "a node does not show a prompt": ("prompts", lambda e: messages(e, *MESSAGES[1:])),
    "a node shows a prompt twice": ("prompts", lambda e: messages(e, MESSAGES[0], *MESSAGES)),
    "a prompt was never handed over": ("prompts", lambda e: events(e, event(11, "item.delta"))),
    "a completed turn has no answer": ("prompts", lambda e: messages(e, *MESSAGES[:-1])),
    "an answer has no end": ("prompts", lambda e: messages(e, *MESSAGES[:-1], replace(MESSAGES[-1], is_over=False))),
    "a turn has no end": ("turns", lambda e: events(e, event(12, "item.delta"))),
    "a turn begins in a turn": ("turns", lambda e: events(e, event(8, "item.delta"))),
    "a turn ends twice": ("turns", lambda e: events(e, event(9, "turn.ended"))),
    "a prompt is handed over twice": ("turns", lambda e: events(e, dispatch(9, 2))),
    "a turn has two idles": ("idles", lambda e: tokens(e, *WHOLE[:3], IDLE, *WHOLE[3:])),
    "a turn has two idles on a stream that was cut": ("idles", lambda e: tokens(e, sight(1), IDLE, BUSY, IDLE, stream=1)),
    "a turn has no idle": ("idles", lambda e: tokens(e, *WHOLE[:6], *WHOLE[7:])),
    "a turn is missing": ("idles", lambda e: tokens(e, *WHOLE[:3], *WHOLE[7:])),
    "the last turn is missing": ("idles", lambda e: tokens(e, *WHOLE[:7])),
    "a turn comes again": ("idles", lambda e: tokens(e, *WHOLE[7:], *WHOLE[:7])),
    "a stream ends as busy": ("idles", lambda e: tokens(e, *WHOLE, BUSY)),
    "a turn that was never stored has two idles": ("idles", lambda e: tokens(e, *WHOLE, sight(9), IDLE, IDLE)),
    "a journal has a gap": ("journals", lambda e: journal(e, JOURNAL[0], batch(2, "a", 1, 6, 7), *JOURNAL[2:])),
    "a journal has a fork": ("journals", lambda e: journal(e, *JOURNAL, batch(7, "b", 2, 12, 12))),
    "an owner before writes": ("journals", lambda e: journal(e, *JOURNAL, batch(7, "a", 1, 13, 13))),
    "two claims have one epoch": ("journals", lambda e: journal(e, *JOURNAL, batch(7, "c", 2, 13, 12))),
    "another server is noted as owner": ("journals", lambda e: setattr(e.sessions[SESSION], "owner", "a")),
    "a node shows fewer events": ("journals", lambda e: setattr(e.sessions[SESSION], "events", EVENTS[:-1])),
    "nodes show other messages": ("agreement", lambda e: messages(e, *MESSAGES[:-1], replace(MESSAGES[-1], text="more"))),
    "an agent has lost its server": ("processes", lambda e: e.processes.append(AgentProcess(8, "", ""))),
    "an agent runs elsewhere": ("processes", lambda e: setattr(e, "processes", [AgentProcess(8, SESSION, "node1")])),
    "a session has two agents": ("processes", lambda e: e.processes.append(AgentProcess(8, SESSION, "node2"))),
    "an event comes twice": ("followers", lambda e: alter(e, lambda found: found.insert(3, found[2]))),
    "an event is missing": ("followers", lambda e: alter(e, lambda found: found.pop(3))),
    "an event has another content": ("followers", lambda e: alter(e, lambda f: f.__setitem__(3, replace(f[3], digest="x")))),
    "the end is missing": ("followers", lambda e: alter(e, lambda found: found.pop())),
    "a hopping client gets an event twice": ("hoppers", lambda e: e.streams[1].doubles.append("evt_1")),
    "a hopping client sees two idles": ("idles", lambda e: hop(e, *WHOLE[:3], IDLE)),
    "a message was never stored": ("screens", lambda e: on_screen(e).messages.add("msg_9")),
    "a part was never stored": ("screens", lambda e: on_screen(e).parts.update(prt_9=("msg_a3", ""))),
    "a piece of text came twice": ("screens", lambda e: on_screen(e).parts.update(prt_3=("msg_a3", "threeee"))),
    "a dialog stays": ("screens", lambda e: on_screen(e).dialogs.add("per_1")),
    "a deleted session is shown again": ("screens", lambda e: setattr(on_screen(e), "is_back", True)),
    "a deleted session is listed": ("lists", lambda e: e.deleted.append(SESSION)),
    "a deleted session is in NATS": ("lists", lambda e: e.entries.add("ses_gone")),
    "one node lists a session": ("lists", lambda e: e.listed["node1"].update(ses_2="")),
    "a subagent is left of a deleted session": ("lists", lambda e: [one.update(ses_2="ses_gone") for one in e.listed.values()]),
    "a node lists a dialog": ("lists", lambda e: e.dialogs["node1"].append("per_1 of ses_1")),
    "a session is busy": ("rest", lambda e: e.busy["node1"].append(SESSION)),
    "an answer is an error": ("answers", lambda e: e.answers.append("500")),
    "a log reports a bug": ("logs", lambda e: e.faults.append("Traceback")),
}


def test_a_run_that_kept_all_promises_has_no_violations() -> None:
    assert violations_of(kept_promises()) == []


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_violation_is_found(name: str) -> None:
    check, plant = PLANTED[name]
    evidence = kept_promises()
    plant(evidence)
    assert check in {violation.check for violation in violations_of(evidence)}


def test_every_check_has_a_planted_violation() -> None:
    assert {f"check_{check}" for check, _ in PLANTED.values()} == {check.__name__ for check in CHECKS}


def test_a_prompt_that_goes_along_with_the_next_one_counts_as_answered() -> None:
    evidence = kept_promises()
    events(evidence, event(7, "item.delta"), dispatch(11, 3, "msg_1", "msg_2"))
    evidence.followers.clear()
    assert violations_of(evidence) == []


def test_the_end_of_a_turn_that_was_never_stored_is_not_that_of_the_turn_that_took_its_prompt_along() -> None:
    evidence = kept_promises()
    events(evidence, event(6, "item.delta"), event(7, "item.delta"), event(8, "item.delta"), dispatch(11, 3, "msg_2"))
    evidence.followers.clear()
    assert violations_of(evidence) == []
    tokens(evidence, *WHOLE[:7], IDLE, *WHOLE[7:])
    assert {violation.check for violation in violations_of(evidence)} == {"idles"}


def test_a_turn_of_a_server_that_was_cut_off_may_come_before_the_stored_one_of_a_prompt_that_was_sent_again() -> None:
    evidence = kept_promises()
    twice = (sight(1), BUSY, IDLE, sight(1), BUSY, IDLE, *WHOLE[3:])
    tokens(evidence, *twice)
    assert {violation.check for violation in violations_of(evidence)} == {"idles"}
    evidence.prompts[0].is_repeated = True
    assert violations_of(evidence) == []
    tokens(evidence, *twice[:6], IDLE, *WHOLE[3:])
    assert {violation.check for violation in violations_of(evidence)} == {"idles"}


def test_a_busy_before_the_prompt_of_its_turn_is_no_second_turn_of_a_repeated_prompt() -> None:
    evidence = kept_promises()
    evidence.prompts[0].is_repeated = True
    tokens(evidence, *WHOLE[:3], BUSY, *WHOLE[3:])
    assert violations_of(evidence) == []


def test_a_hopping_client_misses_no_turn_unless_it_must_read_the_state_again() -> None:
    evidence = kept_promises()
    hop(evidence, *WHOLE[:3], *WHOLE[7:])
    assert {violation.check for violation in violations_of(evidence)} == {"idles"}
    hop(evidence, *WHOLE[:3])
    evidence.streams.append(StreamRecord("node1 #3", {SESSION: list(WHOLE[7:])}, hops=1, is_whole=True))
    assert violations_of(evidence) == []


def test_a_prompt_that_was_not_acknowledged_may_be_gone() -> None:
    evidence = kept_promises()
    evidence.prompts.append(Prompt(SESSION, "msg_4", "echo"))
    assert violations_of(evidence) == []


def test_a_violation_names_its_check_its_session_and_what_was_seen() -> None:
    evidence = kept_promises()
    evidence.busy["node1"].append(SESSION)
    assert list(map(str, violations_of(evidence))) == ["rest: ses_1 is busy at node1"]


def test_the_last_turns_of_a_stream_that_ended_may_be_void() -> None:
    """Its server was cut off, and took one more prompt in the turn that another one had ended meanwhile."""
    evidence = kept_promises()
    tokens(evidence, sight(1), BUSY, IDLE, sight(2), BUSY, sight(3), stream=1)
    assert violations_of(evidence) == []
    tokens(evidence, sight(1), BUSY, IDLE, sight(3), BUSY, stream=1)  # the second turn ran at another one meanwhile
    assert violations_of(evidence) == []
    tokens(evidence, sight(1), BUSY, IDLE, sight(3), BUSY, IDLE, stream=1)
    assert [str(violation) for violation in violations_of(evidence)] == ["idles: ses_1 on node1 #1: the turn of 6 is missing"]
    tokens(evidence, sight(1), BUSY, IDLE, sight(2), BUSY, sight(3), IDLE, sight(9), IDLE, stream=1)
    assert {violation.check for violation in violations_of(evidence)} == {"idles"}
