"""Routes whose handlers are imported when the first request asks for one of them: a start loads what a start needs.

One resource at `/` stands for all of them. aiohttp asks it last, since its own lookup goes from the longest path to the shortest.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from aiohttp import web
from aiohttp.web_urldispatcher import AbstractResource, AbstractRoute, UrlMappingMatchInfo


class Later(AbstractResource):
    """What `load` gives is only looked up in: requests are served by the application that this resource is added to.

    In: `load`, called once, by the first request that no other resource takes. What it raises is that request's error, and
    the next one tries again.
    """

    def __init__(self, load: Callable[[], web.Application]) -> None:
        super().__init__()
        self._load = load
        self._table: web.Application | None = None

    @property
    def table(self) -> web.Application:
        """The routes; loaded now if they are not yet."""
        if self._table is None:
            with _resting():
                self._table = self._load()
        return self._table

    @property
    def loaded(self) -> bool:
        """Whether a request has needed them."""
        return self._table is not None

    @property
    def canonical(self) -> str:
        return "/"

    async def resolve(self, request: web.Request) -> tuple[UrlMappingMatchInfo | None, set[str]]:
        """As every resource of aiohttp: the match, or the methods that this path has."""
        found = await self.table.router.resolve(request)
        wrong = found.http_exception
        if wrong is None:
            return found, set()
        return None, wrong.allowed_methods if isinstance(wrong, web.HTTPMethodNotAllowed) else set()

    def __len__(self) -> int:
        return len(self.table.router.routes())

    def __iter__(self) -> Iterator[AbstractRoute]:
        return iter(self.table.router.routes())

    def get_info(self) -> Any:
        return {"path": "/"}

    def raw_match(self, path: str) -> bool:
        return False

    def add_prefix(self, prefix: str) -> NoReturn:
        raise RuntimeError("Routes that are loaded later stand at the root; `load` adds its own prefix.")

    def url_for(self, **_kwargs: str) -> NoReturn:
        raise RuntimeError("Routes that are loaded later have no names.")


@contextmanager
def _resting() -> Generator[None]:
    """The collector of cycles looks through nothing that is imported, neither now nor later: it is here to stay."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.freeze()
            gc.enable()
