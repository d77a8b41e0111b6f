"""The table of Codex's tools. Its items have no tool names; `universal.agents.codex.tools` names them."""

from __future__ import annotations

from universal.tools.row import Row

TOOLS: dict[str, Row] = {
    "shell": Row("bash", folder="workdir"),
    "apply_patch": Row("apply_patch", {"patch": "patchText"}),
    "update_plan": Row("todowrite"),
    "request_user_input": Row("question"),
    "spawn_agent": Row("task"),
    "web_search": Row("websearch"),
    "view_image": Row("read", {"path": "filePath"}),
}
