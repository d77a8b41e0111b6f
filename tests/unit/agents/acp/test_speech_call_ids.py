"""Each tool call has a card, an output and a permission of its own, although its id is used again."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.agents.acp.test_codec import Talk
from universal.codec import Fact, PermissionReply, Prompt
from universal.events import EventType, ItemData
from universal.items import Item, ItemKind, ItemStatus, ToolResultPart
from universal.turn import Input

OPTIONS = [{"optionId": kind, "kind": kind} for kind in ("allow_once", "reject_once")]


def busy_talk() -> Talk:
    talk = Talk(waits=True).ready()
    talk.send(Prompt("p", "hi"))
    return talk


def call(talk: Talk, kind: str, status: str, number: int, id_: str = "call_0", **more: Any) -> None:
    talk.update(kind, toolCallId=id_, title="run", kind="execute", status=status, rawInput={"command": f"echo {number}"}, **more)


def result(talk: Talk, number: int, status: str = "completed", id_: str = "call_0") -> None:
    content = [{"type": "content", "content": {"type": "text", "text": f"out {number}"}}]
    talk.update("tool_call_update", toolCallId=id_, status=status, content=content)


def items(talk: Talk, kind: ItemKind) -> list[Item]:
    facts = [out for out in talk.outputs if isinstance(out, Fact) and out.type is EventType.ITEM_COMPLETED]
    return [fact.data.item for fact in facts if isinstance(fact.data, ItemData) and fact.data.item.kind is kind]


def cards(talk: Talk) -> list[tuple[str, str, str]]:
    """(id, command, output) of each call."""
    parts = [part for item in items(talk, ItemKind.TOOL_RESULT) for part in item.content if isinstance(part, ToolResultPart)]
    outputs = {part.call_id: part.output for part in parts}
    calls = {item.content[0].call_id: item for item in items(talk, ItemKind.TOOL_CALL)}  # type: ignore[union-attr]
    return [(id_, (item.metadata or {}).get("input", {}).get("command", ""), outputs.get(id_, "")) for id_, item in calls.items()]


@given(st.lists(st.tuples(st.sampled_from(["call_0", "b"]), st.sampled_from(["tool_call", "ask", "update"])), max_size=6))
def test_each_of_several_calls_with_one_id_has_a_card(calls: list[tuple[str, str]]) -> None:
    talk = busy_talk()
    for number, (id_, how) in enumerate(calls):
        if how == "ask":
            tool_call = {"toolCallId": id_, "kind": "execute", "rawInput": {"command": f"echo {number}"}}
            talk.request(number, "session/request_permission", toolCall=tool_call, options=OPTIONS)
            asked = talk.last_request()
            talk.send(PermissionReply(asked.permission_id, "accept"))
            assert asked.metadata["call_id"] == items(talk, ItemKind.TOOL_CALL)[-1].content[0].call_id  # type: ignore[union-attr]
        else:
            call(talk, "tool_call" if how == "tool_call" else "tool_call_update", "in_progress", number, id_)
        result(talk, number, id_=id_)
    found = cards(talk)
    assert [(command, output) for _, command, output in found] == [(f"echo {n}", f"out {n}") for n in range(len(calls))]
    assert len({id_ for id_, _, _ in found}) == len(calls)


def test_ids_get_a_number_over_turns() -> None:
    talk = busy_talk()
    for number in range(3):
        call(talk, "tool_call", "pending", number)
        result(talk, number)
        talk.answer("session/prompt", {"stopReason": "end_turn"})
        talk.run_out()
        talk.send(Prompt(f"p{number}", "hi"))
    assert [id_ for id_, _, _ in cards(talk)] == ["call_0", "call_0#2", "call_0#3"]


def test_parallel_calls_with_one_id_end_in_their_order() -> None:
    talk = busy_talk()
    for number in (1, 2):
        call(talk, "tool_call", "in_progress", number)
    for number in (1, 2):
        result(talk, number)
    assert [(command, output) for _, command, output in cards(talk)] == [("echo 1", "out 1"), ("echo 2", "out 2")]


@pytest.mark.parametrize("decision", ["accept", "reject"])
def test_a_refused_call_that_is_repeated_has_one_card(decision: Any) -> None:
    """Cline 3.0.65 sends `failed`, then the call itself, then `failed` again."""
    talk = busy_talk()
    tool_call = {"toolCallId": "c", "kind": "execute", "rawInput": {"command": "echo 1"}}
    talk.request(1, "session/request_permission", toolCall=tool_call, options=OPTIONS)
    talk.send(PermissionReply(talk.last_request().permission_id, decision))
    result(talk, 1, "failed", "c")
    call(talk, "tool_call", "pending", 1, "c")
    result(talk, 1, "failed", "c")
    assert len(cards(talk)) == (1 if decision == "reject" else 2)


def test_a_repeated_result_has_one_card() -> None:
    """pi-acp 0.0.34 does so."""
    talk = busy_talk()
    call(talk, "tool_call", "in_progress", 1)
    result(talk, 1)
    result(talk, 1)
    talk.update("tool_call_update", toolCallId="call_0", _meta={"terminal_exit": {"exit_code": 0}})
    talk.update("tool_call_update", toolCallId="call_0", status="in_progress")
    assert [output for _, _, output in cards(talk)] == ["out 1"]
    assert talk.codec.counters()["ignored:update of a call that is over"] == 3


def test_a_terminal_is_shown_by_its_own_call() -> None:
    talk = busy_talk()
    call(talk, "tool_call", "in_progress", 1)
    result(talk, 1)
    call(talk, "tool_call", "in_progress", 2)
    output = {"terminal_output": {"data": "from two"}}
    talk.update("tool_call_update", toolCallId="call_0", _meta=output)
    result(talk, 2)
    [delta] = [out for out in talk.outputs if isinstance(out, Fact) and out.type is EventType.ITEM_DELTA]
    assert (delta.data.native_item_id, delta.data.delta) == ("call_0#2", "from two")


@pytest.mark.parametrize("status", ["completed", "failed"])
def test_a_result_that_comes_after_its_turn_is_shown_in_a_turn_of_its_own(status: str) -> None:
    talk = busy_talk()
    call(talk, "tool_call", "in_progress", 1)
    talk.answer("session/prompt", {"stopReason": "end_turn"})
    talk.run_out()
    result(talk, 1, status)
    if status == "failed":  # its card says so already
        assert len(cards(talk)) == 1
        return
    assert [name for name, _ in talk.signals()] == [Input.DONE, Input.ACTIVITY]
    assert cards(talk)[1] == ("call_0#2", "echo 1", "out 1")
    assert [item.status for item in items(talk, ItemKind.TOOL_RESULT)] == [ItemStatus.FAILED, ItemStatus.COMPLETED]
