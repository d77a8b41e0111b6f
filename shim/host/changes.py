"""Changes outside of sessions: terminals, shell commands, files, projects. Each face renders its events from them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from shim.host.values import Project, ShellInfo, ShellStatus, TerminalInfo

ToastVariant: TypeAlias = Literal["info", "success", "warning", "error"]
EVERYWHERE = "global"
"""Stands for the directory of a change that concerns all clients."""


@dataclass(frozen=True, slots=True)
class TerminalCreated:
    """A client opened a terminal."""

    info: TerminalInfo


@dataclass(frozen=True, slots=True)
class TerminalUpdated:
    """The title or size of a terminal changed."""

    info: TerminalInfo


@dataclass(frozen=True, slots=True)
class TerminalExited:
    """The program in a terminal ended."""

    id: str
    exit_code: int


@dataclass(frozen=True, slots=True)
class TerminalDeleted:
    """A client closed a terminal."""

    id: str


@dataclass(frozen=True, slots=True)
class ShellCreated:
    """A client started a shell command."""

    info: ShellInfo


@dataclass(frozen=True, slots=True)
class ShellExited:
    """A shell command ended. `exit_code` is None if a signal ended it."""

    id: str
    status: ShellStatus
    exit_code: int | None


@dataclass(frozen=True, slots=True)
class ShellDeleted:
    """A client removed a shell command and its output."""

    id: str


@dataclass(frozen=True, slots=True)
class FileChanged:
    """A file of the directory was added, changed or removed."""

    path: str
    event: Literal["add", "change", "unlink"]


@dataclass(frozen=True, slots=True)
class GitBranchChanged:
    """Another git branch is checked out. None means a detached HEAD."""

    branch: str | None


@dataclass(frozen=True, slots=True)
class ProjectUpdated:
    """A project changed."""

    project: Project


@dataclass(frozen=True, slots=True)
class ProjectDirectoriesChanged:
    """A project gained or lost a working copy."""

    project_id: str


@dataclass(frozen=True, slots=True)
class WorktreeReady:
    """A new worktree has all its files."""

    name: str
    branch: str


@dataclass(frozen=True, slots=True)
class WorktreeFailed:
    """git failed to check out the files of a new worktree."""

    message: str


@dataclass(frozen=True, slots=True)
class DirectoryDisposed:
    """The server dropped its state of a directory. Clients read everything about it again."""

    directory: str


@dataclass(frozen=True, slots=True)
class AllDisposed:
    """The server dropped its state of all directories. Clients read everything again."""


@dataclass(frozen=True, slots=True)
class TuiPrompt:
    """Text that the TUI clients of a directory append to their prompt."""

    text: str


@dataclass(frozen=True, slots=True)
class TuiCommand:
    """A command that the TUI clients of a directory run."""

    command: str


RULES_TITLE = "Permission rules"
"""Title of the toast about rules that cannot be read."""


@dataclass(frozen=True, slots=True)
class TuiToast:
    """A note that the TUI clients of a directory show, for `duration_ms` or for as long as they like."""

    message: str
    variant: ToastVariant
    title: str | None = None
    duration_ms: int | None = None


@dataclass(frozen=True, slots=True)
class TuiSession:
    """A session that the TUI clients of a directory open."""

    session_id: str


HostChange: TypeAlias = (
    TerminalCreated
    | TerminalUpdated
    | TerminalExited
    | TerminalDeleted
    | ShellCreated
    | ShellExited
    | ShellDeleted
    | FileChanged
    | GitBranchChanged
    | ProjectUpdated
    | ProjectDirectoriesChanged
    | WorktreeReady
    | WorktreeFailed
    | DirectoryDisposed
    | AllDisposed
    | TuiPrompt
    | TuiCommand
    | TuiToast
    | TuiSession
)


class HostChanged(NamedTuple):
    """What has just changed beside the sessions, and where; `directory` may be EVERYWHERE."""

    change: HostChange
    directory: str
    project_id: str | None = None


HostObserver: TypeAlias = Callable[[HostChanged], None]


class HostFeed:
    """Passes each host change to its observers synchronously."""

    def __init__(self) -> None:
        self._observers: tuple[HostObserver, ...] = ()

    def observe(self, observer: HostObserver) -> None:
        """Call `observer` with every change until `forget`. It must not block."""
        self._observers = (*self._observers, observer)

    def forget(self, observer: HostObserver) -> None:
        """Stop calling `observer`. A second call does nothing."""
        self._observers = tuple(entry for entry in self._observers if entry != observer)

    def publish(self, change: HostChange, directory: str, project_id: str | None = None) -> None:
        event = HostChanged(change, directory, project_id)
        for observer in self._observers:
            observer(event)
