"""Renders changes of the host as OpenCode 1 events. Pure.

`RENDER` is the table: kind of change -> type and properties. Source: recordings of OpenCode 1.18.33.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from shim.faces.opencode1.events import OpenCodeEvent
from shim.host.changes import (
    AllDisposed,
    DirectoryDisposed,
    FileChanged,
    GitBranchChanged,
    HostChange,
    ProjectDirectoriesChanged,
    ProjectUpdated,
    TerminalCreated,
    TerminalDeleted,
    TerminalExited,
    TerminalUpdated,
    TuiCommand,
    WorkspaceConnected,
    WorkspaceReady,
    WorktreeFailed,
    WorktreeReady,
)

if TYPE_CHECKING:
    from shim.faces.opencode1.event_types import HostEvent, ProjectUpdatedProperties, Pty


def render_host(change: HostChange, directory: str, project_id: str | None) -> OpenCodeEvent:
    """Render a change as an event."""
    kind, properties = RENDER[type(change)](change)
    return OpenCodeEvent(kind, properties, directory, project_id)


def _terminal_created(change: TerminalCreated) -> HostEvent:
    return "pty.created", {"info": cast("Pty", dict(change.info))}


def _terminal_updated(change: TerminalUpdated) -> HostEvent:
    return "pty.updated", {"info": cast("Pty", dict(change.info))}


def _terminal_exited(change: TerminalExited) -> HostEvent:
    return "pty.exited", {"id": change.id, "exitCode": change.exit_code}


def _terminal_deleted(change: TerminalDeleted) -> HostEvent:
    return "pty.deleted", {"id": change.id}


def _file(change: FileChanged) -> HostEvent:
    return "file.watcher.updated", {"file": change.path, "event": change.event}


def _branch(change: GitBranchChanged) -> HostEvent:
    return "vcs.branch.updated", {"branch": change.branch} if change.branch else {}


def _project(change: ProjectUpdated) -> HostEvent:
    return "project.updated", cast("ProjectUpdatedProperties", dict(change.row))


def _directories(change: ProjectDirectoriesChanged) -> HostEvent:
    return "project.directories.updated", {"projectID": change.project_id}


def _worktree(change: WorktreeReady) -> HostEvent:
    return "worktree.ready", {"name": change.name, "branch": change.branch}


def _worktree_failed(change: WorktreeFailed) -> HostEvent:
    return "worktree.failed", {"message": change.message}


def _workspace(change: WorkspaceReady) -> HostEvent:
    return "workspace.ready", {"name": change.name}


def _workspace_connected(change: WorkspaceConnected) -> HostEvent:
    return "workspace.status", {"workspaceID": change.workspace_id, "status": "connected"}


def _directory_disposed(change: DirectoryDisposed) -> HostEvent:
    return "server.instance.disposed", {"directory": change.directory}


def _all_disposed(_change: AllDisposed) -> HostEvent:
    return "global.disposed", {}


def _tui(change: TuiCommand) -> HostEvent:
    return cast("HostEvent", (change.kind, dict(change.properties)))


RENDER: Mapping[type[Any], Callable[[Any], HostEvent]] = {
    TerminalCreated: _terminal_created,
    TerminalUpdated: _terminal_updated,
    TerminalExited: _terminal_exited,
    TerminalDeleted: _terminal_deleted,
    FileChanged: _file,
    GitBranchChanged: _branch,
    ProjectUpdated: _project,
    ProjectDirectoriesChanged: _directories,
    WorktreeReady: _worktree,
    WorktreeFailed: _worktree_failed,
    WorkspaceReady: _workspace,
    WorkspaceConnected: _workspace_connected,
    DirectoryDisposed: _directory_disposed,
    AllDisposed: _all_disposed,
    TuiCommand: _tui,
}
