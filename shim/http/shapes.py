"""Request models that OpenCode 1 and 2 share, and cursors of lists."""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import replace
from typing import Annotated, Any

from pydantic import BaseModel, Field

from shim.host.values import Project
from shim.http.operation import need_id
from universal.lib.jsonvalue import obj


def encode_cursor(value: object) -> str:
    """A cursor: base64url JSON that says where a page begins, as in OpenCode."""
    return base64.urlsafe_b64encode(json.dumps(value, separators=(",", ":")).encode()).decode().rstrip("=")


def decode_cursor(cursor: str) -> dict[str, Any]:
    """The value of a cursor; {} if it is none."""
    try:
        return obj(json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))))
    except (binascii.Error, ValueError):
        return {}


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
