"""Steps and calls on the OpenCode 2 face: times and texts; names, arguments, results."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.opencode2_story import STEP_MS, Story
from universal.items import FileRefPart, ImagePart

PATH = "/home/user/project/a.txt"
DIFF = "--- a\n+++ b\n@@ -1 +1,2 @@\n a\n+b\n"
PATCH = f"Index: a.txt\n{'=' * 67}\n--- a.txt\n+++ a.txt\n@@ -1 +1,2 @@\n a\n+b\n"


def play(agent: str, tool: str, given: dict[str, Any], output: str, *more: Any, **metadata: Any) -> Story:
    """One call of an agent."""
    story = Story(agent=agent)
    story.prompt("go")
    item = story.message()
    story.call(tool, given, parent=item)
    story.result(output, *more, **metadata)
    story.whole(item)
    story.end()
    return story


def step_of(story: Story) -> dict[str, Any]:
    return next(m for m in story.now.messages.values() if m["type"] == "assistant")


def tool_of(story: Story) -> dict[str, Any]:
    return next(p for m in story.now.messages.values() for p in m.get("content", ()) if p["type"] == "tool")


@pytest.mark.parametrize(
    ("tool", "given", "name", "named"),
    [
        ("Bash", {"command": "ls"}, "shell", {"command": "ls"}),
        ("Read", {"file_path": PATH}, "read", {"path": PATH}),
        ("Write", {"file_path": PATH, "content": "a"}, "write", {"path": PATH, "content": "a"}),
        (
            "Edit",
            {"file_path": PATH, "old_string": "a", "new_string": "b"},
            "edit",
            {"path": PATH, "oldString": "a", "newString": "b"},
        ),
        ("Agent", {"prompt": "p", "subagent_type": "x"}, "subagent", {"prompt": "p", "agent": "x"}),
        ("Skill", {"skill": "demo"}, "skill", {"id": "demo"}),
        ("TodoWrite", {"todos": []}, "todowrite", {"todos": []}),
        ("mcp__server__tool", {"a": 1}, "server_tool", {"a": 1}),
    ],
)
def test_names(tool: str, given: dict[str, Any], name: str, named: dict[str, Any]) -> None:
    story = play("claude", tool, given, "done")
    shown = tool_of(story)
    assert (shown["name"], shown["state"]["input"]) == (name, named)
    assert [e.type.removeprefix("session.tool.") for e in story.told if ".tool." in e.type] == [
        *("input.started", "input.ended", "called", "success")
    ]


@pytest.mark.parametrize(
    ("tool", "given", "files", "metadata", "expected"),
    [
        ("Bash", {"command": "ls"}, (), {"exit_code": 2}, {"exit": 2, "truncated": False}),
        ("Read", {"file_path": PATH}, (), {}, None),
        (
            "Edit",
            {"file_path": PATH},
            (FileRefPart(path=PATH, action="patch", diff=DIFF),),
            {},
            {"files": [{"file": "a.txt", "patch": PATCH, "additions": 1, "deletions": 0, "status": "modified"}]},
        ),
        (
            "Write",
            {"file_path": PATH, "content": "a\nb\n"},
            (),
            {},
            {
                "files": [
                    {
                        **{"file": "a.txt", "additions": 2, "deletions": 0, "status": "added"},
                        "patch": f"Index: a.txt\n{'=' * 67}\n--- a.txt\n+++ a.txt\n@@ -0,0 +1,2 @@\n+a\n+b\n",
                    }
                ]
            },
        ),
        ("AskUserQuestion", {"questions": []}, (), {"answers": [["Red"]]}, {"answers": [["Red"]]}),
        ("Agent", {"prompt": "p"}, (), {}, {"status": "completed"}),
    ],
)
def test_metadata(tool: str, given: Any, files: Any, metadata: Any, expected: Any) -> None:
    state = tool_of(play("claude", tool, given, "done", *files, **metadata))["state"]
    assert state.get("metadata") == expected


def test_the_reader_gets_the_exit_code() -> None:
    state = tool_of(play("claude", "Bash", {"command": "ls"}, "a.txt", exit_code=0))["state"]
    assert [part["text"] for part in state["content"]] == ["a.txt", "Command exited with code 0."]


def test_an_image_is_a_file() -> None:
    image = ImagePart(path="data:image/png;base64,AAAA", mime="image/png")
    state = tool_of(play("mock", "mystery", {}, "", image))["state"]
    assert state["content"] == [
        {"type": "text", "text": ""},
        {"type": "file", "uri": "data:image/png;base64,AAAA", "mime": "image/png"},
    ]


def test_a_subagent_is_named_while_it_works_and_says_its_words_in_the_end() -> None:
    story = Story(agent="claude")
    story.prompt("go")
    item = story.message()
    story.call("Agent", {"prompt": "p", "description": "d"}, parent=item)
    child = f"ses_{7:026d}"
    story.status("child", call_id="call_1", session_id=child)
    (progress,) = (e for e in story.told if e.type == "session.tool.progress")
    assert progress.data["metadata"] == {"sessionID": child, "status": "running"}
    assert progress.seq is None
    story.result("I see.")
    state = tool_of(story)["state"]
    assert state["content"] == [{"type": "text", "text": "I see."}]
    assert state["metadata"] == {"sessionID": child, "status": "completed"}


def test_a_command_tells_what_it_gave_so_far() -> None:
    story = Story()
    story.prompt("go")
    item = story.message()
    story.call("bash", {"command": "ls"}, parent=item)
    output = story.output()
    story.delta(output, "a\n", kind="tool_output")
    story.delta(output, "b\n", kind="tool_output")
    told = [e.data["metadata"]["output"] for e in story.told if e.type == "session.tool.progress"]
    assert told == ["a\n", "a\nb\n"]
    assert tool_of(story)["state"]["metadata"]["output"] == "a\nb\n"


def test_pieces_of_arguments_are_sent_until_they_are_whole() -> None:
    story = Story()
    story.prompt("go")
    item = story.message()
    call = story.call("bash", {}, parent=item, done=False)
    story.delta(call, '{"comm', kind="tool_input")
    assert story.told[-1].data["delta"] == '{"comm'
    assert tool_of(story)["state"] == {"status": "streaming", "input": ""}
    story.set_arguments(call, "bash", {"command": "ls"}, parent=item)
    before = len(story.told)
    story.delta(call, "late", kind="tool_input")
    assert story.told[before:] == []


def test_a_call_that_is_cut_off_ends_with_its_turn() -> None:
    """Also one whose arguments never came: each has been called once it ends."""
    story = Story()
    story.prompt("go")
    story.call("bash", {}, parent=story.message(), done=False)
    story.end("aborted")
    assert [e.type.removeprefix("session.tool.") for e in story.told if ".tool." in e.type] == [
        *("input.started", "input.ended", "called", "failed")
    ]
    assert tool_of(story)["state"]["error"] == {"type": "aborted", "message": "Tool execution interrupted"}


def test_a_text_that_has_ended_is_whole_in_get_while_a_permission_waits() -> None:
    story = Story()
    story.prompt("hello")
    item = story.message()
    story.delta(item, "Let me run that.")
    story.call("bash", {"command": "echo hi"}, parent=item)
    story.ask(command="echo hi")
    assert step_of(story)["content"][0] == {"type": "text", "text": "Let me run that."}


def test_a_turn_that_failed_before_its_first_word_lasted_since_its_prompt() -> None:
    """Clients show how long a turn took by the times of its step, and nothing for 0 ms."""
    story = Story()
    story.prompt("hello")
    asked = story.told[-1].created
    story.error("API Error: 400")
    story.end("error")
    step = step_of(story)
    assert step["time"] == {"created": asked, "completed": asked + STEP_MS}
    [start] = (event for event in story.told if event.type == "session.step.started")
    assert (start.created, start.data["started"]) == (asked, asked)
