"""Exports and imports sessions as files. OpenCode has no such routes, because its commands open the database."""

from __future__ import annotations

from typing import Any

from pydantic import RootModel

from shim.faces.opencode1 import read
from shim.faces.opencode1.endpoint import extra
from shim.faces.opencode1.routes.session import SessionPath
from shim.faces.opencode1.transfer import import_
from shim.http.operation import Ctx


@extra("session.export", "GET", "/session/{sessionID}/export")
async def export_session(ctx: Ctx, path: SessionPath) -> object:
    """Return the document that `opencode import` reads."""
    return read.export(await ctx.services.sessions.session(path.sessionID))


class Document(RootModel[dict[str, Any]]):
    """A document of `opencode export` or `opencode-shim export`."""


@extra("session.import", "POST", "/session/import")
async def import_session(ctx: Ctx, body: Document) -> object:
    """Import a session into the request's directory, and return its `info`."""
    project = await ctx.services.projects.identity(ctx.directory)
    record = await import_(ctx.services.sessions, body.root, ctx.directory, project, project.path_of(ctx.directory))
    await ctx.services.store.flush(record.id)
    return read.session(record)
