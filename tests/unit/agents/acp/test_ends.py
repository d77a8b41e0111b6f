"""The end of a turn: its signs, how long more is waited for after each, and updates after it or outside of every turn."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.recordings import Recording, Row, load_all
from tests.support.replay import Replay, codec_of
from tests.unit.agents.acp.test_codec import AGENT, OWN, Talk
from universal.agents import kit
from universal.agents.acp.ends import CALLS_S, END, HISTORY, LATE_S, OWN_CALLS_S, OWN_S, SILENT_S
from universal.codec import Fact, Interrupt, PermissionReply, Prompt, Signal
from universal.events import EventType, ItemData, ItemDeltaData
from universal.items import ItemKind, TextPart
from universal.launch import Exit
from universal.turn import Input

PROMPT = Prompt("p", "hi")
DONE = {"stopReason": "end_turn"}
COST = {"used": 1, "size": 2, "cost": {"amount": 0.5, "currency": "USD"}}


def busy_talk(prompt: Prompt = PROMPT) -> Talk:
    """A prompt is at work, and timers run out when the test says so."""
    talk = Talk(waits=True).ready()
    talk.send(prompt)
    return talk


def idle_talk() -> Talk:
    """A prompt was answered."""
    talk = busy_talk()
    talk.chunk("Well", messageId="1")
    talk.answer("session/prompt", DONE)
    talk.run_out()
    return talk


def call(talk: Talk, status: str, kind: str = "tool_call", **more: Any) -> None:
    talk.update(kind, toolCallId="c", title="ls", kind="execute", status=status, rawInput={"command": "ls"}, **more)


def texts(talk: Talk) -> list[str]:
    facts = [out for out in talk.outputs if isinstance(out, Fact) and out.type is EventType.ITEM_COMPLETED]
    items = [fact.data.item for fact in facts if isinstance(fact.data, ItemData) and fact.data.item.kind is ItemKind.MESSAGE]
    return ["".join(part.text for part in item.content if isinstance(part, TextPart)) for item in items]


def inputs(talk: Talk) -> list[Input]:
    return [name for name, _ in talk.signals()]


# --- the table of `ends` --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said", "answer", "wait_s"),
    [
        ("hi", ["text"], DONE, LATE_S),
        ("hi", ["text", "call"], DONE, CALLS_S),
        ("hi", [], DONE, SILENT_S),
        ("/quiet", [], DONE, LATE_S),
        ("hi", [], {"stopReason": "refusal"}, LATE_S),
        ("hi", [], {"error": {"code": -32603, "message": "no"}}, LATE_S),
        ("hi", ["text", "call", "interrupt"], {"stopReason": "cancelled"}, LATE_S),
    ],
)
def test_the_answer_to_a_prompt_ends_its_turn_after_a_wait(text: str, said: list[str], answer: Any, wait_s: float) -> None:
    talk = busy_talk(Prompt("p", text))
    for step in said:
        if step == "text":
            talk.chunk("Well")
        elif step == "call":
            call(talk, "in_progress")
        else:
            talk.send(Interrupt())
    talk.answer("session/prompt", answer, answer.get("error"))
    assert (talk.timers, inputs(talk)) == ({END: wait_s}, [])
    talk.run_out()
    assert len(inputs(talk)) == 1
    assert talk.codec.on_timer(END) == []


@pytest.mark.parametrize("sign", ["cost", "title", "end"])
@pytest.mark.parametrize(("status", "wait_s", "quiet_s"), [("completed", LATE_S, OWN_S), ("in_progress", CALLS_S, OWN_CALLS_S)])
def test_work_of_the_agents_own_ends_by_a_sign_or_by_silence(sign: str, status: str, wait_s: float, quiet_s: float) -> None:
    talk = idle_talk()
    call(talk, status)
    assert talk.timers == {END: quiet_s}
    if sign == "cost":
        talk.update("usage_update", **COST)
    elif sign == "title":
        talk.update("session_info_update", title="Build")
    else:
        talk.say({"jsonrpc": "2.0", "method": "_qwencode/end_turn", "params": {"sessionId": "s"}})
    assert talk.timers == {END: wait_s}
    talk.run_out()
    assert inputs(talk) == [Input.DONE, Input.ACTIVITY, Input.DONE]


@pytest.mark.parametrize("answered", [True, False])
def test_an_exit_after_the_answer_is_no_failure_of_the_turn(answered: bool) -> None:
    talk = busy_talk()
    talk.chunk("Well")
    if answered:
        talk.answer("session/prompt", DONE)
    talk.take(talk.codec.eof(Exit(1)))
    assert inputs(talk) == ([Input.DONE] if answered else [])
    assert texts(talk) == ["Well"]


# --- late updates ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("ids", [("m1", "m1"), ("", ""), ("m1", "m2")])
@pytest.mark.parametrize("first", ["The answer is ", ""])
def test_text_after_the_answer_is_of_the_turn(first: str, ids: tuple[str, str]) -> None:
    talk = busy_talk()
    if first:
        talk.chunk(first, **({"messageId": ids[0]} if ids[0] else {}))
    talk.answer("session/prompt", DONE)
    talk.chunk("forty-two.", **({"messageId": ids[1]} if ids[1] else {}))
    assert (talk.timers, inputs(talk)) == ({END: LATE_S}, [])
    talk.run_out()
    assert ("".join(texts(talk)), inputs(talk)) == (first + "forty-two.", [Input.DONE])


def test_the_result_of_a_call_after_a_cancel_is_of_the_turn() -> None:
    """codex-acp 2.6.0 sends it 205 ms after the answer."""
    talk = busy_talk()
    call(talk, "in_progress")
    talk.send(Interrupt())
    talk.answer("session/prompt", {"stopReason": "cancelled"})
    content = [{"type": "content", "content": {"type": "text", "text": "half of it"}}]
    call(talk, "failed", "tool_call_update", content=content)
    talk.run_out()
    assert talk.signals() == [(Input.FAILED, True)]
    [result] = [
        out.data.item
        for out in talk.outputs
        if isinstance(out, Fact) and isinstance(out.data, ItemData) and out.data.item.kind is ItemKind.TOOL_RESULT
    ]
    assert "half of it" in str(result.content)


def test_an_interrupt_after_the_answer_ends_the_turn_at_once() -> None:
    talk = busy_talk()
    talk.chunk("Well")
    talk.answer("session/prompt", DONE)
    talk.send(Interrupt())
    assert "session/cancel" not in talk.methods()  # an agent could take it for one of the next prompt
    assert inputs(talk) == [Input.DONE]


def test_a_permission_after_the_answer_holds_the_turn_open() -> None:
    talk = busy_talk()
    talk.chunk("Well")
    talk.answer("session/prompt", DONE)
    options = [{"optionId": "y", "kind": "allow_once"}]
    talk.request(7, "session/request_permission", toolCall={"toolCallId": "c", "kind": "execute"}, options=options)
    assert talk.timers == {}
    talk.send(PermissionReply(talk.last_request().permission_id, "accept"))
    assert (talk.timers, inputs(talk)) == ({END: CALLS_S}, [])
    call(talk, "completed", "tool_call_update")
    talk.run_out()
    assert inputs(talk) == [Input.DONE]


# --- work of the agent's own ----------------------------------------------------------------------------


@pytest.mark.parametrize("native_id", ["1", "2", ""])
def test_text_outside_of_every_turn_is_shown_at_once_in_a_turn_of_its_own(native_id: str) -> None:
    talk = idle_talk()
    talk.chunk("The build has failed.", **({"messageId": native_id} if native_id else {}))
    assert inputs(talk) == [Input.DONE, Input.ACTIVITY]
    deltas = [out.data.delta for out in talk.outputs if isinstance(out, Fact) and isinstance(out.data, ItemDeltaData)]
    assert deltas == ["Well", "The build has failed."]
    call(talk, "completed")
    talk.run_out()
    assert inputs(talk) == [Input.DONE, Input.ACTIVITY, Input.DONE]
    talk.send(Prompt("p2", "next"))
    assert talk.methods()[-1] == "session/prompt"


def test_an_update_without_content_begins_no_turn() -> None:
    talk = idle_talk()
    talk.chunk("")
    talk.update("session_info_update", title="A title")
    talk.update("usage_update", **COST)
    assert (inputs(talk), talk.timers) == ([Input.DONE], {})


def test_a_prompt_that_meets_work_of_the_agents_own_is_written_after_it_and_has_the_only_end() -> None:
    talk = idle_talk()
    talk.chunk("By the way")
    talk.send(Prompt("p2", "next"))
    assert talk.methods().count("session/prompt") == 1
    talk.run_out()
    assert (talk.methods().count("session/prompt"), inputs(talk)) == (2, [Input.DONE, Input.ACTIVITY])
    talk.chunk("Sure")
    talk.answer("session/prompt", DONE)
    talk.run_out()
    assert inputs(talk) == [Input.DONE, Input.ACTIVITY, Input.DONE]
    assert texts(talk) == ["Well", "By the way", "Sure"]


def test_an_interrupt_drops_such_a_prompt() -> None:
    talk = idle_talk()
    talk.chunk("By the way")
    talk.send(Prompt("p2", "next"))
    talk.send(Interrupt())
    assert talk.signals()[2:] == [(Input.FAILED, True)]
    assert talk.methods()[-1] == "session/cancel"
    assert talk.codec.on_timer(END) == []


def test_an_interrupt_of_work_of_the_agents_own_waits_for_its_last_words() -> None:
    talk = idle_talk()
    talk.chunk("By the way")
    talk.send(Interrupt())
    assert talk.methods()[-1] == "session/cancel"
    assert talk.timers == {END: LATE_S}
    talk.chunk(", the build")
    talk.run_out()
    assert talk.signals()[1:] == [(Input.ACTIVITY, False), (Input.FAILED, True)]
    assert texts(talk) == ["Well", "By the way, the build"]


def test_an_exit_during_the_wait_is_the_end_of_work_of_the_agents_own() -> None:
    talk = idle_talk()
    talk.chunk("By the way")
    talk.take(talk.codec.eof(Exit(0)))
    assert inputs(talk) == [Input.DONE, Input.ACTIVITY, Input.DONE]


# --- a history ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [HISTORY, kit.HANDSHAKE])
def test_history_after_the_answer_to_load_is_no_answer_to_the_prompt(key: str) -> None:
    talk = Talk(waits=True).launch(native_session_id="s", resume=True)
    talk.send(PROMPT)
    talk.answer("initialize", AGENT)
    talk.answer("session/load", {})
    talk.chunk("long ago")
    assert talk.timers == {HISTORY: LATE_S, kit.HANDSHAKE: OWN.handshake_s}
    assert "session/prompt" not in talk.methods()
    talk.run_out(key)
    assert talk.methods()[-1] == "session/prompt"
    assert talk.codec.counters() == {"ignored:history": 1}


# --- the law --------------------------------------------------------------------------------------------

IDS = st.sampled_from(["", "a", "b"])
TEXTS = st.sampled_from(["one ", "two ", "API Error: 500"])
UPDATES = st.one_of(
    st.builds(lambda text, id_: ("agent_message_chunk", text, id_), TEXTS, IDS),
    st.builds(lambda text, id_: ("agent_thought_chunk", text, id_), TEXTS, IDS),
    st.builds(lambda status, id_: ("tool_call", status, id_ or "c"), st.sampled_from(["pending", "in_progress"]), IDS),
    st.builds(lambda status, id_: ("tool_call_update", status, id_ or "c"), st.sampled_from(["completed", "failed"]), IDS),
)


def play(updates: list[Any], late: int, reason: str) -> list[Any]:
    """What a session gets from updates of which the last ones come after the answer, but timers."""
    talk = Talk(waits=True).ready(AGENT)
    talk.send(PROMPT)
    for index, (kind, value, id_) in enumerate([*updates, ("", "", "")]):
        if index == len(updates) - late:
            talk.answer("session/prompt", {"stopReason": reason})
        if kind.endswith("chunk"):
            talk.update(kind, content={"type": "text", "text": value}, **({"messageId": id_} if id_ else {}))
        elif kind:
            talk.update(kind, toolCallId=id_, kind="execute", title="ls", status=value, rawInput={"command": "ls"})
    talk.run_out()
    told = [out for out in talk.outputs if isinstance(out, (Fact, Signal))]
    return [(out.type, out.data) if isinstance(out, Fact) else (out.input, out.error) for out in told]


@given(st.lists(UPDATES, max_size=8), st.data(), st.sampled_from(["end_turn", "max_tokens", "refusal", "cancelled"]))
def test_an_answer_before_its_last_updates_gives_the_same_messages(updates: list[Any], data: st.DataObject, reason: str) -> None:
    late = data.draw(st.integers(0, len(updates)))
    assert play(updates, late, reason) == play(updates, 0, reason)


def with_early_answers(recording: Recording, late: int) -> Recording | None:
    """The recording with each answer to a prompt before the updates in front of it, at most `late`. None if nothing changes."""
    rows, prompts, floor = list(recording.rows), set[Any](), 0
    for index, row in enumerate(recording.rows):
        msg = row.msg if isinstance(row.msg, dict) else {}
        if row.direction == "in" and msg.get("method") == "session/prompt":
            prompts.add(msg["id"])
        if row.direction != "out" or "method" in msg or msg.get("id") not in prompts:
            continue
        start = index
        while start > max(floor, index - late) and is_update(rows[start - 1]):
            start -= 1
        rows[start : index + 1] = [row, *(replace(moved, at_s=row.at_s) for moved in rows[start:index])]
        floor = index + 1
    return replace(recording, rows=tuple(rows)) if rows != list(recording.rows) else None


def is_update(row: Row) -> bool:
    return row.direction == "out" and isinstance(row.msg, dict) and row.msg.get("method") == "session/update"


def story(recording: Recording) -> Any:
    """Turns, and items without their ids."""
    told = Replay(recording.agent, codec_of(recording.agent)).play(recording)
    items = [fact.data.item for fact in told.facts(EventType.ITEM_COMPLETED)]
    shown = [(item.kind, item.status, item.content, item.metadata) for item in items if item.kind is not ItemKind.STATUS]
    return told.turns(), shown, told.cards(), told.idle_items


@pytest.mark.parametrize("late", [1, pytest.param(3, marks=pytest.mark.slow), 1000])
@pytest.mark.parametrize("version", sorted({recording.version for recording in load_all("acp")}))
def test_a_recording_with_early_answers_gives_the_same_messages(version: str, late: int) -> None:
    tried = 0
    for recording in load_all("acp"):
        early = with_early_answers(recording, late) if recording.version == version else None
        if early is not None:
            tried += 1
            assert story(early) == story(recording), recording.scene
    assert tried > 3
