"""Calls of tools that no table knows: by name and schema of what the agent offers."""

from __future__ import annotations

from typing import Any

import pytest

from shim.dev.scripted.schemas import generic, schemas_of, tool_for
from shim.dev.scripted.tools import call

TEXT = {"type": "string"}
CLINE: dict[str, dict[str, Any]] = {
    "read_files": {
        "type": "object",
        "properties": {
            "files": {"type": "array", "items": {"type": "object", "properties": {"path": TEXT}, "required": ["path"]}}
        },
        "required": ["files"],
    },
    "apply_patch": {"type": "object", "properties": {"input": TEXT}, "required": ["input"]},
    "run_commands": {"type": "object", "properties": {"commands": {"type": "array", "items": TEXT}}, "required": ["commands"]},
}
GEMINI: dict[str, dict[str, Any]] = {
    "read_file": {
        "type": "object",
        "properties": {"absolute_path": TEXT, "limit": {"type": "number"}},
        "required": ["absolute_path"],
    },
    "replace": {
        "type": "object",
        "properties": {"file_path": TEXT, "old_string": TEXT, "new_string": TEXT, "expected_replacements": {"type": "number"}},
        "required": ["file_path", "old_string", "new_string"],
    },
    "write_file": {"properties": {"file_path": TEXT, "content": TEXT}, "required": ["file_path", "content"]},
    "run_shell_command": {
        "type": "object",
        "properties": {"command": TEXT, "is_background": {"type": "boolean"}},
        "required": ["command"],
    },
}
OLD_CLINE: dict[str, dict[str, Any]] = {
    "replace_in_file": {"type": "object", "properties": {"path": TEXT, "diff": TEXT}, "required": ["path", "diff"]},
    "execute_command": {
        "type": "object",
        "properties": {"command": TEXT, "requires_approval": {"type": "boolean"}},
        "required": ["command", "requires_approval"],
    },
    "ask_followup_question": {"type": "object", "properties": {"question": TEXT}, "required": ["question"]},
}


@pytest.mark.parametrize(
    ("offered", "tool", "arguments", "call_"),
    [
        (CLINE, "read", ("/p/a",), ("read_files", {"files": [{"path": "/p/a"}]})),
        (CLINE, "bash", ("echo hi",), ("run_commands", {"commands": ["echo hi"]})),
        (CLINE, "ask_bash", ("touch x",), ("run_commands", {"commands": ["touch x"]})),
        (GEMINI, "read", ("/p/a",), ("read_file", {"absolute_path": "/p/a"})),
        (GEMINI, "edit", ("/p/a", "x", "y"), ("replace", {"file_path": "/p/a", "old_string": "x", "new_string": "y"})),
        (GEMINI, "write", ("/p/a", "x"), ("write_file", {"file_path": "/p/a", "content": "x"})),
        (GEMINI, "bash", ("ls",), ("run_shell_command", {"command": "ls"})),
        (OLD_CLINE, "bash", ("ls",), ("execute_command", {"command": "ls", "requires_approval": True})),
        (OLD_CLINE, "question", (), ("ask_followup_question", {"question": "Which colour?"})),
    ],
)
def test_call_fits_the_schema_of_the_offered_tool(
    offered: dict[str, Any], tool: str, arguments: tuple[str, ...], call_: tuple[str, dict[str, Any]]
) -> None:
    assert generic(tool, arguments, offered) == call_


def test_edit_is_written_as_the_text_that_the_tool_takes() -> None:
    found = generic("edit", ("/p/a", "x", "y"), CLINE)
    assert found == ("apply_patch", {"input": "*** Begin Patch\n*** Update File: /p/a\n@@\n-x\n+y\n*** End Patch\n"})
    found = generic("edit", ("/p/a", "x", "y"), OLD_CLINE)
    assert found == ("replace_in_file", {"path": "/p/a", "diff": "------- SEARCH\nx\n=======\ny\n+++++++ REPLACE\n"})


def test_a_list_of_tasks_has_the_words_of_the_schema() -> None:
    """Kimi Code's `TodoList`."""
    task = {"type": "object", "properties": {"title": TEXT, "status": {**TEXT, "enum": ["pending", "in_progress", "done"]}}}
    schema = {
        "properties": {"todos": {"type": "array", "items": {**task, "required": ["title", "status"]}}},
        "required": ["todos"],
    }
    made = generic("todo", (), {"TodoList": schema})
    assert made == ("TodoList", {"todos": [{"title": "first", "status": "done"}, {"title": "second", "status": "in_progress"}]})


def test_no_call_is_made_up_for_a_tool_that_is_not_offered() -> None:
    assert generic("todo", (), GEMINI) is None
    assert tool_for("question", {"ask_oracle": {}}) is None


@pytest.mark.parametrize(
    "tool",
    [
        {"name": "read_file", "input_schema": GEMINI["read_file"]},
        {"type": "function", "function": {"name": "read_file", "parameters": GEMINI["read_file"]}},
        {"type": "function", "name": "read_file", "parameters": GEMINI["read_file"]},
    ],
)
def test_schemas_are_read_from_each_wire(tool: dict[str, Any]) -> None:
    assert schemas_of({"tools": [tool]}) == {"read_file": GEMINI["read_file"]}


def test_agents_of_the_table_keep_their_calls() -> None:
    names = ("read", "edit", "bash", "todowrite", "webfetch")
    schemas = {name: {"type": "object", "properties": {"other": TEXT}} for name in names}
    [found] = call("bash", ("ls",), names, schemas)
    assert (found.name, found.arguments["command"]) == ("bash", "ls")


@pytest.mark.parametrize(("tool", "name"), [("read", "read_files"), ("bash", "run_commands"), ("edit", "apply_patch")])
def test_agent_with_codexs_patch_tool_gets_calls_of_its_own_other_tools(tool: str, name: str) -> None:
    [made] = call(tool, ("/p/a", "x", "y"), tuple(CLINE), CLINE)
    assert made.name == name


def test_tool_of_a_known_name_with_other_arguments_gets_them() -> None:
    """Qwen Code's `edit` wants `file_path`, OpenCode's `filePath`."""
    schema = {"properties": {key: TEXT for key in ("file_path", "old_string", "new_string")}, "required": ["file_path"]}
    [made] = call("edit", ("/p/a", "x", "y"), ("edit", "todowrite"), {"edit": schema})
    assert (made.name, made.arguments) == ("edit", {"file_path": "/p/a", "old_string": "x", "new_string": "y"})


def test_an_agent_that_only_writes_gets_an_edit_as_the_whole_file() -> None:
    """fast-agent's tools over ACP."""
    keys = ("path", "content")
    schemas = {"write_text_file": {"properties": dict.fromkeys(keys, TEXT), "required": list(keys)}}
    [made] = call("edit", ("/p/a", "x", "y"), tuple(schemas), schemas)
    assert (made.name, made.arguments) == ("write_text_file", {"path": "/p/a", "content": "y\n"})
