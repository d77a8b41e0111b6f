"""Lists the MCP servers that the agents of a directory have reported, in its newest sessions."""

from __future__ import annotations

from shim.sessions.manager import SessionManager
from universal.jsonvalue import JsonObject

LOOKED_AT = 3
"""Number of sessions that are read. Old sessions are not worth their loading."""


async def servers_of(manager: SessionManager, directory: str) -> JsonObject:
    """{name: {status, error?}}: the last report of each agent. If two agents have a server of one name, the later report wins.

    A status is that of the begin of its agent's last turn. {} without a report.
    """
    records = [one for one in manager.index.records() if one.directory == directory and not one.parent_id]
    newest = sorted(records, key=lambda record: record.updated_ms, reverse=True)[:LOOKED_AT]
    told: dict[str, JsonObject] = {}
    for record in newest:
        for agent, servers in (await manager.session(record.id)).mcp.items():
            told.setdefault(agent, dict(servers))
    return {name: server for servers in reversed(told.values()) for name, server in servers.items()}
