"""Claude Code's tools."""

from __future__ import annotations

from shim.projection.opencode1.agents.row import Row

_PATH = {"file_path": "filePath"}

TOOLS: dict[str, Row] = {
    "Read": Row("read", _PATH),
    "Edit": Row("edit", {**_PATH, "old_string": "oldString", "new_string": "newString", "replace_all": "replaceAll"}),
    "MultiEdit": Row("edit", _PATH),
    "Write": Row("write", _PATH),
    "NotebookEdit": Row("edit", {"notebook_path": "filePath", "new_source": "newString"}),
    "Bash": Row("bash"),
    "PowerShell": Row("bash"),
    "Glob": Row("glob"),
    "Grep": Row("grep", {"glob": "include"}),
    "LS": Row("list"),
    "WebFetch": Row("webfetch"),
    "WebSearch": Row("websearch"),
    "TodoWrite": Row("todowrite"),
    "TaskCreate": Row("todowrite", changes=True),
    "TaskUpdate": Row("todowrite", changes=True),
    "TaskList": Row("todowrite", changes=True),
    "TaskGet": Row("todowrite", changes=True),
    "Agent": Row("task"),
    "Task": Row("task"),
    "AskUserQuestion": Row("question"),
    "Skill": Row("skill", {"skill": "name"}),
    "ExitPlanMode": Row("plan_exit"),
}
