"""Shapes of requests that both wires of OpenCode have."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field

from shim.http.operation import need_id


class PtyPath(BaseModel):
    """`{ptyID}` of a path."""

    ptyID: Annotated[str, need_id("pty")]


class TerminalBody(BaseModel):
    """What to run; all may be missing."""

    command: str | None = None
    args: list[str] | None = None
    cwd: str | None = None
    title: str | None = None
    env: dict[str, str] | None = None


class Size(BaseModel):
    """In characters."""

    rows: Annotated[int, Field(gt=0)]
    cols: Annotated[int, Field(gt=0)]


class TerminalUpdate(BaseModel):
    """What is not sent stays."""

    title: str | None = None
    size: Size | None = None


class ConnectQuery(BaseModel):
    """Where to begin (-1: at the end), and a ticket. What is no number begins at the start, as native."""

    cursor: str = "0"
    ticket: str | None = None


class ProjectPath(BaseModel):
    """`{projectID}` of a path."""

    projectID: str


class Icon(BaseModel):
    """How a project is shown."""

    url: str | None = None
    override: str | None = None
    color: str | None = None


class Commands(BaseModel):
    """What starts a project."""

    start: str | None = None
