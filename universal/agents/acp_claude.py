"""Claude Code behind claude-agent-acp: it is made to ask for every call where a permission rule may forbid one. Pure.

An `ask` rule of Claude Code for all tools holds in each of its modes, in its subagents, and against its own `allow` rules.
So Claude asks about calls that its mode would have made by itself. This module says which of them a person is asked about
all the same; the others are only checked by the rules.
Source: runs of claude-agent-acp 0.100.0, of which docs/permissions.md tells.
"""

from __future__ import annotations

from universal.agents.acp_asks import AskAlways
from universal.agents.acp_context import Msg
from universal.claude_code import UNCHECKED, accessed
from universal.jsonline import get_text
from universal.permissions import BYPASS, PLAN
from universal.shell import is_read_only

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
    """Whether a person would be asked about this call in this mode if there were no rules.

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


ASK_ALWAYS = AskAlways(
    meta={
        "claudeCode": {
            "options": {
                # Claude does not ask about commands in its sandbox unless it is told so.
                "settings": {"permissions": {"ask": ["*"]}, "sandbox": {"autoAllowBashIfSandboxed": False}},
            }
        }
    },
    since="0.100.0",
    is_for_person=is_for_person,
    unchecked=frozenset(UNCHECKED) - _CHOICES,
    accessed=accessed,
)
