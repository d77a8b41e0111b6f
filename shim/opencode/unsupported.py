"""Operations of OpenCode that are not served, each with its reason. A decision is a row; the server answers with it.

A row goes away when a handler for the operation comes: `shim.opencode.decided` allows exactly one of the two.
Source: `shim/opencode/operations.py`; who calls what, and what happens to clients without it: `docs/clients.md`.
"""

from __future__ import annotations

from typing import NamedTuple

from shim.opencode.operations import OPERATIONS


class Row(NamedTuple):
    """What a client gets: the status, and the end of the sentence "... is not served by opencode-shim: "."""

    status: int
    reason: str


V2 = "OpenCode 2's API (/api) is served in a later version; use the 1.x routes"
CREDENTIALS = (
    "agents keep their own credentials, which this server never sees; log in with the agent's program (`claude auth login`)"
)
MCP = "MCP servers belong to the agent; configure them there (`claude mcp add`, the agent's own settings)"
WORKTREES = "worktrees are not made or removed by this server; use `git worktree` and open the folder as a project"
WORKSPACES = "workspaces need OpenCode's own control plane, which this server does not have"
SYNC = "there is no event log to synchronise with other OpenCode servers; read /event, which replays by Last-Event-ID"
TOOLS = "tools belong to the agents, which do not tell their schemas before they run"
CONSOLE = "there is no account at OpenCode's console here"
SHARING = "shared sessions are kept by opencode.ai, which takes only those of OpenCode itself"
TERMINALS = "terminals are served in a later version"
LATER = "it comes with a later version; the session itself is not changed"
CONTROL = "only the TUI that runs in OpenCode's own process takes commands this way; an attached TUI gets them as tui.* events"

SERVED_V2 = frozenset({"v2.health.get", "v2.location.get", "v2.fs.find", "v2.fs.list", "v2.reference.list"})
"""The few that clients of 1.x call for something that a person sees; they have handlers."""

_OWN: dict[str, str] = {
    "auth.set": CREDENTIALS,
    "auth.remove": CREDENTIALS,
    "provider.oauth.authorize": CREDENTIALS,
    "provider.oauth.callback": CREDENTIALS,
    "global.upgrade": "this server is not OpenCode's binary; upgrade the Python package",
    "mcp.add": MCP,
    "mcp.auth.start": MCP,
    "mcp.auth.remove": MCP,
    "mcp.auth.callback": MCP,
    "mcp.auth.authenticate": MCP,
    "mcp.connect": MCP,
    "mcp.disconnect": MCP,
    "worktree.create": WORKTREES,
    "worktree.remove": WORKTREES,
    "worktree.reset": WORKTREES,
    "experimental.controlPlane.moveSession": WORKSPACES,
    "experimental.workspace.create": WORKSPACES,
    "experimental.workspace.remove": WORKSPACES,
    "experimental.workspace.syncList": WORKSPACES,
    "experimental.workspace.warp": WORKSPACES,
    "experimental.projectCopy.generateName": WORKTREES,
    "v2.projectCopy.create": WORKTREES,
    "v2.projectCopy.remove": WORKTREES,
    "v2.projectCopy.refresh": WORKTREES,
    "vcs.apply": "it carries patches between OpenCode's workspaces, which do not exist here; use `git apply`",
    "experimental.console.switchOrg": CONSOLE,
    "session.share": SHARING,
    "session.unshare": SHARING,
    "experimental.session.background": "an agent decides by itself what it runs in the background",
    "tool.list": TOOLS,
    "tool.ids": TOOLS,
    "sync.start": SYNC,
    "sync.replay": SYNC,
    "sync.steal": SYNC,
    "sync.history.list": SYNC,
    "tui.control.next": CONTROL,
    "tui.control.response": CONTROL,
}

_LATER = ("session.init", "session.summarize", "session.revert", "session.unrevert")
_TERMINALS = [name for name, row in OPERATIONS.items() if name.startswith("pty.") and row.tag == "pty"]
_PREVIEW = [name for name, row in OPERATIONS.items() if row.path.startswith("/api/") and name not in SERVED_V2]

UNSUPPORTED: dict[str, Row] = {
    **{name: Row(501, reason) for name, reason in _OWN.items()},
    **{name: Row(501, LATER) for name in _LATER},
    **{name: Row(501, TERMINALS) for name in _TERMINALS},
    **{name: Row(501, V2) for name in _PREVIEW},
}
