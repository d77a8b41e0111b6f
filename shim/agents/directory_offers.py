"""Keeps what agents offer in a directory: their commands, and the models and modes of those that read OpenCode's configuration.

An agent tells it whenever it runs there. One that reads the configuration is also asked there: for a prompt with a model or mode
that it is not known to have, and when the project's configuration has providers or agents.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import structlog

from shim.agents.directory import Agent, AgentDirectory
from shim.host.config.opencode_config import OpenCodeConfig
from shim.host.trust.trust_store import ProjectTrust
from shim.lib.errors import AgentError
from universal.codec import Catalogue
from universal.items import Json
from universal.slash_commands import SlashCommand

log = structlog.get_logger(__name__)

KEPT = 256
"""Maximum pairs of agent and directory that are remembered."""
OWN_KEYS = ("provider", "agent", "mode")
"""Keys of a project's configuration that give an agent other models and modes there."""


@dataclass(frozen=True, slots=True)
class _Offer:
    """What an agent offers in a directory, None if it did not tell, and the configuration then."""

    catalogue: Catalogue | None
    values: Mapping[str, Json]


@dataclass(eq=False)
class DirectoryOffers:
    """The offers of all directories. In: `agents`, None to ask none; `config`, a directory's configuration as last read."""

    _agents: AgentDirectory | None = None
    _trust: ProjectTrust | None = None
    _config: Callable[[str], OpenCodeConfig | None] = lambda _: None
    _offers: dict[tuple[str, str], _Offer] = field(default_factory=dict[tuple[str, str], _Offer])
    _wishes: dict[tuple[str, str], asyncio.Task[None]] = field(default_factory=dict[tuple[str, str], asyncio.Task[None]])

    def note(self, name: str, directory: str, catalogue: Catalogue) -> None:
        self._keep(name, directory, _Offer(catalogue, self._values(directory)))

    def commands(self, directory: str) -> dict[str, tuple[SlashCommand, ...]]:
        """Agent -> the commands that the last one in this directory told."""
        offers = {name: offer.catalogue for (name, at), offer in self._offers.items() if at == directory}
        return {name: catalogue.commands for name, catalogue in offers.items() if catalogue is not None}

    def at(self, agent: Agent, directory: str) -> Agent:
        """The agent as it is in this directory, as far as that is known."""
        offer = self._offers.get((agent.spec.name, directory)) if agent.spec.abilities.setup.reads_own else None
        return agent if offer is None or offer.catalogue is None else replace(agent, catalogue=offer.catalogue)

    async def ask(self, agent: Agent, directory: str) -> Agent:
        """The agent as it is in this directory with its configuration of now. It is asked once, if the project is trusted.

        Takes as long as a discovery at most.
        """
        name, values = agent.spec.name, self._values(directory)
        offer = self._offers.get((name, directory))
        if self._agents is None or not agent.spec.abilities.setup.reads_own or (offer is not None and offer.values == values):
            return self.at(agent, directory)
        reads = agent.spec.rules.project_settings.reads
        if self._trust is None or await asyncio.to_thread(self._trust.is_trusted, directory, reads):
            catalogue: Catalogue | None = None
            try:
                catalogue = await self._agents.ask_in(name, directory)
            except AgentError as error:
                log.warning("agent.discovery_failed", agent=name, why=str(error), directory=directory)
            except Exception:  # a codec of another package may raise anything
                log.exception("agent.discovery_failed", agent=name, directory=directory)
            self._keep(name, directory, _Offer(catalogue, values))
        return self.at(agent, directory)

    def look(self, agent: Agent, directory: str) -> Agent:
        """Like `at`. Besides, ask in the background where the project's configuration has models or modes of its own.

        Clients are told to read the lists again when the answer has come.
        """
        config = self._config(directory)
        key = agent.spec.name, directory
        offer = self._offers.get(key)
        has_own = (
            agent.spec.abilities.setup.reads_own and config is not None and any(key in config.project_values for key in OWN_KEYS)
        )
        is_known = offer is not None and offer.values == self._values(directory)
        if has_own and not is_known and key not in self._wishes and len(self._wishes) < KEPT:
            task = asyncio.get_running_loop().create_task(self._wish(agent, directory), name=f"ask {agent.spec.name} there")
            self._wishes[key] = task
            task.add_done_callback(lambda _: self._wishes.pop(key, None))
        return self.at(agent, directory)

    async def _wish(self, agent: Agent, directory: str) -> None:
        before = self.at(agent, directory)
        if (await self.ask(agent, directory)).catalogue != before.catalogue and self._agents is not None:
            self._agents.listeners.limits(directory)

    def _values(self, directory: str) -> Mapping[str, Json]:
        config = self._config(directory)
        return {} if config is None else {key: config.values.get(key) for key in OWN_KEYS}

    def _keep(self, name: str, directory: str, offer: _Offer) -> None:
        self._offers.pop((name, directory), None)
        self._offers[name, directory] = offer
        while len(self._offers) > KEPT:
            del self._offers[next(iter(self._offers))]
