"""Tables of the agents' tools: how a model calls a read, an edit, a command and so on with each agent.

`dialect` recognises an agent by the tools that its request offers. Source: requests of Claude Code 2.1.330,
OpenCode 1.18.33, Codex 0.169.0 and Pi 0.87.1 to this server.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from shim.dev.scripted.schemas import OPTIONS, TODOS, Schemas, generic
from universal.items import Json
from universal.lib.jsonvalue import arr, obj

Body: TypeAlias = dict[str, Json]


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call of the model. `free`: the whole input as text, for tools without JSON input (Codex's `apply_patch`)."""

    name: str
    arguments: Body
    free: str | None = None


Tool: TypeAlias = Callable[[tuple[str, ...]], Call]
Dialect: TypeAlias = Mapping[str, Tool]

QUESTION: Body = {"question": "Which colour?", "header": "Colour", "options": OPTIONS}

CLAUDE: Dialect = {
    "read": lambda a: Call("Read", {"file_path": a[0]}),
    "edit": lambda a: Call("Edit", {"file_path": a[0], "old_string": a[1], "new_string": a[2]}),
    "write": lambda a: Call("Write", {"file_path": a[0], "content": a[1]}),
    "bash": lambda a: Call("Bash", {"command": a[0], "description": "run a command"}),
    "question": lambda _: Call("AskUserQuestion", {"questions": [{**QUESTION, "multiSelect": False}]}),
    "todo": lambda _: Call("TodoWrite", {"todos": [{"content": c, "status": s, "activeForm": f"doing {c}"} for c, s in TODOS]}),
    "task": lambda a: Call("Agent", {"description": "look around", "prompt": a[0], "subagent_type": "general-purpose"}),
    "plan": lambda _: Call("ExitPlanMode", {"plan": "1. do it"}),
}

OPENCODE: Dialect = {
    "read": lambda a: Call("read", {"filePath": a[0]}),
    "edit": lambda a: Call("edit", {"filePath": a[0], "oldString": a[1], "newString": a[2]}),
    "write": lambda a: Call("write", {"filePath": a[0], "content": a[1]}),
    "bash": lambda a: Call("bash", {"command": a[0], "description": "run a command"}),
    "question": lambda _: Call("question", {"questions": [QUESTION]}),
    "todo": lambda _: Call("todowrite", {"todos": [{"content": c, "status": s, "priority": "medium"} for c, s in TODOS]}),
    "task": lambda a: Call("task", {"description": "look around", "prompt": a[0], "subagent_type": "general"}),
    "plan": lambda _: Call("plan_exit", {}),
}

PI: Dialect = {
    "read": lambda a: Call("read", {"path": a[0]}),
    "edit": lambda a: Call("edit", {"path": a[0], "edits": [{"oldText": a[1], "newText": a[2]}]}),
    "write": lambda a: Call("write", {"path": a[0], "content": a[1]}),
    "bash": lambda a: Call("bash", {"command": a[0]}),
    "question": lambda _: Call("question", {"questions": [QUESTION]}),
}


def _patch(path: str, body: str, kind: str) -> Call:
    patch = f"*** Begin Patch\n*** {kind} File: {path}\n{body}*** End Patch\n"
    return Call("apply_patch", {"input": patch}, free=patch)


def _plus(text: str) -> str:
    return "".join(f"+{line}\n" for line in text.removesuffix("\n").split("\n"))


CODEX: Dialect = {
    "read": lambda a: Call("exec_command", {"cmd": f"cat {a[0]}"}),
    "edit": lambda a: _patch(a[0], f"@@\n-{a[1]}\n{_plus(a[2])}", "Update"),
    "write": lambda a: _patch(a[0], _plus(a[1]), "Add"),
    "bash": lambda a: Call("exec_command", {"cmd": a[0]}),
    "ask_bash": lambda a: Call(
        "exec_command", {"cmd": a[0], "sandbox_permissions": "require_escalated", "justification": "it writes a file"}
    ),
    "question": lambda _: Call("request_user_input", {"questions": [{**QUESTION, "id": "colour"}]}),
    "todo": lambda _: Call("update_plan", {"explanation": "the plan", "plan": [{"step": c, "status": s} for c, s in TODOS]}),
    "task": lambda a: Call("spawn_agent", {"task_name": "look_around", "message": a[0], "fork_turns": "none"}),
    "wait": lambda _: Call("wait_agent", {}),
    "search": lambda a: Call("tool_search", {"query": a[0], "limit": 8}),
}


def dialect(names: Sequence[str]) -> Dialect:
    """The table of the agent that offers these tools."""
    if "Read" in names or "Bash" in names:
        return CLAUDE
    if {"exec_command", "shell_command", "apply_patch", "exec"} & set(names):
        return CODEX
    if "read" in names and not {"todowrite", "webfetch", "task", "glob"} & set(names):
        return PI
    return OPENCODE


def call(tool: str, arguments: tuple[str, ...], names: Sequence[str], schemas: Schemas | None = None) -> list[Call]:
    """The calls of offered tools for an abstract action; [] if the agent has no tool for it.

    Agents without a table here get calls by the names and schemas of the tools that they offer (`shim.dev.scripted.schemas`).

    `mcp` calls the first offered tool whose name ends with the argument, `named` a tool by its own name. Old Claudes offer `Task`
    for `Agent`, some `TaskCreate` for `TodoWrite`. A Codex without `apply_patch` edits with a command, an old one with
    `shell_command`.
    """
    if tool == "mcp":
        name_of_tool = max((name for name in names if name.endswith(arguments[0])), key=len, default="")  # not Pi's own `read`
        return [Call(name_of_tool, json.loads(arguments[1]))] if name_of_tool else []
    if tool == "named":
        value = json.loads(arguments[1])
        return [Call(arguments[0], {"input": value}, free=value) if isinstance(value, str) else Call(arguments[0], obj(value))]
    table = dialect(names)
    make = table.get(tool) or (table.get("bash") if tool == "ask_bash" else None)
    if make is None:
        return _by_schema(tool, arguments, schemas)
    usual_call = make(arguments)
    is_offered = usual_call.name in names
    if is_offered and not (table in (OPENCODE, CLAUDE) and _is_unfit(usual_call, schemas)):
        return [usual_call]
    if is_offered or table is OPENCODE:
        return _by_schema(tool, arguments, schemas) or [usual_call]
    if usual_call.name == "Agent" and "Task" in names:
        return [Call("Task", usual_call.arguments)]
    if usual_call.name == "TodoWrite" and "TaskCreate" in names:
        tasks = ({"subject": c, "description": f"do {c}", "activeForm": f"doing {c}"} for c, _ in TODOS)
        return [Call("TaskCreate", arguments) for arguments in tasks]
    older = _older_codex(usual_call, names) if table is CODEX else []
    return older or _by_schema(tool, arguments, schemas)


def _is_unfit(usual_call: Call, schemas: Schemas | None) -> bool:
    """Whether a tool of a known name (`edit`) wants other arguments than the one of the table."""
    return not _fits(usual_call.arguments, (schemas or {}).get(usual_call.name, {}))


def _fits(value: Json, schema: Mapping[str, Json]) -> bool:
    """Whether a value has all properties that a schema requires, and none that it forbids."""
    if isinstance(value, list):
        return all(_fits(item, obj(schema.get("items"))) for item in arr(value))
    known, has = obj(schema.get("properties")), obj(value)
    if schema.get("additionalProperties") is False and not has.keys() <= known.keys():
        return False
    is_whole = all(key in has for key in arr(schema.get("required"))) or not isinstance(value, dict)
    return is_whole and all(_fits(inner, obj(known.get(key))) for key, inner in has.items())


def _by_schema(tool: str, arguments: tuple[str, ...], schemas: Schemas | None) -> list[Call]:
    name_and_arguments = generic(tool, arguments, schemas or {})
    if name_and_arguments is None and tool == "edit":  # fast-agent can only write whole files
        name_and_arguments = generic("write", (arguments[0], f"{arguments[2]}\n"), schemas or {})
    return [Call(*name_and_arguments)] if name_and_arguments is not None else []


def _older_codex(usual_call: Call, names: Sequence[str]) -> list[Call]:
    command = str(usual_call.arguments.get("cmd", ""))
    if usual_call.name == "apply_patch":
        command = f"apply_patch <<'EOF'\n{usual_call.free}EOF"
    if not command:
        return []
    rest = {key: value for key, value in usual_call.arguments.items() if key not in ("cmd", "input")}
    if "exec_command" in names:
        return [Call("exec_command", {"cmd": command, **rest})]
    if "shell_command" in names:
        return [Call("shell_command", {"command": command, **rest})]
    if "shell" in names:
        return [Call("shell", {"command": ["bash", "-lc", command], **rest})]
    return []
