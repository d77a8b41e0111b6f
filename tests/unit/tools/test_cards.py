"""Claude's tools as OpenCode's own: what the cards are drawn from equals what native 1.18.33 sent (recordings named)."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from universal.items import ContentPart, FileRefPart, ImagePart, Item, ItemKind, ItemRole, ItemStatus, ToolResultPart
from universal.session.values import CUT, RUNNING_CHARS, ToolCall
from universal.tools import AGENT_TOOLS, tools_of
from universal.tools.cards import (
    SHOWN_CHARS,
    ResultView,
    ToolContext,
    ToolView,
    arguments_of,
    says_changes,
    view_call,
    view_result,
)

HERE = ToolContext("/home/user/project", "claude", "ses_1", "ses_2", ("claude", "opus"))


def finish(view: ToolView, output: str, *parts: ContentPart, **metadata: Any) -> ResultView:
    item = Item(
        item_id="itm_1",
        kind=ItemKind.TOOL_RESULT,
        role=ItemRole.TOOL,
        status=ItemStatus.COMPLETED,
        content=(ToolResultPart(call_id="c", output=output), *parts),
        metadata=metadata,
    )
    return view_result(view, item, HERE)


def test_read_as_in_scene_read_edit() -> None:
    view = view_call("claude", "Read", {"file_path": "/home/user/project/README.md"}, [])
    assert view == ToolView("read", {"filePath": "/home/user/project/README.md"})
    file = {"filePath": "/home/user/project/README.md", "content": "Hello\n", "numLines": 2, "startLine": 1, "totalLines": 2}
    result = finish(view, "1\tHello\n2\t", structured={"type": "text", "file": file})
    assert result.title == "README.md"
    assert result.output == (
        "<path>/home/user/project/README.md</path>\n<type>file</type>\n"
        "<content>\n1: Hello\n\n(End of file - total 1 lines)\n</content>"
    )
    assert result.metadata == {
        "preview": "Hello",
        "truncated": False,
        "loaded": [],
        "display": {
            "type": "file",
            "path": "/home/user/project/README.md",
            "text": "Hello",
            "lineStart": 1,
            "lineEnd": 1,
            "totalLines": 1,
            "truncated": False,
        },
    }


def test_edit_as_in_scene_read_edit() -> None:
    given = {"file_path": "/home/user/project/README.md", "old_string": "Hello", "new_string": "Hello\nAdded line"}
    view = view_call("claude", "Edit", given, [])
    assert view.input == {"filePath": "/home/user/project/README.md", "oldString": "Hello", "newString": "Hello\nAdded line"}
    diff = "--- /home/user/project/README.md\n+++ /home/user/project/README.md\n@@ -1,1 +1,2 @@\n Hello\n+Added line\n"
    result = finish(view, "updated", FileRefPart(path="/home/user/project/README.md", action="patch", diff=diff))
    patch = "Index: /home/user/project/README.md\n" + "=" * 67 + "\n" + diff
    assert (result.output, result.title) == ("Edit applied successfully.", "README.md")
    assert result.metadata == {
        "diagnostics": {},
        "diff": patch,
        "filediff": {"file": "/home/user/project/README.md", "patch": patch, "additions": 1, "deletions": 0},
        "truncated": False,
    }


def test_write_as_in_scene_write() -> None:
    view = view_call("claude", "Write", {"file_path": "/home/user/project/new.txt", "content": "alpha\n"}, [])
    result = finish(
        view, "created", FileRefPart(path="/home/user/project/new.txt", action="write", diff="@@ -0,0 +1,1 @@\n+alpha\n")
    )
    assert (result.output, result.title) == ("Wrote file successfully.", "new.txt")
    assert result.metadata == {"diagnostics": {}, "filepath": "/home/user/project/new.txt", "exists": False, "truncated": False}


def test_bash_as_in_scene_bash() -> None:
    view = view_call("claude", "Bash", {"command": "echo hi && ls", "description": "run a command"}, [])
    result = finish(view, "hi\nREADME.md\n", exit_code=0)
    assert (result.title, result.output) == ("echo hi && ls", "hi\nREADME.md\n")
    assert result.metadata == {"output": "hi\nREADME.md\n", "exit": 0, "truncated": False}


def test_todos_as_in_scene_todo() -> None:
    todos = [
        {"content": "first", "status": "completed", "priority": "medium"},
        {"content": "b", "status": "pending", "priority": "medium"},
    ]
    claude = [{"content": "first", "status": "completed", "activeForm": "doing"}, {"content": "b", "status": "pending"}]
    view = view_call("claude", "TodoWrite", {"todos": claude}, [])
    assert view == ToolView("todowrite", {"todos": todos})
    result = finish(view, "ok")
    assert (result.title, result.metadata) == ("1 todos", {"todos": todos, "truncated": False})
    assert json.loads(result.output) == todos
    assert view_call("claude", "TaskUpdate", {"taskId": "1", "status": "completed"}, todos).input == {"todos": todos}


def test_question_as_in_scene_question_reply() -> None:
    given = {
        "questions": [
            {"question": "Which?", "header": "C", "options": [{"label": "Red", "description": "warm"}], "multiSelect": False}
        ]
    }
    view = view_call("claude", "AskUserQuestion", given, [])
    assert view == ToolView(
        "question", {"questions": [{"question": "Which?", "header": "C", "options": [{"label": "Red", "description": "warm"}]}]}
    )
    result = finish(view, "answered", answers=[["Red"]])
    assert (result.title, result.metadata) == ("Asked 1 question", {"answers": [["Red"]], "truncated": False})


def test_task_as_in_scene_task() -> None:
    view = view_call("claude", "Agent", {"description": "look around", "prompt": "p", "subagent_type": "general-purpose"}, [])
    result = finish(view, "I saw it")
    assert result.title == "look around"
    assert result.output == '<task id="ses_2" state="completed">\n<task_result>\nI saw it\n</task_result>\n</task>'
    assert result.metadata == {
        "parentSessionId": "ses_1",
        "sessionId": "ses_2",
        "model": {"modelID": "opus", "providerID": "claude"},
        "truncated": False,
    }


def test_images_become_attachments() -> None:
    result = finish(
        view_call("claude", "Read", {"file_path": "a.png"}, []),
        "",
        ImagePart(path="data:image/png;base64,AA==", mime="image/png"),
    )
    assert [a.mime for a in result.attachments] == ["image/png"]


@pytest.mark.parametrize(
    ("agent", "name", "expected"),
    [
        ("claude", "mcp__github__create_issue", "github_create_issue"),
        ("claude", "SomethingNew", "SomethingNew"),
        ("some-acp-agent", "SomethingNew", "SomethingNew"),
    ],
)
def test_names_without_a_row(agent: str, name: str, expected: str) -> None:
    assert view_call(agent, name, {"a": 1}, []) == ToolView(expected, {"a": 1})


@pytest.mark.parametrize(
    ("text", "value"), [("", {}), ('{"a": 1}', {"a": 1}), ("[1]", {"input": [1]}), ('{"a": ', {"input": '{"a": '})]
)
def test_arguments_that_are_no_object_are_kept(text: str, value: dict[str, Any]) -> None:
    assert arguments_of(text) == value


def test_todo_calls_without_the_list() -> None:
    """Their cards show the list as the call has left it, whatever stood there when it began."""
    told = {(agent, name) for agent, rows in AGENT_TOOLS.items() for name in rows if says_changes(agent, name)}
    assert told == {("claude", name) for name in ("TaskCreate", "TaskUpdate", "TaskList", "TaskGet")}
    assert not says_changes("claude", "Unheard")


@pytest.mark.parametrize("tool", ["bash", "webfetch", "no_such_tool"])
def test_a_long_output_is_shown_by_its_ends(tool: str) -> None:
    long = "begin\n" + "x" * 3 * SHOWN_CHARS + "\nend"
    result = finish(ToolView(tool, {}), long)
    assert len(result.output) < SHOWN_CHARS + 200
    assert result.metadata["truncated"] is True
    assert len(str(result.metadata)) < 2 * SHOWN_CHARS
    head, note, tail = result.output.split("\n\n")
    assert (head[:6], tail[-4:]) == ("begin\n", "\nend")
    assert f"{len(long) - len(head) - len(tail):,} characters are not shown here" in note
    assert f"/v1/sessions/{HERE.session_id}/events" in note
    assert finish(ToolView(tool, {}), "x" * SHOWN_CHARS).metadata["truncated"] is False


def test_a_running_call_tells_the_end_of_its_output() -> None:
    call = ToolCall("prt", "call", "bash")
    for number in range(20_000):
        call = replace(call, output=call.wrote(f"{number}\n"))
    assert len(call.output) == RUNNING_CHARS + len(CUT)
    assert call.output.startswith(CUT)
    assert call.output.endswith("19998\n19999\n")


def test_opencodes_own_tools_keep_their_names() -> None:
    assert tools_of("opencode") == {}
    assert tools_of("any agent of the protocol")["Bash"].tool == "bash"


def test_a_card_without_a_title_of_its_own_has_the_agents() -> None:
    assert finish(ToolView("other", {}), "echo", title="echo of a server").title == "echo of a server"
    assert finish(ToolView("read", {"filePath": "/home/user/project/a"}), "x", title="Reading").title == "a"
