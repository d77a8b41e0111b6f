"""The tables that map each agent's tools to OpenCode's tools. Pure data."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote


@dataclass(frozen=True, slots=True)
class Row:
    """How OpenCode shows one tool of an agent. The table's key is the agent's name of the tool."""

    tool: str
    """OpenCode's name of the tool."""
    keys: Mapping[str, str] = field(default_factory=dict[str, str])
    """The agent's name of an argument -> OpenCode's. Other arguments keep their names."""
    changes: bool = False
    """True for a todo tool whose calls hold only changes of the list."""
    permission: str = ""
    """The OpenCode tool whose permission a call needs, if that is not `tool`."""
    folder: str = ""
    """The agent's argument that says where a command runs. Without one it runs in the session's directory."""
    spellings: Callable[[str], tuple[str, ...]] = lambda path: (path,)
    """The paths that the agent may open for a path of a call."""


# --- Claude Code -----------------------------------------------------------------------------------------

# The tools of 2.1.197, 2.1.330 and older ones that run, read, write or fetch. Others keep their name, also as a permission:
# CronCreate, CronDelete, ScheduleWakeup, RemoteTrigger ... Calls that need no permission are in
# `universal.claude_code.UNCHECKED`. Source: the tools that both versions offer their model, and `sdk-tools.d.ts`.

_FILE_PATH = {"file_path": "filePath"}

CLAUDE: dict[str, Row] = {
    "Read": Row("read", _FILE_PATH),
    "Edit": Row("edit", {**_FILE_PATH, "old_string": "oldString", "new_string": "newString", "replace_all": "replaceAll"}),
    "MultiEdit": Row("edit", _FILE_PATH),
    "Write": Row("write", _FILE_PATH),
    "NotebookEdit": Row("edit", {"notebook_path": "filePath", "new_source": "newString"}),
    "Bash": Row("bash"),
    "PowerShell": Row("bash"),
    "Monitor": Row("bash", permission="monitor"),
    "EnterWorktree": Row("EnterWorktree", permission="bash"),
    "ExitWorktree": Row("ExitWorktree", permission="bash"),
    "Glob": Row("glob"),
    "Grep": Row("grep", {"glob": "include"}),
    "LS": Row("list"),
    "NotebookRead": Row("read", {"notebook_path": "filePath"}),
    "LSP": Row("lsp", permission="read"),
    "ReadMcpResource": Row("ReadMcpResource", permission="mcp_resource"),
    "ReadMcpResourceTool": Row("ReadMcpResourceTool", permission="mcp_resource"),
    "ListMcpResources": Row("ListMcpResources", permission="mcp_resource"),
    "ListMcpResourcesTool": Row("ListMcpResourcesTool", permission="mcp_resource"),
    "WebFetch": Row("webfetch"),
    "WebSearch": Row("websearch"),
    "TodoWrite": Row("todowrite"),
    "TaskCreate": Row("todowrite", changes=True),
    "TaskUpdate": Row("todowrite", changes=True),
    "TaskList": Row("todowrite", changes=True),
    "TaskGet": Row("todowrite", changes=True),
    "Agent": Row("task"),
    "Task": Row("task"),
    "SendMessage": Row("SendMessage", permission="task"),
    "TeamCreate": Row("TeamCreate", permission="task"),
    "Workflow": Row("Workflow", permission="task"),
    "AskUserQuestion": Row("question"),
    "Skill": Row("skill", {"skill": "name"}),
    "SlashCommand": Row("skill", {"command": "name"}),
    "ExitPlanMode": Row("plan_exit"),
}

# --- short tables ---------------------------------------------------------------------------------------

_PATH = {"path": "filePath"}

_NAMES = (
    "read", "edit", "write", "bash", "glob", "grep", "list", "webfetch", "websearch", "todowrite", "task", "question", "skill",
    "plan_exit", "apply_patch", "multiedit",
)  # fmt: skip

MOCK: dict[str, Row] = {name: Row(name, folder="workdir" if name == "bash" else "") for name in _NAMES}
"""The mock's tools have the names and arguments of OpenCode's tools."""

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


# --- the Agent Client Protocol ---------------------------------------------------------------------------

# By the agents' own names, else by ACP's kinds. Source: recordings of claude-agent-acp, codex-acp, opencode acp and pi-acp;
# ToolKind of the protocol.

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
_OWN: dict[str, Row] = {name: Row(row.tool, {**_FILE, **row.keys}) for name, row in CLAUDE.items() if row.tool in _CARDS}
_FILE_TOOLS: dict[str, Row] = {name: Row(name, _FILE) for name in ("read", "edit", "write", "multiedit")}

ACP: Mapping[str, Row] = {**MOCK, **CLAUDE, **_OWN, **_FILE_TOOLS, **KINDS}


# --- all of them -----------------------------------------------------------------------------------------

AGENT_TOOLS: Mapping[str, Mapping[str, Row]] = {
    "claude": CLAUDE,
    "codex": CODEX,
    "opencode": OPENCODE,
    "opencode2": OPENCODE2,
    "kilo-serve": OPENCODE,
    "pi": PI,
    "amp": AMP,
    "mock": MOCK,
}

_PLUGIN_TABLES: dict[str, Mapping[str, Row]] = {}
"""Tables of agents from packages, by the agent's name."""


def add_tools(agent: str, tools: Mapping[str, Row]) -> None:
    """Add or replace the table of an agent from a package."""
    _PLUGIN_TABLES[agent] = tools


def tools_of(agent: str) -> Mapping[str, Row]:
    """Return the table of an agent. An agent without one uses the table of the Agent Client Protocol."""
    return AGENT_TOOLS[agent] if agent in AGENT_TOOLS else _PLUGIN_TABLES.get(agent, ACP)
