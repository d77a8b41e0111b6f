"""Tables and parsers of the project files that agents read, and of their entries that run a program or allow a call. Pure.

`FILES` lists the files. `SAFE` lists keys that neither run nor allow anything; every unknown key counts as one that does.
Instructions (CLAUDE.md, AGENTS.md), plain skills and command templates without shell lines never count.
Sources: documentation of the agents; runs of Claude Code 2.1.330, Codex 0.169.0, Pi 0.87.1 and OpenCode 1.18.33 (docs/trust.md).
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from shim.host.config import jsonc
from universal.lib.jsonvalue import arr, obj, text

Effect: TypeAlias = Literal["runs", "allows"]
Finding: TypeAlias = tuple[str, str, Effect]
"""(key, the command or call, effect)."""
Parser: TypeAlias = Callable[[str], Iterable[Finding]]
"""Parses a file's text into findings. Raises ValueError for a text that it cannot parse."""
ANY = "any"
"""The family of settings that this server itself applies, whichever agent runs."""

# --- harmless keys ----------------------------------------------------------------------------------------------

_CLAUDE = """$schema model availableModels outputStyle includeCoAuthoredBy attribution cleanupPeriodDays language theme
 effortLevel alwaysThinkingEnabled showTurnDuration respectGitignore plansDirectory spinnerTipsEnabled spinnerVerbs
 terminalProgressBarEnabled
 prefersReducedMotion autoUpdatesChannel companyAnnouncements disableAllHooks disabledMcpjsonServers deniedMcpServers
 disableAutoMode disableBypassPermissionsMode editorMode verbose skillOverrides autoMemoryEnabled fastMode"""
_OPENCODE = """$schema theme keybinds tui layout model small_model default_agent username instructions disabled_providers
 enabled_providers snapshot watcher compaction command autoupdate logLevel tools"""
_CODEX = """model model_reasoning_effort model_reasoning_summary model_verbosity model_context_window personality service_tier
 hide_agent_reasoning show_raw_agent_reasoning project_doc_max_bytes project_doc_fallback_filenames developer_instructions
 instructions tui file_opener history review_model plan_mode_reasoning_effort"""
_PI = """theme defaultProvider defaultModel defaultThinkingLevel compaction branchSummary retry steeringMode followUpMode
 hideThinkingBlock quietStartup collapseChangelog doubleEscapeAction enabledModels terminal images markdown thinkingBudgets skills
 prompts themes enableSkillCommands editorPaddingX autocompleteMaxVisible treeFilterMode showHardwareCursor"""
_GEMINI = """$schema ui general model context theme output ide privacy telemetry hasSeenIdeIntegrationNudge vimMode fileFiltering
 contextFileName maxSessionTurns chatCompression summarizeToolOutput checkpointing showMemoryUsage preferredEditor"""
SAFE: Mapping[str, frozenset[str]] = {
    "claude": frozenset(_CLAUDE.split()),
    "opencode": frozenset(_OPENCODE.split()),
    "codex": frozenset(_CODEX.split()),
    "pi": frozenset(_PI.split()),
    "gemini": frozenset(_GEMINI.split()),
}
"""Keys of settings files that neither run nor allow anything. All other keys count, unless a rule below handles them."""


# --- rules for the other keys --------------------------------------------------------------------------------------


def _short(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _command(value: Any) -> str:
    """Format a command (`{command, args}`, a list, or a text) as a user would type it."""
    row = obj(value)
    if isinstance(value, list):
        return " ".join(_short(word) for word in arr(value))
    if isinstance(value, str):
        return value
    words = [_command(row.get("command") or row.get("cmd") or ""), *(_short(word) for word in arr(row.get("args")))]
    return " ".join(word for word in words if word) or text(row.get("url")) or text(row.get("httpUrl")) or _short(value)


_SERVER_KEYS = frozenset({"type", "command", "args", "url", "httpUrl", "enabled", "disabled"})
"""Keys of an MCP server that its command shows, or that run nothing."""


def _servers(key: str, value: Any) -> Iterator[Finding]:
    """Yield enabled MCP servers: local ones run a command, remote ones add tools. Their variables and headers count too."""
    for name, server in obj(value).items():
        row = obj(server)
        if row.get("enabled") is not False and row.get("disabled") is not True:
            more = {word: row[word] for word in row if word not in _SERVER_KEYS}
            yield f"{key}.{name}", f"{_command(server)} {_short(more)}" if more else _command(server), "runs"


def _hooks(value: Any) -> Iterator[Finding]:
    """Yield hooks in the form of Claude Code: `{EVENT: [{matcher, hooks: [{type, command}]}]}`."""
    for event, groups in obj(value).items():
        for group in arr(groups):
            inner = arr(obj(group).get("hooks")) or [group]
            for hook in inner:
                row = obj(hook)
                action = row.get("command") or row.get("bash") or row.get("url") or row.get("prompt") or hook
                yield f"hooks.{event}", _command(action) if isinstance(action, (str, list)) else _short(action), "runs"


def _allow_findings(key: str, value: Any) -> Iterator[Finding]:
    """Yield the `allow` rules of OpenCode's `permission`."""
    if value == "allow":
        yield key, "everything", "allows"
    for name, rule in obj(value).items():
        if rule == "allow":
            yield f"{key}.{name}", "*", "allows"
        for pattern, action in obj(rule).items():
            if action == "allow":
                yield f"{key}.{name}", pattern, "allows"


def _rest(family: str, values: Mapping[str, Any], handled: Iterable[str]) -> Iterator[Finding]:
    """Yield the keys that neither a rule handles nor SAFE lists."""
    for key, value in values.items():
        if key not in SAFE[family] and key not in handled and value not in (None, False, [], {}, ""):
            yield key, _short(value), "runs"


def _claude_settings(source: str) -> Iterator[Finding]:
    values = obj(jsonc.loads(source))
    yield from _hooks(values.get("hooks"))
    for key, value in obj(values.get("env")).items():
        yield f"env.{key}", _short(value), "runs"
    permissions = obj(values.get("permissions"))
    for rule in arr(permissions.get("allow")):
        yield "permissions.allow", _short(rule), "allows"
    for key, value in permissions.items():
        harmless = value in ("default", "plan", "dontAsk") or not value
        if key not in ("allow", "deny", "ask", "disableBypassPermissionsMode", "disableAutoMode") and not harmless:
            yield f"permissions.{key}", _short(value), "allows"
    for key in ("statusLine", "subagentStatusLine", "fileSuggestion"):
        if key in values:
            yield key, _command(values[key]), "runs"
    yield from _rest("claude", values, ("hooks", "env", "permissions", "statusLine", "subagentStatusLine", "fileSuggestion"))


def _mcp_json(source: str) -> Iterator[Finding]:
    values = obj(jsonc.loads(source))
    yield from _servers("mcpServers", values.get("mcpServers") or values.get("servers"))


_HEAD = re.compile(r"\ufeff?\s*---[ \t]*\r?\n(.*?)\r?\n---[ \t]*(?:\r?\n|$)", re.DOTALL)
_CLAUDE_KEYS = re.compile(r"""(?:^|[{,\s"'?])(hooks|mcpServers|permissionMode)["']?\s*:(?P<value>.*)""", re.MULTILINE)
_ALLOW = re.compile(r"""(?P<key>[\w*.:/ -]+)["']?\s*:\s*["']?allow\b""")
_ESCAPED_KEY = re.compile(r'"[^"\n]*\\[^"\n]*"\s*:')
_INDIRECT = re.compile(r"""(?:^|[:\[{,]|\n\s*-)[ \t]*(?:[&*!][\w!]|<<\s*:)|:\s*"[^"\n]*\\""", re.MULTILINE)
"""An anchor, an alias, a tag, a merge key or an escape: what the value is stands elsewhere, or in other letters."""
_SHELL_LINE = re.compile(r"!`[^`\n]+`|^```!", re.MULTILINE)
"""A line of a command or skill that Claude Code runs before the model sees it."""


def _front_matter(source: str) -> Iterator[Finding]:
    """Yield hooks, MCP servers and the permission mode of a skill, an agent or a command of Claude Code.

    It does not parse YAML: a key that looks like one of them counts at any depth, and so does a key with escapes.
    """
    head = match[1] if (match := _HEAD.match(source)) else ""
    keys: set[str] = set()
    for key in _CLAUDE_KEYS.finditer(head):
        if key[1] in keys:
            continue
        keys.add(key[1])
        commands = re.findall(r"command[\"']?\s*:\s*(.+)", head[key.start() :]) if key[1] != "permissionMode" else []
        value = " ; ".join(command.strip() for command in commands) or key["value"].strip() or head
        yield key[1], value, "allows" if key[1] == "permissionMode" else "runs"
    if _ESCAPED_KEY.search(head) or _INDIRECT.search(head):
        yield "front matter", head, "runs"
    if _SHELL_LINE.search(source):
        yield "shell lines", source, "runs"


def _opencode_front_matter(source: str) -> Iterator[Finding]:
    """Yield the `allow` rules of an OpenCode agent's `permission`, without parsing YAML (see `_front_matter`)."""
    head = match[1] if (match := _HEAD.match(source)) else ""
    if "permission" in head:
        for rule in _ALLOW.finditer(head):
            yield f"permission.{rule['key'].strip()}", "allow", "allows"
    if _ESCAPED_KEY.search(head) or _INDIRECT.search(head):
        yield "front matter", head, "allows"


def _opencode_config(source: str) -> Iterator[Finding]:
    values = obj(jsonc.loads(source))
    for plugin in arr(values.get("plugin")):
        yield "plugin", _short(plugin), "runs"
    yield from _servers("mcp", values.get("mcp"))
    for key in ("formatter", "lsp"):
        yield from _tools(key, values.get(key))
    for name, provider in obj(values.get("provider")).items():
        yield f"provider.{name}", _short(provider), "runs"
    for key in ("agent", "mode"):
        for name, agent in obj(values.get(key)).items():
            yield from _allow_findings(f"{key}.{name}.permission", obj(agent).get("permission"))
    handled = ("plugin", "mcp", "formatter", "lsp", "provider", "agent", "mode", "permission", "share")
    if values.get("share") == "auto":
        yield "share", "auto", "allows"
    yield from _rest("opencode", values, handled)


def _tools(key: str, value: Any) -> Iterator[Finding]:
    """Yield what `formatter` or `lsp` runs; `true` stands for all that OpenCode has built in."""
    if value is True:
        yield key, "true", "runs"
    for name, tool in obj(value).items():
        if obj(tool).get("disabled") is not True:
            yield f"{key}.{name}", _command(tool), "runs"


def _server_settings(source: str) -> Iterator[Finding]:
    """Yield what this server takes from `opencode.json` for every agent: permissions, MCP servers, plugins, formatters ..."""
    values = obj(jsonc.loads(source))
    for plugin in arr(values.get("plugin")):
        yield "plugin", _short(plugin), "runs"
    yield from _servers("mcp", values.get("mcp"))
    yield from _tools("formatter", values.get("formatter"))
    yield from _allow_findings("permission", values.get("permission"))
    for name, command in obj(values.get("command")).items():
        for line in _SHELL_LINE.findall(text(obj(command).get("template"))):
            yield f"command.{name}", line, "runs"


def _command_template(source: str) -> Iterator[Finding]:
    """Yield the shell lines of a command of OpenCode, which this server runs."""
    for line in _SHELL_LINE.findall(source):
        yield "shell line", line, "runs"


def _codex_config(source: str) -> Iterator[Finding]:
    values: dict[str, Any] = tomllib.loads(source)
    yield from _servers("mcp_servers", values.get("mcp_servers"))
    yield from _hooks(values.get("hooks"))
    if "approval_policy" in values and values["approval_policy"] not in ("untrusted", "on-request"):
        yield "approval_policy", _short(values["approval_policy"]), "allows"
    if values.get("sandbox_mode") not in (None, "read-only"):
        yield "sandbox_mode", _short(values["sandbox_mode"]), "allows"
    yield from _rest("codex", values, ("mcp_servers", "hooks", "approval_policy", "sandbox_mode"))


def _hooks_json(source: str) -> Iterator[Finding]:
    values = obj(jsonc.loads(source))
    yield from _hooks(values.get("hooks") or values)


def _pi_settings(source: str) -> Iterator[Finding]:
    return _rest("pi", obj(jsonc.loads(source)), ())


def _gemini_settings(source: str) -> Iterator[Finding]:
    values = obj(jsonc.loads(source))
    yield from _servers("mcpServers", values.get("mcpServers"))
    yield from _hooks(values.get("hooks"))
    yield from _rest("gemini", values, ("mcpServers", "hooks"))


def _amp_settings(source: str) -> Iterator[Finding]:
    """Yield keys of Amp that add tools or allow commands, from `.amp/settings.json` or VS Code's settings."""
    for key, value in obj(jsonc.loads(source)).items():
        name = key.removeprefix("amp.")
        if name == "mcpServers":
            yield from _servers("amp.mcpServers", value)
        elif key.startswith("amp.") and re.match(r"commands|permissions|dangerously|tools|toolbox|url|proxy|hooks|plugins", name):
            yield key, _short(value), "allows"


def _is_code(_source: str) -> Iterator[Finding]:
    """Yield one finding for a file that an agent executes."""
    yield "code", "", "runs"


def _is_plugin(_source: str) -> Iterator[Finding]:
    """Yield one finding for an OpenCode plugin. OpenCode has no option to skip it."""
    yield "plugin", "", "runs"


_VARIABLE = re.compile(r"^\s*(?:export\s+)?([A-Za-z_]\w*)\s*=(.*)$", re.MULTILINE)
_STRONG = re.compile(r"PATH|^LD_|^DYLD_|^NODE_|^GIT_|^BASH|SHELL|PROXY|BASE_URL|ENDPOINT|^GEMINI_|^GOOGLE_|^QWEN_|^OPENAI_", re.I)


def _variables(source: str) -> Iterator[Finding]:
    """Yield variables of an environment file that redirect an agent or its commands. It hides the values: they may be secret."""
    for match in _VARIABLE.finditer(source):
        if _STRONG.search(match[1]):
            yield match[1], "", "runs"


def _is_rules(source: str) -> Iterator[Finding]:
    if re.search(r"decision\s*=\s*['\"]allow|prefix_rule\((?:(?!decision).)*?\)", source, re.DOTALL):
        yield "rules", "allow commands", "allows"


# --- files ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class File:
    """A file, or the files of a folder that match `names`, at most `DEPTH_LIMIT` levels down."""

    family: str
    path: str
    parse: Parser
    names: tuple[str, ...] = ()


_SOURCE = ("*.ts", "*.js", "*.mjs", "*.cjs", "*.mts", "*.cts", "*.tsx", "*.jsx")
_MARKDOWN = ("*.md",)
_KILO = (".kilo/", ".kilocode/")
FILES: tuple[File, ...] = (
    File("claude", ".claude/settings.json", _claude_settings),
    File("claude", ".claude/settings.local.json", _claude_settings),
    *(File("claude", f".claude/{folder}", _front_matter, _MARKDOWN) for folder in ("skills", "agents", "commands")),
    *(File(family, ".mcp.json", _mcp_json) for family in ("claude", "copilot")),
    *(File("opencode", name, _opencode_config) for name in ("opencode.json", "opencode.jsonc")),
    *(File("opencode", f".opencode/{name}", _opencode_config) for name in ("opencode.json", "opencode.jsonc")),
    *(
        File(ANY, f"{folder}{name}", _server_settings)
        for folder in ("", ".opencode/")
        for name in ("opencode.json", "opencode.jsonc")
    ),
    *(File(ANY, f".opencode/{folder}", _command_template, _MARKDOWN) for folder in ("command", "commands")),
    *(File("opencode", f".opencode/{folder}", _is_plugin, _SOURCE) for folder in ("plugin", "plugins")),
    *(File("opencode", f".opencode/{folder}", _is_code, _SOURCE) for folder in ("tool", "tools")),
    *(File(ANY, f".opencode/{folder}", _is_plugin, _SOURCE) for folder in ("plugin", "plugins")),
    *(File(ANY, f".opencode/{folder}", _is_code, _SOURCE) for folder in ("tool", "tools")),
    *(
        File("opencode", f".opencode/{folder}", _opencode_front_matter, _MARKDOWN)
        for folder in ("agent", "agents", "mode", "modes")
    ),
    File("codex", ".codex/config.toml", _codex_config),
    File("codex", ".codex/hooks.json", _hooks_json),
    File("codex", ".codex/rules", _is_rules, ("*.rules",)),
    File("codex", ".codex/agents", _codex_config, ("*.toml",)),
    File("pi", ".pi/settings.json", _pi_settings),
    File("pi", ".pi/extensions", _is_code, _SOURCE),
    *(File(name, f".{name}/settings.json", _gemini_settings) for name in ("gemini", "qwen")),
    *(File(name, f".{name}/.env", _variables) for name in ("gemini", "qwen")),
    *(File(name, f".{name}/extensions", _is_code, ("*-extension.json",)) for name in ("gemini", "qwen")),
    *(File(name, ".env", _variables) for name in ("gemini", "qwen")),
    File("copilot", ".github/hooks", _hooks_json, ("*.json",)),
    *(File("copilot", f"{folder}/mcp.json", _mcp_json) for folder in (".vscode", ".github")),
    *(File("amp", name, _amp_settings) for name in (".amp/settings.json", ".amp/settings.jsonc", ".vscode/settings.json")),
    *(File("amp", f".amp/{folder}", _is_code, ("*",)) for folder in ("plugins", "tools", "toolbox")),
    File("amp", ".agents/skills", _mcp_json, ("mcp.json",)),
    *(File("kilo", f"{folder}kilo.{end}", _opencode_config) for folder in ("", *_KILO) for end in ("json", "jsonc")),
    *(File("kilo", f"{place}{kind}", _is_code, _SOURCE) for place in _KILO for kind in ("plugin", "plugins", "tool", "tools")),
    *(File("fast-agent", name, _is_code) for name in ("fast-agent.yaml", "fast-agent.config.yaml", "fastagent.config.yaml")),
    File("fast-agent", ".fast-agent", _is_code, ("*.yaml", "*.md", "*.py")),
)
"""All files that a scan reads, in display order."""
WHOLE_FILES: tuple[Parser, ...] = (_is_code, _is_plugin, _variables, _is_rules)
"""Parsers of files whose digest covers the whole content."""
