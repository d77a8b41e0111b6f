"""Serves files of a session's directory (`session_id`) or the server's. Source: the universal API's document."""

from __future__ import annotations

import asyncio
import mimetypes

from aiohttp import web
from pydantic import BaseModel

from shim.faces.v1.models import (
    FsActionResponse,
    FsEntry,
    FsMoveRequest,
    FsMoveResponse,
    FsStat,
    FsUploadBatchResponse,
    FsWriteResponse,
)
from shim.faces.v1.routes.endpoint import universal, v1
from shim.host.files import file_actions
from shim.host.files.file_actions import FileEntry, Place
from shim.http.operation import Ctx


class SessionQuery(BaseModel):
    """The session whose directory relative paths start from."""

    session_id: str | None = None


class PathQuery(SessionQuery):
    """A path, relative or absolute."""

    path: str


class FolderQuery(SessionQuery):
    """A folder; the default is the directory itself."""

    path: str | None = None


class DeleteQuery(PathQuery):
    """`recursive`: delete also a folder that is not empty."""

    recursive: bool = False


async def _place(ctx: Ctx, session: str | None) -> Place:
    services = ctx.services
    directory = ctx.directory
    if session:
        session_id = await universal(ctx).sessions.id_of(session)
        directory = services.sessions.index.record(session_id).directory
    return Place(directory, anywhere=services.settings.fs_anywhere)


def _stat(entry: FileEntry) -> FsStat:
    return FsStat(path=entry.path, entryType=entry.kind, size=entry.size, modified=entry.modified)


@v1("GET", "/v1/fs/entries", tag="fs", answer=list[FsEntry], errors=(400, 404))
async def fs_entries(ctx: Ctx, query: FolderQuery) -> object:
    """List a folder's entries, folders first."""
    listing = await asyncio.to_thread(file_actions.entries, await _place(ctx, query.session_id), query.path or ".")
    return [FsEntry(name=f.name, path=f.path, entryType=f.kind, size=f.size, modified=f.modified) for f in listing]


@v1("GET", "/v1/fs/stat", tag="fs", answer=FsStat, errors=(400, 404))
async def fs_stat(ctx: Ctx, query: PathQuery) -> object:
    """Type, size and time of a file or folder."""
    return _stat(await asyncio.to_thread(file_actions.look, await _place(ctx, query.session_id), query.path))


@v1("GET", "/v1/fs/file", tag="fs", form="bytes", errors=(400, 404, 413))
async def fs_read_file(ctx: Ctx, query: PathQuery) -> object:
    """Read a file's bytes."""
    data = await asyncio.to_thread(file_actions.read, await _place(ctx, query.session_id), query.path)
    # Never a type that a browser would execute.
    kind = mimetypes.guess_type(query.path)[0] or ""
    return web.Response(
        body=data, content_type="application/octet-stream", headers={"X-File-Type": kind, "Content-Disposition": "attachment"}
    )


@v1("PUT", "/v1/fs/file", tag="fs", answer=FsWriteResponse, errors=(400, 404, 413), takes_bytes=True)
async def fs_write_file(ctx: Ctx, query: PathQuery) -> object:
    """Write the body's bytes to a file. Missing folders are created."""
    data = await ctx.request.read()
    where = await asyncio.to_thread(file_actions.write, await _place(ctx, query.session_id), query.path, data)
    return FsWriteResponse(path=str(where), bytesWritten=len(data))


@v1("DELETE", "/v1/fs/entry", tag="fs", answer=FsActionResponse, errors=(400, 404))
async def fs_delete_entry(ctx: Ctx, query: DeleteQuery) -> object:
    """Delete a file or folder. Of a link, the link itself is deleted and not its target."""
    place = await _place(ctx, query.session_id)
    where = await asyncio.to_thread(lambda: file_actions.remove(place, query.path, recursive=query.recursive))
    return FsActionResponse(path=str(where))


@v1("POST", "/v1/fs/mkdir", tag="fs", answer=FsActionResponse, errors=(400, 409))
async def fs_mkdir(ctx: Ctx, query: PathQuery) -> object:
    """Create a folder and its missing parents."""
    where = await asyncio.to_thread(file_actions.make_folder, await _place(ctx, query.session_id), query.path)
    return FsActionResponse(path=str(where))


@v1("POST", "/v1/fs/move", tag="fs", answer=FsMoveResponse, errors=(400, 404, 409))
async def fs_move(ctx: Ctx, query: SessionQuery, body: FsMoveRequest) -> object:
    """Move or rename a file or folder."""
    place = await _place(ctx, query.session_id)
    start, end = await asyncio.to_thread(lambda: file_actions.move(place, body.from_, body.to, overwrite=body.overwrite or False))
    return FsMoveResponse(from_=str(start), to=str(end))


@v1("POST", "/v1/fs/upload-batch", tag="fs", answer=FsUploadBatchResponse, errors=(400, 413), takes_bytes=True)
async def fs_upload_batch(ctx: Ctx, query: FolderQuery) -> object:
    """Unpack a tar archive (plain, gzip, bzip2, xz) below a folder."""
    data = await ctx.request.read()
    paths, truncated = await asyncio.to_thread(file_actions.unpack, await _place(ctx, query.session_id), query.path or ".", data)
    return FsUploadBatchResponse(paths=paths, truncated=truncated)
