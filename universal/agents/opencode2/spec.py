"""The registry row of OpenCode 2. The codec is loaded when it is first needed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from universal.agent_spec import EVERYTHING, AgentAbilities, AgentProgram, AgentRules, AgentSpec, LoginSigns, ProjectSettingsUse
from universal.agents.opencode2.wire import NAME
from universal.codec import Codec, IdFactory
from universal.opencode import DEFAULT_CATALOGUE, MODES, SKILLS
from universal.permissions import Enforcement
from universal.setup import SetupUse

NOT_RUN = (
    "2.x was not run: its npm package `@opencode/cli` (2.3.2 in November 2026) is not on the mirror that this was made with. It "
    "was made from the published contract and from recordings of two older builds of its server. The preview of August (`lildax` "
    "1.18.18) was run."
)
"""Shown where other agents have a list of tested versions."""


def _make(ids: IdFactory) -> Codec:
    from universal.agents.opencode2.codec import OpenCode2Codec  # late: a server with no OpenCode 2 never loads it

    return OpenCode2Codec(ids)


OPENCODE2 = AgentSpec(
    name=NAME,
    title="OpenCode 2",
    make=_make,
    program=AgentProgram(
        binaries=("opencode2",),
        version_args=("--version",),
        env_override="SHIM_OPENCODE2_BIN",
        shared_binaries=("opencode",),
        major=2,
        major_hint="A program of 1.x is taken by the agent `opencode`.",
        unrecorded=NOT_RUN,
        transport="http",
        npm=("@opencode/cli",),
        install_hint="Install OpenCode 2 with `npm install -g @opencode/cli` (not on every mirror; https://opencode.ai has other "
        "ways). Its program is taken under the name `opencode2`, and under the name `opencode` if it tells a version 2.x.",
        login="models",
        login_hint="Run `opencode2` in a terminal and connect a provider.",
        login_signs=LoginSigns(("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "OPENCODE_API_KEY")),
    ),
    abilities=AgentAbilities(
        capabilities=replace(EVERYTHING, todos=False),
        modes=MODES,
        catalogue=DEFAULT_CATALOGUE,
        lacks={
            "todos": "OpenCode 2 has no todo list any more: no tool, no event.",
            "plan": "OpenCode tells no limits of a plan.",
        },
        command_sources=SKILLS,
        setup=SetupUse(reads_own=True),
        rewinds=True,
    ),
    rules=AgentRules(
        enforcement=Enforcement(
            "OpenCode 2's own engine, which is given the written rules with each session",
            {"*": "Not run with OpenCode 2.x: nobody has seen that its engine holds the rules that it is given."},
        ),
        project_settings=ProjectSettingsUse(("opencode",)),
    ),
    is_fallback=True,
)


def configured_spec(command: tuple[str, ...], title: str | None, env: Mapping[str, str]) -> AgentSpec:
    """Return the row with the program of `[agents.opencode2]` in the settings: its arguments and environment."""

    def make(ids: IdFactory) -> Codec:
        from universal.agents.opencode2.codec import OpenCode2Codec

        return OpenCode2Codec(ids, command[1:], env)

    version_args = (*command[1:], "--version")
    program = replace(OPENCODE2.program, binaries=command[:1], shared_binaries=(), version_args=version_args)
    return replace(OPENCODE2, make=make, program=program, title=title or OPENCODE2.title)
