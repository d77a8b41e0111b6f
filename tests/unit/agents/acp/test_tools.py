"""What a tool call of an agent that nobody has looked at becomes: its name, its arguments, its output, its failure."""

from __future__ import annotations

from typing import Any

import pytest

from universal.agents.acp.tools import (
    Call,
    arguments_of,
    content_of,
    metadata_of,
    name_of,
    output_of,
    reports_failure,
    rule_metadata,
    rule_name,
    with_grown_arguments,
)
from universal.items import FileRefPart
from universal.tools.cards import view_call


def call_of(update: dict[str, Any], **result: Any) -> Call:
    call = Call("c1", name_of(update), "item_1", "", kind=update.get("kind", ""), title=update.get("title", ""))
    call.merge(update)
    call.merge(result)
    return call


@pytest.mark.parametrize(
    ("kind", "title", "name"),
    [
        ("other", "fetch_web_content: https://x.y", "fetch_web_content"),
        ("", 'skills: {"name":"a"}', "skills"),
        ("other", 'my-server__look.up: {"a":1}', "my-server__look.up"),
        ("other", "Note: this is a sentence", "other"),
        ("read", 'read_files: {"files":[]}', "read"),
        ("edit", "write_text_file", "edit"),
        ("other", "write_text_file", "write_text_file"),
        ("other", "scripted/echo", "mcp__scripted__echo"),
        ("other", "echo (scripted MCP Server)", "mcp__scripted__echo"),
        ("read", "scripted/get-page", "read"),
        ("other", "a/b/c", "other"),
        ("other", "AskUserQuestion", "AskUserQuestion"),
        ("other", "TodoList", "TodoList"),
        ("edit", "todowrite", "edit"),
        ("delete", "read", "delete"),
        ("execute", "mcp__scripted__echo", "execute"),
        ("search", "glob", "glob"),
        ("read", "list", "read"),
    ],
)
def test_a_title_gives_the_name_where_the_kind_tells_nothing(kind: str, title: str, name: str) -> None:
    assert name_of({"kind": kind, "title": title}) == name


@pytest.mark.parametrize(
    ("name", "kind", "expected"),
    [
        ("shell_runner", "execute", "execute"),
        ("str_replace_everywhere", "edit", "edit"),
        ("slurp", "read", "read"),
        ("Bash", "execute", "Bash"),
        ("mcp__files__drop", "delete", "mcp__files__drop"),
        ("weather", "other", "weather"),
    ],
)
def test_the_kind_counts_for_an_unknown_tool_so_that_rules_hold(name: str, kind: str, expected: str) -> None:
    assert name_of({"name": name, "kind": kind, "title": "x"}) == expected


def test_a_title_that_came_before_the_kind_gives_way_to_a_kind_with_rules() -> None:
    begun = Call("c1", "todowrite", "item_1", "", title="todowrite", titled=True)
    assert rule_name(begun, {"title": "todowrite", "kind": "edit"}) == "edit"
    assert rule_name(begun, {"title": "Writing it down", "kind": "other"}) == "todowrite"


def test_the_tasks_of_kimi_code_are_in_the_words_of_clients() -> None:
    call = Call("c1", "TodoList", "item_1", "", raw_input={"todos": [{"title": "first", "status": "done"}]})
    view = view_call("kimi", call.name, arguments_of(call), [])
    [task] = view.input["todos"]
    assert (view.tool, task["content"], task["status"]) == ("todowrite", "first", "completed")


def test_several_commands_are_shown_as_lines_of_one_command() -> None:
    update = {"kind": "execute", "title": "run_commands: ls", "rawInput": {"commands": ["ls", {"command": "rm x"}]}}
    arguments = arguments_of(call_of(update))
    assert arguments["command"] == "ls\nrm x"
    view = view_call("cline", "execute", arguments, [])
    assert (view.tool, view.input["command"]) == ("bash", "ls\nrm x")


def test_a_file_of_a_list_is_the_path_of_the_card() -> None:
    update = {"kind": "read", "title": "read_files: {...", "rawInput": {"files": [{"path": "/p/a"}, {"path": "/p/b"}]}}
    view = view_call("cline", "read", arguments_of(call_of(update)), [])
    assert (view.tool, view.input["filePath"]) == ("read", "/p/a, /p/b")


@pytest.mark.parametrize(("raw_input", "arguments"), [("ls", {"input": "ls"}), (["a"], {"input": ["a"]}), (None, {}), ("", {})])
def test_input_that_is_no_object_is_kept(raw_input: Any, arguments: dict[str, Any]) -> None:
    assert arguments_of(call_of({"kind": "other", "title": "x", "rawInput": raw_input})) == arguments


@pytest.mark.parametrize(
    ("raw_output", "text"),
    [
        ([{"query": "echo hi", "result": "hi\n", "success": True}], "hi\n"),
        ([{"query": "false", "result": "", "error": "exit code 1", "success": False}], "exit code 1"),
        ({"query": "apply_patch", "result": "Successfully applied patch", "success": True}, "Successfully applied patch"),
        (["one", "two"], "one\ntwo"),
        ({"rows": [1, 2], "of": "3"}, '{"rows":[1,2],"of":"3"}'),
        ([{"rows": 1}, {"rows": 2}], '{"rows":1}\n{"rows":2}'),
        ([1, 2], "1\n2"),
        (42, "42"),
        ({"exit_code": 0, "formatted_output": ""}, ""),
        ({"result": None, "error": {"message": "no such tool"}}, "no such tool"),
        ({}, ""),
    ],
)
def test_an_output_of_any_form_is_shown(raw_output: Any, text: str) -> None:
    assert output_of(call_of({"kind": "other", "title": "x"}, rawOutput=raw_output)) == text


def test_content_goes_before_an_output_of_unknown_form() -> None:
    content = [{"type": "content", "content": {"type": "text", "text": "done"}}]
    assert output_of(call_of({"kind": "other", "title": "x"}, rawOutput={"rows": 1}, content=content)) == "done"


@pytest.mark.parametrize(
    ("raw_output", "failed"),
    [
        ([{"success": True}, {"success": False}], True),
        ({"success": False}, True),
        ({"success": True}, False),
        ({"success": None}, False),
        ("success: false", False),
    ],
)
def test_success_false_is_a_failure(raw_output: Any, failed: bool) -> None:
    assert reports_failure(call_of({"kind": "other"}, rawOutput=raw_output)) is failed


PATCH = """*** Begin Patch
*** Update File: ./a.md
@@
 kept
-old
+new
*** Add File: b.md
+one
+two
*** Delete File: c.md
*** End Patch
"""


def test_a_patch_in_the_arguments_tells_its_files() -> None:
    call = call_of({"kind": "other", "title": "apply_patch: {...", "rawInput": {"input": PATCH}}, rawOutput="done")
    parts = [part for part in content_of(call, failed=False) if isinstance(part, FileRefPart)]
    assert [(part.path, part.action, part.diff) for part in parts] == [
        ("./a.md", "patch", "--- ./a.md\n+++ ./a.md\n@@ -1,2 +1,2 @@\n kept\n-old\n+new\n"),
        ("b.md", "write", "--- /dev/null\n+++ b.md\n@@ -0,0 +1,2 @@\n+one\n+two\n"),
        ("c.md", "patch", None),
    ]
    assert content_of(call, failed=True)[1:] == ()


def growing_update(text: str, **more: Any) -> dict[str, Any]:
    """An update of Kimi Code: the arguments so far, as text of the call's content."""
    return {"status": "in_progress", "content": [{"type": "content", "content": {"type": "text", "text": text}}], **more}


def test_arguments_that_grow_as_content_are_arguments_and_no_output() -> None:
    call = Call("c1", "execute", "item_1", "", kind="execute", title="Bash")
    for text, known in (("", {}), ('{"command": "rm -', {}), ('{"command": "rm -r x"}', {"command": "rm -r x"})):
        update = with_grown_arguments(growing_update(text))
        assert update["status"] == "", "it does not run yet"
        call.merge(update)
        assert (call.raw_input, output_of(call)) == (known, "")
    assert rule_metadata(call, {"title": "Bash"}) == {}, "rules see the command: nothing of it is opaque"
    assert arguments_of(call) == {"command": "rm -r x"}
    diff = {"type": "diff", "path": "/p/a", "oldText": "x", "newText": "y"}
    runs = with_grown_arguments(
        growing_update("{}", rawInput={"command": "rm -r x"}, content=[diff, *growing_update("{}")["content"]])
    )
    assert (runs["status"], runs["content"]) == ("in_progress", [diff])
    ended = {"status": "completed", "content": growing_update("done")["content"]}
    assert with_grown_arguments(ended) is ended


@pytest.mark.parametrize("text", ["[1]", '"rm"', "{" * 5000, '{"command": 3', "null"])
def test_growing_arguments_that_are_no_object_stay_unknown(text: str) -> None:
    call = Call("c1", "execute", "item_1", "", kind="execute", title="Bash")
    call.merge(with_grown_arguments(growing_update(text)))
    assert rule_metadata(call, {"title": "Bash"}) == {"opaque": True}


def test_the_change_of_an_edit_stays_when_words_end_it() -> None:
    diff = {"type": "diff", "path": "/p/a", "oldText": "x\n", "newText": "y\n"}
    words = {"type": "content", "content": {"type": "text", "text": "Replaced 1 occurrence"}}
    call = call_of({"kind": "edit", "title": "Editing a", "content": [diff]}, content=[words])
    [file] = [part for part in content_of(call, failed=False) if isinstance(part, FileRefPart)]
    assert (file.path, "+y" in (file.diff or "")) == ("/p/a", True)
    assert output_of(call) == "Replaced 1 occurrence"
    call.merge({"content": [{**diff, "newText": "z\n"}]})
    assert [block["newText"] for block in call.content] == ["z\n"], "a newer change takes its place"
    assert not [part for part in content_of(call, failed=True) if isinstance(part, FileRefPart)]


def test_title_that_is_an_mcp_tools_name_is_the_name() -> None:
    assert name_of({"kind": "other", "title": "mcp__scripted__echo"}) == "mcp__scripted__echo"


@pytest.mark.parametrize(
    ("update", "title"),
    [
        ({"kind": "other", "title": "echo (scripted MCP Server)"}, "echo (scripted MCP Server)"),
        ({"kind": "other", "title": "mcp__scripted__echo"}, None),
        ({"kind": "other"}, None),
        ({"kind": "execute", "title": "ls"}, None),
    ],
)
def test_card_of_no_known_tool_has_the_title_that_the_agent_tells(update: dict[str, Any], title: str | None) -> None:
    assert metadata_of(call_of(update)).get("title") == title


@pytest.mark.parametrize(
    ("kind", "raw", "output", "code"),
    [
        ("execute", "made\n\n\n[Exit code: 3]", "made", 3),
        ("execute", "\n[Exit code: -9]", "", -9),
        ("execute", "made\n", "made\n", None),
        ("read", "[Exit code: 3]", "[Exit code: 3]", None),
    ],
)
def test_an_exit_code_in_words_is_no_output(kind: str, raw: str, output: str, code: int | None) -> None:
    call = call_of({"kind": kind}, rawOutput=raw)
    assert (output_of(call), metadata_of(call).get("exit_code")) == (output, code)
