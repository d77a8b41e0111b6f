"""Request models that OpenCode 1 and 2 share."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from pydantic import BaseModel, Field

from shim.host.values import Project
from shim.http.operation import need_id


class PtyPath(BaseModel):
    """`{ptyID}` of a path."""

    ptyID: Annotated[str, need_id("pty")]


class TerminalBody(BaseModel):
    """The program of a new terminal. All fields may be missing."""

    command: str | None = None
    args: list[str] | None = None
    cwd: str | None = None
    title: str | None = None
    env: dict[str, str] | None = None


class Size(BaseModel):
    """The size of a terminal in characters."""

    rows: Annotated[int, Field(gt=0)]
    cols: Annotated[int, Field(gt=0)]


class TerminalUpdate(BaseModel):
    """Changes to a terminal. Missing fields stay unchanged."""

    title: str | None = None
    size: Size | None = None


class ConnectQuery(BaseModel):
    """The start position (-1: the end) and a ticket. An invalid number means the start, as in native OpenCode."""

    cursor: str = "0"
    ticket: str | None = None


class ProjectPath(BaseModel):
    """`{projectID}` of a path."""

    projectID: str


class Icon(BaseModel):
    """The icon of a project."""

    url: str | None = None
    override: str | None = None
    color: str | None = None


class Commands(BaseModel):
    """The start command of a project."""

    start: str | None = None


class ProjectChanges(BaseModel):
    """What clients change of a project. Missing fields stay unchanged, also those of `icon`."""

    name: str | None = None
    icon: Icon | None = None
    commands: Commands | None = None

    def apply(self, project: Project) -> Project:
        icon, start = self.icon or Icon(), self.commands.start if self.commands else None
        return replace(
            project,
            name=project.name if self.name is None else self.name,
            icon=replace(project.icon, **icon.model_dump(exclude_none=True)),
            start_command=project.start_command if start is None else start,
        )
