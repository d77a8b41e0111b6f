"""Collects the rows that `serve` and `agents` print about each agent."""

from __future__ import annotations

from dataclasses import asdict

from aiohttp import web

from shim.agents.directory import Agent, AgentDirectory
from shim.cli.screen import BUILT_IN, AgentRow
from shim.lib.settings import Settings
from shim.lib.tasks import wait_at_most
from shim.main.app import build_app, find_agents
from shim.store.memory import MemoryStore

START_WAIT_S = 3.0
"""Seconds that `serve` waits for the agents' versions before it prints its table. Their paths are known by then."""
LOOK_WAIT_S = 30.0
"""Seconds that `agents` waits for versions and models of all agents. A discovery has 20 s, and two run at a time."""


async def of(app: web.Application) -> list[AgentRow]:
    """Return a row for every agent of a running application and for every broken agent package. Waits START_WAIT_S at most."""
    directory = await find_agents(app)
    await directory.available(START_WAIT_S)
    return _rows(directory)


def _rows(directory: AgentDirectory) -> list[AgentRow]:
    default = directory.default().spec.name
    broken = [AgentRow(b.entry, b.package, None, None, str(b)) for b in directory.broken]
    return [*(row(agent, is_default=agent.spec.name == default) for agent in directory.list_agents()), *broken]


async def look(settings: Settings) -> list[AgentRow]:
    """Return the same rows without a server. It starts the application on a memory store and no port, then stops it."""
    runner = web.AppRunner(build_app(settings.model_copy(update={"web_ui": False}), store=MemoryStore()))
    try:
        await runner.setup()
        directory = await find_agents(runner.app)
        await wait_at_most(directory.settle(), LOOK_WAIT_S)
        return _rows(directory)
    finally:
        await runner.cleanup()


def row(agent: Agent, *, is_default: bool = False) -> AgentRow:
    """Return the row of one agent. Models are those that the agent has reported, not those that the registry assumes."""
    spec, located, catalogue = agent.spec, agent.located, agent.catalogue
    is_told = agent.usable and catalogue is not spec.abilities.catalogue
    return AgentRow(
        name=spec.name,
        title=spec.title,
        version=located.version,
        where=located.path if spec.program.binaries else BUILT_IN,
        problem=located.why or None,
        absent=located.absent,
        trouble=agent.trouble or None,
        is_default=is_default,
        models=tuple(model.id for model in catalogue.models) if is_told else (),
        default_model=catalogue.default_model if is_told else None,
        install=spec.program.install_hint if located.absent else "",
        capabilities=asdict(spec.abilities.capabilities),
    )
