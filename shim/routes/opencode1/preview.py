"""The few calls of OpenCode 2's preview API (`/api`) that clients of 1.x make for something that a person sees.

    /api/health      the web UI asks it every ten seconds, and the other one too until this one answers
    /api/fs/find     the TUI's completion of `@file`
    /api/fs/list, /api/location, /api/reference   asked beside it
    /api/session     the web UI's home page; in `preview_sessions`

All others are refused, which no client of 1.x minds. Source: `docs/clients.md`, recording `endpoints`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from shim.host import files, search
from shim.http.operation import Ctx, operation


class FindQuery(BaseModel):
    """A part of a path."""

    query: str
    type: Literal["file", "directory"] | None = None
    limit: Annotated[int, Field(ge=1, le=200)] = 50


class ListQuery(BaseModel):
    """A folder."""

    path: str = ""


@operation("v2.health.get")
async def health(ctx: Ctx) -> object:
    """Without a `pid`: that key would turn the web UI to the preview protocol."""
    return {"healthy": True}


@operation("v2.location.get")
async def location(ctx: Ctx) -> object:
    """The directory and its project."""
    return await _location(ctx)


@operation("v2.fs.find")
async def find(ctx: Ctx, query: FindQuery) -> object:
    """As `GET /find/file`, with the kind of each."""
    found = await search.names(ctx.directory, query.query, kind=query.type, limit=query.limit)
    return await _located(ctx, [{"path": path, "type": "directory" if path.endswith("/") else "file"} for path in found])


@operation("v2.fs.list")
async def listing(ctx: Ctx, query: ListQuery) -> object:
    """As `GET /file`."""
    entries = await files.listing(ctx.directory, query.path)
    return await _located(ctx, [{"path": entry.path, "type": entry.type} for entry in entries])


@operation("v2.reference.list")
async def references(ctx: Ctx) -> object:
    """None: agents look things up by themselves."""
    return await _located(ctx, [])


async def _located(ctx: Ctx, data: list[dict[str, Any]]) -> dict[str, Any]:
    return {"location": await _location(ctx), "data": data}


async def _location(ctx: Ctx) -> dict[str, Any]:
    project = await ctx.services.projects.identity(ctx.directory)
    return {"directory": ctx.directory, "project": {"id": project.id, "directory": project.worktree}}
