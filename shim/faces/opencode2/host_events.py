"""Renders changes of the host as events of OpenCode 2. Pure.

`ROWS` maps a kind of change to the function that makes type and data. Kinds without a row have no event in OpenCode 2.
Source: `compat_fixtures/opencode2/events.json`. The payloads of terminals and of the TUI are the same in OpenCode 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from shim.host.changes import (
    DirectoryDisposed,
    FileChanged,
    GitBranchChanged,
    ProjectDirectoriesChanged,
    ProjectUpdated,
    TerminalCreated,
    TerminalDeleted,
    TerminalExited,
    TerminalUpdated,
    TuiCommand,
)
from universal.session.changes import Notice

if TYPE_CHECKING:
    from shim.faces.opencode2 import event_types, host_types

Rendered: TypeAlias = "tuple[str, event_types.EventData]"
"""Type and data of an event."""
TOAST_MS = 15_000
"""Milliseconds for which clients show a notice."""


def _project(change: ProjectUpdated) -> Rendered:
    row = change.row
    time = row["time"]
    data: event_types.ProjectUpdatedData = {
        "id": row["id"],
        "canonical": row["worktree"],
        "time": {"created": time["created"], "updated": time["updated"], "active": time["updated"]},
        "sandboxes": row.get("sandboxes", []),
    }
    if row.get("vcs") is not None:
        data["vcs"] = row["vcs"]
    if row.get("name") is not None:
        data["name"] = row["name"]
    if row.get("icon") is not None:
        data["icon"] = row["icon"]
    if row.get("commands") is not None:
        data["commands"] = row["commands"]
    return "project.updated", data


def toast(notice: Notice) -> event_types.TuiToastShowData:
    """The data of `tui.toast.show` for a notice."""
    return {"message": notice.text, "variant": notice.level, "duration": TOAST_MS}


def _terminal_created(change: TerminalCreated) -> Rendered:
    return "pty.created", {"info": cast("host_types.Pty", dict(change.info))}


def _terminal_updated(change: TerminalUpdated) -> Rendered:
    return "pty.updated", {"info": cast("host_types.Pty", dict(change.info))}


def _terminal_exited(change: TerminalExited) -> Rendered:
    return "pty.exited", {"id": change.id, "exitCode": change.exit_code}


def _terminal_deleted(change: TerminalDeleted) -> Rendered:
    return "pty.deleted", {"id": change.id}


def _branch(change: GitBranchChanged) -> Rendered:
    return "vcs.branch.updated", {"branch": change.branch} if change.branch else {}


def _tui(change: TuiCommand) -> Rendered:
    return change.kind, cast("event_types.EventData", dict(change.properties))


def _file(change: FileChanged) -> Rendered:
    return "filesystem.changed", {"file": change.path, "event": change.event}


def _directories(change: ProjectDirectoriesChanged) -> Rendered:
    return "worktree.updated", {"projectID": change.project_id}


def _directory_disposed(_change: DirectoryDisposed) -> Rendered:
    return "location.shutdown", {}


ROWS: Mapping[type[Any], Callable[[Any], Rendered]] = {
    TerminalCreated: _terminal_created,
    TerminalUpdated: _terminal_updated,
    TerminalExited: _terminal_exited,
    TerminalDeleted: _terminal_deleted,
    FileChanged: _file,
    GitBranchChanged: _branch,
    ProjectUpdated: _project,
    ProjectDirectoriesChanged: _directories,
    DirectoryDisposed: _directory_disposed,
    TuiCommand: _tui,
}
