"""Searches texts and files. Source: recording `endpoints`; `shim.host.files.search`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from shim.faces.opencode1 import host
from shim.faces.opencode1.endpoint import operation
from shim.host.files import search
from shim.http.operation import Ctx


class TextQuery(BaseModel):
    """A regular expression in ripgrep's dialect."""

    pattern: str


class FileQuery(BaseModel):
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
async def names(ctx: Ctx, query: FileQuery) -> object:
    """List files and folders whose path resembles the query, best first."""
    return await search.names(ctx.directory, query.query, kind=query.type, folders=query.dirs == "true", limit=query.limit)


@operation("find.symbols")
async def symbols(ctx: Ctx, query: SymbolQuery) -> object:
    """Return no symbols, as native OpenCode does without a language server. This server runs none."""
    return []
