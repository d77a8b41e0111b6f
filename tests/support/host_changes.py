"""Examples of all changes of the host."""

from __future__ import annotations

from shim.host.changes import (
    AllDisposed,
    DirectoryDisposed,
    FileChanged,
    GitBranchChanged,
    HostChange,
    ProjectDirectoriesChanged,
    ProjectUpdated,
    ShellCreated,
    ShellDeleted,
    ShellExited,
    TerminalCreated,
    TerminalDeleted,
    TerminalExited,
    TerminalUpdated,
    TuiCommand,
    TuiPrompt,
    TuiSession,
    TuiToast,
    WorktreeFailed,
    WorktreeReady,
)
from shim.host.values import Project, ProjectIcon, ShellInfo, TerminalInfo

TERMINAL = TerminalInfo("pty_1", "Terminal 1", "/bin/sh", ("-l",), "/a", 7)
COMMAND = ShellInfo("sh_1", "make", "/a", "/bin/sh", "/data/sh_1.log", {"by": "test"}, 5)
PROJECT = Project("abc", "/a", 1, 2, "git", ("/b",), "mine", ProjectIcon(color="red"), "make")

EXAMPLES: tuple[HostChange, ...] = (
    TerminalCreated(TERMINAL),
    TerminalUpdated(TERMINAL),
    TerminalExited("pty_1", 0),
    TerminalDeleted("pty_1"),
    ShellCreated(COMMAND),
    ShellExited("sh_1", "exited", 3),
    ShellExited("sh_1", "killed", None),
    ShellDeleted("sh_1"),
    FileChanged("/a/x", "add"),
    GitBranchChanged("main"),
    GitBranchChanged(None),
    ProjectUpdated(PROJECT),
    ProjectUpdated(Project("global", "/", 1, 2)),
    ProjectDirectoriesChanged("abc"),
    WorktreeReady("calm-fox", "opencode/calm-fox"),
    WorktreeFailed("no space"),
    DirectoryDisposed("/a"),
    AllDisposed(),
    TuiPrompt("hello"),
    TuiCommand("session.new"),
    TuiToast("saved", "success"),
    TuiToast("saved", "success", "Title", 5),
    TuiSession("ses_1"),
)
