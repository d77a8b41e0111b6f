"""Routes of permissions: open requests, their answers, and grants of `always`.

`always` lasts as in OpenCode 1: until the server ends, for the session's directory (`shim.sessions.permissions.grants`).
Source: recordings `permission_*` of v2-20260717.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shim.faces.opencode2 import read
from shim.faces.opencode2._generated import requests
from shim.faces.opencode2.endpoint import operation
from shim.faces.opencode2.errors import GrantNotFound
from shim.faces.opencode2.names import ACTIONS
from shim.faces.opencode2.routes.location_answer import locate_answer
from shim.faces.opencode2.routes.sessions import PERMISSIONS, SessionPath, need
from shim.http.operation import Ctx
from shim.lib.errors import Conflict, PermissionNotFound
from shim.sessions.permissions.grants import Grant
from universal.permissions import Access

if TYPE_CHECKING:
    from shim.faces.opencode2._generated import types


@operation("permission.request.list")
async def of_location(ctx: Ctx) -> object:
    """Open permission requests of the directory."""
    await ctx.services.sessions.others.read_requests()
    groups = [read.permissions(await ctx.services.sessions.session(id_)) for id_ in _sessions_with_requests(ctx)]
    return await locate_answer(ctx, [wire for some in groups for wire in some])


def _sessions_with_requests(ctx: Ctx) -> list[str]:
    requests = ctx.services.sessions.requests.permissions(ctx.directory)
    return list(dict.fromkeys(session.id for session, _ in requests))


@operation("session.permission.list")
async def listing(ctx: Ctx, path: SessionPath) -> object:
    """Open permission requests of the session, oldest first."""
    return {"data": read.permissions(await ctx.services.sessions.session(path.sessionID))}


@operation("session.permission.get")
async def get(ctx: Ctx, path: requests.RequestPath) -> object:
    """One open permission request."""
    session = await ctx.services.sessions.session(path.sessionID)
    request = session.permissions.get(path.requestID)
    if request is None:
        raise PermissionNotFound(path.requestID)
    return {"data": read.permission(request, session)}


@operation("session.permission.reply")
async def reply(ctx: Ctx, path: requests.RequestPath, body: requests.PermissionReplyBody) -> None:
    """Answer a request; 404 if it is unknown or was answered already. A rejection rejects all open requests of the session."""
    need(ctx, path.sessionID)
    ctx.services.sessions.requests.reply_permission(path.requestID, body.decision, body.message)


@operation("session.permission.create")
async def create(ctx: Ctx, path: SessionPath, body: requests.PermissionCreateBody) -> object:
    """Check a call against the rules: allow, deny or ask. No person is asked; only the session's agent does that."""
    await ctx.services.config.fresh(need(ctx, path.sessionID).directory)
    policy = ctx.services.sessions.policy(await ctx.services.sessions.state(path.sessionID))
    effect = policy.action(Access(PERMISSIONS.get(body.action, body.action), tuple(body.resources))) or "ask"
    return {"data": {"id": body.id or ctx.services.ids.new("permission"), "effect": effect}}


@operation("permission.saved.list")
async def list_saved_info(ctx: Ctx, query: requests.SavedQuery) -> object:
    """The grants of `always`."""
    grants = [await _saved_info(ctx, grant) for grant in ctx.services.sessions.grants.list_grants()]
    return {"data": [info for info in grants if query.projectID in (None, info["projectID"])]}


async def _saved_info(ctx: Ctx, grant: Grant) -> types.PermissionSavedInfo:
    project = await ctx.services.projects.identity(grant.directory)
    return {
        "id": grant.id,
        "projectID": project.id,
        "action": ACTIONS.get(grant.permission, grant.permission),
        "resource": grant.pattern,
        "time": {"created": grant.at_ms, "updated": grant.updated_ms or grant.at_ms},
    }


@operation("permission.saved.update")
async def change(ctx: Ctx, path: requests.SavedPath, body: requests.SavedBody) -> object:
    """Change the action or resource of a grant. An agent that remembers the old grant itself does not learn of it."""
    permission = None if body.action is None else PERMISSIONS.get(body.action, body.action)
    try:
        grant = ctx.services.sessions.grants.change(path.id, permission, body.resource)
    except KeyError as error:
        raise GrantNotFound(path.id) from error
    except ValueError as error:
        message = "The project has a saved permission with this action and resource already: remove one of the two."
        raise Conflict(message) from error
    return {"data": await _saved_info(ctx, grant)}


@operation("permission.saved.remove")
async def remove(ctx: Ctx, path: requests.SavedPath) -> None:
    """Remove a grant. An agent that remembers it itself may still not ask. Succeeds also if there is none."""
    ctx.services.sessions.grants.revoke(path.id)
