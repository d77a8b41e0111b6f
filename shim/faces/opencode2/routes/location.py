"""Routes of directories (`shim.host.git.projects`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shim.faces.opencode2.endpoint import operation
from shim.faces.opencode2.routes.location_answer import place, publish_changes
from shim.host.changes import EVERYWHERE, AllDisposed
from shim.http.instance import end_instance
from shim.http.operation import NO_CONTENT, Ctx

if TYPE_CHECKING:
    from shim.faces.opencode2._generated.host_types import LocationPublicInfo


@operation("location.get")
async def get(ctx: Ctx) -> object:
    """The directory and its project. `canonical` is the working tree of the project that was opened first."""
    directory = await place(ctx)
    project = await ctx.services.projects.identity(directory)
    ctx.services.watchers.visit(directory, project.id)
    canonical = (await ctx.services.projects.current(directory)).worktree
    info: LocationPublicInfo = {
        "directory": directory,
        "project": {"id": project.id, "directory": project.worktree, "canonical": canonical},
    }
    return info


@operation("location.reload")
async def reload(ctx: Ctx) -> object:
    """Ask the agents again for their models and commands, and make clients read everything again.

    Configuration files are read at each use anyway. Turns, open permissions and forms go on; OpenCode cancels the last two.
    """
    for agent in ctx.services.agents.list_agents():
        await ctx.services.agents.refresh(agent.spec.name)
    ctx.services.host.publish(AllDisposed(), EVERYWHERE)
    publish_changes(ctx, "location.shutdown")
    return NO_CONTENT


@operation("debug.location.list")
async def listing(ctx: Ctx) -> object:
    """Directories with a running turn or an open terminal."""
    busy = [entry.record.directory for entry in ctx.services.sessions.index.busy()]
    return [{"directory": directory} for directory in dict.fromkeys([*busy, *ctx.services.terminals.directories()])]


@operation("debug.location.evict")
async def evict(ctx: Ctx) -> object:
    """End the directory's turns, agents and terminals. Its sessions stay."""
    await end_instance(ctx, ctx.directory)
    return NO_CONTENT
