"""The tables that map each agent's tools to OpenCode's tools. Short tables stand here. Pure data."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from urllib.parse import unquote

from universal.tools import acp, claude, mock
from universal.tools.row import Row

# --- short tables ---------------------------------------------------------------------------------------

_PATH = {"path": "filePath"}

CODEX: dict[str, Row] = {
    "shell": Row("bash", folder="workdir"),
    "apply_patch": Row("apply_patch", {"patch": "patchText"}),
    "update_plan": Row("todowrite"),
    "request_user_input": Row("question"),
    "spawn_agent": Row("task"),
    "web_search": Row("websearch"),
    "view_image": Row("read", _PATH),
}
"""Codex's items have no tool names; `universal.agents.codex.tools` names them."""

OPENCODE: dict[str, Row] = {}
"""OpenCode's own tools: each keeps its name and its arguments."""

OPENCODE2: dict[str, Row] = {
    "read": Row("read", _PATH),
    "edit": Row("edit", _PATH),
    "write": Row("write", _PATH),
    "shell": Row("bash", {"background": "run_in_background"}, folder="workdir"),
    "subagent": Row("task", {"agent": "subagent_type", "background": "run_in_background"}),
    "patch": Row("apply_patch"),
    "skill": Row("skill", {"id": "name"}),
}
"""Some have another name than in OpenCode 1, or other names of arguments."""

AMP: dict[str, Row] = {
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

# --- Pi --------------------------------------------------------------------------------------------------

# With `question`, which `gate.ts` adds. Source of the paths: `dist/core/tools/path-utils.js` of 0.87.1.

_BLANKS = re.compile(r"[\u00A0\u2000-\u200A\u202F\u205F\u3000]")
_HALF_OF_THE_DAY = re.compile(r" (AM|PM)\.", re.I)


def spellings(path: str) -> tuple[str, ...]:
    """The paths that Pi may open for a path of a call.

    It replaces Unicode blanks, and takes away an `@` before it. If there is no such file, it reads the names that macOS gives to
    screenshots, and those with composed letters or with straight quotes.
    """
    plain = _BLANKS.sub(" ", path).removeprefix("@")
    if plain.startswith("file://"):
        plain = unquote(plain.removeprefix("file://").removeprefix("localhost"))
    decomposed = unicodedata.normalize("NFD", plain)
    others = (
        _HALF_OF_THE_DAY.sub("\u202f\\1.", plain),
        decomposed,
        plain.replace("'", "\u2019"),
        decomposed.replace("'", "\u2019"),
    )
    return tuple(dict.fromkeys((plain, path, *others)))


PI: dict[str, Row] = {
    "read": Row("read", _PATH, spellings=spellings),
    "edit": Row("edit", {**_PATH, "oldText": "oldString", "newText": "newString"}, spellings=spellings),
    "write": Row("write", _PATH, spellings=spellings),
    "bash": Row("bash"),
    "grep": Row("grep", {"glob": "include"}, spellings=spellings),
    "find": Row("glob", spellings=spellings),
    "ls": Row("list", spellings=spellings),
    "question": Row("question"),
}


# --- all of them -----------------------------------------------------------------------------------------

AGENT_TOOLS: Mapping[str, Mapping[str, Row]] = {
    "claude": claude.TOOLS,
    "codex": CODEX,
    "opencode": OPENCODE,
    "opencode2": OPENCODE2,
    "kilo-serve": OPENCODE,
    "pi": PI,
    "amp": AMP,
    "mock": mock.TOOLS,
}

_PLUGIN_TABLES: dict[str, Mapping[str, Row]] = {}
"""Tables of agents from packages, by the agent's name."""


def add_tools(agent: str, tools: Mapping[str, Row]) -> None:
    """Add or replace the table of an agent from a package."""
    _PLUGIN_TABLES[agent] = tools


def tools_of(agent: str) -> Mapping[str, Row]:
    """Return the table of an agent. An agent without one uses the table of the Agent Client Protocol."""
    return AGENT_TOOLS[agent] if agent in AGENT_TOOLS else _PLUGIN_TABLES.get(agent, acp.TOOLS)
