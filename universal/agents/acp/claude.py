"""Claude Code behind claude-agent-acp must ask for every call if a permission rule may forbid one. Pure.

An `ask` rule of Claude Code for all tools holds in each of its modes, in its subagents, and against its own `allow` rules.
So Claude asks about calls that its mode would have made by itself. This module says which of them a person is asked about
all the same; the others are only checked by the rules.
Source: runs of claude-agent-acp 0.100.0, of which docs/permissions.md tells.
"""

from __future__ import annotations

from collections.abc import Sequence

from universal.agents.acp.asks import AskAlways
from universal.agents.acp.context import Msg
from universal.claude_code import UNCHECKED, access_metadata
from universal.items import Json
from universal.lib.jsonline import get_text
from universal.permissions import BYPASS, PLAN, Rule, denies_whole, matches
from universal.shell import is_read_only
from universal.tools.claude import TOOLS

_CHOICES = frozenset({"ExitPlanMode", "EnterPlanMode", "AskUserQuestion"})
"""Tools whose call is a question to a person, whatever the mode."""
_FREE = frozenset(
    {"Read", "NotebookRead", "Glob", "Grep", "LS", "LSP", "Skill", "SlashCommand", "Agent", "Task", "SendMessage"}
    | {"TodoWrite", "TaskCreate", "TaskUpdate", "ListMcpResources", "ListMcpResourcesTool", "ReadMcpResource"}
    | {"ReadMcpResourceTool"}
)
"""Tools that Claude Code uses in each mode without asking, as long as they stay in the project."""
_EDITS = frozenset({"Edit", "MultiEdit", "Write", "NotebookEdit"})


def is_for_person(mode: str, tool: str, arguments: Msg) -> bool:
    """Return whether a person would be asked about this call in this mode if there were no rules.

    Plan mode writes only Claude's own plan, which a rule of this server knows. In `accept-edits` a rule of this server asks
    about hidden files, as Claude does.
    """
    if tool in _CHOICES:
        return True
    if mode == BYPASS or tool in _FREE:
        return False
    if tool in _EDITS:
        return mode not in (PLAN, "accept-edits")
    return not (tool == "Bash" and is_read_only(get_text(arguments, "command")))


_PERMISSION = {"monitor": "bash", "write": "edit"}
"""Name of a row of Claude's tools -> the permission, where they differ."""


def denied_tools(rules: Sequence[Rule]) -> tuple[str, ...]:
    """Return Claude's tools whose every call the rules deny. No hook can allow what Claude's own settings deny."""
    paths: list[str] = []
    for name, row in TOOLS.items():
        key = row.permission or row.tool
        key = _PERMISSION.get(key, key)
        if name not in UNCHECKED and denies_whole(rule for rule in rules if matches(rule.permission, key)):
            paths.append(name)
    return tuple(paths)


def _meta(rules: Sequence[Rule]) -> dict[str, Json]:
    denied = list(denied_tools(rules))
    permissions: dict[str, Json] = {"ask": ["*"], **({"deny": denied} if denied else {})}
    # Claude does not ask about commands in its sandbox unless it is told so.
    settings: dict[str, Json] = {"permissions": permissions, "sandbox": {"autoAllowBashIfSandboxed": False}}
    return {"claudeCode": {"options": {"settings": settings}}}


ASK_ALWAYS = AskAlways(
    meta=_meta,
    since="0.100.0",
    is_for_person=is_for_person,
    unchecked=frozenset(UNCHECKED) - _CHOICES,
    accessed=access_metadata,
)
