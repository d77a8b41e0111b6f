"""What changes beside the sessions: terminals, files, projects, configuration. A face makes its events of these values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

EVERYWHERE = "global"
"""In place of a directory: the change concerns all clients, whatever directory they read."""


@dataclass(frozen=True, slots=True)
class TerminalCreated:
    """A terminal was opened. `info` is what clients are shown of it."""

    info: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TerminalUpdated:
    """A terminal has another title or size."""

    info: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TerminalExited:
    """The program in a terminal has ended."""

    id: str
    exit_code: int


@dataclass(frozen=True, slots=True)
class TerminalDeleted:
    """A terminal was closed."""

    id: str


@dataclass(frozen=True, slots=True)
class FileChanged:
    """A file of the directory was added, changed or removed (`event`: add, change, unlink)."""

    path: str
    event: str


@dataclass(frozen=True, slots=True)
class GitBranchChanged:
    """Another git branch is checked out; None: no branch."""

    branch: str | None


@dataclass(frozen=True, slots=True)
class ProjectUpdated:
    """A project's record has changed. `row` is the whole of it."""

    row: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ProjectDirectoriesChanged:
    """A project has one more copy, or one less."""

    project_id: str


@dataclass(frozen=True, slots=True)
class WorktreeReady:
    """The files of a new worktree are there."""

    name: str
    branch: str


@dataclass(frozen=True, slots=True)
class WorktreeFailed:
    """A new worktree could not be filled."""

    message: str


@dataclass(frozen=True, slots=True)
class WorkspaceReady:
    """A workspace was made."""

    name: str


@dataclass(frozen=True, slots=True)
class WorkspaceConnected:
    """A workspace can be used."""

    workspace_id: str


@dataclass(frozen=True, slots=True)
class DirectoryDisposed:
    """What was known of a directory is no longer true: clients read all of it again."""

    directory: str


@dataclass(frozen=True, slots=True)
class EverythingDisposed:
    """What was known of any directory is no longer true."""


TuiKind: TypeAlias = Literal["tui.prompt.append", "tui.command.execute", "tui.toast.show", "tui.session.select"]


@dataclass(frozen=True, slots=True)
class TuiCommand:
    """A command for the terminal clients of a directory, such as text for their prompt."""

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
    | EverythingDisposed
    | TuiCommand
)

HostObserver: TypeAlias = Callable[[HostChange, str, str | None], None]
"""(change, directory, project id)."""


class HostFeed:
    """Gives each change to the faces, in the step in which it is published."""

    def __init__(self) -> None:
        self._observers: tuple[HostObserver, ...] = ()

    def observe(self, observer: HostObserver) -> None:
        """Call it with every change until `forget`. It must not wait."""
        self._observers = (*self._observers, observer)

    def forget(self, observer: HostObserver) -> None:
        """It is not called any more. A second call does nothing."""
        self._observers = tuple(one for one in self._observers if one != observer)

    def publish(self, change: HostChange, directory: str, project_id: str | None = None) -> None:
        """Give it to all observers."""
        for observer in self._observers:
            observer(change, directory, project_id)
