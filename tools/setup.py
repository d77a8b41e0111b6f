"""Writes docs/setup.md: what each key of OpenCode's configuration does here. `--check` exits with 1 if it is not current."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from shim.host.config._generated.config_models import Config
from tools.generated_files import ROOT, settle
from universal.registry import agents

TARGET = ROOT / "docs" / "setup.md"
Effect: TypeAlias = Literal["acts", "in part", "OpenCode alone", "in clients", "shown only"]
EFFECTS: Mapping[Effect, str] = {
    "acts": "this server applies it, or gives it to the agent",
    "in part": "some of it acts; the words say what does not",
    "OpenCode alone": "only OpenCode as the agent reads it, by itself",
    "in clients": "clients read it from `GET /config` and apply it themselves",
    "shown only": "`GET /config` shows it, and nothing applies it",
}


@dataclass(frozen=True, slots=True)
class Row:
    """What a key does. `words`: with whom, how, or why it cannot."""

    effect: Effect
    words: str


_MODEL = "It is about OpenCode's own way to ask a model. Other agents ask theirs."
ROWS: Mapping[str, Row] = {
    "$schema": Row("shown only", "It is for editors."),
    "agent": Row(
        "in part",
        "Primary agents of your own (`agent`, `.opencode/agent(s)`) are in the list of agents with every agent, and run in its "
        "`build`: `prompt`, `permission`, `tools`, `model` and `variant` (of an agent that is here), `color`, `hidden`. The "
        "model is told `steps`; nothing enforces them. The prompt is added to the agent's own and replaces nothing: {text_of}. "
        "What is set for `build` and `plan` acts too, and `disable` takes a mode away. Subagents are given to {subagents}, where "
        "what they deny and ask holds. Of a project's agents, `allow` counts with OpenCode alone: "
        "you are asked. `temperature`, `top_p` and `options` do not act, and nothing that is set for OpenCode's "
        "`general`, `explore`, `title`, `summary` and `compaction`.",
    ),
    "attachment": Row("OpenCode alone", _MODEL),
    "autoshare": Row("shown only", "The older name of `share`, which alone acts."),
    "autoupdate": Row("shown only", "This server does not update itself or its agents."),
    "command": Row("acts", "With every agent; an agent or a model that is not here is left out, and that is said."),
    "compaction": Row("OpenCode alone", "Other agents decide by themselves when they compact."),
    "default_agent": Row(
        "acts",
        "With every agent, for prompts that name none, an agent of your own too. A project may only choose `plan` or "
        "`read-only`.",
    ),
    "disabled_providers": Row("acts", "The providers are this server's agents. A project switches none on."),
    "enabled_providers": Row("shown only", "`disabled_providers` acts."),
    "enterprise": Row("shown only", "There is no account here."),
    "experimental": Row(
        "in part",
        "`mcp_timeout` acts as `timeout` of `mcp`, `continue_loop_on_deny` as in OpenCode. The rest is about its own tools.",
    ),
    "formatter": Row(
        "acts",
        "With every agent but in a sandbox: after an edit that the agent reports, with the change in the diffs. Claude Code "
        "waits for it; with the others it runs beside their next step. A built-in one needs its program on PATH or in the "
        "project; none is installed. A project's own, and programs of the project, count with its trust. {own} by itself.",
    ),
    "instructions": Row(
        "in part",
        "Files, patterns and URLs reach {text}. A page is asked for every 5 minutes, and only one that you name yourself: of a "
        "project no URL is fetched.",
    ),
    "layout": Row("in clients", "Current clients have one layout."),
    "logLevel": Row("shown only", "`log_level` of this server's own settings counts ([settings](settings.md))."),
    "lsp": Row("OpenCode alone", "This server runs no language servers ([ADR 35](adr/0035-no-language-servers.md))."),
    "mcp": Row(
        "in part",
        "The servers are started by {mcp}. Of those that get them from this server, Claude Code 2.1.330, Codex 0.169.0, "
        "Pi 0.87.1 and Claude Agent (ACP) were run. {no_mcp} start their own alone. `oauth` is not used.",
    ),
    "mode": Row("in part", "The older form of `agent`."),
    "model": Row("acts", "For prompts that name none, if it is a model of an agent that is here, as `/models` names it."),
    "permission": Row("acts", "With every agent, as far as [permissions](permissions.md) says."),
    "plugin": Row(
        "in part",
        "Their tools and `tool.execute.before` act with all agents that take MCP servers, or ask before calls, `shell.env` with "
        "all ([plugins](plugins.md)). `event`, `chat.message`, `tool.execute.after` and `config` watch.",
    ),
    "provider": Row("OpenCode alone", f"{_MODEL} Clients are offered those of a trusted project there."),
    "reference": Row("OpenCode alone", "The older name of `references`."),
    "references": Row("OpenCode alone", "Other agents have no tool for them."),
    "server": Row("shown only", "This server has settings of its own ([settings](settings.md))."),
    "share": Row("acts", '`"auto"` shares new sessions, if it is your own; a project may only forbid it.'),
    "shell": Row("shown only", "Agents choose their shells themselves; Claude Code gets bash, so that rules can read its lines."),
    "skills": Row(
        "acts",
        "`paths` and `urls`; of a project no URL is fetched. What a URL names is copied into this server's data, every 5 minutes "
        "where its index gives no version. Every agent is told of the skills in OpenCode's folders, `.claude/skills` and "
        "`.agents/skills`, but those that it finds by itself, with the instructions: as names and files to read. One that "
        "`permission.skill` denies or asks about is not among them; Codex and Pi do not find it either, and Claude Code asks "
        "before its tool reads it.",
    ),
    "small_model": Row("OpenCode alone", _MODEL),
    "snapshot": Row("acts", "`false` switches snapshots, and so undo, off."),
    "subagent_depth": Row("OpenCode alone", "Other agents have limits of their own."),
    "tool_output": Row("OpenCode alone", "Other agents have limits of their own."),
    "tools": Row("acts", "As `permission`, with every agent."),
    "username": Row("in clients", "They show it beside prompts."),
    "watcher": Row("OpenCode alone", "This server leaves out what git ignores."),
}
"""Key of `Config` -> what it does."""

TEXT = """<!-- Written by tools/setup.py (`make gen`); do not edit. -->
# Which part of my OpenCode configuration acts?

This table says, key by key, what your configuration does behind this server. A project's own part counts only after you have
trusted it, where it would run a program or allow a call ([trust](trust.md)).

`GET /config` answers with the configuration as it is written, the same for every agent and for a project that nobody has trusted:
clients edit it, so it says nothing of what acts. Only `plugin` names more: the files of plugins that run. What acts is told by

- `options.setup` of `GET /agent`: for each agent, what it does not take. `opencode-shim doctor` says the same for the directory
  in which you call it, and a notice says it once in a session, without keys about OpenCode's own way to ask a model;
- `GET /mcp`: the servers that an agent has reported as connected or failed, and those that are off or not trusted (`disabled`);
- `GET /formatter`: the formatters that run here, with the project's where it is trusted;
- `GET /lsp` and `GET /find/symbol`: nothing, since there are no language servers;
- `GET /skill`: all skills that were found, as with native OpenCode, those too that `permission.skill` denies.

A project with an agent `reviewer`, a tool `weather` and a plugin that refuses a command, behind Claude Code 2.1.332 (a scripted
model):

![Agents of the configuration in the TUI's list](pictures/setup/agents-tui.png)
![A tool of one's own is called, and a plugin refuses a command](pictures/setup/guard-tui.png)
![The same in the web UI, with the plugin's reason and the list of agents](pictures/setup/web.png)

| effect | meaning |
|---|---|
{effects}

| key | effect | with whom, or why not |
|---|---|---|
{rows}
"""


def render() -> str:
    """Text of docs/setup.md."""
    specs = [spec for spec in agents().values() if spec.name != "mock"]
    own = [spec.title for spec in specs if spec.abilities.setup.reads_own]
    takers = [spec.title for spec in specs if "mcp" in spec.abilities.setup.takes]
    others = [spec.title for spec in specs if "mcp" not in spec.abilities.setup.takes and not spec.abilities.setup.reads_own]
    system = [spec.title for spec in specs if spec.abilities.setup.text != "never"]
    claude = [spec.title for spec in specs if "subagents" in spec.abilities.setup.takes]
    words = {
        "subagents": ", ".join((*claude, *own)),
        "text_of": f"as system text with {', '.join(system)}, with a prompt otherwise",
        "own": ", ".join(own),
        "mcp": ", ".join((*takers, *own)),
        "no_mcp": ", ".join(others),
        "text": f"every agent: {', '.join(system)} as system text, {', '.join(own)} by themselves, all others with a prompt",
    }
    return TEXT.format(
        effects="\n".join(f"| {name} | {meaning} |" for name, meaning in EFFECTS.items()),
        rows="\n".join(f"| `{key}` | {row.effect} | {row.words.format(**words)} |" for key, row in sorted(ROWS.items())),
    )


def keys() -> set[str]:
    """The keys of a configuration."""
    return {field.alias or name for name, field in Config.model_fields.items()}


if __name__ == "__main__":
    sys.exit(settle({TARGET: render()}, check="--check" in sys.argv))
