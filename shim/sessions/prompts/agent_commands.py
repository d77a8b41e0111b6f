"""Adds the slash commands of one directory to those that agents report: of its files, and of agents that run there."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from dataclasses import replace

from shim.agents.command_files import merge
from shim.agents.directory import Agent
from shim.sessions.index.manager import SessionManager
from universal.slash_commands import SlashCommand


async def with_commands(manager: SessionManager, agents: Iterable[Agent], directory: str) -> list[Agent]:
    """Complete the commands of agents by those that they have in a directory.

    A project's files count if nothing in the project waits for the person's trust, for any installed agent. An agent without
    files reports its commands in a session: those of running agents count, and those that the last one reported. A running agent
    sees a removed file some seconds late, so what the files had and have no more is left out of its report.
    """
    deps, offers = manager.deps, list(agents)
    without_files = {agent.spec.name for agent in offers if not agent.spec.abilities.command_sources.folders}
    reported = {name: rows for name, rows in deps.local_offers.commands(directory).items() if name in without_files}
    for actor in manager.index.actors():
        codec = actor.process.codec
        if actor.directory == directory and actor.process.is_alive and codec is not None and codec.catalogue is not None:
            reported[codec.name] = codec.catalogue.commands
    files = await asyncio.to_thread(_files, manager, offers, directory)
    return [_complete(agent, reported.get(agent.spec.name, ()), *files.get(agent.spec.name, ((), ()))) for agent in offers]


def _files(
    manager: SessionManager, agents: list[Agent], directory: str
) -> dict[str, tuple[tuple[SlashCommand, ...], Collection[str]]]:
    """Agent -> the commands in its files, and the names of removed files."""
    deps, specs = manager.deps, [agent.spec for agent in agents if agent.spec.abilities.command_sources.folders]
    if deps.command_files is None or not specs:
        return {}
    families = {name for agent in deps.agents.list_agents() if agent.usable for name in agent.spec.rules.project_settings.reads}
    is_trusted = deps.trust is None or deps.trust.is_trusted(directory, families)
    rows: dict[str, tuple[tuple[SlashCommand, ...], Collection[str]]] = {}
    for spec in specs:
        found = deps.command_files.find(directory, spec.abilities.command_sources, with_project=is_trusted)
        rows[spec.name] = found, deps.command_files.removed_names(directory, spec.abilities.command_sources, found)
    return rows


def _complete(
    agent: Agent, reported: tuple[SlashCommand, ...], files: tuple[SlashCommand, ...], removed: Collection[str]
) -> Agent:
    current = (command for command in reported if command.name not in removed)
    commands = merge(agent.catalogue.commands, current, files)
    if commands == agent.catalogue.commands:
        return agent
    return replace(agent, catalogue=replace(agent.catalogue, commands=commands))
