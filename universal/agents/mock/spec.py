"""The spec of the mock agent."""

from __future__ import annotations

from dataclasses import replace

from universal.agent_spec import EVERYTHING, AgentAbilities, AgentProgram, AgentRules, AgentSpec, ProjectSettingsUse
from universal.codec import Catalogue, Codec, IdFactory, Mode, Model
from universal.permissions import Enforcement
from universal.slash_commands import CommandFolder, CommandSources, SlashCommand


def _make(ids: IdFactory) -> Codec:
    from universal.agents.mock.codec import MockCodec  # imported late: only a server that runs the mock loads it

    return MockCodec(ids)


MODEL = Model(
    id="mock",
    name="Mock",
    description="Plays scenes; `help` lists them. No network; its tokens and their cost are made up.",
    variants=("low", "high"),
    reasoning=True,
    context=200_000,
    output=32_000,
)

MOCK = AgentSpec(
    name="mock",
    title="Mock",
    make=_make,
    program=AgentProgram(
        binaries=(),
        unrecorded="The mock is this project's own: its recordings are made by its tests (SHIM_ACCEPT=1).",
        install_hint="The mock is part of opencode-shim; there is nothing to install.",
    ),
    abilities=AgentAbilities(
        capabilities=replace(EVERYTHING, mcp=False),
        modes=(Mode("build", "Plays every scene; `edit` changes files.", "build"), Mode("plan", "Changes no file.", "plan")),
        catalogue=Catalogue(models=(MODEL,), commands=(SlashCommand("help", "lists all scenes"),), default_model="mock"),
        lacks={
            "plan": "It needs no account.",
            "mcp": "It has no MCP client.",
            "images": "It names what is attached, and reads nothing.",
            "files": "It names what is attached, and reads nothing.",
        },
        command_sources=CommandSources((CommandFolder(".mock/commands", "commands"),)),
    ),
    rules=AgentRules(Enforcement("its questions: it does nothing else that a rule could be about"), ProjectSettingsUse()),
    is_fallback=True,
)
