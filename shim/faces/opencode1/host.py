"""Renders what the host has, and its changes, as OpenCode 1's JSON. Pure. Source: recordings of OpenCode 1.18.33."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, cast

from shim.faces.opencode1.wire_event import OpenCodeEvent
from shim.host import changes
from shim.stream.frame import normal_scope
from universal.lib.jsonvalue import present

if TYPE_CHECKING:
    from shim.faces.opencode1._generated import host_types
    from shim.faces.opencode1._generated.event_types import HostEvent, TuiToastShowProperties
    from shim.host.files.search import TextMatch
    from shim.host.git.projects import WorkingCopy
    from shim.host.terminals.terminal_manager import InstalledShell
    from shim.host.values import Project, TerminalInfo

GIT_WORKTREE = "git_worktree"
"""OpenCode's word for a working tree that `git worktree add` created."""


def events_of(changed: changes.HostChanged) -> list[OpenCodeEvent]:
    """Render a change as events: one, or none for what OpenCode 1 does not have."""
    pair = event(changed.change)
    return [] if pair is None else [OpenCodeEvent(*pair, normal_scope(changed.directory), changed.project_id)]


def event(change: changes.HostChange) -> HostEvent | None:  # noqa: C901 - a table of kinds of changes
    """Type and properties of a change's event."""
    match change:
        case changes.TerminalCreated(info):
            return "pty.created", {"info": terminal(info)}
        case changes.TerminalUpdated(info):
            return "pty.updated", {"info": terminal(info)}
        case changes.TerminalExited(id_, exit_code):
            return "pty.exited", {"id": id_, "exitCode": exit_code}
        case changes.TerminalDeleted(id_):
            return "pty.deleted", {"id": id_}
        case changes.ShellCreated() | changes.ShellExited() | changes.ShellDeleted():
            return None
        case changes.FileChanged(path, kind):
            return "file.watcher.updated", {"file": path, "event": kind}
        case changes.GitBranchChanged(branch):
            return "vcs.branch.updated", {"branch": branch} if branch else {}
        case changes.ProjectUpdated(changed):
            return "project.updated", project(changed)
        case changes.ProjectDirectoriesChanged(project_id):
            return "project.directories.updated", {"projectID": project_id}
        case changes.WorktreeReady(name, branch):
            return "worktree.ready", {"name": name, "branch": branch}
        case changes.WorktreeFailed(message):
            return "worktree.failed", {"message": message}
        case changes.DirectoryDisposed(directory):
            return "server.instance.disposed", {"directory": directory}
        case changes.AllDisposed():
            return "global.disposed", {}
        case changes.TuiPrompt(text):
            return "tui.prompt.append", {"text": text}
        case changes.TuiCommand(command):
            return "tui.command.execute", {"command": command}
        case changes.TuiToast():
            return "tui.toast.show", toast(change)
        case changes.TuiSession(session_id):
            return "tui.session.select", {"sessionID": session_id}


def toast(change: changes.TuiToast) -> TuiToastShowProperties:
    """A note that TUIs show."""
    note = present(message=change.message, variant=change.variant, title=change.title, duration=change.duration_ms)
    return cast("TuiToastShowProperties", note)


def terminal(info: TerminalInfo) -> host_types.Pty:
    """A running terminal."""
    return {
        "id": info.id,
        "title": info.title,
        "command": info.command,
        "args": list(info.args),
        "cwd": info.cwd,
        "status": "running",
        "pid": info.pid,
    }


def shell(source: InstalledShell) -> host_types.ShellOption:
    """A shell of this machine."""
    return {"path": source.path, "name": source.name, "acceptable": source.is_acceptable}


def project(source: Project) -> host_types.Project:
    """A project."""
    row = present(
        id=source.id,
        worktree=source.worktree,
        time={"created": source.created_ms, "updated": source.updated_ms},
        sandboxes=list(source.sandboxes),
        vcs=source.vcs,
        name=source.name,
        icon=present(**asdict(source.icon)) or None,
        commands=None if source.start_command is None else {"start": source.start_command},
    )
    return cast("host_types.Project", row)


def project_directory(copy: WorkingCopy) -> host_types.ProjectDirectory:
    """A working copy of a project."""
    return {"directory": copy.directory, "strategy": GIT_WORKTREE} if copy.is_linked else {"directory": copy.directory}


def text_match(match: TextMatch) -> host_types.TextMatch:
    """A line that matches, as ripgrep's own JSON has it."""
    return {
        "path": {"text": match.path},
        "lines": {"text": match.line},
        "line_number": match.line_number,
        "absolute_offset": match.offset,
        "submatches": [{"match": {"text": part.text}, "start": part.start, "end": part.end} for part in match.submatches],
    }
