"""Operations on the whole server: its end, document and log, and constant answers. Source: recordings `endpoints`, `dispose`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from importlib import resources

import structlog
from aiohttp import web

from shim.faces.opencode1._generated import requests
from shim.faces.opencode1.endpoint import extra, operation
from shim.host.changes import EVERYWHERE, AllDisposed, DirectoryDisposed
from shim.http.operation import Ctx, Handler


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


# --- answers that are always the same --------------------------------------------------------------------

ANSWERS: Mapping[str, object] = {
    "lsp.status": [],
    "experimental.resource.list": {},
    "experimental.console.get": {"consoleManagedProviders": [], "switchableOrgCount": 0},
    "experimental.console.listOrgs": {"orgs": []},
    "experimental.capabilities.get": {"backgroundSubagents": False},
    "experimental.session.background": False,
    "experimental.workspace.list": [],
    "experimental.workspace.status": [],
    "experimental.workspace.syncList": None,
    "sync.start": True,
    "tui.control.response": True,
}
"""Operation -> its answer, as this server has no such thing. `unsupported_operations.CONSTANT` has the reasons."""


def _handler(answer: object) -> Handler:
    async def answer_always(ctx: Ctx) -> object:
        return answer

    return answer_always


HANDLERS = tuple(operation(name)(_handler(answer)) for name, answer in ANSWERS.items())
