"""Builds the table of all routes: served operations, their dialects, and operations that are refused with a reason."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from functools import lru_cache
from types import ModuleType

from aiohttp import web

from shim.faces.mcp import protocol as mcp
from shim.faces.opencode1._generated.operations import OPERATIONS
from shim.faces.opencode1.unsupported_operations import TABLE
from shim.faces.opencode2 import negotiation
from shim.faces.opencode2 import unsupported_operations as opencode2_status
from shim.faces.opencode2._generated.operations import OPERATIONS as OPENCODE2_OPERATIONS
from shim.faces.opencode2.dialects import DIALECTS
from shim.faces.opencode2.errors import FACE as OPENCODE2
from shim.http.faces import FACES, Faces
from shim.http.operation import SERVICES, add_route, collect, register
from shim.http.operations import OpenCode2Operation, Operation, Row
from shim.http.services import Services
from shim.lib.errors import UnsupportedOperation

SHARED_TABLES = 8
"""Tables kept for further applications of this process. A table takes 10 ms, so that tests with hundreds of servers need it."""


def table_of(services: Services, faces: Faces, modules: tuple[ModuleType, ...]) -> web.Application:
    """An application to look routes up in (see `LazyRoutes`); they stand below the base path too, if there is one."""
    base_path = services.settings.base_path
    if not base_path:
        return _shared_table(faces, modules)
    table, below = _new_table(faces, modules), _new_table(faces, modules)
    below[SERVICES], below[FACES] = services, faces  # aiohttp gives its requests this application, not the outer one
    table.add_subapp(base_path, below)
    return table


@lru_cache(maxsize=SHARED_TABLES)
def _shared_table(faces: Faces, modules: tuple[ModuleType, ...]) -> web.Application:
    """The routes at the root. A handler finds the services in its request, so all applications of a process share the table."""
    return _new_table(faces, modules)


def _new_table(faces: Faces, modules: tuple[ModuleType, ...]) -> web.Application:
    app, bound = web.Application(), collect(modules)
    opencode2 = [operation for operation in bound if operation.wire == 2]
    used_routes = {_route_of(operation.operation) for operation in opencode2}
    # 1.18 has a preview of some operations of OpenCode 2 at the same paths: OpenCode 2's handler serves both.
    opencode1 = [operation for operation in bound if operation.wire == 1 and _route_of(operation.operation) not in used_routes]
    mcp.register(app)
    register(app, opencode1)
    aliases = negotiation.register(app, opencode2)
    used_routes |= {_route_of(operation.operation) for operation in opencode1}
    used_routes |= {_route_of(OpenCode2Operation(*alias, "")) for alias in aliases}
    reasons = opencode2_status.TABLE.rows({operation.id for operation in opencode2})
    refused = [(name, OPENCODE2_OPERATIONS[name], row) for name, row in reasons.items()]
    places = {(alias.operation, alias.method, alias.path) for dialect in DIALECTS.values() for alias in dialect.aliases}
    refused += [
        (name, OpenCode2Operation(method, path, ""), reasons[name]) for name, method, path in sorted(places) if name in reasons
    ]
    served = {operation.id for operation in bound if operation.wire == 1}
    for name, operation, row in [*refused, *((name, OPERATIONS[name], row) for name, row in TABLE.rows(served).items())]:
        if _route_of(operation) not in used_routes:
            used_routes.add(_route_of(operation))
            face = OPENCODE2 if isinstance(operation, OpenCode2Operation) else faces.owner_of(operation.path)
            add_route(app, operation, _refusal(name, row), face)
    return app


def _route_of(row: Operation | OpenCode2Operation) -> tuple[str, str]:
    """Return the key of a route. As in aiohttp, the names of placeholders do not matter."""
    return row.method, re.sub(r"\{\w+\}", "{}", row.path)


def _refusal(name: str, row: Row) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def refuse(_request: web.Request) -> web.StreamResponse:
        raise UnsupportedOperation(name, row.reason)

    return refuse
