"""Renders what the host has, and its changes, as OpenCode 2's JSON. Pure. Source: `compat_fixtures/opencode2`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, cast

from shim.host import changes
from universal.lib.jsonvalue import present

if TYPE_CHECKING:
    from shim.faces.opencode2._generated import host_types
    from shim.faces.opencode2._generated.event_types import HostEvent, ProjectUpdatedData, ShellExitedData, TuiToastShowData
    from shim.host.config.skills import Skill
    from shim.host.git.projects import WorkingCopy
    from shim.host.terminals.terminal_manager import InstalledShell
    from shim.host.values import Project, ShellInfo, TerminalInfo
    from universal.session.changes import Notice

TOAST_MS = 15_000
"""Milliseconds for which clients show a notice."""
GIT_WORKTREE = "git_worktree"
"""OpenCode's word for a working tree that `git worktree add` created."""


def event(change: changes.HostChange) -> HostEvent | None:  # noqa: C901 - a table of kinds of changes
    """Type and data of a change's event, or None for what OpenCode 2 does not have."""
    match change:
        case changes.TerminalCreated(info):
            return "pty.created", {"info": terminal(info)}
        case changes.TerminalUpdated(info):
            return "pty.updated", {"info": terminal(info)}
        case changes.TerminalExited(id_, exit_code):
            return "pty.exited", {"id": id_, "exitCode": exit_code}
        case changes.TerminalDeleted(id_):
            return "pty.deleted", {"id": id_}
        case changes.ShellCreated(info):
            return "shell.created", {"info": shell_command(info)}
        case changes.ShellExited(id_, status, exit_code):
            ended: ShellExitedData = {"id": id_, "status": status}
            return "shell.exited", ended if exit_code is None else {**ended, "exit": exit_code}
        case changes.ShellDeleted(id_):
            return "shell.deleted", {"id": id_}
        case changes.FileChanged(path, kind):
            return "filesystem.changed", {"file": path, "event": kind}
        case changes.GitBranchChanged(branch):
            return "vcs.branch.updated", {"branch": branch} if branch else {}
        case changes.ProjectUpdated(changed):
            return "project.updated", cast("ProjectUpdatedData", project(changed, changed.updated_ms))
        case changes.ProjectDirectoriesChanged(project_id):
            return "worktree.updated", {"projectID": project_id}
        case changes.DirectoryDisposed():
            return "location.shutdown", {}
        case changes.TuiPrompt(text):
            return "tui.prompt.append", {"text": text}
        case changes.TuiCommand(command):
            return "tui.command.execute", {"command": command}
        case changes.TuiToast():
            return "tui.toast.show", toast(change)
        case changes.TuiSession(session_id):
            return "tui.session.select", {"sessionID": session_id}
        case _:
            return None


def notice(notice: Notice) -> TuiToastShowData:
    """The data of `tui.toast.show` for a notice of a session."""
    return {"title": notice.title, "message": notice.text, "variant": notice.level, "duration": TOAST_MS}


def toast(change: changes.TuiToast) -> TuiToastShowData:
    """A note that TUIs show."""
    note = present(message=change.message, variant=change.variant, title=change.title, duration=change.duration_ms)
    return cast("TuiToastShowData", note)


def terminal(info: TerminalInfo) -> host_types.Pty:
    """A running terminal."""
    return {
        "id": info.id,
        "title": info.title,
        "command": info.command,
        "args": info.args,
        "cwd": info.cwd,
        "status": "running",
        "pid": info.pid,
    }


def shell_command(info: ShellInfo) -> host_types.ShellInfo:
    """A shell command without a terminal."""
    row = present(
        id=info.id,
        status=info.status,
        command=info.command,
        cwd=info.cwd,
        shell=info.shell,
        file=info.file,
        metadata=info.metadata,
        time=present(started=info.started_ms, completed=info.completed_ms),
        pid=info.pid,
        exit=info.exit_code,
        signal=info.signal,
    )
    return cast("host_types.ShellInfo", row)


def shell(source: InstalledShell) -> host_types.ConfigShellOption:
    """A shell of this machine."""
    return {"path": source.path, "name": source.name, "acceptable": source.is_acceptable}


def project(source: Project, active_ms: int) -> host_types.Project:
    """A project. In: `active_ms`, the time of the last change of it or of its sessions."""
    row = present(
        id=source.id,
        canonical=source.worktree,
        time={"created": source.created_ms, "updated": source.updated_ms, "active": active_ms},
        sandboxes=source.sandboxes,
        vcs=source.vcs,
        name=source.name,
        icon=present(**asdict(source.icon)) or None,
        commands=None if source.start_command is None else {"start": source.start_command},
    )
    return cast("host_types.Project", row)


def worktree(copy: WorkingCopy) -> host_types.WorktreeDirectory:
    """A working tree of a project."""
    return {"directory": copy.directory, "strategy": GIT_WORKTREE} if copy.is_linked else {"directory": copy.directory}


def skill(source: Skill) -> host_types.SkillInfo:
    """A skill."""
    row: host_types.SkillInfo = {"id": source.id, "name": source.name, "path": source.path, "content": source.content}
    return {**row, "description": source.description} if source.description else row
