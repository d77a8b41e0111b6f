"""Serves files to trees and viewers, and searches in them. Source: recording `endpoints`; `shim.host.files.contents`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, Field

from shim.faces.opencode1 import host
from shim.faces.opencode1.endpoint import operation
from shim.host.files import contents as files
from shim.host.files import search
from shim.host.git import vcs
from shim.http.operation import Ctx

if TYPE_CHECKING:
    from shim.faces.opencode1._generated.types import File


class FileQuery(BaseModel):
    """A path, relative to the directory or absolute below it."""

    path: str


@operation("file.list")
async def list_folder(ctx: Ctx, query: FileQuery) -> object:
    """List a folder's entries."""
    project = await ctx.services.projects.identity(ctx.directory)
    ctx.services.watchers.visit(ctx.directory, project.id)
    return [asdict(entry) for entry in await files.list_folder(ctx.directory, query.path)]


@operation("file.read")
async def read(ctx: Ctx, query: FileQuery) -> object:
    """Return a file's content."""
    content = await files.content(ctx.directory, query.path)
    return {key: value for key, value in asdict(content).items() if value is not None}


@operation("file.status")
async def status(ctx: Ctx) -> object:
    """List changed files, relative to the directory, as older versions do (1.18.33 always answers [])."""
    prefix = await vcs.prefix(ctx.directory)
    rows: list[File] = [
        {
            "path": change.file.removeprefix(prefix),
            "added": change.additions,
            "removed": change.deletions,
            "status": change.status,
        }
        for change in await vcs.changes(ctx.directory)
    ]
    return rows


# --- search ----------------------------------------------------------------------------------------------


class TextQuery(BaseModel):
    """A regular expression in ripgrep's dialect."""

    pattern: str


class FindQuery(BaseModel):
    """A part of a path, which may contain typos."""

    query: str
    dirs: Literal["true", "false"] = "true"
    type: Literal["file", "directory"] | None = None
    limit: Annotated[int, Field(ge=1, le=200)] = 10


class SymbolQuery(BaseModel):
    """A part of a name."""

    query: str


@operation("find.text")
async def text(ctx: Ctx, query: TextQuery) -> object:
    """List matching lines."""
    return [host.text_match(match) for match in await search.texts(ctx.directory, query.pattern)]


@operation("find.files")
async def names(ctx: Ctx, query: FindQuery) -> object:
    """List files and folders whose path resembles the query, best first."""
    return await search.names(ctx.directory, query.query, kind=query.type, folders=query.dirs == "true", limit=query.limit)


@operation("find.symbols")
async def symbols(ctx: Ctx, query: SymbolQuery) -> object:
    """Return no symbols, as native OpenCode does without a language server. This server runs none."""
    return []
