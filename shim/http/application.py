"""An aiohttp application from services and modules of handlers, with its middlewares. Its routes: `shim.routes`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import ModuleType

from aiohttp import web, web_response

from shim.http import middleware
from shim.http.access import ACCESS, Access, gate
from shim.http.faces import FACES, Faces
from shim.http.later import Later
from shim.http.observe import observe
from shim.http.operation import BODY_LIMIT_BYTES, SERVICES, collect, register
from shim.services import Services

SERVER_NAME = "opencode-shim"
"""What answers say of their server: no versions, which would tell what it can be attacked with."""
# Also for the answers to bytes that are no HTTP, which pass no middleware and no signal.
web_response.SERVER_SOFTWARE = SERVER_NAME  # pyright: ignore[reportPrivateImportUsage] - there is no setting for it


def application(
    services: Services,
    faces: Faces,
    load: Callable[[], web.Application],
    *,
    early: Iterable[ModuleType] = (),
    unknown: middleware.Unknown | None = None,
    body_limit_bytes: int = BODY_LIMIT_BYTES,
) -> web.Application:
    """An application with all that stands between a request and its handler.

    In: `faces`, which say errors; `load`, which makes the table of routes, called by the first request that the handlers of the
    `early` modules do not serve. `unknown` is asked for paths that no route has (the web UI's files). Starting and stopping of
    services is the caller's, with `cleanup_ctx`.
    """
    app = web.Application(
        client_max_size=body_limit_bytes,
        middlewares=[
            observe,
            middleware.request_log,
            middleware.errors,
            gate,
            middleware.preflight,
        ],
    )
    app[ACCESS] = Access.of(services.settings, services.clock)
    if unknown is not None:
        app[middleware.UNKNOWN] = unknown
    app.on_response_prepare.append(middleware.add_headers)
    app[SERVICES], app[FACES] = services, faces
    register(app, collect(early))
    app.router.register_resource(Later(load))
    return app
