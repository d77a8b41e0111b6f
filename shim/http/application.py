"""Builds an aiohttp application from services and handler modules, with its middlewares. Routes: `shim.routes`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from types import ModuleType

from aiohttp import web, web_response

from shim.http import middleware
from shim.http.access import ACCESS, Access, gate
from shim.http.faces import FACES, Faces
from shim.http.forward import forward
from shim.http.lazy_routes import LazyRoutes
from shim.http.observe import observe
from shim.http.operation import BODY_LIMIT_BYTES, SERVICES, collect, register
from shim.http.relay import NoRelay
from shim.http.services import Services

SERVER_NAME = "opencode-shim"
"""The Server header of answers. It has no version, which would help attackers."""
# aiohttp also uses this in answers to invalid HTTP, which pass no middleware and no signal.
web_response.SERVER_SOFTWARE = SERVER_NAME  # pyright: ignore[reportPrivateImportUsage] - there is no setting for it


def application(
    services: Services,
    faces: Faces,
    load: Callable[[], Awaitable[web.Application]],
    *,
    early: Iterable[ModuleType] = (),
    unknown: middleware.Unknown | None = None,
    body_limit_bytes: int = BODY_LIMIT_BYTES,
) -> web.Application:
    """Build an application with everything between a request and its handler.

    In: `faces`, which render errors; `load`, which builds the table of routes at the first request that the `early` modules do
    not serve; `unknown`, which answers paths without a route (the web UI's files). The caller starts and stops the services
    with `cleanup_ctx`.
    """
    app = web.Application(
        client_max_size=body_limit_bytes,
        # From the outside in. What is refused is measured, logged and rendered too, so these three stand around the gate.
        # Nothing is read of a request before the gate, and another server of a cluster answers only what has passed it.
        middlewares=[
            observe,
            middleware.request_log,
            middleware.errors,
            gate,
            middleware.preflight,
            forward,
        ],
    )
    app[ACCESS] = Access.of(services.settings, services.clock)
    services.relay = NoRelay()
    if unknown is not None:
        app[middleware.UNKNOWN] = unknown
    app.on_response_prepare.append(middleware.add_headers)
    app[SERVICES], app[FACES] = services, faces
    register(app, collect(early))
    app.router.register_resource(LazyRoutes(load))
    return app
