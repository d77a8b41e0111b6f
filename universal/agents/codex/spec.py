"""The spec of Codex: how to find, start and offer it. The codec is imported when it is first needed."""

from __future__ import annotations

from dataclasses import replace

from universal.agent_spec import (
    EVERYTHING,
    AgentAbilities,
    AgentProgram,
    AgentRules,
    AgentSpec,
    ConversationProgram,
    ConversationStore,
    LoginCheck,
    LoginRun,
    LoginSigns,
    ProjectSettingsUse,
    SpareUse,
)
from universal.agents.codex.wire import DEFAULT_CATALOGUE, HELLO, MODES, NAME
from universal.codec import Codec, IdFactory
from universal.permissions import Enforcement
from universal.sandbox import CODEX_SANDBOX
from universal.setup import SetupUse
from universal.slash_commands import CommandFolder, CommandSources


def _make(ids: IdFactory) -> Codec:
    from universal.agents.codex.codec import CodexCodec  # imported late: a server without Codex never loads it

    return CodexCodec(ids)


def _program() -> ConversationProgram:
    from universal.agents.codex import transcripts

    return transcripts


LOGIN = LoginCheck(
    ("app-server",),
    r'"id":1,.*("account":\{|"requiresOpenaiAuth":false)',
    r'"id":1,.*"account":null.*"requiresOpenaiAuth":true|"id":1,"error"',
    (*HELLO, b'{"id":1,"method":"account/read","params":{}}'),
)
"""Codex with a custom model provider needs no account. Only `account/read` tells that."""

_OWN_FILES = ("config.toml", "auth.json", "AGENTS.md", "AGENTS.override.md", "hooks.json", "prompts", "rules", "skills")
SPARE = SpareUse(
    starts="MCP servers, yours and those of a trusted project. They end with the process. Hooks run at the first prompt.",
    files=("AGENTS.md", "AGENTS.override.md", ".codex"),
    own_files=tuple(f"{folder}/{name}" for folder in ("~/.codex", "$CODEX_HOME") for name in _OWN_FILES),
)

COMMANDS = CommandSources(
    tuple(
        CommandFolder(path, "skills", mark="$")
        for path in (".agents/skills", ".codex/skills", "~/.agents/skills", "~/.codex/skills", "$CODEX_HOME/skills")
    )
)
"""Codex reads a skill whose name stands in a prompt after `$`. Its app server has no other commands (0.169.0)."""

CODEX = AgentSpec(
    name=NAME,
    title="Codex",
    make=_make,
    program=AgentProgram(
        binaries=("codex",),
        version_args=("--version",),
        env_override="SHIM_CODEX_BIN",
        tested=("0.166.0", "0.171.0"),
        npm=("@openai/codex",),
        install_hint="Install Codex with `npm install -g @openai/codex`, then run `codex login` once.",
        login=LOGIN,
        login_run=LoginRun(("login", "--device-auth")),
        login_hint="Run `codex login` in a terminal.",
        login_signs=LoginSigns(("OPENAI_API_KEY", "CODEX_API_KEY"), ("$CODEX_HOME/auth.json", "~/.codex/auth.json")),
        key_variables=("OPENAI_API_KEY", "CODEX_API_KEY"),
        spare=SPARE,
    ),
    abilities=AgentAbilities(
        capabilities=replace(EVERYTHING, commands=False),
        modes=MODES,
        catalogue=DEFAULT_CATALOGUE,
        lacks={"cost": "Codex tells tokens, no prices."},
        command_sources=COMMANDS,
        setup=SetupUse(frozenset({"mcp"}), text="new", hides_skills="each"),
        no_steering="",
        conversations=ConversationStore(_program, "codex resume {id}", program=_program),
        structured="strict",
        rewinds=True,
    ),
    rules=AgentRules(
        enforcement=Enforcement(
            'approval policy "untrusted": Codex asks for each command, patch and MCP call where a rule may forbid it',
            {
                "external_directory": "Only writing outside is held by Codex's sandbox while no rule of yours is about commands "
                "or files; a rule for `external_directory` makes it ask for reading too.",
                "websearch": "Codex does not ask before it searches: a rule that denies or asks switches the search off.",
                "task": "Codex does not ask before it starts a subagent: a rule that denies or asks switches subagents off.",
                "mcp": "Calls of MCP tools are held. Codex lists and reads the resources of MCP servers without asking.",
                "todowrite": "Codex's plan is not asked about, and changes nothing.",
            },
            absent=("webfetch", "skill"),
        ),
        project_settings=ProjectSettingsUse(
            ("codex",),
            leaves_out=True,
            rule_files=(".codex/config.toml", ".codex/hooks.json", ".codex/rules/*", ".codex/agents/*"),
        ),
        sandbox=CODEX_SANDBOX,
    ),
)
