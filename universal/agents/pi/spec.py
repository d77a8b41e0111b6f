"""The spec of Pi: how to find, start and offer it. The codec is imported when it is first needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from universal.agent_spec import (
    EVERYTHING,
    AgentAbilities,
    AgentFolder,
    AgentProgram,
    AgentRules,
    AgentSpec,
    ConversationReader,
    ConversationStore,
    LoginSigns,
    ProjectSettingsUse,
    SpareUse,
)
from universal.agents.pi.wire import MODES, NAME, NO_CATALOGUE
from universal.codec import Codec, IdFactory
from universal.lib.jsonvalue import JsonObject
from universal.permissions import Enforcement
from universal.sandbox import PI_SANDBOX
from universal.setup import SetupUse
from universal.slash_commands import CommandFolder, CommandSources


def _make(ids: IdFactory) -> Codec:
    from universal.agents.pi.codec import PiCodec  # imported late: a server without Pi never loads it

    return PiCodec(ids)


def _reader() -> ConversationReader:
    from universal.agents.pi import transcripts

    return transcripts


def _foreign_rows(lines: Sequence[bytes], rows: Sequence[JsonObject], anchor: str) -> tuple[Sequence[JsonObject], bool]:
    from universal.agents.pi import transcripts

    return transcripts.foreign_rows(lines, rows, anchor)


_OWN_FILES = (
    "settings.json", "models.json", "auth.json", "mcp.json", "AGENTS.md", "CLAUDE.md", "SYSTEM.md", "APPEND_SYSTEM.md",
    "extensions", "prompts", "skills",
)  # fmt: skip
SPARE = SpareUse(
    starts="Pi's extensions, yours and those of a trusted project, and your MCP servers. They end with the process.",
    files=("AGENTS.md", "CLAUDE.md", ".pi"),
    own_files=tuple(f"{folder}/{name}" for folder in ("~/.pi/agent", "$PI_CODING_AGENT_DIR") for name in _OWN_FILES),
)

_OWN_FOLDERS = ("~/.pi/agent", "$PI_CODING_AGENT_DIR")
COMMANDS = CommandSources(
    (
        CommandFolder(".pi/prompts", "commands", depth=1, is_everywhere=False),
        CommandFolder(".pi/skills", "skills", name="skill:{}", is_everywhere=False),
        CommandFolder(".agents/skills", "skills", name="skill:{}"),
        *(CommandFolder(f"{own}/prompts", "commands", depth=1) for own in _OWN_FOLDERS),
        *(CommandFolder(f"{own}/skills", "skills", name="skill:{}") for own in (*_OWN_FOLDERS, "~/.agents")),
    )
)
"""Source: `get_commands` of 0.87.1 in a project with one of each."""

PI = AgentSpec(
    name=NAME,
    title="Pi",
    make=_make,
    program=AgentProgram(
        binaries=("pi",),
        version_args=("--version",),
        env_override="SHIM_PI_BIN",
        tested=("0.73.1", "1.6.0"),
        npm=("@earendil-works/pi-coding-agent",),
        install_hint="Install Pi with `npm install -g @earendil-works/pi-coding-agent`, then run `pi` once and use /login.",
        login="models",
        login_hint="Run `pi` in a terminal and log in with /login, or set the API key of a provider (ANTHROPIC_API_KEY ...).",
        login_signs=LoginSigns(
            ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY"), ("~/.pi/agent/auth.json", "~/.pi/agent/models.json")
        ),
        spare=SPARE,
    ),
    abilities=AgentAbilities(
        capabilities=replace(EVERYTHING, files=False, subagents=False, todos=False),
        modes=MODES,
        catalogue=NO_CATALOGUE,
        lacks={
            "todos": "Pi has no tool for a list of tasks.",
            "subagents": "Pi has no subagents.",
            "plan": "Pi tells no limits of a plan.",
        },
        command_sources=COMMANDS,
        setup=SetupUse(frozenset({"mcp"}), hides_skills="all"),
        no_steering="",
        conversations=ConversationStore(
            _reader, "pi --session {id}", files="sessions/*/*_{id}.jsonl", foreign_rows=_foreign_rows, at_rest=True
        ),
        rewinds=True,
    ),
    rules=AgentRules(
        # Calls from scripts (`codemode`, Pi 1.5.2) are asked about too: `tests/e2e/test_agents.py` in `make adopt AGENT=pi`.
        enforcement=Enforcement(
            "an extension that asks before every call",
            absent=("webfetch", "websearch", "task", "skill", "todowrite"),
        ),
        project_settings=ProjectSettingsUse(
            ("pi",),
            leaves_out=True,
            rule_files=(".pi/settings.json", ".pi/extensions/*", ".pi/agent/settings.json", ".pi/agent/extensions/*"),
        ),
        own_folder=AgentFolder("~/.pi/agent", "PI_CODING_AGENT_DIR"),
        sandbox=PI_SANDBOX,
    ),
)
