"""An aiohttp application from services and modules of handlers. The only place that puts routes and middlewares together."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from types import ModuleType

from aiohttp import web

from shim.errors import ApiError
from shim.http import middleware, problem
from shim.http.access import ACCESS, Access, gate
from shim.http.observe import observe
from shim.http.operation import BODY_LIMIT_BYTES, SERVICES, BoundOperation, add_route, collect, register
from shim.opencode.decided import rows
from shim.opencode.operations import OPERATIONS
from shim.opencode.unsupported import Row
from shim.services import Services


def application(
    services: Services,
    modules: Iterable[ModuleType],
    *,
    unknown: middleware.Unknown | None = None,
    body_limit_bytes: int = BODY_LIMIT_BYTES,
) -> web.Application:
    """Serves what the modules' functions are marked with, and says of every other operation why it is not served.

    In: `unknown` is asked for paths that no route has (the web UI's files). Starting and stopping of services is the
    caller's, with `cleanup_ctx`.
    """
    app = web.Application(
        client_max_size=body_limit_bytes,
        middlewares=[observe, problem.problems, middleware.request_log, middleware.errors, gate, middleware.preflight],
    )
    app[ACCESS] = Access.of(services.settings)
    if unknown is not None:
        app[middleware.UNKNOWN] = unknown
    app.on_response_prepare.append(middleware.add_headers)
    bound = collect(modules)
    _routes(app, services, bound)
    if services.settings.base_path:
        below = web.Application(client_max_size=body_limit_bytes)
        _routes(below, services, bound)
        app.add_subapp(services.settings.base_path, below)
    return app


def _routes(app: web.Application, services: Services, bound: list[BoundOperation]) -> None:
    app[SERVICES] = services
    register(app, bound)
    for name, row in rows({one.id for one in bound}).items():
        add_route(app, OPERATIONS[name], _refusal(name, row))


def _refusal(name: str, row: Row) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def refuse(_request: web.Request) -> web.StreamResponse:
        message = f"{name} is not served by opencode-shim: {row.reason}"
        raise ApiError(row.status, "UnsupportedError", message, data={"operation": name})

    return refuse
