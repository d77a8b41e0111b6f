"""Converts tool calls and results of all agents to OpenCode's form, so that its UIs draw their own cards. Pure.

`tools_of` is the table of an agent: its tool name -> OpenCode's name, and the new names of the arguments. `RESULTS` has a
function for each of OpenCode's tools, which makes output, title and metadata from the universal result. Unknown tools keep their
name; MCP tools (`mcp__SERVER__TOOL`) become `SERVER_TOOL`.
Source: recordings of OpenCode 1.18.33 (`read_edit`, `write`, `bash`, `todo`, `task`, `question_reply`, `glob`, `grep`).
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from universal.items import FileRefPart, ImagePart, Item, ToolResultPart
from universal.lib.diffs import count, hunks, with_index_header
from universal.lib.jsonvalue import JsonObject, arr, obj, whole
from universal.lib.paths import relative
from universal.opencode_metadata import NativeResult, result_of
from universal.permissions import served_name
from universal.setup import TOOLS_SERVER
from universal.tools import tools_of

_OWN = f"mcp__{TOOLS_SERVER}__"
_NOT_SERVED = frozenset({"apply_patch", "doom_loop", "external_directory", "mcp_resource", "plan_enter", "plan_exit"})
"""Permissions of other things than MCP servers' tools. Such a tool (`directory` of the server `external`) keeps its own name."""
PREVIEW_LINES = 20
REFUSALS_KEY = "refusals"
"""Key in a result's metadata for sentences on what a sandbox has refused the call."""
_REFUSALS = re.compile(r"(\n\n\[sandbox\] [^\n]*)+\Z")
SHOWN_CHARS = 2**20
"""Maximum characters of a tool's output that clients get: half from its beginning, half from its end. OpenCode's tools return at
most 50 KB; other agents have limits of about 30 KB."""


@dataclass(frozen=True, slots=True)
class ToolView:
    """A tool call in OpenCode's form."""

    tool: str
    input: JsonObject


@dataclass(frozen=True, slots=True)
class ToolContext:
    """The context that titles depend on."""

    directory: str
    agent: str
    session_id: str
    child_session_id: str | None = None
    model: tuple[str, str] | None = None
    """Provider and model of the message that holds the call."""


@dataclass(frozen=True, slots=True)
class ResultView:
    """A finished tool call in OpenCode's form."""

    output: str
    title: str
    metadata: JsonObject
    attachments: tuple[ImagePart, ...] = ()


def arguments_of(text: str) -> JsonObject:
    """Parse tool arguments into an object. Text that is no JSON object is kept under `input`."""
    if not text:
        return {}
    try:
        value = json.loads(text)
    except ValueError:
        return {"input": text}
    return obj(value) if isinstance(value, dict) else {"input": value}


def view_call(agent: str, name: str, arguments: JsonObject, todos: Sequence[JsonObject]) -> ToolView:
    """Return OpenCode's name and input of a call. `todos` is the session's list, for agents that only send changes."""
    row = tools_of(agent).get(name)
    if row is None:
        if name.startswith("mcp__"):
            own = name.removeprefix(_OWN)
            is_own = own != name and own not in RESULTS  # a name of OpenCode's stands for its tool, with its rules and card
            served = served_name(name.removeprefix("mcp__"))
            return ToolView(own if is_own else name if served in _NOT_SERVED else served, arguments)
        return ToolView(name, arguments)
    taken = {row.keys[key] for key in arguments if key in row.keys}  # an argument that the tool does not know replaces none
    known = {key: value for key, value in arguments.items() if key in row.keys or key not in taken}
    renamed = {row.keys.get(key, key): value for key, value in known.items()}
    if row.tool == "todowrite":
        renamed = {"todos": [todo(t) for t in arr(renamed["todos"])] if "todos" in renamed else list(todos)}
    elif row.tool == "edit" and (edits := arr(renamed.pop("edits", None))):
        renamed["oldString"] = "\n".join(str(obj(e).get("old_string", obj(e).get("oldText", ""))) for e in edits)
        renamed["newString"] = "\n".join(str(obj(e).get("new_string", obj(e).get("newText", ""))) for e in edits)
    elif row.tool == "edit" and renamed.get("replaceAll") is False:
        del renamed["replaceAll"]  # Claude sends the default, which OpenCode's card would show
    elif row.tool == "question":
        renamed = {"questions": [question(obj(q)) for q in arr(renamed.get("questions"))]}
    return ToolView(row.tool, renamed)


def permission_of(agent: str, name: str) -> str:
    """Return the permission in the row of an agent's tool, or ""."""
    row = tools_of(agent).get(name)
    return row.permission if row is not None else ""


def says_changes(agent: str, name: str) -> bool:
    """Return True if a todo call holds only changes (Claude's TaskCreate and TaskUpdate), so that its card needs the list."""
    row = tools_of(agent).get(name)
    return row is not None and row.changes


def todo(value: Any) -> JsonObject:
    """Return a todo entry in OpenCode's form."""
    entry = obj(value) or {"content": str(value)}
    return {
        "content": str(entry.get("content", "")),
        "status": str(entry.get("status", "pending")),
        "priority": str(entry.get("priority", "medium")),
    }


def question(value: Mapping[str, Any]) -> JsonObject:
    """Return a question in OpenCode's form."""
    wire: JsonObject = {
        "question": str(value.get("question", "")),
        "header": str(value.get("header", "")),
        "options": [
            {"label": str(o.get("label", "")), "description": str(o.get("description", ""))}
            for o in map(obj, arr(value.get("options")))
        ],
    }
    if value.get("multiSelect") or value.get("multiple"):
        wire["multiple"] = True
    return wire


def running_metadata(view: ToolView, context: ToolContext) -> tuple[str | None, JsonObject | None]:
    """Return (title, metadata) of a running tool, if OpenCode shows them."""
    if view.tool == "task" and context.child_session_id:
        return str(view.input.get("description", "")), _task_metadata(context)
    return None, None


def view_result(view: ToolView, item: Item, context: ToolContext) -> ResultView:
    """Return output, title and metadata of a finished call, from its universal `tool_result` item."""
    result = _result(view, item, context)
    if refusals := refusals_of(item):
        shown = {"output": result.metadata["output"] + refusals} if isinstance(result.metadata.get("output"), str) else {}
        result = replace(result, output=result.output + refusals, metadata={**result.metadata, **shown})
    if len(result.output) <= SHOWN_CHARS:
        return result
    output = shorten(result.output, context.session_id)
    result_output = {"output": output} if result.metadata.get("output") == result.output else {}
    return ResultView(output, result.title, {**result.metadata, **result_output, "truncated": True}, result.attachments)


def refusals_of(item: Item) -> str:
    """What a sandbox has refused the call, behind its output; "" for nothing."""
    sentences = arr(obj(item.metadata).get(REFUSALS_KEY))
    return "".join(f"\n\n[sandbox] {sentence}" for sentence in sentences)


def without_refusals(output: str) -> str:
    """Return the output of a finished call as its agent saw it."""
    return _REFUSALS.sub("", output)


def shorten(output: str, session_id: str) -> str:
    """Return the part of an output that clients get, with a note that says where the rest is."""
    if len(output) <= SHOWN_CHARS:
        return output
    left_out = len(output) - SHOWN_CHARS
    where = f"[... {left_out:,} characters are not shown here; /v1/sessions/{session_id}/events has them ...]"
    return f"{output[: SHOWN_CHARS // 2]}\n\n{where}\n\n{output[-SHOWN_CHARS // 2 :]}"


def failure(output: str, session_id: str) -> str:
    """Return the error text of a call that failed with this output."""
    return shorten(output, session_id) or "The tool failed without a word."


def _result(view: ToolView, item: Item, context: ToolContext) -> ResultView:
    output = "".join(p.output for p in item.content if isinstance(p, ToolResultPart))
    images = tuple(p for p in item.content if isinstance(p, ImagePart))
    files = [p for p in item.content if isinstance(p, FileRefPart)]
    meta = item.metadata or {}
    if (native := result_of(meta)) is not None:
        return _opencode_result(view, output, native, images, context)
    build = RESULTS.get(view.tool, _unknown_tool)
    result = build(view, output, files, meta, context)
    title = result.title or str(meta.get("title") or "")
    return ResultView(result.output, title, {**result.metadata, "truncated": bool(meta.get("truncated", False))}, images)


def _opencode_result(
    view: ToolView, output: str, result: NativeResult, images: tuple[ImagePart, ...], context: ToolContext
) -> ResultView:
    """The result of OpenCode's own tool, unchanged except for the id of a subagent's session."""
    metadata = result.metadata
    if view.tool == "task":
        native_id = metadata.get("sessionId")
        if isinstance(native_id, str) and context.child_session_id:
            output = output.replace(native_id, context.child_session_id)
        metadata = {**metadata, **_task_metadata(context)}
    return ResultView(output, result.title, metadata, images)


_Result = Callable[[ToolView, str, list[FileRefPart], Mapping[str, Any], ToolContext], ResultView]


def _path(view: ToolView, context: ToolContext) -> tuple[str, str]:
    """Return the path of the call's file: absolute, and relative to the directory."""
    path = str(view.input.get("filePath") or view.input.get("path") or "")
    absolute = posixpath.normpath(posixpath.join(context.directory, path)) if path else context.directory
    return absolute, relative(absolute, context.directory)


def _read(view: ToolView, output: str, files: list[FileRefPart], meta: Mapping[str, Any], context: ToolContext) -> ResultView:
    absolute, title = _path(view, context)
    file = obj(obj(meta.get("structured")).get("file"))
    if isinstance(file.get("content"), str):
        text = str(file["content"]).removesuffix("\n")
        start, total = whole(file.get("startLine"), 1), whole(file.get("totalLines"))
    else:
        text, start, total = output, 1, 0
    lines = text.split("\n") if text else []
    end = start + len(lines) - 1 if lines else start
    # Claude counts the empty string after a final newline as a line; OpenCode does not
    total = end if total in (0, end + 1) else total
    truncated = end < total
    numbered = "".join(f"{start + i}: {line}\n" for i, line in enumerate(lines))
    closing = f"(Showing lines {start}-{end} of {total})" if truncated else f"(End of file - total {total} lines)"
    listing = f"<path>{absolute}</path>\n<type>file</type>\n<content>\n{numbered}\n{closing}\n</content>" if file else output
    display: JsonObject = {
        "type": "file",
        "path": absolute,
        "text": text,
        "lineStart": start,
        "lineEnd": end,
        "totalLines": max(total, end),
        "truncated": truncated,
    }
    return ResultView(listing, title, {"preview": "\n".join(lines[:PREVIEW_LINES]), "loaded": [], "display": display})


def _diff_of(files: list[FileRefPart]) -> str:
    return "".join(f.diff for f in files if f.diff)


def _edit(view: ToolView, output: str, files: list[FileRefPart], meta: Mapping[str, Any], context: ToolContext) -> ResultView:
    absolute, title = _path(view, context)
    patch = with_index_header(absolute, _diff_of(files))
    added, removed = count(patch)
    filediff = {"file": absolute, "patch": patch, "additions": added, "deletions": removed}
    return ResultView("Edit applied successfully.", title, {"diagnostics": {}, "diff": patch, "filediff": filediff})


def _write(view: ToolView, output: str, files: list[FileRefPart], meta: Mapping[str, Any], context: ToolContext) -> ResultView:
    absolute, title = _path(view, context)
    exists = any(f.action == "patch" for f in files)
    metadata: JsonObject = {"diagnostics": {}, "filepath": absolute, "exists": exists}
    if exists and hunks(_diff_of(files)):
        metadata["diff"] = with_index_header(absolute, _diff_of(files))
    return ResultView("Wrote file successfully.", title, metadata)


_PATCH_LETTERS = {"add": "A", "delete": "D"}


def _apply_patch(
    view: ToolView, output: str, files: list[FileRefPart], meta: Mapping[str, Any], context: ToolContext
) -> ResultView:
    """The result of `apply_patch`: a diff per file. `structured.changes[]` has {path, type} of each file."""
    changes = [obj(change) for change in arr(obj(meta.get("structured")).get("changes"))]
    if len(changes) != len(files):
        changes = [obj(None) for _ in files]
    rows: list[JsonObject] = []
    lines: list[str] = []
    for file, change in zip(files, changes, strict=True):
        absolute = posixpath.normpath(posixpath.join(context.directory, file.path))
        before = posixpath.normpath(posixpath.join(context.directory, str(change.get("path") or file.path)))
        kind = "move" if before != absolute else str(change.get("type") or ("add" if file.action == "write" else "update"))
        patch = with_index_header(absolute, file.diff or "")
        added, removed = count(patch)
        name = relative(absolute, context.directory)
        entry = {"filePath": before, "relativePath": name, "type": kind, "patch": patch, "additions": added, "deletions": removed}
        rows.append({**entry, "movePath": absolute} if kind == "move" else entry)
        lines.append(f"{_PATCH_LETTERS.get(kind, 'M')} {name}")
    text = "\n".join(["Success. Updated the following files:", *lines])
    return ResultView(text, text, {"diff": "".join(entry["patch"] for entry in rows), "files": rows, "diagnostics": {}})


def _bash(view: ToolView, output: str, files: list[FileRefPart], meta: Mapping[str, Any], context: ToolContext) -> ResultView:
    command = str(view.input.get("command", ""))
    if "stdout" in meta:  # the text for the model may be wrapped: a person sees what the command wrote
        streams = str(meta["stdout"] or "") + str(meta.get("stderr") or "")
        output = streams if streams or not meta.get("exit_code") else output
    output = output or "(no output)"  # as OpenCode says it
    metadata: JsonObject = {"output": output}
    if isinstance(meta.get("exit_code"), int):
        metadata["exit"] = meta["exit_code"]
    return ResultView(output, command, metadata)


def _todos(view: ToolView, output: str, files: list[FileRefPart], meta: Mapping[str, Any], context: ToolContext) -> ResultView:
    todos = [todo(t) for t in arr(meta.get("todos") or view.input.get("todos"))]
    remaining = sum(t["status"] not in ("completed", "cancelled") for t in todos)
    return ResultView(json.dumps(todos, indent=2, ensure_ascii=False), f"{remaining} todos", {"todos": todos})


def _question(view: ToolView, output: str, files: list[FileRefPart], meta: Mapping[str, Any], context: ToolContext) -> ResultView:
    number = len(view.input.get("questions", []))
    metadata: JsonObject = {"answers": arr(meta["answers"])} if "answers" in meta else {}
    return ResultView(output, f"Asked {number} question{'' if number == 1 else 's'}", metadata)


def _task_metadata(context: ToolContext) -> JsonObject:
    metadata: JsonObject = {"parentSessionId": context.session_id}
    if context.child_session_id:
        metadata["sessionId"] = context.child_session_id
    if context.model:
        metadata["model"] = {"modelID": context.model[1], "providerID": context.model[0]}
    return metadata


def _task(view: ToolView, output: str, files: list[FileRefPart], meta: Mapping[str, Any], context: ToolContext) -> ResultView:
    text = output
    if context.child_session_id:
        text = f'<task id="{context.child_session_id}" state="completed">\n<task_result>\n{output}\n</task_result>\n</task>'
    metadata = _task_metadata(context)
    if meta.get("background"):
        metadata["background"] = True
    return ResultView(text, str(view.input.get("description", "")), metadata)


def _glob(view: ToolView, output: str, files: list[FileRefPart], meta: Mapping[str, Any], context: ToolContext) -> ResultView:
    lines = [line for line in output.splitlines() if line.strip() and not line.startswith("No files found")]
    title = relative(str(view.input.get("path", "")), context.directory) if view.input.get("path") else ""
    return ResultView(output, title, {"count": len(lines)})


def _grep(view: ToolView, output: str, files: list[FileRefPart], meta: Mapping[str, Any], context: ToolContext) -> ResultView:
    structured = obj(meta.get("structured"))
    matches = whole(structured.get("numMatches") or structured.get("numLines") or structured.get("numFiles"))
    if not matches:
        matches = sum(
            bool(line.strip()) for line in output.splitlines() if not line.startswith(("Found ", "No files", "No matches"))
        )
    return ResultView(output, str(view.input.get("pattern", "")), {"matches": matches})


def _titled_result(key: str) -> _Result:
    def build(view: ToolView, output: str, files: list[FileRefPart], meta: Mapping[str, Any], context: ToolContext) -> ResultView:
        return ResultView(output, str(view.input.get(key, "")), {})

    return build


def _unknown_tool(
    view: ToolView, output: str, files: list[FileRefPart], meta: Mapping[str, Any], context: ToolContext
) -> ResultView:
    return ResultView(output, str(view.input.get("description") or view.input.get("title") or ""), {})


RESULTS: dict[str, _Result] = {
    "read": _read,
    "edit": _edit,
    "write": _write,
    "apply_patch": _apply_patch,
    "bash": _bash,
    "todowrite": _todos,
    "question": _question,
    "task": _task,
    "glob": _glob,
    "grep": _grep,
    "list": _titled_result("path"),
    "webfetch": _titled_result("url"),
    "websearch": _titled_result("query"),
    "skill": _titled_result("name"),
}
