"""Reports branch and changes of the directory's repository. Source: recordings `endpoints`, `misc`; `shim.host.git.vcs`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from aiohttp import web
from pydantic import BaseModel, Field

from shim.faces.opencode1.endpoint import operation
from shim.host.files.roots import require
from shim.host.git import vcs
from shim.host.git.git_command import git
from shim.host.git.vcs import Change
from shim.http.operation import Ctx
from shim.lib.errors import PatchRefused

if TYPE_CHECKING:
    from shim.faces.opencode1._generated.types import VcsFileDiff, VcsInfo


class DiffQuery(BaseModel):
    """The base of the comparison, and the unchanged lines to show around a change."""

    mode: Literal["git", "branch"]
    context: Annotated[int, Field(ge=0)] | None = None


class Patch(BaseModel):
    """A unified diff, as `git diff` writes it."""

    patch: str


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
async def status(ctx: Ctx) -> object:
    """List changed files with line counts."""
    return [_wire(change) for change in await vcs.changes(ctx.directory)]


@operation("vcs.diff")
async def diff(ctx: Ctx, query: DiffQuery) -> object:
    """List changed files with patches."""
    return [_wire(change) for change in await vcs.diff(ctx.directory, query.mode, query.context)]


@operation("vcs.diff.raw")
async def raw(ctx: Ctx) -> web.Response:
    """Return all patches as one text."""
    return web.Response(text=await vcs.raw_diff(ctx.directory), content_type="text/x-diff", charset="utf-8")


@operation("vcs.apply")
async def apply(ctx: Ctx, body: Patch) -> object:
    """Apply a patch to the working tree completely or not at all. A working tree that exceeds the roots is refused."""
    if ctx.services.settings.roots and (top := await vcs.root(ctx.directory)) is not None:
        await require(top, ctx.services.settings.roots)
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
