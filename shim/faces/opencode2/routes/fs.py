"""Routes of the machine's files: read, list, search, write. Source: recording `endpoints` of v2-20260717.

A file is read only inside of the request's directory. Listing and writing reach further, because a person chooses folders with
them: they are confined to the setting `roots`, if it is set.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from aiohttp import web
from pydantic import BaseModel, Field

from shim.faces.opencode2.endpoint import operation
from shim.faces.opencode2.errors import FileUnreadable
from shim.faces.opencode2.routes.location_answer import locate_answer
from shim.host.files import contents as files
from shim.host.files import search
from shim.host.files.contents import BYTES, TEXT, sniff_type
from shim.host.files.roots import require
from shim.http.operation import Ctx
from shim.lib import disk
from shim.lib.errors import InvalidRequest

if TYPE_CHECKING:
    from shim.faces.opencode2._generated.host_types import FileSystemEntry

SHOWN_TYPES = frozenset(
    {
        *("image/png", "image/jpeg", "image/gif", "image/webp", "image/avif", "image/bmp"),
        *("text/plain", "text/markdown", "text/csv"),
    }
)
"""Types that no browser runs."""
SNIFF_BYTES = 64 * 1024


class ListQuery(BaseModel):
    """A folder, absolute or relative to the directory."""

    path: str = ""


class FindQuery(BaseModel):
    """Part of a path. Typing errors are allowed."""

    query: str
    type: Literal["file", "directory"] | None = None
    limit: Annotated[int, Field(ge=1, le=200)] = 50


class ReadPath(BaseModel):
    """The path after `/api/fs/read/`."""

    tail: str


class WriteQuery(BaseModel):
    """A file, absolute or relative to the directory."""

    path: Annotated[str, Field(min_length=1)]


@operation("fs.list")
async def listing(ctx: Ctx, query: ListQuery) -> object:
    """A folder's entries. Their paths are relative to the directory, also outside of it (`../x`)."""
    folder = await _place(ctx, query.path)
    project = await ctx.services.projects.identity(ctx.directory)
    ctx.services.watchers.visit(ctx.directory, project.id)
    inside = files.is_below(ctx.directory, folder)
    entries = await files.list_folder(ctx.directory if inside else folder, query.path if inside else "")
    before = "" if inside else _from(ctx.directory, folder)
    rows: list[FileSystemEntry] = [{"path": f"{before}{entry.path}", "type": entry.type} for entry in entries]
    return await locate_answer(ctx, rows)


@operation("fs.find")
async def find(ctx: Ctx, query: FindQuery) -> object:
    """Files and folders whose path is similar to the query, the best first."""
    paths = await search.names(ctx.directory, query.query, kind=query.type, limit=query.limit)
    rows: list[FileSystemEntry] = [{"path": path, "type": "directory" if path.endswith("/") else "file"} for path in paths]
    return await locate_answer(ctx, rows)


@operation("fs.read")
async def read(ctx: Ctx, path: ReadPath) -> web.Response:
    """Read a file. Raises 404 FileNotFoundError."""
    data = await asyncio.to_thread(_read, ctx.directory, path.tail)
    kind = sniff_type(data[:SNIFF_BYTES], path.tail)
    # A browser runs some types, and which ones the machine's table names we do not know. So a file of the project could act as
    # the person in our pages. Other texts are plain ones, all else are bytes, and nothing may run.
    safe = kind if kind in SHOWN_TYPES else TEXT if kind.startswith("text/") else BYTES
    return web.Response(body=data, headers={"Content-Type": safe, "Content-Security-Policy": "sandbox"})


@operation("experimental.fs.write")
async def write(ctx: Ctx, query: WriteQuery) -> object:
    """Write the request's bytes to a file. Missing folders are created. The file keeps its mode."""
    place = await _place(ctx, query.path)
    data = await ctx.request.read()
    try:
        await asyncio.to_thread(_write, place, data, ctx.services.settings.roots)
    except OSError as error:
        raise InvalidRequest(f"Cannot write {query.path}: {error.strerror}", "Query", ("path",)) from error
    return await locate_answer(ctx, {"path": place})


async def _place(ctx: Ctx, path: str) -> str:
    """The absolute path. Raises InvalidRequest for a NUL, 403 for a place outside of the setting `roots`."""
    if "\0" in path:
        raise InvalidRequest("A path may not contain NUL", "Query", ("path",))
    place = _absolute(ctx.directory, path)
    await require(place, ctx.services.settings.roots)
    return place


def _absolute(directory: str, path: str) -> str:
    return os.path.normpath(Path(directory, path))


def _from(directory: str, folder: str) -> str:
    return os.path.relpath(folder, directory) + "/"


def _read(directory: str, path: str) -> bytes:
    try:
        place = files.confine(directory, path)
        with disk.open_confined(place, [os.path.realpath(directory)]) as (file, state):
            if disk.is_regular(state) and state.st_size <= files.FILE_LIMIT_BYTES:
                return file.read(files.FILE_LIMIT_BYTES)
        why = "it is no file" if not disk.is_regular(state) else f"it has more than {files.FILE_LIMIT_BYTES} bytes"
    except OSError as error:
        why = error.strerror or str(error)
    except InvalidRequest as error:
        why = error.reason
    raise FileUnreadable(path, why)


def _write(place: str, data: bytes, roots: Sequence[Path]) -> None:
    folders = [os.path.realpath(root) for root in roots] or ["/"]
    with disk.open_confined_for_writing(place, folders) as (file, state):
        if not disk.is_regular(state):
            raise OSError(errno.EINVAL, "it is no file")
        file.truncate()
        file.write(data)
