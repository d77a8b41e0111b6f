"""The table of Pi's tools, and of `question`, which `gate.ts` adds."""

from __future__ import annotations

from universal.tools.row import Row

_PATH = {"path": "filePath"}

TOOLS: dict[str, Row] = {
    "read": Row("read", _PATH),
    "edit": Row("edit", {**_PATH, "oldText": "oldString", "newText": "newString"}),
    "write": Row("write", _PATH),
    "bash": Row("bash"),
    "grep": Row("grep", {"glob": "include"}),
    "find": Row("glob"),
    "ls": Row("list"),
    "question": Row("question"),
}
