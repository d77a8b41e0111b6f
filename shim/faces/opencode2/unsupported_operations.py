"""Operations of OpenCode 2 that are not served, each with the reason that the server answers with.

`shim.faces.opencode2.operation_status` allows either a row here or a handler, not both. `CONSTANT` lists operations with a
constant answer, each with the reason. Source: `shim/faces/opencode2/_generated/operations.py`.
"""

from __future__ import annotations

from shim.faces.opencode2._generated.operations import OPERATIONS
from shim.http.operations import Row

PLUGINS = "plugins here are Python packages that bring agents (docs/adding-an-agent.md); install and update them with pip or uv"
LOGINS = (
    "agents log in by their own programs, on the machine of this server (`claude auth login`, `codex login`);"
    " POST /api/integration/{integrationID}/connect/key takes an API key instead"
)
SECRETS = "keys that were given are never shown again; GET /api/integration says for whom there are some"
KEYS = "its answer repeats the key; POST /api/integration/{integrationID}/connect/key takes one and is silent"
LABELS = "there is one key for each integration at most, and it has no label of its own"
MCP = "MCP servers belong to the agent; configure them there (`claude mcp add`, the agent's own settings)"
PERSISTENT = "terminals end with this server, so there are none that outlive it (GET /api/info says so); /api/pty has the others"
WEBSEARCH = "agents search the web by themselves; this server has no search of its own"
WELLKNOWN = "it would load an organisation's settings for OpenCode's own models, which are not used here; agents have their own"
VOICE = "speech needs a voice model and its key; this server has agents, which take text, and no voice model"
MIGRATION = "sessions are kept in one journal that both wires read, so nothing has to be migrated"


_OWN: dict[str, str] = {
    "plugin.check": PLUGINS,
    "plugin.update": PLUGINS,
    **dict.fromkeys(
        (
            "integration.connect.external",
            "integration.oauth.connect",
            "integration.oauth.status",
            "integration.oauth.cancel",
            "integration.oauth.complete",
            "integration.command.connect",
            "integration.command.status",
            "integration.command.cancel",
        ),
        LOGINS,
    ),
    "experimental.integration.wellknown.add": WELLKNOWN,
    "credential.list": SECRETS,
    "credential.create": KEYS,
    "credential.update": LABELS,
    "experimental.mcp.add": MCP,
    "experimental.mcp.remove": MCP,
    "experimental.mcp.connect": MCP,
    "experimental.mcp.disconnect": MCP,
    **{name: PERSISTENT for name in OPERATIONS if name.startswith(("server.experimental.persistentPty.", "persistentPty."))},
    "experimental.migration.v1.status": MIGRATION,
    "websearch.query": WEBSEARCH,
    "experimental.voice.session": VOICE,
}

UNSUPPORTED: dict[str, Row] = {name: Row(501, reason) for name, reason in _OWN.items()}

CONSTANT: dict[str, str] = {
    "mcp.resource.catalog": "agents do not tell what their MCP servers offer for reading (`GET /api/mcp` has the servers)",
    "rpc.call": "RpcError: it is for plugins of OpenCode, which are not loaded here, so no RPC is registered",
    "reference.list": "agents look things up by themselves",
    "websearch.providers": WEBSEARCH,
}
"""Served operations with a constant answer: that of a server that has no such thing. Each with the reason."""
