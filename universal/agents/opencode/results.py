"""Converts the `state` of OpenCode's tools to content and metadata of a `tool_result` item. Pure.

`metadata.opencode` {title, metadata} is what OpenCode shows on the tool's card, so that our face shows the same.
Source: recordings of 1.18.33; docs/wire.md 4, "Title / metadata / output by tool".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from universal.agents.opencode.wire import Msg
from universal.items import ContentPart, FileRefPart, ImagePart, Json, ToolResultPart
from universal.lib.jsonvalue import arr, obj, text
from universal.opencode_metadata import NativeResult, result_metadata


@dataclass(frozen=True, slots=True)
class Result:
    """Content and metadata of a `tool_result` item."""

    content: tuple[ContentPart, ...]
    metadata: dict[str, Json]
    failed: bool


def read_result(call_id: str, tool: str, state: Msg) -> Result:
    """Read a tool's state `completed` or `error`."""
    details = obj(state.get("metadata"))
    time = obj(state.get("time"))
    metadata: dict[str, Json] = {}
    if isinstance(time.get("start"), int) and isinstance(time.get("end"), int):
        metadata["duration_ms"] = max(time["end"] - time["start"], 0)
    if state.get("status") == "error":
        if details.get("interrupted") is True:
            metadata["interrupted"] = True
        return Result((ToolResultPart(call_id=call_id, output=text(state.get("error"))),), metadata, failed=True)
    output = text(state.get("output"))
    content: list[ContentPart] = [ToolResultPart(call_id=call_id, output=output)]
    content += _files(tool, obj(state.get("input")), details)
    for attachment in map(obj, arr(state.get("attachments"))):
        if text(attachment.get("mime")).startswith("image/") and text(attachment.get("url")):
            content.append(ImagePart(path=text(attachment.get("url")), mime=text(attachment.get("mime"))))
    if isinstance(details.get("exit"), int):
        metadata |= {"exit_code": details["exit"], "stdout": text(details.get("output")) or output}
    for key in ("todos", "answers"):
        if isinstance(details.get(key), list):
            metadata[key] = details[key]
    metadata |= {"truncated": details.get("truncated") is True, "structured": details}
    metadata |= result_metadata(NativeResult(text(state.get("title")), details))
    return Result(tuple(content), metadata, failed=False)


def _files(tool: str, arguments: Msg, details: Msg) -> Iterator[ContentPart]:
    """Files that a tool has read or changed."""
    change = obj(details.get("filediff"))
    if text(change.get("file")):
        yield FileRefPart(
            path=text(change.get("file")), action="patch", diff=text(change.get("patch")) or text(details.get("diff"))
        )
    elif tool == "write" and text(details.get("filepath")):
        path = text(details.get("filepath"))
        if details.get("exists") is True:
            yield FileRefPart(path=path, action="patch", diff=text(details.get("diff")))
        else:
            yield FileRefPart(path=path, action="write", diff=_new_file_diff(path, text(arguments.get("content"))))
    elif tool == "apply_patch":
        for file in map(obj, arr(details.get("files"))):
            path = text(file.get("filePath")) or text(file.get("relativePath"))
            if path:
                action = "write" if file.get("type") == "add" else "patch"
                yield FileRefPart(path=path, action=action, diff=text(file.get("patch")) or text(file.get("diff")))
    elif tool == "read" and text(arguments.get("filePath")):
        yield FileRefPart(path=text(arguments.get("filePath")), action="read")


def _new_file_diff(path: str, content: str) -> str:
    """The diff of a new file."""
    lines = content.split("\n")
    ended = lines[-1] == ""
    lines = lines[:-1] if ended else lines
    if not lines:
        return ""
    body = "".join(f"+{line}\n" for line in lines)
    return f"--- /dev/null\n+++ {path}\n@@ -0,0 +1,{len(lines)} @@\n{body}" + ("" if ended else "\\ No newline at end of file\n")
