"""The table of tools of agents that speak the Agent Client Protocol: by the agents' own names, else by ACP's kinds.

Source: recordings of claude-agent-acp, codex-acp, opencode acp and pi-acp; ToolKind of the protocol.
"""

from __future__ import annotations

from collections.abc import Mapping

from universal.tools import claude, mock
from universal.tools.row import Row

_FILE = {
    "path": "filePath",
    "file_path": "filePath",
    "filepath": "filePath",
    "abs_path": "filePath",
    "oldText": "oldString",
    "newText": "newString",
    "old_string": "oldString",
    "new_string": "newString",
    "replace_all": "replaceAll",
}

KINDS: dict[str, Row] = {
    "execute": Row("bash"),
    "exec_command": Row("bash"),
    "fetch": Row("webfetch"),
    "search": Row("grep"),
    "apply_patch": Row("apply_patch", {"input": "patchText", "patch": "patchText"}),
    "patch": Row("apply_patch", {"patch": "patchText"}),
    "TodoList": Row("todowrite"),  # Kimi Code's name
}
"""ACP's kinds. OpenCode has no card for `delete`, `move`, `think`, `switch_mode` and `other`, which keep their names."""

_CARDS = ("read", "edit", "write")
_OWN: dict[str, Row] = {name: Row(row.tool, {**_FILE, **row.keys}) for name, row in claude.TOOLS.items() if row.tool in _CARDS}
_FILES: dict[str, Row] = {name: Row(name, _FILE) for name in ("read", "edit", "write", "multiedit")}

TOOLS: Mapping[str, Row] = {**mock.TOOLS, **claude.TOOLS, **_OWN, **_FILES, **KINDS}
