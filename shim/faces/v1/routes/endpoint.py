"""`@v1(...)`: what a function of `/v1` serves, and what the document says of it. The route itself is as on the other face."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal, TypeAlias, TypeVar

from aiohttp import web
from pydantic import BaseModel

from shim.errors import ShimError
from shim.faces.v1.face import FACE
from shim.http import wire_json
from shim.http.operation import Ctx, Handler, extra
from shim.services import Universal

HandlerT = TypeVar("HandlerT", bound=Handler)
Form: TypeAlias = Literal["json", "events", "bytes", "text", "none"]

_MARK = "__v1__"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One operation. `form`: what it answers with; `takes_bytes`: its body is not JSON; `ours`: not in the peers' document."""

    id: str
    method: str
    path: str
    tag: str
    answer: Any
    form: Form
    status: int
    errors: tuple[int, ...]
    takes_bytes: bool
    ours: bool


def v1(
    id_: str,
    method: str,
    path: str,
    *,
    tag: str,
    answer: type[BaseModel] | Any = None,
    form: Form = "json",
    errors: tuple[int, ...] = (),
    takes_bytes: bool = False,
    ours: bool = False,
) -> Callable[[HandlerT], HandlerT]:
    """The function serves this operation. Its name on the table of routes is `v1.ID`."""
    status = 204 if form == "none" else 200
    endpoint = Endpoint(id_, method, path, tag, answer, form, status, errors, takes_bytes, ours)

    def mark(handler: HandlerT) -> HandlerT:
        setattr(handler, _MARK, endpoint)
        return extra(f"v1.{id_}", method, path, streams=form == "events" and method == "GET", face=FACE)(handler)

    return mark


def endpoints(modules: Iterable[ModuleType]) -> list[tuple[Endpoint, Handler]]:
    """All marked functions, in order."""
    found: list[tuple[Endpoint, Handler]] = []
    for module in modules:
        for value in vars(module).values():
            endpoint = getattr(value, _MARK, None)
            if isinstance(endpoint, Endpoint) and value.__module__ == module.__name__:
                found.append((endpoint, value))
    return found


def universal(ctx: Ctx) -> Universal:
    """The services of this face."""
    found = ctx.services.universal
    if found is None:
        raise ShimError("This server was built without the universal API.")
    return found


def exactly(value: object, status: int = 200) -> web.Response:
    """A JSON answer in which nothing is left out or changed: nulls stay, and so does whatever an agent has sent."""
    return as_json(wire_json.exact(value), status)


def as_json(body: bytes, status: int = 200) -> web.Response:
    """A JSON answer that is made already."""
    return web.Response(body=body, status=status, content_type="application/json")


def page(name: bytes, rows: Iterable[bytes], *, more: bool) -> web.Response:
    """`{NAME: rows, "hasMore": more}` of rows that are JSON already."""
    return as_json(b'{"%b":[%b],"hasMore":%b}' % (name, b",".join(rows), b"true" if more else b"false"))
