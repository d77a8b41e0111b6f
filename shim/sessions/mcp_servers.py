"""Lists the MCP servers that the agents of a directory have reported, in its newest sessions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from shim.sessions.index.manager import SessionManager
from universal.items import Json
from universal.lib.jsonvalue import obj, text

McpStatus: TypeAlias = Literal["connected", "disabled", "failed", "needs_auth"]
STATUSES: Mapping[str, McpStatus] = {"connected": "connected", "disabled": "disabled", "failed": "failed"}
"""Status in a session -> status. Every other one means that the agent needs a login."""
LOOKED_AT = 3
"""Number of sessions that are read. Old sessions are not worth their loading."""


@dataclass(frozen=True, slots=True)
class McpServer:
    """An MCP server of an agent. `error` says why it failed."""

    name: str
    status: McpStatus
    error: str = ""


async def servers_of(manager: SessionManager, directory: str) -> list[McpServer]:
    """The last report of each agent. If two agents have a server of one name, the later report wins.

    A status is that of the begin of its agent's last turn.
    """
    records = [record for record in manager.index.records() if record.directory == directory and not record.parent_id]
    newest = sorted(records, key=lambda record: record.updated_ms, reverse=True)[:LOOKED_AT]
    reports: dict[str, Mapping[str, Json]] = {}
    for record in newest:
        for agent, servers in (await manager.session(record.id)).mcp.items():
            reports.setdefault(agent, servers)
    rows = {name: row for servers in reversed(reports.values()) for name, row in servers.items()}
    return [_server(name, row) for name, row in rows.items()]


def _server(name: str, row: Json) -> McpServer:
    fields = obj(row)
    return McpServer(name, STATUSES.get(text(fields.get("status")), "needs_auth"), text(fields.get("error")))
