"""Agents that are installed only in a test: `FakeAgents(offer("claude"), ...)`, for routes that list what they offer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import cast

from shim.agents.directory_offers import DirectoryOffers
from shim.agents.keys import KeyStore, key_variables
from shim.agents.plugins import BrokenPlugin
from shim.host.config.opencode_config import UNREAD, OpenCodeConfig
from shim.sessions.session.dependencies import SessionDeps
from universal.agent_spec import AgentAbilities, AgentProgram, AgentRules, AgentSpec, Capabilities
from universal.codec import Catalogue, Codec, IdFactory, Mode, Model
from universal.permissions import Enforcement
from universal.registry import agents
from universal.slash_commands import SlashCommand

CLAUDE_CATALOGUE = Catalogue(
    models=(
        Model("default", "Default", variants=("low", "high"), reasoning=True, context=200_000, output=64_000),
        Model("opus/4.1", "Opus", images=False),
    ),
    commands=(SlashCommand("init", "Sets up CLAUDE.md"), SlashCommand("review", "Reviews a pull request", "[number]")),
    default_model="default",
)
CODEX_CATALOGUE = Catalogue(models=(Model("gpt", "GPT"),), commands=(SlashCommand("init", "Sets up AGENTS.md"),))
CLAUDE_MODES = (
    Mode("accept-edits", "Edits without asking.", "acceptEdits"),
    Mode("plan", "Plans.", "plan"),
    Mode("build", "Asks before it edits.", "default"),
)


@dataclass(frozen=True, slots=True)
class FakeLocated:
    """A binary that is there."""

    path: str | None = "/bin/true"
    version: str | None = "1.0.0"
    why: str = ""


@dataclass(frozen=True, slots=True)
class FakeAgent:
    """An installed agent."""

    spec: AgentSpec
    catalogue: Catalogue
    located: FakeLocated = FakeLocated()


class FakeAgents:
    """The directory. The first agent is the default one."""

    def __init__(self, *agents: FakeAgent) -> None:
        self._agents = agents
        self.keys = KeyStore(None)
        self.packages: dict[str, str] = {}
        self.broken: tuple[BrokenPlugin, ...] = ()
        self.rule_files: tuple[str, ...] = ()
        self.asked: list[str] = []
        """Names of those that were asked anew."""

    def key_variables(self) -> dict[str, tuple[str, ...]]:
        return key_variables(agent.spec for agent in self._agents)

    def environment(self) -> dict[str, str]:
        return {"OPENAI_API_KEY": "sk-of-the-environment"}

    async def refresh(self, name: str) -> FakeAgent | None:
        self.asked.append(name)
        return self.get(name)

    def usable(self) -> Sequence[FakeAgent]:
        return [agent for agent in self._agents if not agent.located.why]

    async def available(self) -> Sequence[FakeAgent]:
        return self._agents

    async def offer(self, name: str) -> FakeAgent | None:
        return next((agent for agent in self.usable() if agent.spec.name == name), None)

    def list_agents(self) -> Sequence[FakeAgent]:
        return self._agents

    def title_of(self, name: str) -> str:
        agent = self.get(name)
        return name if agent is None else agent.spec.title

    def default(self) -> FakeAgent:
        return self._agents[0]

    def get(self, name: str) -> FakeAgent | None:
        return next((agent for agent in self._agents if agent.spec.name == name), None)


def services_for_choice(agents: FakeAgents, config: OpenCodeConfig = UNREAD) -> SessionDeps:
    """As much of the services of sessions as the choice of an agent, a model and a mode takes."""
    services = SimpleNamespace(agents=agents, config_now=lambda directory: config, local_offers=DirectoryOffers())
    return cast("SessionDeps", services)


def agent(
    name: str,
    title: str,
    catalogue: Catalogue,
    *,
    modes: tuple[Mode, ...] = CLAUDE_MODES,
    can: Capabilities | None = None,
) -> FakeAgent:
    """One agent of a test."""
    capabilities = can or Capabilities(images=True, files=True, subagents=True)
    return FakeAgent(
        AgentSpec(
            name=name,
            title=title,
            make=_no_codec,
            program=AgentProgram(
                binaries=(name,),
                version_args=("--version",),
                env_override=f"SHIM_{name.upper()}_BIN",
                install_hint="install it",
                key_variables=agents()[name].program.key_variables if name in agents() else (),
            ),
            abilities=AgentAbilities(
                capabilities=capabilities,
                modes=modes,
                catalogue=catalogue,
            ),
            rules=AgentRules(
                enforcement=Enforcement("its checks"),
            ),
        ),
        catalogue,
    )


def claude() -> FakeAgent:
    """An agent with everything."""
    return agent("claude", "Claude Code", CLAUDE_CATALOGUE)


def codex() -> FakeAgent:
    """One with little: no images, no subagents, one mode more."""
    modes = (Mode("build", "Codex's own words.", "auto"), Mode("full-access", "Everything.", "danger"))
    return agent("codex", "Codex", CODEX_CATALOGUE, modes=modes, can=Capabilities())


def silent() -> FakeAgent:
    """One that has told nothing yet."""
    return agent("pi", "Pi", Catalogue(), modes=(), can=Capabilities())


def _no_codec(_ids: IdFactory) -> Codec:
    raise AssertionError("these agents cannot run")
