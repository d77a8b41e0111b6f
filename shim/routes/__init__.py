"""Collects the handlers of all faces into one application. `shim.http.application` imports them at the first request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from types import ModuleType

from aiohttp import web

from shim.faces.opencode1 import endpoint as opencode1
from shim.faces.opencode1 import health
from shim.faces.opencode2 import errors as opencode2
from shim.faces.v1 import errors as v1
from shim.http import application as http
from shim.http.faces import Faces
from shim.http.middleware import Unknown
from shim.http.operation import BODY_LIMIT_BYTES
from shim.http.services import Services

FACES = Faces(opencode1.FACE, (opencode2.FACE, v1.FACE))

EARLY: tuple[ModuleType, ...] = (health,)
"""Modules whose handlers exist from the start, so they must not import large modules."""


def modules() -> tuple[ModuleType, ...]:
    """Import all modules of all faces, which takes longer than the rest of the start. Blocking."""
    from shim.faces.acp.routes import MODULES as ACP
    from shim.faces.opencode1.routes import MODULES as OPENCODE1
    from shim.faces.opencode2.routes import MODULES as OPENCODE2
    from shim.faces.v1.routes import MODULES as V1
    from shim.routes import inspector_api, reply_page

    return (*OPENCODE1, *OPENCODE2, *V1, *ACP, inspector_api, reply_page)


def application(
    services: Services,
    modules: Iterable[ModuleType] | Callable[[], Awaitable[Iterable[ModuleType]]],
    *,
    early: Iterable[ModuleType] = (),
    unknown: Unknown | None = None,
    body_limit_bytes: int = BODY_LIMIT_BYTES,
) -> web.Application:
    """Build an application that serves the modules' marked functions, and refuses all other operations with a reason.

    In: `modules`, or a function that imports them and completes the services. The first request calls it that `early` modules do
    not serve. `early` is a subset of the modules. Otherwise as `shim.http.application.application`.
    """

    async def load() -> web.Application:
        from shim.routes.table import table_of  # late: a start needs neither the dialects nor the reasons of refusals

        return table_of(services, FACES, tuple(await modules() if callable(modules) else modules))

    return http.application(services, FACES, load, early=early, unknown=unknown, body_limit_bytes=body_limit_bytes)
