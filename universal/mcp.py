"""Translates agents' reports on MCP servers into OpenCode's words: `connected`, `disabled`, `failed` {error}, `needs_auth`.

A server that is starting is left out, since OpenCode has no word for it. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from universal.items import Json
from universal.lib.jsonvalue import obj, text

_CLAUDE = {"connected": "connected", "disabled": "disabled", "failed": "failed", "needs-auth": "needs_auth"}
"""`status` in `mcp_servers` of `system/init`; `pending` is left out."""
_CODEX = {"ready": "connected", "failed": "failed", "cancelled": "failed"}
"""`status` of `mcpServer/startupStatus/updated`; `starting` is left out."""
_UNTOLD = "The agent could not start it, and does not say why."


def of_claude(row: Json) -> tuple[str, Json]:
    """Return the name and state of a row of Claude's `mcp_servers`. The state is None while the server starts."""
    row = obj(row)
    return text(row.get("name")), _server(_CLAUDE.get(text(row.get("status")), ""), text(row.get("error")))


def of_codex(params: Json) -> tuple[str, Json]:
    """Return the name and state in Codex's `mcpServer/startupStatus/updated`. The state is None while the server starts."""
    row = obj(params)
    status = _CODEX.get(text(row.get("status")), "")
    if row.get("failureReason") == "reauthenticationRequired":
        status = "needs_auth"
    return text(row.get("name")), _server(status, text(row.get("error")))


def _server(status: str, error: str) -> Json:
    if not status:
        return None
    return {"status": status, "error": error or _UNTOLD} if status == "failed" else {"status": status}


@dataclass(slots=True)
class McpServers:
    """The servers that one process has reported. `metadata` of a status item "mcp" is {servers: {name: {status, error?}}}."""

    servers: dict[str, Json] = field(default_factory=dict[str, Json])

    def update(self, rows: Iterable[tuple[str, Json]], *, whole: bool) -> dict[str, Json] | None:
        """Return the metadata if something changed, else None. With `whole`, servers that are not in `rows` are gone."""
        after = {} if whole else dict(self.servers)
        for name, server in rows:
            if name and server is not None:
                after[name] = server
            else:
                after.pop(name, None)
        if after == self.servers:
            return None
        self.servers = after
        return {"servers": dict(after)}


def summary(metadata: dict[str, Json]) -> str:
    """Return `name: status, ...` for a person."""
    return (
        ", ".join(f"{name}: {obj(server).get('status')}" for name, server in obj(metadata["servers"]).items()) or "no MCP servers"
    )
