"""The decorator `@v1(...)`, which marks a handler of `/v1` and describes it for the API document."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal, TypeAlias, TypeVar

from aiohttp import web
from pydantic import BaseModel

from shim.faces.v1.errors import FACE
from shim.http import wire_json
from shim.http.operation import Ctx, Handler, extra
from shim.http.services import Universal
from shim.lib.errors import ShimError

HandlerT = TypeVar("HandlerT", bound=Handler)
Form: TypeAlias = Literal["json", "events", "bytes", "text", "none"]

_MARK = "__v1__"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An operation. `form`: the kind of its answer; `takes_bytes`: its body is not JSON."""

    id: str
    method: str
    path: str
    tag: str
    answer: Any
    form: Form
    status: int
    errors: tuple[int, ...]
    takes_bytes: bool

    @property
    def is_ours(self) -> bool:
        """Whether the document has it beside the contract."""
        return not self.path.startswith("/v1/") or "/x-" in self.path or self.path == "/v1/openapi.json"


def v1(
    method: str,
    path: str,
    *,
    tag: str,
    answer: type[BaseModel] | Any = None,
    form: Form = "json",
    errors: tuple[int, ...] = (),
    takes_bytes: bool = False,
) -> Callable[[HandlerT], HandlerT]:
    """Mark a handler of an operation, whose id is the handler's name. Its name in the table of routes is `v1.ID`."""
    status = 204 if form == "none" else 200

    def mark(handler: HandlerT) -> HandlerT:
        name = handler.__name__
        setattr(handler, _MARK, Endpoint(name, method, path, tag, answer, form, status, errors, takes_bytes))
        return extra(f"v1.{name}", method, path, streams=form == "events" and method == "GET", face=FACE)(handler)

    return mark


def endpoints(modules: Iterable[ModuleType]) -> list[tuple[Endpoint, Handler]]:
    """List all marked functions, in order."""
    marked: list[tuple[Endpoint, Handler]] = []
    for module in modules:
        for value in vars(module).values():
            endpoint = getattr(value, _MARK, None)
            if isinstance(endpoint, Endpoint) and value.__module__ == module.__name__:
                marked.append((endpoint, value))
    return marked


def universal(ctx: Ctx) -> Universal:
    """Return the services of this face."""
    services = ctx.services.universal
    if services is None:
        raise ShimError("This server was built without the universal API.")
    return services


def exactly(value: object, status: int = 200) -> web.Response:
    """Answer with exactly this JSON value: nulls and an agent's own values stay unchanged."""
    return as_json(wire_json.exact(value), status)


def as_json(body: bytes, status: int = 200) -> web.Response:
    """Answer with encoded JSON."""
    return web.Response(body=body, status=status, content_type="application/json")


def page(name: bytes, rows: Iterable[bytes], *, more: bool) -> web.Response:
    """Answer `{NAME: rows, "hasMore": more}` with rows of encoded JSON."""
    return as_json(b'{"%b":[%b],"hasMore":%b}' % (name, b",".join(rows), b"true" if more else b"false"))
