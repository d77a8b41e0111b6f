"""The table of the mock's tools, which have the names and arguments of OpenCode's tools."""

from __future__ import annotations

from universal.tools.row import Row

NAMES = (
    "read", "edit", "write", "bash", "glob", "grep", "list", "webfetch", "websearch", "todowrite", "task", "question", "skill",
    "plan_exit", "apply_patch", "multiedit",
)  # fmt: skip

TOOLS: dict[str, Row] = {name: Row(name, folder="workdir" if name == "bash" else "") for name in NAMES}
