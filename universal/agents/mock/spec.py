"""The spec of the mock agent."""

from __future__ import annotations

from dataclasses import replace

from universal import codec as c
from universal.slash_commands import CommandFolder, CommandSources


def _make(ids: c.IdFactory) -> c.Codec:
    from universal.agents.mock.codec import MockCodec  # imported late: only a server that runs the mock loads it

    return MockCodec(ids)


MODEL = c.Model(
    id="mock",
    name="Mock",
    description="Plays scenes; `help` lists them. No network; its tokens and their cost are made up.",
    variants=("low", "high"),
    reasoning=True,
    context=200_000,
    output=32_000,
)

MOCK = c.AgentSpec(
    enforcement=c.Enforcement("its questions: it does nothing else that a rule could be about"),
    name="mock",
    title="Mock",
    make=_make,
    binaries=(),
    env_override="",
    version_args=(),
    capabilities=replace(c.EVERYTHING, mcp=False),
    modes=(
        c.Mode("build", "Plays every scene; `edit` changes files.", "build"),
        c.Mode("plan", "Changes no file.", "plan"),
    ),
    command_sources=CommandSources((CommandFolder(".mock/commands", "commands"),)),
    default_catalogue=c.Catalogue(models=(MODEL,), commands=(c.SlashCommand("help", "lists all scenes"),), default_model="mock"),
    project_settings=c.ProjectSettingsUse(),
    lacks={
        "plan": "It needs no account.",
        "mcp": "It has no MCP client.",
        "images": "It names what is attached, and reads nothing.",
        "files": "It names what is attached, and reads nothing.",
    },
    unrecorded="The mock is this project's own: its recordings are made by its tests (SHIM_ACCEPT=1).",
    is_fallback=True,
    install_hint="The mock is part of opencode-shim; there is nothing to install.",
)
