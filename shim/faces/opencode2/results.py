"""Converts results of tool calls to OpenCode 2's `content` (what the model reads) and `metadata` (for clients). Pure.

`METADATA` maps a tool to the function that makes its metadata from the card's. Tools without a row keep theirs.
Source: recordings `read_edit`, `bash`, `task`, `question` of `v2-20260717`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, NotRequired, TypeAlias, TypedDict

from universal.lib.diffs import count, hunks, with_index_header
from universal.lib.jsonvalue import JsonObject, arr, obj, text
from universal.lib.paths import relative
from universal.session.values import File, ToolCall

if TYPE_CHECKING:
    from shim.faces.opencode2._generated import types

Maker: TypeAlias = Callable[[JsonObject, JsonObject, str], Mapping[str, Any]]
"""(arguments by 2.x's names, metadata of the card, directory) -> metadata."""


class ChangedFiles(TypedDict, total=False):
    """The metadata of a tool that changes files."""

    files: list[types.FileDiffInfo]


class ShellResult(TypedDict):
    """The metadata of a command."""

    exit: NotRequired[int]
    truncated: bool
    output: NotRequired[str]


class SubagentResult(TypedDict):
    """The metadata of a subagent's task."""

    sessionID: NotRequired[str]
    status: Literal["running", "completed"]


_TASK, _TASK_END = "<task_result>\n", "\n</task_result>"
"""The marks around a subagent's answer in the card's output."""
_STATUSES: Mapping[str, types.FileStatus] = {"add": "added", "delete": "deleted"}
"""Kind of a change by `apply_patch` -> its status. All others are `modified`."""


def _file(path: str, patch: str, directory: str, status: types.FileStatus) -> types.FileDiffInfo:
    name = relative(path, directory)
    added, removed = count(patch)
    return {"file": name, "patch": with_index_header(name, patch), "additions": added, "deletions": removed, "status": status}


def _edit(arguments: JsonObject, meta: JsonObject, directory: str) -> ChangedFiles:
    change = obj(meta.get("filediff"))
    path, patch = text(change.get("file")) or text(arguments.get("path")), text(change.get("patch")) or text(meta.get("diff"))
    return {"files": [_file(path, patch, directory, "modified")]} if path else {}


def _write(arguments: JsonObject, meta: JsonObject, directory: str) -> ChangedFiles:
    path, patch = text(meta.get("filepath")) or text(arguments.get("path")), text(meta.get("diff"))
    if meta.get("exists") or not path:
        return {"files": [_file(path, patch, directory, "modified")]} if path else {}
    lines = text(arguments.get("content")).splitlines()
    whole_file = f"@@ -0,0 +1,{len(lines)} @@\n" + "".join(f"+{line}\n" for line in lines)
    return {"files": [_file(path, hunks(patch) or whole_file, directory, "added")]}


def _patch(arguments: JsonObject, meta: JsonObject, directory: str) -> ChangedFiles:
    files = [obj(entry) for entry in arr(meta.get("files"))]
    return {
        "files": [
            _file(
                text(f.get("movePath")) or text(f.get("filePath")),
                text(f.get("patch")),
                directory,
                _STATUSES.get(text(f.get("type")), "modified"),
            )
            for f in files
        ]
    }


def _shell(arguments: JsonObject, meta: JsonObject, directory: str) -> ShellResult:
    truncated, exit_ = bool(meta.get("truncated")), meta.get("exit")
    return {"exit": exit_, "truncated": truncated} if isinstance(exit_, int) else {"truncated": truncated}


def _subagent(arguments: JsonObject, meta: JsonObject, directory: str) -> SubagentResult:
    session, status = text(meta.get("sessionId")), "running" if meta.get("background") else "completed"
    return {"sessionID": session, "status": status} if session else {"status": status}


def _question(arguments: JsonObject, meta: JsonObject, directory: str) -> Mapping[str, Any]:
    return {"answers": arr(meta.get("answers"))}


def _no_details(arguments: JsonObject, meta: JsonObject, directory: str) -> Mapping[str, Any]:
    return {}


METADATA: dict[str, Maker] = {
    "edit": _edit,
    "write": _write,
    "patch": _patch,
    "shell": _shell,
    "subagent": _subagent,
    "question": _question,
    "read": _no_details,  # its content says it all
}


def metadata(tool: str, arguments: JsonObject, meta: JsonObject, directory: str) -> Mapping[str, Any]:
    """The metadata of a finished call. In: `meta`, the metadata of its card (`universal.tools.cards`)."""
    make = METADATA.get(tool)
    return make(arguments, meta, directory) if make is not None else {k: v for k, v in meta.items() if k != "truncated"}


def progress(tool: str, meta: JsonObject) -> Mapping[str, Any]:
    """The metadata of a running call. In: `output`, its whole output so far."""
    if tool == "subagent":
        task: SubagentResult = {"sessionID": text(meta.get("sessionId")), "status": "running"}
        return task
    if tool == "shell":
        shell: ShellResult = {"truncated": False}
        if "output" in meta:
            shell["output"] = meta["output"]
        return shell
    return dict(meta)


def _output_text(output: str) -> str:
    """The text between the first opening mark and the last closing mark, or the whole text without marks."""
    _, start, rest = output.partition(_TASK)
    answer, end, _ = rest.rpartition(_TASK_END)
    return answer if start and end else output


def content(tool: str, call: ToolCall) -> list[types.ToolContent]:
    """The content of a completed call, never empty. In: `tool`, its name in 2.x."""
    output = _output_text(call.output) if tool == "subagent" else call.output
    entries: list[types.ToolContent] = [{"type": "text", "text": output}]
    exit_ = obj(call.metadata).get("exit")
    if tool == "shell" and isinstance(exit_, int):
        entries.append({"type": "text", "text": f"Command exited with code {exit_}."})
    for file in call.attachments or ():
        if isinstance(file, File):
            row: types.ToolContentFile = {"type": "file", "uri": file.url, "mime": file.mime}
            if file.filename:
                row["name"] = file.filename
            entries.append(row)
    return entries
