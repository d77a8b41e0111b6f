"""Changes outside of sessions: terminals, files, projects and configuration. Each face renders its events from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

EVERYWHERE = "global"
"""Stands for the directory of a change that concerns all clients."""


@dataclass(frozen=True, slots=True)
class TerminalCreated:
    """A client opened a terminal. `info` is the record that clients see."""

    info: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TerminalUpdated:
    """The title or size of a terminal changed."""

    info: Mapping[str, Any]


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
    """A project's record changed. `row` is the complete record."""

    row: Mapping[str, Any]


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
class WorkspaceReady:
    """A workspace was created."""

    name: str


@dataclass(frozen=True, slots=True)
class WorkspaceConnected:
    """A workspace is ready for use."""

    workspace_id: str


@dataclass(frozen=True, slots=True)
class DirectoryDisposed:
    """The server dropped its state of a directory. Clients read everything about it again."""

    directory: str


@dataclass(frozen=True, slots=True)
class AllDisposed:
    """The server dropped its state of all directories. Clients read everything again."""


TuiKind: TypeAlias = Literal["tui.prompt.append", "tui.command.execute", "tui.toast.show", "tui.session.select"]


@dataclass(frozen=True, slots=True)
class TuiCommand:
    """A command for the TUI clients of a directory, such as text for their prompt."""

    kind: TuiKind
    properties: Mapping[str, Any]


HostChange: TypeAlias = (
    TerminalCreated
    | TerminalUpdated
    | TerminalExited
    | TerminalDeleted
    | FileChanged
    | GitBranchChanged
    | ProjectUpdated
    | ProjectDirectoriesChanged
    | WorktreeReady
    | WorktreeFailed
    | WorkspaceReady
    | WorkspaceConnected
    | DirectoryDisposed
    | AllDisposed
    | TuiCommand
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
        self._observers = tuple(kept for kept in self._observers if kept != observer)

    def publish(self, change: HostChange, directory: str, project_id: str | None = None) -> None:
        """Call all observers with the change."""
        made = HostChanged(change, directory, project_id)
        for observer in self._observers:
            observer(made)
