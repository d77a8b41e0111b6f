"""Recordings of Claude Code, scene by scene: messages, tools, asks, turns, subagents.

What holds for all is in `test_claude.py`, errors and sessions are in `test_claude_ends.py`.
"""

from __future__ import annotations

import pytest

from tests.support import replay as engine
from tests.support.replay import Replay, encode
from universal.agents.claude.wire import prompt_uuid
from universal.codec import Signal
from universal.events import EventType
from universal.items import ItemKind, ItemRole, ItemStatus
from universal.turn import Input

BOTH = ("2.1.197", "2.1.330")
OLD, NEW = BOTH
COMPLETED = [("user", "completed")]


def play(version: str, scene: str) -> Replay:
    return engine.play(f"claude/{version}/{scene}")


# --- messages -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", BOTH)
def test_text(version: str) -> None:
    replay = play(version, "text")
    assert replay.turns() == COMPLETED
    (message,) = replay.items(ItemKind.MESSAGE)
    assert message.native_item_id.startswith("msg_")
    assert [part.text for part in message.content] == ["You said: hello there"]
    usage = {"input": 120, "output": 20, "reasoning": 0, "cache_read": 0, "cache_write": 0}
    model = {"provider_id": "claude", "model_id": "default", "variant": None}
    assert message.metadata == {"model": model, "usage": usage, "finish": "stop"}
    (done,) = replay.signals()
    assert done.metadata["usage"] == usage
    assert done.metadata["cost"] == pytest.approx({OLD: 0.0011, NEW: 0.00088}[version])
    assert not any(fact.synthetic for fact in replay.facts())


@pytest.mark.parametrize("version", BOTH)
def test_text_without_partial_messages(version: str) -> None:
    """One delta with the whole text, made by us."""
    replay = play(version, "text_nopartial")
    (delta,) = replay.facts(EventType.ITEM_DELTA)
    assert (delta.synthetic, delta.data.delta) == (True, "You said: hello there")
    assert replay.texts() == ["You said: hello there"]


@pytest.mark.parametrize("version", BOTH)
def test_echoed_prompts_are_no_messages(version: str) -> None:
    replay = play(version, "text_replay")
    assert replay.texts(ItemRole.USER) == []
    assert replay.texts() == ["You said: hello there"]


@pytest.mark.parametrize("version", BOTH)
@pytest.mark.parametrize("scene", ["reason", "effort"])
def test_thinking(version: str, scene: str) -> None:
    replay = play(version, scene)
    (message,) = replay.items(ItemKind.MESSAGE)
    assert [(p.type, p.text) for p in message.content] == [
        ("reasoning", "Let me think about this carefully."),
        ("text", "After thinking: 42."),
    ]
    assert {f.data.part_index for f in replay.facts(EventType.ITEM_DELTA) if f.data.part_type == "text"} == {1}
    wanted = ("sonnet", "max") if scene == "effort" else ("default", None)
    assert (message.metadata["model"]["model_id"], message.metadata["model"]["variant"]) == wanted


@pytest.mark.parametrize("version", BOTH)
def test_a_dropped_connection_leaves_a_failed_message(version: str) -> None:
    replay = play(version, "drop")
    lost, said = replay.items(ItemKind.MESSAGE)
    assert (lost.status, lost.metadata["interrupted"]) == (ItemStatus.FAILED, True)
    assert said.status is ItemStatus.COMPLETED
    assert replay.texts() == ["This will break off", "Back again."]
    assert len(replay.statuses("retry")) == (1 if version == NEW else 0)
    assert replay.turns() == COMPLETED


@pytest.mark.parametrize("version", BOTH)
def test_token_limit(version: str) -> None:
    replay = play(version, "max_tokens")
    assert replay.texts() == ["This answer is cut"] * 4
    assert [m.metadata["finish"] for m in replay.items(ItemKind.MESSAGE)] == ["length"] * 4
    (error,) = replay.facts(EventType.ERROR)
    assert error.data.code == "max_output_tokens"
    assert "CLAUDE_CODE_MAX_OUTPUT_TOKENS" in error.data.details["hint"]
    assert replay.turns() == [("user", "error")]


# --- tools --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", BOTH)
def test_bash(version: str) -> None:
    replay = play(version, "bash")
    (call,) = replay.items(ItemKind.TOOL_CALL)
    (result,) = replay.items(ItemKind.TOOL_RESULT)
    assert call.content[0].arguments == '{"command": "echo hi && ls", "description": "run a command"}'
    assert (call.metadata["title"], call.metadata["input"]["command"]) == ("run a command", "echo hi && ls")
    assert result.content[0].output == "hi\nREADME.md\nnotes.txt"
    assert (result.metadata["exit_code"], result.metadata["stdout"]) == (0, "hi\nREADME.md\nnotes.txt")
    streamed = "".join(f.data.delta for f in replay.facts(EventType.ITEM_DELTA) if f.data.part_type == "tool_input")
    assert streamed == call.content[0].arguments


def test_a_killed_command_tells_its_exit_code() -> None:
    (result,) = play(NEW, "sigterm").items(ItemKind.TOOL_RESULT)
    assert (result.status, result.metadata["exit_code"]) == (ItemStatus.FAILED, 137)


@pytest.mark.parametrize("version", BOTH)
@pytest.mark.parametrize("scene", ["read_edit", "read_edit_ask", "read_edit_bypass"])
def test_read_and_edit(version: str, scene: str) -> None:
    replay = play(version, scene)
    read, edit = replay.items(ItemKind.TOOL_RESULT)
    path = "/home/user/project/README.md"
    assert (read.content[1].path, read.content[1].action) == (path, "read")
    assert (edit.content[1].path, edit.content[1].action) == (path, "patch")
    assert edit.content[1].diff == f"--- {path}\n+++ {path}\n@@ -1,1 +1,1 @@\n-Hello\n+Hello\\nAdded line\n"
    assert "originalFile" not in edit.metadata["structured"]
    asked = replay.facts(EventType.PERMISSION_REQUESTED)
    assert len(asked) == (1 if scene == "read_edit_ask" else 0)
    if asked:
        assert asked[0].data.metadata["diff"] == f"--- {path}\n+++ {path}\n@@ -1 +1 @@\n-Hello\n+Hello\\nAdded line\n"
        assert asked[0].data.metadata["title"] == path


@pytest.mark.parametrize("version", BOTH)
def test_parallel_calls_share_their_message(version: str) -> None:
    replay = play(version, "parallel")
    calls = replay.items(ItemKind.TOOL_CALL)
    assert len(calls) == 2
    assert len({call.parent_id for call in calls}) == 1
    assert len(replay.items(ItemKind.MESSAGE)) == 2


@pytest.mark.parametrize("version", BOTH)
def test_a_failed_tool(version: str) -> None:
    (result,) = play(version, "fail_tool").items(ItemKind.TOOL_RESULT)
    assert result.status is ItemStatus.FAILED
    assert result.content[0].output.startswith("File does not exist.")
    assert len(result.content) == 1


@pytest.mark.parametrize("version", BOTH)
def test_todo_write(version: str) -> None:
    (todos,) = play(version, "todo_write").statuses("todo")
    assert todos.metadata["todos"] == [
        {"content": "first", "status": "completed", "priority": "medium"},
        {"content": "second", "status": "in_progress", "priority": "medium"},
    ]


def test_todos_in_pieces_are_a_whole_list_each_time() -> None:
    lists = [[(t["content"], t["status"]) for t in s.metadata["todos"]] for s in play(NEW, "todo").statuses("todo")]
    assert lists == [
        [("first", "pending")],
        [("first", "pending"), ("second", "pending")],
        [("first", "in_progress"), ("second", "pending")],
        [("first", "completed"), ("second", "pending")],
    ]


# --- permissions, questions ---------------------------------------------------------------------------------


@pytest.mark.parametrize("version", BOTH)
def test_permission_once(version: str) -> None:
    replay = play(version, "bash_ask_once")
    (asked,) = replay.facts(EventType.PERMISSION_REQUESTED)
    assert asked.data.action == "Bash"
    assert asked.data.metadata["input"]["command"] == "touch made.txt && echo made"
    assert asked.data.metadata["call_id"] == replay.items(ItemKind.TOOL_CALL)[0].native_item_id
    assert asked.data.metadata["description"] == "run a command"
    (resolved,) = replay.facts(EventType.PERMISSION_RESOLVED)
    assert (resolved.data.status, resolved.synthetic) == ("accept", True)
    assert replay.turns() == COMPLETED


@pytest.mark.parametrize("version", BOTH)
def test_permission_always_writes_no_rule(version: str) -> None:
    """The rule is the server's: Claude gets no `updatedPermissions`."""
    replay = play(version, "bash_ask_always")
    assert [f.data.status for f in replay.facts(EventType.PERMISSION_RESOLVED)] == ["accept_for_session"]
    assert not any("updatedPermissions" in encode(line).decode() for line in replay.written_lines())


@pytest.mark.parametrize("version", BOTH)
def test_permission_denied(version: str) -> None:
    replay = play(version, "bash_ask_deny")
    (resolved,) = replay.facts(EventType.PERMISSION_RESOLVED)
    assert (resolved.data.status, resolved.data.metadata["message"]) == ("reject", "The user said no.")
    (result,) = replay.items(ItemKind.TOOL_RESULT)
    assert (result.status, result.content[0].output) == (ItemStatus.FAILED, "The user said no.")
    assert replay.turns() == COMPLETED


@pytest.mark.parametrize("version", BOTH)
def test_question(version: str) -> None:
    replay = play(version, "question_bypass")
    (asked,) = replay.facts(EventType.QUESTION_REQUESTED)
    assert (asked.data.prompt, asked.data.options) == ("Which colour?", ("Red", "Blue"))
    (question,) = asked.data.questions
    assert (question.header, question.multiple, question.custom) == ("Colour", False, True)
    assert question.options[0].description == "warm"
    (resolved,) = replay.facts(EventType.QUESTION_RESOLVED)
    assert (resolved.data.status, resolved.data.response, resolved.data.answers) == ("answered", "Blue", (("Blue",),))
    assert replay.items(ItemKind.TOOL_RESULT)[0].metadata["answers"] == [["Blue"]]


@pytest.mark.parametrize("version", BOTH)
def test_question_rejected(version: str) -> None:
    replay = play(version, "question_reject")
    assert [f.data.status for f in replay.facts(EventType.QUESTION_RESOLVED)] == ["rejected"]
    assert replay.turns() == COMPLETED


def test_a_plan_is_a_question() -> None:
    replay = play(OLD, "plan")
    (asked,) = replay.facts(EventType.QUESTION_REQUESTED)
    assert (asked.data.prompt, asked.data.metadata["plan"]) == ("Proceed with this plan?", "1. do it")
    assert (asked.data.options, asked.data.questions[0].custom) == (("Yes", "No"), True)
    assert asked.data.metadata["tool"] == "ExitPlanMode"
    assert [item.metadata["mode"] for item in replay.statuses("mode")] == ["build"]


# --- turns: interrupts, queues, background work ---------------------------------------------------------------


INTERRUPTS = [
    (OLD, "hang_interrupt"),
    (NEW, "hang_interrupt"),
    (OLD, "interrupt_ask"),
    (NEW, "interrupt_ask"),
    (NEW, "interrupt_tool"),
]


@pytest.mark.parametrize(("version", "scene"), INTERRUPTS)
def test_interrupt(version: str, scene: str) -> None:
    replay = play(version, scene)
    assert replay.turns() == [("user", "aborted"), ("user", "completed")]
    assert replay.facts(EventType.ERROR) == []
    stopped, _ = [s for s in replay.signals() if s.input in (Input.FAILED, Input.DONE)]
    assert (stopped.input, stopped.aborted) == (Input.FAILED, True)
    assert (
        sum(line["type"] == "control_request" and line["request"]["subtype"] == "interrupt" for line in replay.written_lines())
        == 1
    )
    assert replay.texts()[-1] == "You said: after the interrupt"


@pytest.mark.parametrize("version", BOTH)
def test_interrupt_while_asking_withdraws_the_ask(version: str) -> None:
    replay = play(version, "interrupt_ask")
    (resolved,) = replay.facts(EventType.PERMISSION_RESOLVED)
    assert (resolved.data.status, resolved.data.metadata["withdrawn"], resolved.synthetic) == ("reject", True, False)


@pytest.mark.parametrize("version", BOTH)
def test_interrupt_while_streaming_keeps_the_text(version: str) -> None:
    message = play(version, "hang_interrupt").items(ItemKind.MESSAGE)[0]
    assert (message.status, message.metadata["interrupted"]) == (ItemStatus.FAILED, True)
    assert message.content[0].text == "I will now think for a long time"


@pytest.mark.parametrize("version", BOTH)
def test_interrupt_while_idle_stops_no_later_prompt(version: str) -> None:
    replay = play(version, "interrupt_idle")
    assert replay.turns() == COMPLETED
    assert replay.texts() == ["You said: after the interrupt"]


@pytest.mark.parametrize(("version", "scene"), [(OLD, "queue_text"), (NEW, "queue_text"), (NEW, "queue_tool")])
def test_merged_prompts_are_all_answered(version: str, scene: str) -> None:
    """Fewer results than prompts, and yet a DONE for each of them: one turn, at its end."""
    replay = play(version, scene)
    assert replay.turns() == COMPLETED
    prompts = sum(line["type"] == "user" for line in replay.written_lines())
    assert [s.input for s in replay.signals()].count(Input.DONE) == prompts == (2 if scene == "queue_tool" else 3)


@pytest.mark.parametrize("version", BOTH)
def test_prompts_one_after_the_other(version: str) -> None:
    replay = play(version, "multi_turn")
    assert replay.turns() == COMPLETED * 3
    assert [line["uuid"] for line in replay.written_lines() if line["type"] == "user"] == [
        prompt_uuid(f"prompt_{n}") for n in (1, 2, 3)
    ]
    costs = [s.metadata["cost"] for s in replay.signals() if s.input is Input.DONE]
    assert costs == pytest.approx([0.0011, 0.0033, 0.0011] if version == OLD else [0.00088, 0.00264, 0.00088])


@pytest.mark.parametrize(("version", "scene"), [(NEW, "bg_task"), (NEW, "bg_task_reported"), (OLD, "bg_task_reported")])
def test_a_background_agent_belongs_to_the_turn_that_started_it(version: str, scene: str) -> None:
    """Two results, one turn: the CLI stays `running` until it has reported on its agent."""
    replay = play(version, scene)
    assert replay.turns() == COMPLETED
    assert [s.input for s in replay.signals()] == [Input.OPENED, Input.DONE, Input.DONE, Input.CLOSED]
    assert replay.texts() == ["Delegating.", "Done!", "Done!"]
    (result,) = replay.items(ItemKind.TOOL_RESULT, None)
    assert result.metadata["background"] is True


@pytest.mark.parametrize("version", BOTH)
def test_a_background_command_wakes_the_agent_again(version: str) -> None:
    replay = play(version, "bg_bash")
    assert replay.turns() == [("user", "completed"), ("agent", "completed")]
    (result,) = replay.items(ItemKind.TOOL_RESULT)
    assert result.metadata["background"] is True
    assert "exit_code" not in result.metadata


def test_without_states_a_follow_up_is_a_turn_of_its_own() -> None:
    assert play(NEW, "task_forward").turns() == [("user", "completed"), ("agent", "completed")]


# --- subagents ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", BOTH)
def test_a_subagent_is_a_child_session(version: str) -> None:
    replay = play(version, "task_forward")
    (started,) = replay.facts(EventType.SESSION_STARTED)
    child = started.child
    assert started.data.metadata["title"] == "look around"
    assert started.data.metadata["agent"] == "general-purpose"
    assert replay.texts(ItemRole.USER, child) == ["[scene:read_edit] say what you see"]
    assert replay.texts(child=child) == ["I'll read the file first.", "Now I'll add a line.", "Done!"]
    assert [item.content[0].name for item in replay.items(ItemKind.TOOL_CALL, child)] == ["Read", "Edit"]
    assert "+Hello\\nAdded line" in replay.items(ItemKind.TOOL_RESULT, child)[1].content[1].diff
    assert [s.input for s in replay.signals(child)] == [Input.ACTIVITY, Input.DONE]
    assert replay.turns(child) == [("agent", "completed")]


@pytest.mark.parametrize("version", BOTH)
def test_a_subagents_permission_is_asked_in_its_session(version: str) -> None:
    replay = play(version, "task_edit")
    (asked,) = replay.facts(EventType.PERMISSION_REQUESTED)
    (child,) = replay.children
    assert asked.child == child
    assert replay.facts(EventType.PERMISSION_RESOLVED)[0].child == child
    assert replay.turns() == COMPLETED


def test_a_subagent_in_the_foreground_ends_before_its_call() -> None:
    replay = play(OLD, "task")
    child = replay.facts(EventType.SESSION_STARTED)[0].child
    ended = next(i for i, out in enumerate(replay.outputs) if isinstance(out, Signal) and out.input is Input.DONE)
    assert replay.outputs[ended].child == child
    (result,) = replay.items(ItemKind.TOOL_RESULT, None)
    assert "background" not in result.metadata
