"""Imports route handlers at the first request for one of them, so that the server starts faster.

One resource at `/` stands for all these routes. aiohttp tries it last, because it tries longer paths first.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Any, NoReturn

from aiohttp import web
from aiohttp.web_urldispatcher import AbstractResource, AbstractRoute, SystemRoute, UrlMappingMatchInfo

from shim.lib.errors import ShimError
from shim.lib.lazy import Lazy


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
        """The routes that are loaded."""
        return iter(()) if self._table.value is None else iter(self._table.value.router.routes())

    def get_info(self) -> Any:
        return {"path": "/"}

    def raw_match(self, path: str) -> bool:
        return False

    def add_prefix(self, prefix: str) -> NoReturn:
        raise RuntimeError("Lazily loaded routes are at the root. Add the prefix in `load`.")

    def url_for(self, **_kwargs: str) -> NoReturn:
        raise RuntimeError("Lazily loaded routes have no names. Build the URL from its path.")
