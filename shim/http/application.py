"""An aiohttp application from services and modules of handlers. The only place that puts routes and middlewares together."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable
from types import ModuleType

from aiohttp import web

from shim.errors import ApiError
from shim.http import dialect, middleware, problem, tagged
from shim.http.access import ACCESS, Access, gate
from shim.http.later import Later
from shim.http.observe import observe
from shim.http.operation import BODY_LIMIT_BYTES, SERVICES, BoundOperation, add_route, collect, register
from shim.opencode.decided import rows
from shim.opencode.operations import OPERATIONS, Operation
from shim.opencode.unsupported import Row
from shim.opencode2 import decided as decided2
from shim.opencode2.operations import OPERATIONS2, Operation2
from shim.services import Services


def application(
    services: Services,
    modules: Iterable[ModuleType] | Callable[[], Iterable[ModuleType]],
    *,
    early: Iterable[ModuleType] = (),
    unknown: middleware.Unknown | None = None,
    body_limit_bytes: int = BODY_LIMIT_BYTES,
) -> web.Application:
    """Serves what the modules' functions are marked with, and says of every other operation why it is not served.

    In: `modules`, or what imports them, which is done by the first request that `early` ones do not serve; `early` are among
    the modules. `unknown` is asked for paths that no route has (the web UI's files). Starting and stopping of services is the
    caller's, with `cleanup_ctx`.
    """
    app = web.Application(
        client_max_size=body_limit_bytes,
        middlewares=[
            observe,
            problem.problems,
            tagged.tags,
            middleware.request_log,
            middleware.errors,
            gate,
            middleware.preflight,
        ],
    )
    app[ACCESS] = Access.of(services.settings)
    if unknown is not None:
        app[middleware.UNKNOWN] = unknown
    app.on_response_prepare.append(middleware.add_headers)
    app[SERVICES] = services
    register(app, collect(early))

    def table() -> web.Application:
        bound = collect(modules() if callable(modules) else modules)
        found = web.Application()
        _routes(found, services, bound)
        if services.settings.base_path:
            below = web.Application()
            _routes(below, services, bound)
            found.add_subapp(services.settings.base_path, below)
        return found

    app.router.register_resource(Later(table))
    return app


def _routes(app: web.Application, services: Services, bound: list[BoundOperation]) -> None:
    app[SERVICES] = services
    second = [one for one in bound if one.wire == 2]
    taken = {_route_of(one.operation) for one in second}
    # 1.18 has a preview of some operations of the second wire, at the same paths: the second wire's handler is for both.
    first = [one for one in bound if one.wire == 1 and _route_of(one.operation) not in taken]
    register(app, first)
    aliases = dialect.register(app, second)
    taken |= {_route_of(one.operation) for one in first} | {_route_of(Operation2(*alias, "")) for alias in aliases}
    refused = [(name, OPERATIONS2[name], row) for name, row in decided2.rows({one.id for one in second}).items()]
    served = {one.id for one in bound if one.wire == 1}
    for name, operation, row in [*refused, *((name, OPERATIONS[name], row) for name, row in rows(served).items())]:
        if _route_of(operation) not in taken:
            taken.add(_route_of(operation))
            add_route(app, operation, _refusal(name, row))


def _route_of(row: Operation | Operation2) -> tuple[str, str]:
    """What aiohttp tells routes apart by: not the names of placeholders."""
    return row.method, re.sub(r"\{\w+\}", "{}", row.path)


def _refusal(name: str, row: Row) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def refuse(_request: web.Request) -> web.StreamResponse:
        message = f"{name} is not served by opencode-shim: {row.reason}"
        raise ApiError(row.status, "UnsupportedError", message, data={"operation": name})

    return refuse
