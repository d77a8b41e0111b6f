"""Files of the directory, for trees and viewers. Source: recording `endpoints`; `shim.host.files`."""

from __future__ import annotations

from dataclasses import asdict

from pydantic import BaseModel

from shim.faces.opencode1.endpoint import operation
from shim.host import files, vcs
from shim.http.operation import Ctx


class FileQuery(BaseModel):
    """A path, relative to the directory or absolute in it."""

    path: str


@operation("file.list")
async def list_folder(ctx: Ctx, query: FileQuery) -> object:
    """A folder's entries."""
    project = await ctx.services.projects.identity(ctx.directory)
    ctx.services.watchers.visit(ctx.directory, project.id)
    return [asdict(entry) for entry in await files.list_folder(ctx.directory, query.path)]


@operation("file.read")
async def read(ctx: Ctx, query: FileQuery) -> object:
    """A file."""
    content = await files.content(ctx.directory, query.path)
    return {key: value for key, value in asdict(content).items() if value is not None}


@operation("file.status")
async def status(ctx: Ctx) -> object:
    """Changed files, relative to the directory (1.18.33 always answers [] here; older versions as we do)."""
    prefix = await vcs.prefix(ctx.directory)
    return [
        {"path": one.file.removeprefix(prefix), "added": one.additions, "removed": one.deletions, "status": one.status}
        for one in await vcs.changes(ctx.directory)
    ]
