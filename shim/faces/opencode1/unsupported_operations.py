"""The operations of OpenCode that this server refuses, each with the reason that it answers with.

`shim.faces.opencode1.operation_status` allows either a row here or a handler, not both. `CONSTANT` lists operations with a
constant answer.
Source: `shim/faces/opencode1/_generated/operations.py`; who calls what, and what happens to clients without it:
`docs/clients.md`.
"""

from __future__ import annotations

from shim.faces.opencode1._generated.operations import OPERATIONS
from shim.http.operations import Row

V2_REASON = "it was in OpenCode 2's preview and is not in OpenCode 2; use its own routes (docs/operations2.md), or those of 1.x"
CREDENTIALS = (
    "agents log in by their own programs, on the machine of this server (`claude auth login`, `codex login`); or give an API key"
)
MCP = "agents connect MCP servers, and log in to them by their own programs (`claude`, then /mcp; `codex mcp login NAME`)"
SYNC = "it takes a session over that another server writes, and no server follows another here; POST /sync/replay takes in a copy"
NO_ACCOUNT = "there is no account at OpenCode's console here"
NO_LSP = "this server runs no language servers (native without one says the same); agents have their own"

PREVIEW_ONLY = frozenset({
    "v2.integration.attempt.status", "v2.integration.attempt.cancel", "v2.integration.attempt.complete",
})  # fmt: skip
"""Operations of the preview in 1.18 that are not served. OpenCode 2 does not have them, or has them at another place."""

OWN_PREVIEW = frozenset({
    "v2.health.get", "v2.question.request.list", "v2.session.question.list", "v2.session.question.reply",
    "v2.session.question.reject", "v2.session.history", "v2.session.events",
})  # fmt: skip
"""Operations of the preview in 1.18 that `shim.faces.opencode2.routes` serves, and OpenCode 2 does not have."""

SHARED = frozenset(n for n, row in OPERATIONS.items() if row.path.startswith("/api/")) - PREVIEW_ONLY - OWN_PREVIEW
"""Operations of the preview that OpenCode 2 has too, some at another path (see `preview_edge`). OpenCode 2's tables list them."""

_OWN: dict[str, str] = {
    "provider.oauth.authorize": CREDENTIALS,
    "provider.oauth.callback": CREDENTIALS,
    "global.upgrade": "this server is not OpenCode's binary; upgrade the Python package",
    "mcp.auth.start": MCP,
    "mcp.auth.remove": MCP,
    "mcp.auth.callback": MCP,
    "mcp.auth.authenticate": MCP,
    "experimental.console.switchOrg": NO_ACCOUNT,
    "sync.steal": SYNC,
}

UNSUPPORTED: dict[str, Row] = {
    **{name: Row(501, reason) for name, reason in _OWN.items()},
    **{name: Row(501, V2_REASON) for name in sorted(PREVIEW_ONLY)},
}

CONSTANT: dict[str, str] = {
    "lsp.status": NO_LSP,
    "find.symbols": NO_LSP,
    "formatter.status": "this server formats no files; agents do, or their hooks",
    "app.skills": "the server has none of its own; agents load theirs, and offer them as slash commands",
    "experimental.resource.list": "agents do not tell what their MCP servers offer for reading (`GET /mcp` has the servers)",
    "experimental.console.get": NO_ACCOUNT,
    "experimental.console.listOrgs": NO_ACCOUNT,
    "experimental.capabilities.get": "agents decide by themselves what they run in the background",
    "experimental.session.background": "agents decide by themselves what they run in the background",
    "experimental.workspace.syncList": "workspaces are read anew at each request, so nothing has to be brought up to date",
    "sync.start": "workspaces are folders of this machine, so there is no other server to follow",
    "tui.control.response": "nobody waits for it, as in native's server",
}
"""Served operations with a constant answer: that of a server that has no such thing. Each with the reason, which
docs/operations.md and `GET /doc` show."""
