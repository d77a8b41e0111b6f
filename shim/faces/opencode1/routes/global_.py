"""Operations on the whole server: its end, document and log, and experiments. Source: recordings `endpoints`, `dispose`."""

from __future__ import annotations

import asyncio
from importlib import resources

import structlog
from aiohttp import web

from shim.faces.opencode1._generated import requests
from shim.faces.opencode1.endpoint import extra, operation
from shim.host.changes import EVERYWHERE, AllDisposed, DirectoryDisposed
from shim.http.operation import Ctx


@operation("global.dispose")
async def dispose(ctx: Ctx) -> object:
    """End all turns, agents, terminals and `/event` streams. Sessions stay, and agents restart on demand."""
    services = ctx.services
    directories = {record.directory for record in services.sessions.index.records()} | {
        *services.watchers.watched_directories(),
        ctx.directory,
    }
    await services.sessions.dispose(None)
    await services.terminals.dispose(None)
    for directory in sorted(directories):
        await services.watchers.forget(directory)
        services.projects.forget(directory)
        services.host.publish(DirectoryDisposed(directory), directory)
        services.hub.end(directory)
    services.host.publish(AllDisposed(), EVERYWHERE)
    return True


# --- the document ----------------------------------------------------------------------------------------


@extra("server.doc", "GET", "/doc")
async def document(ctx: Ctx) -> web.Response:
    """Return the OpenAPI 3.1 document of the package."""
    body = await asyncio.to_thread(resources.files("shim.faces.opencode1").joinpath("openapi.json").read_bytes)
    response = web.Response(body=body, content_type="application/json")
    response.enable_compression()
    return response


# --- entries of clients ----------------------------------------------------------------------------------

log = structlog.get_logger(__name__)

LEVELS: dict[str, str] = {"debug": "debug", "info": "info", "warn": "warning", "error": "error"}
MESSAGE_LENGTH = 10_000


@operation("app.log")
async def write(ctx: Ctx, body: requests.LogBody) -> object:
    """Log an entry as `client.log`. The client's fields are nested, so that they cannot pass for ours."""
    getattr(log, LEVELS[body.level])(
        "client.log", service=body.service[:MESSAGE_LENGTH], message=body.message[:MESSAGE_LENGTH], extra=body.extra or {}
    )
    return True


# --- experiments -----------------------------------------------------------------------------------------


@operation("experimental.capabilities.get")
async def capabilities(ctx: Ctx) -> object:
    """Report that a client cannot send subagents to the background."""
    return {"backgroundSubagents": False}


@operation("experimental.console.get")
async def console(ctx: Ctx) -> object:
    """Report that there is no account."""
    return {"consoleManagedProviders": [], "switchableOrgCount": 0}


@operation("experimental.console.listOrgs")
async def organisations(ctx: Ctx) -> object:
    """Report no organisations, as there is no account."""
    return {"orgs": []}


@operation("experimental.session.background")
async def background(ctx: Ctx) -> object:
    """Report that no subagent was sent to the background, because each agent decides that itself."""
    return False
