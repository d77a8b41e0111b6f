"""Converts results of Pi's tools to content parts and diffs. Pure functions of one call.

Source: recordings `read_edit`, `bash`, `fail_tool`, `interrupt_tool`; `dist/core/tools` of 0.73.1 and 0.87.1.
"""

from __future__ import annotations

import difflib
import posixpath
import re
from collections.abc import Iterable

from universal.agents import kit
from universal.agents.pi.wire import Msg
from universal.items import ContentPart, FileRefPart, Json, ToolResultPart
from universal.lib.jsonline import get_text
from universal.lib.jsonvalue import arr, obj
from universal.lib.jsonvalue import text as as_text

_TITLE_KEYS = ("description", "command", "path", "pattern", "url", "query")
_EXIT = re.compile(r"(?:\n\n)?Command exited with code (\d{1,10})\s*$")
_ABORTED = re.compile(r"(?:^|\n)(?:Command aborted|Operation aborted)\s*$")


def title_of(name: str, arguments: Msg) -> str:
    """A line for a person about a call."""
    return kit.title_of(name, arguments, _TITLE_KEYS)


def text_of(content: Json) -> str:
    """The texts of a list of content blocks."""
    rows = [obj(row) for row in arr(content)]
    return "\n".join(as_text(row.get("text")) for row in rows if row.get("type") == "text")


def read_result(call_id: str, name: str, arguments: Msg, result: Msg, *, failed: bool, directory: str = "") -> kit.Result:
    """`result` of `tool_execution_end`: {content[], details}. Paths are made absolute: the model may give relative ones."""
    output = text_of(result.get("content"))
    details = obj(result.get("details"))
    content: list[ContentPart] = [ToolResultPart(call_id=call_id, output=output), *kit.images_of(result.get("content"))]
    if not failed:
        content.extend(_files(name, _absolute(arguments, directory), details))
    metadata: dict[str, Json] = {"structured": details} if details else {}
    if name == "bash":
        match = _EXIT.search(output)
        if match:
            metadata |= {"exit_code": int(match[1]), "stdout": output[: match.start()]}
        elif not failed:
            metadata["exit_code"] = 0
    if failed and _ABORTED.search(output):
        metadata["interrupted"] = True
    return kit.Result(tuple(content), metadata)


def _absolute(arguments: Msg, directory: str) -> Msg:
    path = get_text(arguments, "path", "file_path")
    return {**arguments, "path": posixpath.normpath(posixpath.join(directory, path))} if path else arguments


def _files(name: str, arguments: Msg, details: Msg) -> Iterable[FileRefPart]:
    path = get_text(arguments, "path", "file_path")
    if not path:
        return
    if name == "read":
        yield FileRefPart(path=path, action="read")
    elif name == "edit":
        patch = get_text(details, "patch") or numbered_diff(path, get_text(details, "diff"))
        yield FileRefPart(path=path, action="patch", diff=patch or input_diff(name, arguments))
    elif name == "write":
        yield FileRefPart(path=path, action="write", diff=input_diff(name, arguments))


_ROW = re.compile(r"([-+ ])\s*(\d+) ?(.*)", re.S)


def numbered_diff(path: str, shown: str) -> str | None:
    """Pi's own diff for people (0.73.1 has no other) as a unified diff; None when there is none.

    Its lines are a sign, a line number and the text; `...` stands for lines that are left out.
    """
    hunks: list[tuple[int, int, list[str]]] = []
    drift, fresh = 0, True
    for line in shown.split("\n") if shown else []:
        row = _ROW.match(line)
        if row is None:
            fresh = True
            continue
        sign, number, text = row[1], int(row[2]), row[3]
        if fresh:
            old = number - drift if sign == "+" else number
            hunks.append((old, old + drift, []))
            fresh = False
        hunks[-1][2].append(sign + text)
        drift += (sign == "+") - (sign == "-")
    if not hunks:
        return None
    lines = [f"--- {path}", f"+++ {path}"]
    for old, new, rows in hunks:
        sizes = (sum(row[0] != "+" for row in rows), sum(row[0] != "-" for row in rows))
        lines += [f"@@ -{old},{sizes[0]} +{new},{sizes[1]} @@", *rows]
    return "\n".join(lines) + "\n"


def input_diff(name: str, arguments: Msg) -> str | None:
    """The change that a call would make, as a unified diff, if its input shows it, else None.

    The file is not read. For an edit, line numbers count from the replaced text. The whole content of a write is shown as added,
    also if it replaces a file, because Pi does not send the old content.
    """
    path = get_text(arguments, "path", "file_path")
    if name == "edit":
        edits = [obj(edit) for edit in arr(arguments.get("edits"))] or [arguments]
        pairs = [(_lines(edit.get("oldText")), _lines(edit.get("newText"))) for edit in edits]
    elif name == "write":
        pairs = [(_lines(None), _lines(arguments.get("content")))]
    else:
        return None
    hunks = ["".join(list(difflib.unified_diff(old, new, n=3))[2:]) for old, new in pairs if old != new]
    start = "/dev/null" if name == "write" else path
    return f"--- {start}\n+++ {path}\n{''.join(hunks)}" if path and hunks else None


def _lines(text: Json) -> list[str]:
    """The lines, each with a newline, because a replaced piece is not the end of a file."""
    piece = as_text(text)
    return [f"{line}\n" for line in piece.removesuffix("\n").split("\n")] if piece else []
