"""What `opencode acp` tells of its tools: names in titles, results with OpenCode's own metadata, a todo list without a plan."""

from __future__ import annotations

from typing import Any

from tests.unit.agents.acp.test_codec import FORM, Talk
from universal.codec import Fact, Prompt, QuestionReply
from universal.events import ItemData
from universal.items import Item, ItemKind, ItemStatus, ToolCallPart

TODOS = [{"content": "first", "status": "completed", "priority": "high"}, {"content": "second", "status": "pending"}]


def talk() -> Talk:
    made = Talk().ready()
    made.send(Prompt("p", "hi"))
    return made


def items(talk: Talk, kind: ItemKind) -> list[Item]:
    found = [out.data.item for out in talk.outputs if isinstance(out, Fact) and isinstance(out.data, ItemData)]
    return [item for item in found if item.kind is kind]


def send_update(talk: Talk, update: str, **fields: Any) -> None:
    params = {"sessionId": "s", "update": {"sessionUpdate": update, **fields}}
    talk.say({"jsonrpc": "2.0", "method": "session/update", "params": params})


def call(talk: Talk, name: str, arguments: dict[str, Any], output: dict[str, Any]) -> None:
    """A call as 1.18.33 tells it: the title is the tool's name at first."""
    send_update(talk, "tool_call", toolCallId="c", title=name, kind="other", status="pending", locations=[], rawInput={})
    send_update(talk, "tool_call_update", toolCallId="c", title=name, kind="other", status="in_progress", rawInput=arguments)
    send_update(talk, "tool_call_update", toolCallId="c", title="what it did", status="completed", rawOutput=output)


def test_a_todo_list() -> None:
    told = talk()
    call(told, "todowrite", {"todos": TODOS}, {"output": "[]", "metadata": {"todos": TODOS, "truncated": False}})
    [begun, *_] = items(told, ItemKind.TOOL_CALL)
    [part] = begun.content
    assert isinstance(part, ToolCallPart)
    assert part.name == "todowrite"
    [status] = items(told, ItemKind.STATUS)
    assert (status.metadata or {})["todos"] == TODOS


def test_results_keep_what_opencode_tells_of_them() -> None:
    told = talk()
    call(told, "read", {"filePath": "/p/a"}, {"output": "<path>", "metadata": {"preview": "x", "truncated": True}})
    metadata = items(told, ItemKind.TOOL_RESULT)[-1].metadata or {}
    assert metadata["opencode"] == {"title": "what it did", "metadata": {"preview": "x", "truncated": True}}
    assert metadata["truncated"] is True


def test_a_subagents_session_is_not_known_here() -> None:
    told = talk()
    call(told, "task", {"prompt": "x"}, {"output": "done", "metadata": {"sessionId": "ses_native"}})
    assert "opencode" not in (items(told, ItemKind.TOOL_RESULT)[-1].metadata or {})


def test_a_question_that_was_dismissed_is_no_result() -> None:
    """claude-agent-acp calls it completed."""
    told = talk()
    send_update(told, "tool_call", toolCallId="q", title="AskUserQuestion", kind="other", status="pending", rawInput={})
    told.request(3, "elicitation/create", mode="form", message="Choose", requestedSchema=FORM, toolCallId="q")
    told.send(QuestionReply(told.last_request().question_id, None))
    send_update(told, "tool_call_update", toolCallId="q", status="completed", rawOutput="The user did not want to say.")
    assert items(told, ItemKind.TOOL_RESULT)[-1].status is ItemStatus.FAILED
