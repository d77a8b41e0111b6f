"""Subagents of Claude Code in orders that no recording has; seen in runs of 2.1.197 and 2.1.330."""

from __future__ import annotations

import pytest

from tests.support.claude_lines import (
    Story,
    abort_result,
    assistant,
    can_use,
    init,
    result,
    says,
    state,
    task_over,
    task_started,
    text,
    tool_result,
    tool_use,
)
from universal.events import EventType
from universal.items import ItemKind, ItemRole, ItemStatus
from universal.launch import Exit
from universal.turn import Input

SPAWN = {"description": "look around", "prompt": "say what you see", "subagent_type": "general-purpose"}
LAUNCHED = [text("Async agent launched successfully. agentId: a1")]


def subagent_story(**spawn: object) -> Story:
    """A turn in which the agent tool was called."""
    story = Story()
    story.prompts()
    story.hears(state("running"), init(), assistant(text("Delegating."), tool_use("t1", "Agent", **{**SPAWN, **spawn})))
    return story


def test_a_subagent_in_the_foreground() -> None:
    story = subagent_story()
    story.hears(task_started("a1", "t1", is_backgrounded=False), says("say what you see", parent="t1"))
    story.hears(assistant(text("A file."), id="m2", parent="t1"), task_over("a1", "t1"))
    story.hears(tool_result("t1", [text("A file."), text("agentId: a1")], {"status": "completed", "content": [text("A file.")]}))
    assert story.texts(ItemRole.USER, "t1") == ["say what you see"]
    assert story.texts(child="t1") == ["A file."]
    assert story.turns("t1") == [("agent", "completed")]
    assert story.items(ItemKind.TOOL_RESULT)[0].content[0].output == "A file."


def test_without_task_messages_the_call_begins_and_ends_it() -> None:
    """Older versions; the prompt comes from the call."""
    story = subagent_story()
    story.hears(assistant(text("A file."), id="m2", parent="t1"), tool_result("t1", "A file."))
    assert story.texts(ItemRole.USER, "t1") == ["say what you see"]
    assert story.turns("t1") == [("agent", "completed")]


def test_a_nested_subagent_starts_before_its_call_is_shown() -> None:
    """2.1.197: `task_started` comes before the `assistant` line of a call that a subagent makes."""
    story = subagent_story()
    story.hears(task_started("a1", "t1"), task_started("a2", "t2"))
    assert [fact.child for fact in story.facts(EventType.SESSION_STARTED)] == ["t1"]
    story.hears(assistant(tool_use("t2", "Agent", **SPAWN), id="m2", parent="t1"))
    _, nested = story.facts(EventType.SESSION_STARTED)
    call = story.items(ItemKind.TOOL_CALL, "t1")[0]
    assert nested.data.metadata["parent_item_id"] == call.item_id
    assert nested.data.metadata["parent_call_id"] == "t1"
    story.hears(task_over("a2", "t2"), tool_result("t2", "Done!", parent="t1"), task_over("a1", "t1"), tool_result("t1", "Done!"))
    assert story.turns("t2") == story.turns("t1") == [("agent", "completed")]


@pytest.mark.parametrize("structured", [{"status": "async_launched", "isAsync": True}, None])
def test_a_background_subagent_outlives_its_call(structured: dict[str, object] | None) -> None:
    """A call of a subagent has no structured result; its text tells."""
    story = subagent_story(run_in_background=True)
    story.hears(task_started("a1", "t1", is_backgrounded=True), tool_result("t1", LAUNCHED, structured))
    assert story.states["t1"].machine.busy
    assert story.items(ItemKind.TOOL_RESULT)[0].metadata["background"] is True
    story.hears(result(), assistant(text("A file."), id="m2", parent="t1"), task_over("a1", "t1"))
    assert story.turns("t1") == [("agent", "completed")]


def test_a_background_subagent_whose_result_says_nothing() -> None:
    story = subagent_story(run_in_background=True)
    story.hears(task_started("a1", "t1", is_backgrounded=True), tool_result("t1", "in words of a later version"))
    assert story.states["t1"].machine.busy


@pytest.mark.parametrize(("status", "is_abort"), [("failed", False), ("stopped", True)])
def test_a_subagent_that_fails_or_is_stopped(status: str, is_abort: bool) -> None:
    story = subagent_story()
    story.hears(task_started("a1", "t1"), assistant(tool_use("t2", "Bash", command="ls"), id="m2", parent="t1"))
    story.hears(task_over("a1", "t1", status, "It broke."))
    (call,) = story.items(ItemKind.TOOL_RESULT, "t1")
    assert (call.status, call.metadata) == (ItemStatus.FAILED, {"interrupted": True})
    _, failed = story.signals("t1")
    assert (failed.input, failed.aborted, failed.error["message"]) == (Input.FAILED, is_abort, "It broke.")


def test_late_lines_of_a_subagent_wake_nothing() -> None:
    story = subagent_story()
    story.hears(task_started("a1", "t1"), task_over("a1", "t1", "stopped"))
    story.hears(says("[Request interrupted by user]", parent="t1"), assistant(text("late"), id="m9", parent="t1"))
    assert [signal.input for signal in story.signals("t1")] == [Input.ACTIVITY, Input.FAILED]
    assert story.texts(ItemRole.USER, "t1") == ["say what you see"]


def test_an_interrupted_turn_ends_its_subagents() -> None:
    story = subagent_story()
    story.hears(task_started("a1", "t1"), assistant(text("A f"), id="m2", parent="t1"), abort_result())
    assert not story.states["t1"].machine.busy
    assert story.signals("t1")[-1].aborted


def test_a_resumed_subagent_keeps_its_session() -> None:
    """SendMessage: a new call starts the old task id again, and its lines carry the first call's id."""
    story = subagent_story()
    story.hears(task_started("a1", "t1"), task_over("a1", "t1"), tool_result("t1", "Done!"), result(), state("idle"))
    story.prompts()
    story.hears(state("running"), init(), assistant(tool_use("t5", "SendMessage", to="a1", message="and now?"), id="m5"))
    story.hears(task_started("a1", "t5", is_backgrounded=True, prompt="and now?"), tool_result("t5", "resumed"))
    story.hears(assistant(text("More."), id="m6", parent="t1", agent_id="a1"), task_over("a1", "t5"))
    assert [fact.child for fact in story.facts(EventType.SESSION_STARTED)] == ["t1"]
    assert story.texts(ItemRole.USER, "t1") == ["say what you see", "and now?"]
    assert story.turns("t1") == [("agent", "completed")] * 2


def test_a_subagent_of_an_earlier_process() -> None:
    """After --resume its first call is unknown; its id leads to the session that the new call opened."""
    story = Story()
    story.prompts()
    story.hears(init(), assistant(tool_use("t5", "SendMessage", to="a1", message="and now?")), task_started("a1", "t5"))
    story.hears(assistant(text("More."), id="m6", parent="t_of_yesterday", agent_id="a1"), task_over("a1", "t5"))
    assert story.texts(child="t5") == ["More."]
    assert story.turns("t5") == [("agent", "completed")]


def test_a_permission_is_traced_by_call_or_by_agent() -> None:
    story = subagent_story()
    story.hears(task_started("a1", "t1"), assistant(tool_use("t2", "Bash", command="ls"), id="m2", parent="t1"))
    story.hears(can_use("r1", "Bash", "t2"), can_use("r2", "Bash", "t3", agent_id="a1"), can_use("r3", "Bash", "t4"))
    assert [fact.child for fact in story.facts(EventType.PERMISSION_REQUESTED)] == ["t1", "t1", None]


def test_todos_of_a_subagent_are_its_own() -> None:
    story = subagent_story()
    todos = [{"content": "look", "status": "pending", "activeForm": "looking"}]
    story.hears(task_started("a1", "t1"), assistant(tool_use("t2", "TodoWrite", todos=todos), id="m2", parent="t1"))
    story.hears(tool_result("t2", "Todos have been modified", parent="t1"))
    (fact,) = [f for f in story.facts(EventType.ITEM_COMPLETED, "t1") if f.data.item.kind is ItemKind.STATUS]
    assert fact.data.item.metadata["todos"] == [{"content": "look", "status": "pending", "priority": "medium"}]


def test_idle_ends_what_nothing_else_ended() -> None:
    story = Story()
    story.prompts()
    story.hears(state("running"), init(), assistant(text("Hm."), id="m2", parent="t_unknown"), result(), state("idle"))
    assert story.turns("t_unknown") == [("agent", "completed")]


def test_the_end_of_the_process_ends_children() -> None:
    story = subagent_story()
    story.hears(task_started("a1", "t1"), assistant(text("A f"), tool_use("t2", "Bash"), id="m2", parent="t1"))
    story.take(story.codec.eof(Exit(None, signal=9)))
    assert story.turns("t1") == [("agent", "agent_exited")]
    assert [item.status for item in story.items(ItemKind.TOOL_RESULT, "t1")] == [ItemStatus.FAILED]
