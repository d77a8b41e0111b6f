"""Claude Code's tools: results, diffs and todo lists, one call at a time. Shapes as in `sdk-tools.d.ts` and in runs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.claude_lines import Story, assistant, init, status_requesting, text, tool_result, tool_use
from universal.agents.claude.tools import Todos, input_diff, read_result, title_of
from universal.agents.claude.wire import FINISH, usage_of
from universal.events import EventType
from universal.items import FileRefPart, ImagePart, ItemKind, ItemStatus
from universal.lib.diffs import unified_diff

PATH = "/p/a.txt"
PNG = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}


def read(name: str, arguments: dict[str, Any], content: Any, structured: Any = None, *, error: bool = False) -> Any:
    return read_result(name, arguments, {"tool_use_id": "t1", "content": content, "is_error": error}, structured)


@pytest.mark.parametrize(
    ("content", "structured", "error", "metadata"),
    [
        (
            "made",
            {"stdout": "made", "stderr": "hm", "interrupted": False},
            False,
            {"stdout": "made", "stderr": "hm", "exit_code": 0},
        ),
        ("made", None, False, {"exit_code": 0}),
        ("Exit code 3\nout\nerr", "Error: Exit code 3\nout\nerr", True, {"exit_code": 3, "stdout": "out\nerr"}),
        ("Exit code 3000000000000", "Error: ...", True, {}),
        ("The user said no.", "Error: The user said no.", True, {}),
        ("The user doesn't want to proceed", "User rejected tool use", True, {"interrupted": True}),
        (
            "running",
            {"stdout": "", "stderr": "", "backgroundTaskId": "b1"},
            False,
            {"background": True},
        ),
        ("", {"stdout": "", "returnCodeInterpretation": "No matches found"}, False, {"stdout": ""}),
    ],
)
def test_results_of_commands(content: str, structured: Any, error: bool, metadata: dict[str, Any]) -> None:
    """An exit code is told where Claude tells it, 0 after success, none otherwise."""
    result = read("Bash", {"command": "x"}, content, structured, error=error)
    assert {key: value for key, value in result.metadata.items() if key != "structured"} == metadata
    assert result.content[0].output == content
    assert result.failed is error


def test_a_new_file_is_a_diff_against_nothing() -> None:
    structured = {"type": "create", "filePath": PATH, "content": "one\ntwo\n", "structuredPatch": [], "originalFile": None}
    (_, part) = read("Write", {"file_path": PATH, "content": "one\ntwo\n"}, "File created", structured).content
    assert part == FileRefPart(path=PATH, action="write", diff=f"--- /dev/null\n+++ {PATH}\n@@ -0,0 +1,2 @@\n+one\n+two\n")


def test_a_new_empty_file_has_no_diff() -> None:
    (_, part) = read("Write", {"file_path": PATH, "content": ""}, "File created", {"type": "create"}).content
    assert part == FileRefPart(path=PATH, action="write", diff=None)


def test_an_overwritten_file() -> None:
    patch = [{"oldStart": 1, "oldLines": 2, "newStart": 1, "newLines": 2, "lines": [" one", "-two", "+2"]}]
    arguments = {"file_path": PATH, "content": "one\n2\n"}
    (_, part) = read("Write", arguments, "updated", {"type": "update", "structuredPatch": patch}).content
    assert part.diff == f"--- {PATH}\n+++ {PATH}\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n"


def test_a_subagents_write_is_known_by_its_words() -> None:
    """A subagent's results are not structured."""
    arguments = {"file_path": PATH, "content": "one\n"}
    assert read("Write", arguments, "File created successfully at: ...").content[1].diff.startswith("--- /dev/null")
    assert read("Write", arguments, "The file ... has been updated").content[1].diff is None


def test_a_notebook() -> None:
    before, after = '{\n "source": [1]\n}', '{\n "source": [2]\n}'
    structured = {"notebook_path": "/p/n.ipynb", "original_file": before, "updated_file": after, "cell_id": "c1"}
    result = read("NotebookEdit", {"notebook_path": "/p/n.ipynb"}, "Updated cell", structured)
    assert (result.content[1].path, result.content[1].action) == ("/p/n.ipynb", "patch")
    assert '- "source": [1]\n+ "source": [2]\n' in result.content[1].diff
    assert result.metadata["structured"] == {"notebook_path": "/p/n.ipynb", "cell_id": "c1"}


def test_an_image_is_a_data_url() -> None:
    structured = {"type": "image", "file": {"base64": "AAAA", "type": "image/png", "originalSize": 3}}
    result = read("Read", {"file_path": "/p/a.png"}, [PNG], structured)
    assert result.content[1] == ImagePart(path="data:image/png;base64,AAAA", mime="image/png")
    assert result.content[0].output == ""
    assert result.metadata["structured"] == {"type": "image", "file": {"type": "image/png", "originalSize": 3}}


def test_tools_that_were_loaded_are_named() -> None:
    rows = [{"type": "tool_reference", "tool_name": "TaskCreate"}, {"type": "tool_reference", "tool_name": "WebFetch"}]
    assert read("ToolSearch", {}, [*rows, {"type": ["odd"]}]).content[0].output == "TaskCreate\nWebFetch"


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        ("PreToolUse:Edit hook error: The user has a rule: no edits", "The user has a rule: no edits"),
        ("PreToolUse:mcp__a__b hook error: The user rejected it", "The user rejected it"),
        ("PreToolUse:Edit hook error: [./check.sh]: no", "PreToolUse:Edit hook error: [./check.sh]: no"),
    ],
)
def test_a_call_that_a_rule_denied_shows_the_reason_and_no_hook(content: str, shown: str) -> None:
    assert read("Edit", {"file_path": PATH}, content, f"Error: {content}", error=True).content[0].output == shown
    assert read("Edit", {"file_path": PATH}, content).content[0].output == content


def test_a_failed_edit_changed_nothing() -> None:
    result = read("Edit", {"file_path": PATH}, "String to replace not found", "Error: ...", error=True)
    assert len(result.content) == 1


@pytest.mark.parametrize(
    ("name", "arguments", "diff"),
    [
        ("Edit", {"file_path": PATH, "old_string": "a\nb", "new_string": "a\nc"}, "@@ -1,2 +1,2 @@\n a\n-b\n+c\n"),
        ("Edit", {"file_path": PATH, "old_string": "a", "new_string": "a"}, None),
        ("Edit", {"old_string": "a", "new_string": "b"}, None),
        ("Write", {"file_path": PATH, "content": "x\ny"}, "@@ -0,0 +1,2 @@\n+x\n+y\n"),
        (
            "MultiEdit",
            {"file_path": PATH, "edits": [{"old_string": "a", "new_string": "b"}, {"old_string": "c", "new_string": ""}]},
            "@@ -1 +1 @@\n-a\n+b\n@@ -1 +0,0 @@\n-c\n",
        ),
        ("Bash", {"command": "x"}, None),
        ("Edit", {"file_path": PATH, "old_string": 7, "new_string": ["x"]}, None),
    ],
)
def test_the_diff_of_an_editing_call(name: str, arguments: dict[str, Any], diff: str | None) -> None:
    assert input_diff(name, arguments) == (diff and f"--- {PATH}\n+++ {PATH}\n{diff}")


def test_diffs_of_texts_without_a_last_newline_or_with_odd_ones() -> None:
    assert unified_diff(PATH, "a\u2028b\x0c\n", "a\u2028c\x0c\n").endswith("@@ -1 +1 @@\n-a\u2028b\x0c\n+a\u2028c\x0c\n")
    assert unified_diff(PATH, "a", "a\n") == (f"--- {PATH}\n+++ {PATH}\n@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+a\n")
    assert unified_diff(PATH, "a\n", "a\n") == ""


@pytest.mark.parametrize(
    ("name", "arguments", "title"),
    [
        ("Bash", {"command": "ls -l\nmore", "description": "List"}, "List"),
        ("Bash", {"command": "ls -l\nmore"}, "ls -l"),
        ("TaskCreate", {"subject": "first", "description": "long"}, "first"),
        ("AskUserQuestion", {"questions": [{"question": "Which?"}]}, "Which?"),
        ("mcp__x__y", {}, "mcp__x__y"),
        ("Read", {"file_path": 7}, "Read"),
    ],
)
def test_titles(name: str, arguments: dict[str, Any], title: str) -> None:
    assert title_of(name, arguments) == title


def test_a_list_of_tasks_is_kept_from_its_pieces() -> None:
    todos = Todos()

    def todo_rows(*call: Any) -> list[tuple[str, str]] | None:
        after = todos.after(*call)
        return None if after is None else [(str(t["content"]), str(t["status"])) for t in after]

    assert todo_rows("Bash", {}, {}, "") is None
    assert todo_rows("TaskCreate", {"subject": "a"}, {"task": {"id": "1", "subject": "a"}}, "") == [("a", "pending")]
    assert todo_rows("TaskCreate", {"subject": "b"}, {}, "Task #2 created successfully: b") == [
        ("a", "pending"),
        ("b", "pending"),
    ]
    assert todo_rows("TaskUpdate", {"taskId": "1", "status": "in_progress", "subject": "A"}, {}, "") == [
        ("A", "in_progress"),
        ("b", "pending"),
    ]
    assert todo_rows("TaskUpdate", {"taskId": "2", "status": "deleted"}, {}, "") == [("A", "in_progress")]
    assert todo_rows("TaskUpdate", {"taskId": "9", "status": "completed"}, {}, "")[-1] == ("Task #9", "completed")
    assert todo_rows("TaskUpdate", {"taskId": "1", "status": "no such status"}, {}, "")[0] == ("A", "pending")
    listed = {"tasks": [{"id": "4", "subject": "from before", "status": "completed", "blockedBy": []}]}
    assert todo_rows("TaskList", {}, listed, "") == [("from before", "completed")]
    assert todo_rows("TaskCreate", {"subject": "lost"}, {}, "no words that we know") is None


def test_the_five_numbers_of_usage_do_not_overlap() -> None:
    usage = {
        "input_tokens": 3,
        "output_tokens": 50,
        "output_tokens_details": {"thinking_tokens": 30},
        "cache_read_input_tokens": 1000,
        "cache_creation_input_tokens": None,
    }
    assert usage_of(usage) == {"input": 3, "output": 20, "reasoning": 30, "cache_read": 1000, "cache_write": 0}


def test_finishes_are_opencodes() -> None:
    assert set(FINISH.values()) == {"stop", "tool-calls", "length", "content-filter", "other"}


# --- the life of messages and calls -------------------------------------------------------------------------


def stream(kind: str, **event: Any) -> dict[str, Any]:
    return {"type": "stream_event", "event": {"type": kind, **event}, "parent_tool_use_id": None}


def begin(id: str = "m1") -> dict[str, Any]:
    return stream("message_start", message={"id": id, "model": "claude-opus-5-5", "usage": {"input_tokens": 9}})


def block(index: int, **content: Any) -> dict[str, Any]:
    return stream("content_block_start", index=index, content_block=content)


def piece(index: int, **delta: Any) -> dict[str, Any]:
    return stream("content_block_delta", index=index, delta=delta)


STOP = stream("message_stop")


def over(reason: str) -> dict[str, Any]:
    return stream("message_delta", delta={"stop_reason": reason}, usage={"output_tokens": 4, "input_tokens": None})


def test_empty_blocks_are_no_parts() -> None:
    """Thinking that the API does not show: the text after it is the first part."""
    story = Story()
    story.prompts()
    story.hears(init(), begin(), block(0, type="thinking", thinking=""), piece(0, type="signature_delta", signature="x"))
    story.hears(block(1, type="redacted_thinking", data="x"), block(2, type="text", text=""))
    story.hears(piece(2, type="text_delta", text="Hi"), over("end_turn"), STOP)
    (message,) = story.items(ItemKind.MESSAGE)
    assert [part.type for part in message.content] == ["text"]
    assert [fact.data.part_index for fact in story.facts(EventType.ITEM_DELTA)] == [0]
    assert message.metadata["usage"] == {"input": 9, "output": 4, "reasoning": 0, "cache_read": 0, "cache_write": 0}


def test_a_text_that_was_streamed_in_part_is_made_whole() -> None:
    story = Story()
    story.prompts()
    story.hears(init(), begin(), block(0, type="text", text=""), piece(0, type="text_delta", text="Hel"))
    story.hears(assistant(text("Hello"), id="m1"), over("end_turn"), STOP)
    deltas = [(fact.data.delta, fact.synthetic) for fact in story.facts(EventType.ITEM_DELTA)]
    assert deltas == [("Hel", False), ("lo", True)]
    assert story.texts() == ["Hello"]


def test_a_text_that_was_streamed_otherwise_stays_as_it_was_seen() -> None:
    story = Story()
    story.prompts()
    story.hears(init(), begin(), block(0, type="text", text=""), piece(0, type="text_delta", text="Hello"))
    story.hears(assistant(text("Bye"), id="m1"), over("end_turn"), STOP)
    assert story.texts() == ["Hello"]


def test_the_next_request_ends_a_message_that_was_not_streamed() -> None:
    story = Story()
    story.prompts()
    story.hears(init(), assistant(text("cut")), status_requesting())
    assert story.texts() == ["cut"]


def test_a_call_whose_arguments_never_came_whole() -> None:
    story = Story()
    story.prompts()
    story.hears(init(), begin(), block(0, type="tool_use", id="t1", name="Bash", input={}))
    story.hears(piece(0, type="input_json_delta", partial_json='{"comm'), begin("m2"), over("end_turn"), STOP)
    story.receive(b'{"type":"result","subtype":"success","is_error":false}')
    (call,) = story.items(ItemKind.TOOL_CALL)
    assert (call.status, call.content[0].arguments, call.metadata) == (ItemStatus.FAILED, '{"comm', {"interrupted": True})
    assert story.items(ItemKind.TOOL_RESULT) == []


def test_a_second_result_of_a_call_is_nobodys() -> None:
    story = Story()
    story.prompts()
    story.hears(init(), assistant(tool_use("t1", "Bash", command="ls")), tool_result("t1", "a"), tool_result("t1", "b"))
    assert [item.content[0].output for item in story.items(ItemKind.TOOL_RESULT)] == ["a"]
    assert story.codec.counters()["ignored:tool_result of no open call"] == 1


def test_a_call_after_the_end_of_its_message_belongs_to_it() -> None:
    """2.1.197 runs a tool before the next one of the same message is told."""
    story = Story()
    story.prompts()
    story.hears(init(), assistant(text("Two."), tool_use("t1", "Read")), tool_result("t1", "a"))
    story.hears(assistant(tool_use("t2", "Read")), tool_result("t2", "b"))
    first, second = story.items(ItemKind.TOOL_CALL)
    assert first.parent_id == second.parent_id == story.items(ItemKind.MESSAGE)[0].item_id
    assert len(story.items(ItemKind.MESSAGE)) == 1


def test_several_results_in_one_line_are_not_structured() -> None:
    story = Story()
    story.prompts()
    story.hears(init(), assistant(tool_use("t1", "Bash"), tool_use("t2", "Bash")))
    line = tool_result("t1", "a", {"stdout": "a", "stderr": ""})
    line["message"]["content"] += tool_result("t2", "b")["message"]["content"]
    story.hears(line)
    assert [item.metadata for item in story.items(ItemKind.TOOL_RESULT)] == [{"exit_code": 0}] * 2
