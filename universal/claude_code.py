"""Facts about Claude Code that both its codecs need: the one of its own program and the one of claude-agent-acp.

Its tools are in `universal.tools`. Source: runs of 2.1.197 and 2.1.330.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from universal.agent_spec import AgentFolder, HeldCalls, SpareUse
from universal.codec import Mode
from universal.items import Json
from universal.lib.jsonline import get_text
from universal.permissions import Rule
from universal.sandbox import HELD_KEYS, SandboxUse
from universal.slash_commands import CommandFolder, CommandSources, PluginFolders

# --- its modes ------------------------------------------------------------------------------------------

MODES: tuple[Mode, ...] = (
    Mode("build", "Asks before it edits files or runs commands that change something.", "default"),
    Mode("plan", "Only reads and thinks, then proposes a plan and asks before it starts.", "plan"),
    Mode("accept-edits", "Edits files in the project without asking; other commands are still asked.", "acceptEdits"),
    Mode("auto", "A safety check by a model decides instead of you; only what it holds back is asked.", "auto"),
    Mode("bypass", "Does everything without asking. Only for sandboxes: nothing is held back.", "bypassPermissions"),
)

# --- its folders ----------------------------------------------------------------------------------------

RULE_FILES = (".claude/settings.json", ".claude/settings.local.json", ".claude/agents/*", ".claude/hooks/*", ".claude.json")
"""`ProjectSettingsUse.rule_files`."""
OWN_FOLDER = AgentFolder("~/.claude", "CLAUDE_CONFIG_DIR")
OWN_FOLDERS = (
    "~/.claude/plans/*",
    "~/.claude/projects/*/memory/*",
    "~/.claude/projects/*/tool-results/*",
    "~/.claude/skills/*",
    "~/.claude/plugins/*",
    "*/claude-*/*/tasks/*",
    "*/claude-*/*/scratchpad/*",
)
"""Folders outside of the project that Claude uses by itself, where its own checks still apply.

They hold plans, memory, long results, skills, and temporary files (output of background work, scratchpad).
"""
OWN_RULES = (
    *(Rule("external_directory", folder, "allow") for folder in OWN_FOLDERS),
    Rule("edit", OWN_FOLDERS[0], "allow"),  # the plan itself is a file, and plan mode edits no other
)
"""`AgentRules.defaults` of an agent that is Claude Code."""

SANDBOX = SandboxUse(
    folders=("$CLAUDE_CONFIG_DIR or ~/.claude",),
    files=("~/.claude.json",),
    hosts=("api.anthropic.com", "console.anthropic.com", "platform.claude.com", "claude.ai"),
    variables=("ANTHROPIC_BASE_URL",),
    shown=HELD_KEYS,
)

# --- its commands ---------------------------------------------------------------------------------------


def _skills(path: str) -> CommandFolder:
    return CommandFolder(path, "skills", depth=1, needs=(), hidden_by="user-invocable")


COMMANDS = CommandSources(
    (
        _skills(".claude/skills"),
        CommandFolder(".claude/commands", "commands"),
        *(
            folder
            for own in (OWN_FOLDER.path, f"${OWN_FOLDER.variable}")
            for folder in (_skills(f"{own}/skills"), CommandFolder(f"{own}/commands", "commands"))
        ),
    ),
    PluginFolders(
        (f"${OWN_FOLDER.variable}/plugins/installed_plugins.json", f"{OWN_FOLDER.path}/plugins/installed_plugins.json"),
        (".claude/settings.json", ".claude/settings.local.json"),
        (_skills("skills"), CommandFolder("commands", "commands")),
    ),
)
"""`AgentAbilities.command_sources` of an agent that is Claude Code. Source: the list of 2.1.330 in a project with one of each."""

INTERNAL_COMMANDS = frozenset(
    {
        *("auto-mode-setup", "autocompact", "claude-api", "color", "config", "dataviz", "design", "design-consent"),
        *("design-revoke", "design-sync", "doctor", "effort", "extra-usage", "fewer-permission-prompts", "focus", "heapdump"),
        *("init", "keybindings-help", "list-agents", "mcp", "output-style", "plugin-authoring", "pr-comments"),
        *("release-notes", "reload-plugins", "reload-skills", "run-skill-generator", "statusline", "team-onboarding"),
        *("todos", "update-config", "workflow-authoring"),
    }
)
_REMOTE = "It is only for sessions that Anthropic's servers start."
WITHHELD_COMMANDS: Mapping[str, str] = {
    "agents": "Claude Code has removed it. Ask Claude to change its subagents, or edit .claude/agents/.",
    "model": "Another model would answer than the one that the session shows. Choose the model in your client instead.",
    "__remote-workflow": _REMOTE,
    "workflow-launch-exec": _REMOTE,
}

# --- its start ------------------------------------------------------------------------------------------

_OWN_FILES = (
    "CLAUDE.md", "settings.json", "settings.local.json", ".credentials.json", "plugins/installed_plugins.json",
    "agents", "commands", "output-styles", "rules", "skills",
)  # fmt: skip
_MCP_KEYS = ("mcpServers", "enabledMcpjsonServers", "disabledMcpjsonServers", "disabledMcpServers")

SPARE = SpareUse(
    starts="`SessionStart` hooks, plugins and MCP servers, yours and those of a trusted project. They end with the process.",
    files=("CLAUDE.md", "CLAUDE.local.md", "AGENTS.md", ".claude", ".mcp.json"),
    own_files=(
        *(f"{folder}/{name}" for folder in (OWN_FOLDER.path, f"${OWN_FOLDER.variable}") for name in _OWN_FILES),
        "/etc/claude-code",
    ),
    values={"~/.claude.json": _MCP_KEYS, f"${OWN_FOLDER.variable}/.claude.json": _MCP_KEYS},  # Claude writes it at each start
    takes_git=True,  # the status goes into the first request to the model (2.1.330)
)
"""`AgentProgram.spare` of an agent that is Claude Code."""

HELD_CALLS = HeldCalls(
    files=(".claude/settings.json", ".claude/settings.local.json"),
    own_files=(
        *(
            f"{folder}/{name}"
            for folder in (OWN_FOLDER.path, f"${OWN_FOLDER.variable}")
            for name in ("settings.json", "settings.local.json", "remote-settings.json", "plugins/installed_plugins.json")
        ),
        *(
            f"{folder}/{name}"
            for folder in ("/etc/claude-code", "/Library/Application Support/ClaudeCode")
            for name in ("managed-settings.json", "managed-settings.d")
        ),
    ),
    words=('"hooks"', '"enabledPlugins"', '"installPath"', '"agent"'),  # hooks of its own, of plugins, of an agent's file
)
"""`AgentRules.held_calls` of Claude Code: `PreToolUse` waits for the server. `UserPromptSubmit` runs a person's own hooks."""

# --- its calls ------------------------------------------------------------------------------------------

UNCHECKED: Mapping[str, str] = {
    "StructuredOutput": "it only gives the answer in the schema of the prompt",
    "AskUserQuestion": "the question itself is asked",
    "ExitPlanMode": "the plan itself is asked about",
    "EnterPlanMode": "it only forbids more",
    "ToolSearch": "it only offers more tools, whose calls are checked",
    "ListAgents": "it names the agents of this conversation",
    "ReportFindings": "it only shows text",
    "TaskGet": "it reads the list of tasks",
    "TaskList": "it reads the list of tasks",
    "TaskOutput": "it reads the output of a command or an agent whose start was checked",
    "BashOutput": "it reads the output of a command whose start was checked",
    "AgentOutputTool": "it reads the output of an agent whose start was checked",
    "TaskStop": "it ends a command or an agent of this conversation",
    "KillShell": "it ends a command of this conversation",
    "CronList": "it names the prompts that were planned",
}
"""Tools whose calls run without a check -> why. OpenCode has no permission for them."""

_WORKTREES = {"EnterWorktree": "git worktree add", "ExitWorktree": "git worktree remove"}
_OTHER_SHELLS = ("PowerShell",)


def access_metadata(name: str, arguments: Mapping[str, Json]) -> dict[str, Json]:
    """Return `commands` and `opaque` of `PermissionData.metadata` for a call whose input does not show what it does."""
    if name in _WORKTREES:
        return {"commands": [f"{_WORKTREES[name]} {shlex.quote(get_text(arguments, 'path', 'name'))}".removesuffix(" ''")]}
    return {"opaque": True} if name in _OTHER_SHELLS else {}
