"""Rows of the registry for agents of the Agent Client Protocol: the known ones, and those of the settings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from universal.agents.acp.cards import PROFILES
from universal.agents.acp.logins import login_hint
from universal.agents.acp.profiles import DEFAULT, Profile
from universal.codec import AgentSpec, Capabilities, Catalogue, Codec, IdFactory, Model
from universal.permissions import Enforcement

HANDSHAKE_S = 20.0
"""Seconds that a prompt waits for each answer of the handshake of an agent of which nothing is known."""
DOWNLOAD_S = 180.0
"""The same if its program downloads the agent first."""
DOWNLOADERS = frozenset({"npx", "bunx", "pnpm", "yarn", "uvx", "pipx", "uv", "docker", "podman", "ssh", "nix", "deno", "go"})
UNTOLD = Catalogue((Model(DEFAULT, "Default", "The model that the agent is set to."),), default_model=DEFAULT)
"""Catalogue until an agent has reported its models, so that clients need not wait for a slow start."""


_UNSEEN = "Calls that the agent neither asks about nor makes through this server are not seen"
ENFORCEMENT = Enforcement(
    "the agent's own questions, and files and commands that go through this server",
    {"*": f"{_UNSEEN}: most agents read without asking, and ask for nothing in their modes that accept edits or everything."},
)
UNASKED = Enforcement("files and commands that go through this server", {"*": f"{_UNSEEN}, and this agent asks nothing."})


def _make(ids: IdFactory, profile: Profile) -> Codec:
    from universal.agents.acp.codec import AcpCodec  # late: a server with no such agent never loads it

    return AcpCodec(ids, profile=profile)


def spec_of(profile: Profile) -> AgentSpec:
    """Return the registry row of one agent."""
    variable = re.sub(r"[^A-Z0-9]", "_", profile.name.upper())
    return AgentSpec(
        name=profile.name,
        title=profile.title,
        make=partial(_make, profile=profile),
        binaries=profile.binaries,
        env_override=f"SHIM_{variable}_BIN",
        version_args=profile.version_args,
        capabilities=Capabilities(
            deltas=True,
            reasoning=True,
            permissions=profile.permissions,
            questions=profile.questions,
            images=True,
            interrupt=True,
            resume=True,
            todos=True,
            usage=profile.usage,
            commands=True,
            mcp=profile.mcp,
        ),
        modes=profile.modes,
        default_catalogue=UNTOLD,
        install_hint=profile.install_hint,
        setup=profile.setup,
        project_settings=profile.settings,
        tested=profile.tested,
        login=profile.login,
        login_hint=profile.login_hint,
        enforcement=profile.enforcement or (ENFORCEMENT if profile.permissions else UNASKED),
        sandbox=profile.sandbox,
        default_rules=profile.default_rules,
        own_folder=profile.own_folder,
        npm=profile.npm,
        command_sources=profile.command_sources,
        internal_commands=profile.internal_commands,
        withheld_commands=profile.withheld_commands,
        key_variables=profile.key_variables,
        login_signs=profile.login_signs,
        lacks=profile.lacks,
        unrecorded=profile.unrecorded,
        spare=profile.spare,
        no_spare=profile.no_spare,
    )


def custom_spec(name: str, command: tuple[str, ...], title: str | None, env: Mapping[str, str]) -> AgentSpec:
    """Return the row of an agent in the settings. A known name keeps its profile, except for the command and its environment."""
    profile = next((profile for profile in PROFILES if profile.name == name), None)
    handshake_s = DOWNLOAD_S if command[0].rpartition("/")[2] in DOWNLOADERS else HANDSHAKE_S
    hint = login_hint(name, title or name, command, ())
    profile = profile or Profile(name, name, (), login_hint=hint, command=command, handshake_s=handshake_s)
    return spec_of(
        replace(
            profile,
            title=title or profile.title,
            binaries=(command[0],),
            args=tuple(command[1:]),
            env=dict(env),
            version_args=(),
            install_hint=f"It is set as agents.{name}.command in the settings.",
        )
    )


ACP_AGENTS: tuple[AgentSpec, ...] = tuple(spec_of(profile) for profile in PROFILES)
"""Registry rows of the known agents."""
