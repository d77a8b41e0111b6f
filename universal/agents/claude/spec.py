"""The spec of Claude Code: how to find, start and offer it. The codec is imported when it is first needed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from universal.agent_spec import (
    EVERYTHING,
    AgentAbilities,
    AgentProgram,
    AgentRules,
    AgentSpec,
    ConversationReader,
    ConversationStore,
    LoginCheck,
    LoginRun,
    LoginSigns,
    ProjectSettingsUse,
)
from universal.agents.claude.wire import DEFAULT_CATALOGUE, MODES, NAME
from universal.claude_code import (
    COMMANDS,
    HELD_CALLS,
    INTERNAL_COMMANDS,
    OWN_FOLDER,
    OWN_RULES,
    RULE_FILES,
    SANDBOX,
    SPARE,
    WITHHELD_COMMANDS,
)
from universal.codec import Codec, IdFactory
from universal.lib.jsonvalue import JsonObject
from universal.permissions import Enforcement
from universal.setup import SetupUse


def _make(ids: IdFactory) -> Codec:
    from universal.agents.claude.codec import ClaudeCodec  # imported late: a server without Claude Code never loads it

    return ClaudeCodec(ids)


def _reader() -> ConversationReader:
    from universal.agents.claude import transcripts

    return transcripts


def _foreign_rows(
    lines: Sequence[bytes], rows: Sequence[JsonObject], _anchor: str, entrypoint: str = ""
) -> tuple[Sequence[JsonObject], bool]:
    from universal.agents.claude import transcripts

    return transcripts.foreign_rows(lines, rows, entrypoint=entrypoint)


CONVERSATIONS = ConversationStore(_reader, "claude --resume {id}", files="projects/*/{id}.jsonl", foreign_rows=_foreign_rows)
ADAPTER_CONVERSATIONS = CONVERSATIONS._replace(foreign_rows=partial(_foreign_rows, entrypoint="sdk-ts"))
"""Those of an adapter that runs Claude Code by its SDK for TypeScript (claude-agent-acp 0.101.0)."""


CLAUDE = AgentSpec(
    name=NAME,
    title="Claude Code",
    make=_make,
    program=AgentProgram(
        binaries=("claude",),
        version_args=("--version",),
        env_override="SHIM_CLAUDE_BIN",
        tested=("2.1.197", "2.1.332"),
        npm=("@anthropic-ai/claude-code",),
        install_hint="Install Claude Code with `npm install -g @anthropic-ai/claude-code`, then run `claude` once to log in.",
        login=LoginCheck(("auth", "status"), r'"loggedIn":\s*true', r'"loggedIn":\s*false'),
        login_run=LoginRun(("auth", "login"), takes_code=True),
        login_hint="Run `claude` in a terminal and log in with /login, or set ANTHROPIC_API_KEY.",
        # On macOS, Claude Code keeps its login in the keychain, which the server does not read.
        login_signs=LoginSigns(
            (
                "ANTHROPIC_API_KEY",
                "ANTHROPIC_AUTH_TOKEN",
                "CLAUDE_CODE_OAUTH_TOKEN",
                "CLAUDE_CODE_USE_BEDROCK",
                "CLAUDE_CODE_USE_VERTEX",
            ),
            ("$CLAUDE_CONFIG_DIR/.credentials.json", "~/.claude/.credentials.json"),
        ),
        key_variables=("ANTHROPIC_API_KEY",),
        spare=SPARE,
    ),
    abilities=AgentAbilities(
        capabilities=EVERYTHING,
        modes=MODES,
        catalogue=DEFAULT_CATALOGUE,
        command_sources=COMMANDS,
        internal_commands=INTERNAL_COMMANDS,
        withheld_commands=WITHHELD_COMMANDS,
        setup=SetupUse(frozenset({"mcp", "subagents"}), text="start"),
        no_steering="",
        conversations=CONVERSATIONS,
        structured="any",
        rewinds=True,
    ),
    rules=AgentRules(
        enforcement=Enforcement("a hook before every call"),
        project_settings=ProjectSettingsUse(("claude",), leaves_out=True, rule_files=RULE_FILES),
        defaults=OWN_RULES,
        own_folder=OWN_FOLDER,
        sandbox=SANDBOX,
        held_calls=HELD_CALLS,
    ),
)
