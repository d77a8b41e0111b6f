"""The MCP servers of a directory: those of the person's set-up, and those that its agents have of their own.

What is switched on or off is known here (`shim.host.config.setups`); whether a server is connected only an agent can tell.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from shim.agents.directory import Agent
from shim.lib.errors import InvalidRequest
from shim.sessions.agent_tokens import SERVER
from shim.sessions.feed import SessionChanges
from shim.sessions.index.manager import SessionManager
from universal.items import Json
from universal.lib.jsonvalue import obj, text
from universal.session.changes import ServersReported
from universal.setup import TAKES_NOTHING, TOOLS_SERVER

McpStatus: TypeAlias = Literal["connected", "disabled", "failed", "needs_auth", "pending"]
STATUSES: Mapping[str, McpStatus] = {"connected": "connected", "disabled": "disabled", "failed": "failed"}
"""Status in a session -> status. Every other one means that the agent needs a login."""
LOOKED_AT = 3
"""Number of sessions that are read. Old sessions are not worth their loading."""
OWN_LIMIT = 20
"""Maximum MCP servers of one session."""
KEPT_REPORTS = 200
"""Directories whose last report is remembered."""
REPORT_LOOKS, LOOK_S = 100, 0.05
"""How often a switch looks whether a running agent has reported what has become of the server, and the seconds between."""


@dataclass(frozen=True, slots=True)
class McpServer:
    """An MCP server of a directory. `error` says why it failed. `pending`: it is switched on, and no agent has told of it."""

    name: str
    status: McpStatus
    error: str = ""


class McpReports:
    """Tells when what agents report of a directory's MCP servers has changed.

    In: `tell` gets the directory. The TUI 1.18.33 reads the servers when it begins, and after `server.instance.disposed`.
    """

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._statuses: dict[str, dict[str, str]] = {}

    def note(self, changed: SessionChanges) -> None:
        directory = changed.session.record.directory
        known = self._statuses.pop(directory, {})
        reports = [change for change in changed.changes if isinstance(change, ServersReported)]
        told = {name: text(obj(row).get("status")) for report in reports for name, row in report.servers.items()}
        statuses = self._statuses[directory] = {**known, **told}
        while len(self._statuses) > KEPT_REPORTS:
            del self._statuses[next(iter(self._statuses))]
        if statuses != known:
            self._tell(directory)


async def servers_of(manager: SessionManager, directory: str) -> list[McpServer]:
    """Return all MCP servers. If two agents have one of the same name, the later report counts.

    A status is that of the last report: at the begin of a turn, or after a change.
    """
    reports = await _reports(manager, directory)
    switches = manager.deps.setups.switches(directory, with_project=await is_trusted(manager, directory))
    rows = {name: McpServer(name, "pending" if on else "disabled") for name, on in switches.items()}
    for name, row in reports.items():
        if switches.get(name, not manager.deps.setups.is_former(name)) and name != TOOLS_SERVER:
            rows[name] = _server(name, row)
    return list(rows.values())


async def add(manager: SessionManager, directory: str, name: str, row: Mapping[str, Any]) -> None:
    """Add an MCP server to the directory's set-up until the server stops. Raises LimitReached."""
    manager.deps.setups.add(directory, name, row)
    await _apply(manager, directory, name)


def require_takers(agent: Agent | None, rows: Mapping[str, Any]) -> None:
    """Raise InvalidRequest if a session's agent would not get MCP servers of its own, or if it may not have these."""
    use = agent.spec.abilities.setup if agent is not None else TAKES_NOTHING
    if agent is not None and (use.reads_own or "mcp" not in use.takes):
        raise InvalidRequest(f"{agent.spec.title} takes no MCP servers from this server. Configure them in its own settings.")
    if names := [name for name in rows if name in (TOOLS_SERVER, SERVER) or not name]:
        raise InvalidRequest(f'"{names[0]}" is no name for an MCP server of a session.', path=("mcp",))
    if len(rows) > OWN_LIMIT:
        raise InvalidRequest(f"A session may have {OWN_LIMIT} MCP servers of its own.", path=("mcp",))


async def give(manager: SessionManager, session_id: str, rows: Mapping[str, Mapping[str, Any]]) -> None:
    """Give a session MCP servers of its own until this server stops: at once where its agent can, else with the next prompt.

    Raises SessionNotFound, and InvalidRequest as `require_takers`.
    """
    actor = await manager.actor(session_id)
    require_takers(manager.deps.agents.get(manager.index.agent_of(session_id)), rows)
    manager.deps.setups.give(session_id, rows)
    actor.process.change_setup()


async def switch(manager: SessionManager, directory: str, name: str, *, on: bool) -> None:
    """Switch an MCP server of the set-up on or off, also in running agents that can.

    Raises McpServerNotFound, and InvalidRequest for one of a project that nobody has trusted.
    """
    setups = manager.deps.setups
    if on and setups.is_of_project(directory, name) and not await is_trusted(manager, directory):
        raise InvalidRequest(
            f"The MCP server {name} comes with this project, which nobody has trusted. Send a prompt and answer its question, or "
            f"run `opencode-shim trust {directory}`."
        )
    setups.switch(directory, name, on=on)
    await _apply(manager, directory, name)


async def _apply(manager: SessionManager, directory: str, name: str) -> None:
    """Give running agents the set-up, and wait a little for their report. Others get it with their next prompt."""
    entries = [entry for entry in manager.index if entry.record.directory == directory and not entry.subagent]
    if not any([entry.actor.process.change_setup() for entry in entries if entry.actor is not None]):
        return
    is_on = manager.deps.setups.switches(directory, with_project=True).get(name, False)
    for _ in range(REPORT_LOOKS):
        if (name in await _reports(manager, directory)) == is_on:
            return
        await asyncio.sleep(LOOK_S)


async def is_trusted(manager: SessionManager, directory: str) -> bool:
    """Whether an agent would start with the settings of the project."""
    trust = manager.deps.trust
    if trust is None:
        return True
    families = {agent.spec.rules.project_settings.reads for agent in manager.deps.agents.list_agents() if agent.usable}

    def look() -> bool:
        return any(trust.is_trusted(directory, reads) for reads in families)

    return await asyncio.to_thread(look)


async def _reports(manager: SessionManager, directory: str) -> dict[str, Json]:
    """The last report of each agent, in its newest sessions: name -> row."""
    records = [record for record in manager.index.records() if record.directory == directory and not record.parent_id]
    newest = sorted(records, key=lambda record: record.updated_ms, reverse=True)[:LOOKED_AT]
    reports: dict[str, Mapping[str, Json]] = {}
    for record in newest:
        for agent, servers in (await manager.session(record.id)).mcp.items():
            reports.setdefault(agent, servers)
    return {name: row for servers in reversed(reports.values()) for name, row in servers.items()}


def _server(name: str, row: Json) -> McpServer:
    fields = obj(row)
    return McpServer(name, STATUSES.get(text(fields.get("status")), "needs_auth"), text(fields.get("error")))
