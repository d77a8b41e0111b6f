"""Projects, terminals and shell commands as values: what changes of the host carry, and faces render."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

ShellStatus: TypeAlias = Literal["running", "exited", "timeout", "killed"]


@dataclass(frozen=True, slots=True)
class ProjectIcon:
    """The icon of a project, set by clients."""

    url: str | None = None
    override: str | None = None
    color: str | None = None


@dataclass(frozen=True, slots=True)
class Project:
    """A project: its main working tree, its other ones (`sandboxes`), and what clients have set."""

    id: str
    worktree: str
    created_ms: int
    updated_ms: int
    vcs: Literal["git"] | None = None
    sandboxes: tuple[str, ...] = ()
    name: str | None = None
    icon: ProjectIcon = ProjectIcon()
    start_command: str | None = None


@dataclass(frozen=True, slots=True)
class TerminalInfo:
    """What clients see of a running terminal."""

    id: str
    title: str
    command: str
    args: tuple[str, ...]
    cwd: str
    pid: int


@dataclass(frozen=True, slots=True)
class ShellInfo:
    """What clients see of a shell command. `metadata` is theirs; `signal` names the signal that ended it."""

    id: str
    command: str
    cwd: str
    shell: str
    file: str
    metadata: Mapping[str, object]
    started_ms: int
    status: ShellStatus = "running"
    pid: int | None = None
    exit_code: int | None = None
    signal: str | None = None
    completed_ms: int | None = None
