"""Makes calls of tools that no table has: finds the tool by its name, and its arguments by its schema.

So any agent can play the scenes. If no name of an offered tool fits, there is no call.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeAlias

from universal.items import Json
from universal.lib.jsonvalue import arr, obj, text

Schemas: TypeAlias = Mapping[str, Mapping[str, Json]]
"""Name of an offered tool -> the JSON schema of its arguments."""

DEPTH = 12
"""Levels of a schema down to which references are followed. Some definitions hold themselves."""

ROLES: Mapping[str, tuple[str, ...]] = {
    "read": (r"read_?(text_?)?files?", r"view(_file)?", r"open_?file", r"file_?read", r"cat", r"read"),
    "edit": (
        r"replace_in_file",
        r"(str|string|search)(_and)?_?replace(_editor)?",
        r"edit(_?file)?s?",
        r"replace",
        r"(text_)?editor",
        r"apply_(patch|diff)",
    ),
    "write": (r"write(_?(to_|text_)?file)?", r"create(_?file)?", r"new_?file", r"file_?write", r"save_?file", r"(text_)?editor"),
    "bash": (
        r"(execute|run)_?(shell_?)?commands?",
        r"run_(in_)?terminal(_cmd)?",
        r"run_shell",
        r"bash",
        r"shell",
        r"terminal",
        r"exec(ute)?(_command)?",
        r"launch_process",
    ),
    "question": (r"ask_?(user|followup_question|human|questions?)(_questions?)?", r"questions?", r"ask"),
    "todo": (r"(write|update|manage)_?todos?(_list)?", r"todo(_?(write|list|update))?", r"(update_)?plan", r"update_task_list"),
    "task": (r"(new_)?(sub_?)?task", r"(spawn_|use_|run_)?(sub)?agents?", r"delegate(_task)?"),
}
"""Abstract action -> names of tools that do it, the most specific first. Whole names, in any case."""

PATHS = re.compile(r"^(absolute_?|target_?|relative_?|file_?)?(path|file|file_?name)s?$", re.I)
OLD = re.compile(r"^(old|search|find|from)(_?(str(ing)?|text|content))?$", re.I)
NEW = re.compile(r"^(new|replace(ment)?|to)(_?(str(ing)?|text|content))?$", re.I)
CONTENT = re.compile(r"^(file_?)?(contents?|text|body|data)$", re.I)
COMMAND = re.compile(r"^(cmd|command|script|input)s?(_?line)?$", re.I)
DIFF = re.compile(r"^(diff|patch|input)$", re.I)
QUESTION = re.compile(r"^(question|prompt|message|text)s?$", re.I)
PROMPT = re.compile(r"^(prompt|task|message|instructions?|description|context)$", re.I)

PARTS: Mapping[str, tuple[tuple[re.Pattern[str], int], ...]] = {
    "read": ((PATHS, 0),),
    "edit": ((PATHS, 0), (OLD, 1), (NEW, 2)),
    "write": ((PATHS, 0), (CONTENT, 1)),
    "bash": ((COMMAND, 0),),
    "question": ((QUESTION, 0),),
    "todo": (),
    "task": ((PROMPT, 0),),
}
"""Abstract action -> (names of a property, index of the argument that it takes)."""


TODOS = (("first", "completed"), ("second", "in_progress"))
"""(text, status) of the tasks in a list of tasks."""
DONE = {"completed": "done"}
"""State of a task -> the word of others for it."""
OPTIONS: list[Json] = [{"label": "Red", "description": "warm"}, {"label": "Blue", "description": "cool"}]
"""The answers to choose from."""
ROWS: Mapping[str, tuple[re.Pattern[str], tuple[Mapping[str, str], ...]]] = {
    "question": (
        re.compile(r"^(options|choices|answers)$", re.I),
        tuple({key: text(value) for key, value in obj(option).items()} for option in OPTIONS),
    ),
    "todo": (
        re.compile(r"^(todos?|plan|items|tasks|steps|todo_?list)$", re.I),
        tuple({"content": content, "status": status} for content, status in TODOS),
    ),
}
"""Abstract action -> (name of a list of objects, its rows)."""
ALIASES: Mapping[str, str] = {
    **dict.fromkeys(("title", "value"), "label"),
    **dict.fromkeys(("text", "step", "subject", "name", "task", "description", "id"), "content"),
    "state": "status",
}
"""Name of a property -> the key of a row that fills it."""


def tool_for(tool: str, offered: Schemas) -> str | None:
    """The offered tool for an abstract action, or None."""
    for pattern in ROLES.get(tool, ()):
        for name in offered:
            if re.fullmatch(pattern, _snake(name)):
                return name
    return None


def generic(tool: str, arguments: tuple[str, ...], offered: Schemas) -> tuple[str, dict[str, Json]] | None:
    """(tool, arguments) for an abstract action, or None if no offered tool does it."""
    role = "bash" if tool == "ask_bash" else tool
    name = tool_for(role, offered)
    if name is None:
        return None
    return name, obj(_value_of({"type": "object", **offered[name]}, role, arguments, ""))


def value_for(schema: Mapping[str, Json]) -> Json:
    """The simplest value that a schema allows."""
    return _value_of(schema, "", (), "")


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).replace("-", "_").lower()


def _value_of(schema: Mapping[str, Json], role: str, arguments: tuple[str, ...], name: str) -> Json:
    """A value for a schema: the action's argument for the property `name`, else the simplest allowed value."""
    kind = _type(schema)
    if kind == "object":
        properties, required = obj(schema.get("properties")), {text(entry) for entry in arr(schema.get("required"))}
        keys = [
            key for key in properties if key in required or _is_list(key, role) or _argument(key, role, arguments) is not None
        ]
        return {key: _value_of(obj(properties[key]), role, arguments, key) for key in keys}
    if kind == "array":
        wholes = [schema, *(obj(choice) for key in ("anyOf", "oneOf") for choice in arr(schema.get(key)))]
        items = obj(next((whole["items"] for whole in wholes if "items" in whole), None))
        if _is_list(name, role):
            return [_row(items, row) for row in ROWS[role][1]]
        return [_value_of(items, role, arguments, name)]
    if "enum" in schema:
        return "write" if "write" in arr(schema["enum"]) else arr(schema["enum"])[0]
    if kind in ("integer", "number"):
        return 1
    if kind == "boolean":
        return True
    argument = _argument(name, role, arguments)
    return argument if argument is not None else f"a {name or 'value'}"


def _is_list(name: str, role: str) -> bool:
    """Whether a property is the action's list of objects."""
    return role in ROWS and ROWS[role][0].match(name) is not None


def _row(schema: Mapping[str, Json], row: Mapping[str, str]) -> Json:
    """An element of a list of objects, or of a list of texts."""
    if _type(schema) != "object":
        return next(iter(row.values()))
    required = {text(one) for one in arr(schema.get("required"))}
    made: dict[str, Json] = {}
    for key, inner in obj(schema.get("properties")).items():
        value = row.get(key) or row.get(ALIASES.get(key, "")) or (row.get("content") if key == "title" else None)
        value = DONE.get(value or "") if value not in arr(obj(inner).get("enum") or [value]) else value
        if value is not None and value in arr(obj(inner).get("enum") or [value]):
            made[key] = value
        elif key in required:
            made[key] = _value_of(obj(inner), "", (), key)
    return made


def _type(schema: Mapping[str, Json]) -> str:
    kinds = [text(kind).lower() for kind in arr(schema.get("type")) or [schema.get("type")]]
    if kinds == [""]:
        alternatives = [obj(choice) for key in ("anyOf", "oneOf") for choice in arr(schema.get(key))]
        if alternatives:
            return _type(alternatives[0])
        return "object" if "properties" in schema else "string"
    return next((kind for kind in kinds if kind != "null"), "string")


def _argument(name: str, role: str, arguments: tuple[str, ...]) -> str | None:
    """The argument of the action that a property takes, or None."""
    if role == "edit" and DIFF.match(name):
        return _patch(name, arguments)
    if role == "question" and QUESTION.match(name):
        return "Which colour?"
    return next((arguments[at] for pattern, at in PARTS.get(role, ()) if pattern.match(name) and at < len(arguments)), None)


def _patch(name: str, arguments: tuple[str, ...]) -> str:
    """An edit as text: blocks of search and replacement for a property `diff`, else a patch of Codex's `apply_patch`."""
    path, old, new = arguments
    if name.lower() == "diff":
        return f"------- SEARCH\n{old}\n=======\n{new}\n+++++++ REPLACE\n"
    lines = "".join(f"+{line}\n" for line in new.split("\n"))
    return f"*** Begin Patch\n*** Update File: {path}\n@@\n-{old}\n{lines}*** End Patch\n"


def schemas_of(body: Mapping[str, Json]) -> Schemas:
    """The tools that a request offers. The three wires name the schema differently; Chat Completions nests the tool."""
    schemas: dict[str, Mapping[str, Json]] = {}
    for row in map(obj, arr(body.get("tools"))):
        tool = obj(row.get("function")) or row
        if tool.get("name"):
            schema = obj(tool.get("input_schema") or tool.get("parameters"))
            schemas[text(tool["name"])] = obj(_whole(schema, obj(schema.get("$defs"))))
    return schemas


def _whole(schema: Json, defs: Mapping[str, Json], depth: int = 0) -> Json:
    """A schema with its definitions in the place of references to them."""
    if isinstance(schema, list):
        return [_whole(entry, defs, depth) for entry in arr(schema)]
    own = obj(schema)
    if not own or depth > DEPTH:
        return schema
    whole = {**obj(defs.get(text(own.get("$ref")).removeprefix("#/$defs/"))), **own}
    return {key: _whole(value, defs, depth + 1) for key, value in whole.items() if key != "$defs"}
