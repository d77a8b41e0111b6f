"""Builds an aiohttp application from services and handler modules, with its middlewares. Routes: `shim.routes`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from types import ModuleType
from typing import Any, NoReturn

from aiohttp import web, web_response
from aiohttp.web_urldispatcher import AbstractResource, AbstractRoute, SystemRoute, UrlMappingMatchInfo

from shim.http import middleware
from shim.http.access import ACCESS, Access, gate
from shim.http.faces import FACES, Faces
from shim.http.forward import forward
from shim.http.operation import BODY_LIMIT_BYTES, SERVICES, collect, register
from shim.http.services import Relay, Services
from shim.lib.errors import ShimError
from shim.lib.tasks import Lazy

# --- late handlers ----------------------------------------------------------------------------------------------


class _Failure(SystemRoute):
    """The route of a request for which the routes could not be loaded. It raises the error."""

    def __init__(self, error: ShimError) -> None:
        super().__init__(web.HTTPServiceUnavailable())
        self._error = error

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        raise self._error


class LazyRoutes(AbstractResource):
    """A resource that finds routes in a lazily loaded application. The application that holds it serves the requests.

    In: `load`, called once, by the first request that no other resource serves. If it raises, that request is answered with its
    error, and the next one tries again.
    """

    def __init__(self, load: Callable[[], Awaitable[web.Application]]) -> None:
        super().__init__()
        self._table = Lazy(load)

    @property
    def canonical(self) -> str:
        return "/"

    async def resolve(self, request: web.Request) -> tuple[UrlMappingMatchInfo | None, set[str]]:
        """Implement aiohttp's resource interface: return the match, or the allowed methods of this path."""
        try:
            table = await self._table.get()
        except ShimError as error:  # the middlewares make the answer
            return UrlMappingMatchInfo({}, _Failure(error)), set()
        match = await table.router.resolve(request)
        error = match.http_exception
        if error is None:
            return match, set()
        return None, error.allowed_methods if isinstance(error, web.HTTPMethodNotAllowed) else set()

    def __len__(self) -> int:
        return len(tuple(iter(self)))

    def __iter__(self) -> Iterator[AbstractRoute]:
        return iter(()) if self._table.value is None else iter(self._table.value.router.routes())

    def get_info(self) -> Any:
        return {"path": "/"}

    def raw_match(self, path: str) -> bool:
        return False

    def add_prefix(self, prefix: str) -> NoReturn:
        raise RuntimeError("Lazily loaded routes are at the root. Add the prefix in `load`.")

    def url_for(self, **_kwargs: str) -> NoReturn:
        raise RuntimeError("Lazily loaded routes have no names. Build the URL from its path.")


# --- the application --------------------------------------------------------------------------------------------

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
        # From the outside in. What is refused is measured and rendered too, so these two stand around the gate.
        # Nothing is read of a request before the gate, and another server of a cluster answers only what has passed it.
        middlewares=[middleware.observe, middleware.errors, gate, middleware.preflight, forward],
    )
    app[ACCESS] = Access.of(services.settings, services.clock)
    services.relay = Relay()
    if unknown is not None:
        app[middleware.UNKNOWN] = unknown
    app.on_response_prepare.append(middleware.add_headers)
    app[SERVICES], app[FACES] = services, faces
    register(app, collect(early))
    app.router.register_resource(LazyRoutes(load))
    return app
