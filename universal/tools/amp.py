"""The table of Amp's tools."""

from __future__ import annotations

from universal.tools.row import Row

_PATH = {"path": "filePath"}

TOOLS: dict[str, Row] = {
    "Read": Row("read", _PATH),
    "edit_file": Row("edit", {**_PATH, "old_str": "oldString", "new_str": "newString", "replace_all": "replaceAll"}),
    "create_file": Row("write", _PATH),
    "Bash": Row("bash", {"cmd": "command"}, folder="cwd"),
    "glob": Row("glob", {"filePattern": "pattern"}),
    "Grep": Row("grep", {"glob": "include"}),
    "read_web_page": Row("webfetch"),
    "web_search": Row("websearch", {"objective": "query"}),
    "Task": Row("task"),
    "skill": Row("skill"),
}
