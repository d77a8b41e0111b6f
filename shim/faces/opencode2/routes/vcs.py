"""Routes of branches and changes of the directory's repository (`shim.host.git.vcs`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, Field

from shim.faces.opencode2.endpoint import operation
from shim.faces.opencode2.errors import ResourceConflict, VcsUnsupported
from shim.faces.opencode2.routes.location_answer import locate_answer, place
from shim.host.changes import EVERYWHERE, ProjectUpdated
from shim.host.git import vcs
from shim.http.operation import NO_CONTENT, Ctx

if TYPE_CHECKING:
    from shim.faces.opencode2._generated.host_types import VcsFileStatus

BRANCHES_LIMIT = 1000


class BranchQuery(BaseModel):
    """Part of a branch's name."""

    search: str = ""
    limit: Annotated[int, Field(ge=1, le=BRANCHES_LIMIT)] = 100


class DiffQuery(BaseModel):
    """The comparison: files with the last commit, files with the base, or the last commit with the base.

    `base`: a revision, by default the branch that this one will be merged into. `context`: unchanged lines around a change.
    """

    mode: Literal["working", "branch", "committed"]
    base: str | None = None
    context: Annotated[int, Field(ge=0)] | None = None


class InitQuery(BaseModel):
    """The kind of repository."""

    provider: str = "git"


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
async def branches(ctx: Ctx, query: BranchQuery) -> object:
    """Names of local branches, the last used first."""
    query_text = query.search.casefold()
    names = [name for name in await vcs.branch_names(ctx.directory) if query_text in name.casefold()]
    return await locate_answer(ctx, names[: query.limit])


@operation("vcs.diff")
async def diff(ctx: Ctx, query: DiffQuery) -> object:
    """Changed files with patches. A patch that is too large to show is empty. Raises 400 for an unknown base."""
    if query.mode == "working" and query.base is None:
        changes = await vcs.diff(ctx.directory, "git", query.context)
    else:
        changes = await vcs.compare(ctx.directory, query.base, query.context, committed=query.mode == "committed")
    return await locate_answer(ctx, [_row(change) | {"patch": change.patch or ""} for change in changes])


@operation("vcs.init")
async def init(ctx: Ctx, query: InitQuery) -> object:
    """Run `git init` in the directory. Raises 409 inside of a repository, 501 for another kind, 503 with git's error."""
    directory = await place(ctx)
    if query.provider != "git":
        raise VcsUnsupported(query.provider)
    if (await ctx.services.projects.identity(directory)).vcs is not None:
        raise ResourceConflict(f"{directory} is in a repository already.", directory)
    created = await ctx.services.projects.init_git(directory)
    ctx.services.host.publish(ProjectUpdated(created), EVERYWHERE, created.id)
    return NO_CONTENT


def _row(change: vcs.Change) -> VcsFileStatus:
    return {"file": change.file, "additions": change.additions, "deletions": change.deletions, "status": change.status}
