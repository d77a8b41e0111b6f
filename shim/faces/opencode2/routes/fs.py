"""Routes of the machine's files (read, list, search, write) and of version control. Source: recording `endpoints` of v2-20260717.

A file is read only inside of the request's directory. Listing and writing reach further, because a person chooses folders with
them: they are confined to the setting `roots`, if it is set.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from aiohttp import web
from pydantic import BaseModel, Field

from shim.faces.opencode2._generated import requests
from shim.faces.opencode2.endpoint import operation
from shim.faces.opencode2.errors import FileUnreadable, ResourceConflict, VcsUnsupported
from shim.faces.opencode2.routes.location_answer import locate_answer, place
from shim.host.changes import EVERYWHERE, ProjectUpdated
from shim.host.files import contents as files
from shim.host.files import search
from shim.host.files.contents import BYTES, TEXT, sniff_type
from shim.host.files.roots import require
from shim.host.git import vcs
from shim.http.operation import Ctx
from shim.lib import disk
from shim.lib.errors import InvalidRequest
from universal.lib.paths import is_in

if TYPE_CHECKING:
    from shim.faces.opencode2._generated.host_types import FileSystemEntry, VcsFileStatus


SHOWN_TYPES = frozenset(
    {
        *("image/png", "image/jpeg", "image/gif", "image/webp", "image/avif", "image/bmp"),
        *("text/plain", "text/markdown", "text/csv"),
    }
)
"""Types that no browser runs."""
SNIFF_BYTES = 64 * 1024


class ReadPath(BaseModel):
    """The path after `/api/fs/read/`."""

    tail: str


class WriteQuery(BaseModel):
    """A file, absolute or relative to the directory."""

    path: Annotated[str, Field(min_length=1)]


@operation("fs.list")
async def listing(ctx: Ctx, query: requests.FolderQuery) -> object:
    """A folder's entries. Their paths are relative to the directory, also outside of it (`../x`)."""
    folder = await _place(ctx, query.path)
    project = await ctx.services.projects.identity(ctx.directory)
    ctx.services.watchers.visit(ctx.directory, project.id)
    inside = is_in(folder, (ctx.directory,))
    entries = await files.list_folder(ctx.directory if inside else folder, query.path if inside else "")
    before = "" if inside else _from(ctx.directory, folder)
    rows: list[FileSystemEntry] = [{"path": f"{before}{entry.path}", "type": entry.type} for entry in entries]
    return await locate_answer(ctx, rows)


@operation("fs.find")
async def find(ctx: Ctx, query: requests.FindQuery) -> object:
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
        await asyncio.to_thread(_write, place, data, ctx.roots)
    except OSError as error:
        raise InvalidRequest(f"Cannot write {query.path}: {error.strerror}", "Query", ("path",)) from error
    return await locate_answer(ctx, {"path": place})


async def _place(ctx: Ctx, path: str) -> str:
    """The absolute path. Raises InvalidRequest for a NUL, 403 for a place outside of the setting `roots`."""
    if "\0" in path:
        raise InvalidRequest("A path may not contain NUL", "Query", ("path",))
    place = _absolute(ctx.directory, path)
    await require(place, ctx.roots)
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


def _write(place: str, data: bytes, roots: Sequence[str]) -> None:
    folders = [os.path.realpath(root) for root in roots] or ["/"]
    with disk.open_confined_for_writing(place, folders) as (file, state):
        if not disk.is_regular(state):
            raise OSError(errno.EINVAL, "it is no file")
        file.truncate()
        file.write(data)


# --- version control -------------------------------------------------------------------------------------


@operation("vcs.get")
async def get(ctx: Ctx) -> object:
    """The current and the default branch. A missing branch is left out."""
    project = await ctx.services.projects.identity(ctx.directory)
    ctx.services.watchers.visit(ctx.directory, project.id)
    branches = await vcs.branches(ctx.directory)
    names = {"current": branches.current, "default": branches.default}
    branch = {key: name for key, name in names.items() if name is not None}
    return await locate_answer(ctx, {**({"provider": "git"} if project.vcs else {}), "branch": branch})


@operation("vcs.base")
async def base(ctx: Ctx) -> object:
    """The commit where the branch left the one that it will be merged into; null on that one and outside of a repository."""
    review_base = await vcs.review_base(ctx.directory)
    return await locate_answer(
        ctx, None if review_base is None else {"name": review_base.name, "ref": review_base.ref, "source": review_base.source}
    )


@operation("vcs.status")
async def status(ctx: Ctx) -> object:
    """Changed files with line counts."""
    return await locate_answer(ctx, [_row(change) for change in await vcs.changes(ctx.directory)])


@operation("vcs.branch.list")
async def branches(ctx: Ctx, query: requests.BranchQuery) -> object:
    """Names of local branches, the last used first."""
    query_text = query.search.casefold()
    names = [name for name in await vcs.branch_names(ctx.directory) if query_text in name.casefold()]
    return await locate_answer(ctx, names[: query.limit])


@operation("vcs.diff")
async def diff(ctx: Ctx, query: requests.VcsDiffQuery) -> object:
    """Changed files with patches. A patch that is too large to show is empty. Raises 400 for an unknown base."""
    if query.mode == "working" and query.base is None:
        changes = await vcs.diff(ctx.directory, "git", query.context)
    else:
        changes = await vcs.compare(ctx.directory, query.base, query.context, committed=query.mode == "committed")
    return await locate_answer(ctx, [_row(change) | {"patch": change.patch or ""} for change in changes])


@operation("vcs.init")
async def init(ctx: Ctx, query: requests.InitQuery) -> None:
    """Run `git init` in the directory. Raises 409 inside of a repository, 501 for another kind, 503 with git's error."""
    directory = await place(ctx)
    if query.provider != "git":
        raise VcsUnsupported(query.provider)
    if (await ctx.services.projects.identity(directory)).vcs is not None:
        raise ResourceConflict(f"{directory} is in a repository already.", directory)
    created = await ctx.services.projects.init_git(directory)
    ctx.services.host.publish(ProjectUpdated(created), EVERYWHERE, created.id)


def _row(change: vcs.Change) -> VcsFileStatus:
    return {"file": change.file, "additions": change.additions, "deletions": change.deletions, "status": change.status}
