"""The MCP servers of a directory: what its agents have told of theirs, in its newest sessions. They belong to the agents."""

from __future__ import annotations

from shim.sessions.manager import SessionManager
from universal.jsonvalue import JsonObject

LOOKED_AT = 3
"""So many sessions are looked at: the answer is for those at work, and an old session is not worth its loading."""


async def servers_of(manager: SessionManager, directory: str) -> JsonObject:
    """{name: {status, error?}}. Of each agent what it told last; where two have a server of one name, the one that spoke last.

    A server is what it was when its agent last began a turn. {} until an agent has told.
    """
    records = [one for one in manager.index.records() if one.directory == directory and not one.parent_id]
    newest = sorted(records, key=lambda record: record.updated_ms, reverse=True)[:LOOKED_AT]
    told: dict[str, JsonObject] = {}
    for record in newest:
        for agent, servers in (await manager.session(record.id)).mcp.items():
            told.setdefault(agent, dict(servers))
    return {name: server for servers in reversed(told.values()) for name, server in servers.items()}
