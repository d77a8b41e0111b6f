"""What is served: one package for each face, one module for each subject. See `shim.http.later` for when they are imported."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import ModuleType

from aiohttp import web

from shim.faces.opencode1 import endpoint as opencode1
from shim.faces.opencode1 import health
from shim.faces.opencode2 import endpoint as opencode2
from shim.faces.v1 import face as v1
from shim.http import application as http
from shim.http.faces import Faces
from shim.http.middleware import Unknown
from shim.http.operation import BODY_LIMIT_BYTES, collect
from shim.services import Services

FACES = Faces(opencode1.FACE, (opencode2.FACE, v1.FACE))

EARLY: tuple[ModuleType, ...] = (health,)
"""Their handlers are there from the start, so they import nothing that is large."""


def modules() -> tuple[ModuleType, ...]:
    """All modules of all faces; importing them takes longer than the rest of a start."""
    from shim.faces.opencode1.routes import MODULES as OPENCODE1
    from shim.faces.opencode2.routes import MODULES as OPENCODE2
    from shim.faces.v1.routes import MODULES as V1
    from shim.routes import inspector, inspector_api

    return (*OPENCODE1, *OPENCODE2, *V1, inspector_api, inspector)


def application(
    services: Services,
    modules: Iterable[ModuleType] | Callable[[], Iterable[ModuleType]],
    *,
    early: Iterable[ModuleType] = (),
    unknown: Unknown | None = None,
    body_limit_bytes: int = BODY_LIMIT_BYTES,
) -> web.Application:
    """Serves what the modules' functions are marked with, and says of every other operation why it is not served.

    In: `modules`, or what imports them, which is done by the first request that `early` ones do not serve; `early` are among
    the modules. Otherwise as `shim.http.application.application`.
    """

    def load() -> web.Application:
        from shim.routes.table import table_of  # late: a start needs neither the dialects nor the reasons of refusals

        return table_of(services, FACES, collect(modules() if callable(modules) else modules))

    return http.application(services, FACES, load, early=early, unknown=unknown, body_limit_bytes=body_limit_bytes)
