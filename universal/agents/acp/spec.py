"""Rows of the registry for agents of the Agent Client Protocol: the known ones, and those of the settings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from universal.agent_spec import AgentProgram, AgentSpec, ConversationProgram, ConversationStore
from universal.agents.acp.logins import login_hint
from universal.agents.acp.profiles import PROFILES, Profile
from universal.codec import Codec, IdFactory

HANDSHAKE_S = 20.0
"""Seconds that a prompt waits for each answer of the handshake of an agent of which nothing is known."""
DOWNLOAD_S = 180.0
"""The same if its program downloads the agent first."""
DOWNLOADERS = frozenset({"npx", "bunx", "pnpm", "yarn", "uvx", "pipx", "uv", "docker", "podman", "ssh", "nix", "deno", "go"})


def _make(ids: IdFactory, profile: Profile) -> Codec:
    from universal.agents.acp.codec import AcpCodec  # late: a server with no such agent never loads it

    return AcpCodec(ids, profile=profile)


def _conversations(profile: Profile) -> ConversationProgram:
    from universal.agents.acp.conversations import Conversations  # late, as above

    return Conversations(profile)


def spec_of(profile: Profile) -> AgentSpec:
    """Return the registry row of one agent."""
    variable = re.sub(r"[^A-Z0-9]", "_", profile.name.upper())
    program = replace(profile.program, env_override=f"SHIM_{variable}_BIN")
    program_of = partial(_conversations, profile)
    conversations = ConversationStore(program_of, profile.resume_command, program=program_of)
    abilities = replace(profile.abilities, conversations=conversations)
    return AgentSpec(profile.name, profile.title, partial(_make, profile=profile), program, abilities, profile.rules)


def custom_spec(name: str, command: tuple[str, ...], title: str | None, env: Mapping[str, str]) -> AgentSpec:
    """Return the row of an agent in the settings. A known name keeps its profile, except for the command and its environment."""
    handshake_s = DOWNLOAD_S if command[0].rpartition("/")[2] in DOWNLOADERS else HANDSHAKE_S
    hint = login_hint(name, title or name, command, ())
    unknown = Profile(name, name, AgentProgram((), login_hint=hint), command=command, handshake_s=handshake_s)
    profile = next((profile for profile in PROFILES if profile.name == name), unknown)
    args, run = command[1:], profile.program.login_run
    start = args[: len(args) - len(profile.args)] if args[-len(profile.args) :] == profile.args else args
    program = replace(
        profile.program,
        binaries=(command[0],),
        version_args=(),
        install_hint=f"It is set as agents.{name}.command in the settings.",
        login_run=replace(run, args=(*start, *run.args)) if run is not None else None,
    )
    wait_s = max(profile.handshake_s, handshake_s)
    title = title or profile.title
    return spec_of(replace(profile, title=title, program=program, args=args, env=dict(env), handshake_s=wait_s))


ACP_AGENTS: tuple[AgentSpec, ...] = tuple(spec_of(profile) for profile in PROFILES)
"""Registry rows of the known agents."""
