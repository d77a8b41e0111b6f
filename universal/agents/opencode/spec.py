"""The spec of OpenCode: how to find, start and offer it. The codec is imported when it is first needed."""

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
    LoginSigns,
    ProjectSettingsUse,
    SpareUse,
)
from universal.agents.opencode.wire import NAME
from universal.codec import Codec, IdFactory
from universal.opencode import DEFAULT_CATALOGUE, MODES, SANDBOX, SKILLS
from universal.permissions import Enforcement
from universal.sandbox import SandboxUse
from universal.setup import SetupUse


def _make(ids: IdFactory) -> Codec:
    from universal.agents.opencode.codec import OpenCodeCodec  # imported late: a server without OpenCode never loads it

    return OpenCodeCodec(ids)


def _program() -> ConversationProgram:
    from universal.agents.opencode import conversations  # as above

    return conversations


def _make_kilo(ids: IdFactory) -> Codec:
    from universal.agents.opencode.codec import KiloCodec  # as above

    return KiloCodec(ids)


_OWN_FILES = (
    "config.json", "opencode.json", "opencode.jsonc", "AGENTS.md", "agent", "agents", "command", "commands", "mode", "modes",
    "plugin", "plugins", "skill", "skills", "tool", "tools",
)  # fmt: skip
SPARE = SpareUse(
    starts="OpenCode's plugins and MCP servers, yours and those of a trusted project. They end with the process.",
    files=("opencode.json", "opencode.jsonc", ".opencode", "AGENTS.md", "CLAUDE.md"),
    own_files=(
        *(f"{folder}/opencode/{name}" for folder in ("~/.config", "$XDG_CONFIG_HOME") for name in _OWN_FILES),
        *(f"{folder}/opencode/auth.json" for folder in ("~/.local/share", "$XDG_DATA_HOME")),
    ),
)

_AS_WRITTEN = {
    "external_directory": "Paths of its tools and of a few commands (`cat`, `cp`, `rm` ...) are held as they are written; "
    "redirections, other commands, and links that lead outside are not seen."
}
"""What the engine of OpenCode 1.18.33 does not hold: it compares the text of a call."""

OPENCODE = AgentSpec(
    name=NAME,
    title="OpenCode",
    make=_make,
    program=AgentProgram(
        binaries=("opencode",),
        version_args=("--version",),
        env_override="SHIM_OPENCODE_BIN",
        major=1,
        major_hint="A program of 2.x is taken by the agent `opencode2`.",
        tested=("1.18.32", "1.18.34"),
        transport="http",
        npm=("opencode-ai",),
        install_hint="Install OpenCode with `npm install -g opencode-ai`, then run `opencode auth login` once.",
        login="models",
        login_hint="Run `opencode auth login` in a terminal.",
        login_signs=LoginSigns(
            ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "OPENCODE_API_KEY"),
            ("$XDG_DATA_HOME/opencode/auth.json", "~/.local/share/opencode/auth.json"),
        ),
        spare=SPARE,
    ),
    abilities=AgentAbilities(
        capabilities=EVERYTHING,
        modes=MODES,
        catalogue=DEFAULT_CATALOGUE,
        lacks={"plan": "OpenCode tells no limits of a plan."},
        command_sources=SKILLS,
        setup=SetupUse(reads_own=True),
        no_steering="",
        conversations=ConversationStore(_program, "opencode --session {id}", program=_program),
        rewinds=True,
    ),
    rules=AgentRules(
        enforcement=Enforcement(
            "OpenCode's own engine: it reads the configuration, and is given the session's rules. It sees the text of a command, "
            "not the files that it reads or writes",
            {
                **_AS_WRITTEN,
                "doom_loop": "OpenCode notices equal calls within one answer of its model only, not in answers that "
                "follow each other.",
            },
            tools_alone=("edit", "read"),
        ),
        project_settings=ProjectSettingsUse(("opencode",), leaves_out=True, always=("plugin",)),
        sandbox=SANDBOX._replace(shown=("edit", "read", "external_directory")),  # it keeps its network: we reach it by that
    ),
    is_fallback=True,
)

KILO_SERVE = AgentSpec(
    name="kilo-serve",
    title="Kilo (as OpenCode)",
    make=_make_kilo,
    program=AgentProgram(
        binaries=("kilo-serve",),
        version_args=("--version",),
        env_override="SHIM_KILO_SERVE_BIN",
        tested=("7.7.9",),
        transport="http",
        install_hint="Set SHIM_KILO_SERVE_BIN to your `kilo`.",
        login="models",
        login_hint="Run `kilo auth login` in a terminal.",
    ),
    abilities=replace(
        OPENCODE.abilities,
        setup=SetupUse(frozenset({"mcp"})),
        no_steering="Nobody has seen yet how it takes in a prompt while it works.",
        conversations=None,
        rewinds=False,
    ),
    rules=AgentRules(
        enforcement=Enforcement(
            "Kilo's own engine, which is given all written rules, and sees the text of a command alone",
            {
                **_AS_WRITTEN,
                "doom_loop": "Kilo notices equal calls within one answer of its model only, not in answers that "
                "follow each other.",
            },
            tools_alone=("edit", "read"),
        ),
        project_settings=ProjectSettingsUse(
            ("opencode",),
            leaves_out=True,
            always=("plugin",),
            rule_files=("kilo.json", ".kilo/kilo.json", ".config/kilo/kilo.json"),
        ),
        sandbox=SandboxUse(
            folders=("~/.config/kilo", "~/.local/share/kilo", "~/.local/state/kilo", "~/.cache/kilo"),
            settings=("~/.config/kilo/kilo.json",),
            hosts=("api.kilo.ai",),
            shown=("edit", "read", "external_directory"),
            own_server=True,
        ),
    ),
    is_fallback=True,
)
"""`kilo serve`, a fork of OpenCode. It is found when SHIM_KILO_SERVE_BIN names a `kilo`. `kilo` is the agent that speaks ACP."""
