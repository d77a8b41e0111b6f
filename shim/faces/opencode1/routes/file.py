"""Files of the directory: trees, viewers, search, version control. Source: recordings `endpoints`, `misc`; `shim.host`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from aiohttp import web

from shim.faces.opencode1 import host
from shim.faces.opencode1._generated import requests
from shim.faces.opencode1.endpoint import operation
from shim.host.files import contents as files
from shim.host.files import search
from shim.host.files.roots import require
from shim.host.git import vcs
from shim.host.git.git_command import git
from shim.host.git.vcs import Change
from shim.http.operation import Ctx
from shim.lib.errors import PatchRefused

if TYPE_CHECKING:
    from shim.faces.opencode1._generated.types import File, VcsFileDiff, VcsInfo


@operation("file.list")
async def list_folder(ctx: Ctx, query: requests.FileQuery) -> object:
    """List a folder's entries."""
    project = await ctx.services.projects.identity(ctx.directory)
    ctx.services.watchers.visit(ctx.directory, project.id)
    return [asdict(entry) for entry in await files.list_folder(ctx.directory, query.path)]


@operation("file.read")
async def read(ctx: Ctx, query: requests.FileQuery) -> object:
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


@operation("find.text")
async def text(ctx: Ctx, query: requests.TextQuery) -> object:
    """List matching lines."""
    return [host.text_match(match) for match in await search.texts(ctx.directory, query.pattern)]


@operation("find.files")
async def names(ctx: Ctx, query: requests.FindQuery) -> object:
    """List files and folders whose path resembles the query, best first."""
    return await search.names(ctx.directory, query.query, kind=query.type, folders=query.dirs == "true", limit=query.limit)


@operation("find.symbols")
async def symbols(ctx: Ctx, query: requests.SymbolQuery) -> object:
    """Return no symbols, as native OpenCode does without a language server. This server runs none."""
    return []


# --- version control -------------------------------------------------------------------------------------


@operation("vcs.get")
async def get(ctx: Ctx) -> object:
    """Return the branches. Missing ones are left out (native OpenCode sends null, against its own document)."""
    project = await ctx.services.projects.identity(ctx.directory)
    ctx.services.watchers.visit(ctx.directory, project.id)
    branches = await vcs.branches(ctx.directory)
    info: VcsInfo = {}
    if branches.current is not None:
        info["branch"] = branches.current
    if branches.default is not None:
        info["default_branch"] = branches.default
    return info


@operation("vcs.status")
async def vcs_status(ctx: Ctx) -> object:
    """List changed files with line counts."""
    return [_wire(change) for change in await vcs.changes(ctx.directory)]


@operation("vcs.diff")
async def diff(ctx: Ctx, query: requests.VcsDiffQuery) -> object:
    """List changed files with patches."""
    return [_wire(change) for change in await vcs.diff(ctx.directory, query.mode, query.context)]


@operation("vcs.diff.raw")
async def raw(ctx: Ctx) -> web.Response:
    """Return all patches as one text."""
    return web.Response(text=await vcs.raw_diff(ctx.directory), content_type="text/x-diff", charset="utf-8")


@operation("vcs.apply")
async def apply(ctx: Ctx, body: requests.PatchBody) -> object:
    """Apply a patch to the working tree completely or not at all. A working tree that exceeds the roots is refused."""
    if ctx.roots and (top := await vcs.root(ctx.directory)) is not None:
        await require(top, ctx.roots)
    await apply_patch(ctx.directory, body.patch)
    return {"applied": True}


def _wire(change: Change) -> VcsFileDiff:
    row: VcsFileDiff = {
        "file": change.file,
        "additions": change.additions,
        "deletions": change.deletions,
        "status": change.status,
    }
    return row if change.patch is None else {**row, "patch": change.patch}


# --- patches ---------------------------------------------------------------------------------------------

# Applies a patch to the working tree, completely or not at all. It changes neither the index nor any file outside.
#
# Source: a live OpenCode 1.18.33 (`POST /vcs/apply`: its errors, and its refusal of a patch that was applied before).

SHOWN_CHARS = 2000
"""Maximum characters of git's message that are shown."""


async def apply_patch(directory: str, patch: str) -> None:
    """Apply a patch. Raises PatchRefused with git's message."""
    top = await vcs.root(directory)
    if top is None:
        raise PatchRefused("non-git", f"Patch can't be applied because the project is not git-based: {directory}")
    if not patch.strip():
        raise PatchRefused("not-clean", "Patch can't be applied: it is empty")
    # git applies everything or nothing, and refuses paths that lead out of the tree or through links.
    result = await git(top, "apply", "--whitespace=nowarn", "-", stdin=patch.encode("utf-8", "surrogateescape"))
    if not result.ok:
        message = result.stderr.decode("utf-8", "replace").strip()[:SHOWN_CHARS]
        raise PatchRefused("not-clean", f"Patch can't be applied: {message or 'git took too long'}")
