"""The registry row of OpenCode 2. The codec is loaded when it is first needed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from universal.agents.opencode2.wire import NAME
from universal.codec import EVERYTHING, AgentSpec, Codec, IdFactory, LoginSigns, ProjectSettingsUse
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
    binaries=("opencode2",),
    env_override="SHIM_OPENCODE2_BIN",
    version_args=("--version",),
    major=2,
    major_hint="A program of 1.x is taken by the agent `opencode`.",
    shared_binaries=("opencode",),
    capabilities=replace(EVERYTHING, todos=False),
    modes=MODES,
    setup=SetupUse(reads_own=True),
    project_settings=ProjectSettingsUse(("opencode",)),
    command_sources=SKILLS,
    default_catalogue=DEFAULT_CATALOGUE,
    npm=("@opencode/cli",),
    install_hint=(
        "Install OpenCode 2 with `npm install -g @opencode/cli` (not on every mirror; https://opencode.ai has other ways). "
        "Its program is taken under the name `opencode2`, and under the name `opencode` if it tells a version 2.x."
    ),
    transport="http",
    login="models",
    login_hint="Run `opencode2` in a terminal and connect a provider.",
    login_signs=LoginSigns(("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "OPENCODE_API_KEY")),
    is_fallback=True,
    rewinds=True,
    lacks={
        "todos": "OpenCode 2 has no todo list any more: no tool, no event.",
        "plan": "OpenCode tells no limits of a plan.",
    },
    unrecorded=NOT_RUN,
    enforcement=Enforcement(
        "OpenCode 2's own engine, which is given the written rules with each session",
        {"*": "Not run with OpenCode 2.x: nobody has seen that its engine holds the rules that it is given."},
    ),
)


def configured_spec(command: tuple[str, ...], title: str | None, env: Mapping[str, str]) -> AgentSpec:
    """Return the row with the program of `[agents.opencode2]` in the settings: its arguments and environment."""

    def make(ids: IdFactory) -> Codec:
        from universal.agents.opencode2.codec import OpenCode2Codec

        return OpenCode2Codec(ids, command[1:], env)

    version_args = (*command[1:], "--version")
    return replace(
        OPENCODE2, make=make, binaries=command[:1], shared_binaries=(), version_args=version_args, title=title or OPENCODE2.title
    )
