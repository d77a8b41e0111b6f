"""OpenCode 2's tools: some have another name than in OpenCode 1, or other names of arguments."""

from __future__ import annotations

from universal.tools.row import Row

TOOLS: dict[str, Row] = {
    "read": Row("read", {"path": "filePath"}),
    "edit": Row("edit", {"path": "filePath"}),
    "write": Row("write", {"path": "filePath"}),
    "shell": Row("bash", {"background": "run_in_background"}, folder="workdir"),
    "subagent": Row("task", {"agent": "subagent_type", "background": "run_in_background"}),
    "patch": Row("apply_patch"),
    "skill": Row("skill", {"id": "name"}),
}
