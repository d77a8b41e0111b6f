"""Handlers and the wire: `@operation("session.fork")` names what a function serves; here is all that stands between.

    @operation("session.fork")
    async def fork(ctx: Ctx, path: SessionPath, body: ForkBody | None) -> object: ...

The decorators are those of the faces (`shim/faces/*/endpoint.py`); an id is that of one wire, both have a `session.list`.
Parameters are known by name. `path`, `query` and `body` are annotated with pydantic models; `body: Model | None` may be
missing (not `null`), and a required one that is missing is read as `{}`. Method and path come from the generated table of
operations. The answer is a model, dict, list or scalar (200 JSON), `NO_CONTENT` (204), or a finished response (streams, texts).

The decorators only write a mark onto the function: `collect` reads the marks of modules, `register` adds routes to an app.
Bodies may also be unions and plain types. Annotations are evaluated, so a handler's module imports what it annotates at run time.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from types import ModuleType, NoneType
from typing import Any, Literal, TypeAlias, TypeVar, Union, cast, get_args, get_type_hints

from aiohttp import web
from pydantic import AfterValidator, TypeAdapter, ValidationError
from pydantic_core import PydanticCustomError

from shim.complaints import fault
from shim.errors import InvalidRequest, Location, SessionNotFound
from shim.host.roots import require
from shim.http import limits, wire_json
from shim.http.directory import resolve
from shim.http.faces import Face, belongs_to
from shim.ids import ID_FORM, is_id
from shim.operations import AskedField, Operation, Operation2
from shim.services import Services

BODY_LIMIT_BYTES = 64 * 2**20
"""Of a request. Prompts hold images as data URLs; 64 MiB are some forty photographs."""
COMPRESS_ABOVE_BYTES = 16 * 2**10
"""Larger answers are compressed for clients that take it, as native does; below, loopback is faster without."""

SERVICES: web.AppKey[Services] = web.AppKey("services", Services)
_MARK = "__operation__"

Handler: TypeAlias = Callable[..., Awaitable[object]]
Wire: TypeAlias = Literal[1, 2]
"""The generation of the wire that an operation is of; extra routes count as 1."""
HandlerT = TypeVar("HandlerT", bound=Handler)


class _Empty(Enum):
    NO_CONTENT = 204
    MISSING = 0


NO_CONTENT = _Empty.NO_CONTENT
"""The answer of a handler that has none: 204 with an empty body."""
MISSING = _Empty.MISSING
"""The body of a request that has none."""


@dataclass(frozen=True, slots=True)
class Ctx:
    """What a handler knows of its request. `directory`: absolute, without a `/` at its end; it need not exist."""

    request: web.Request
    services: Services
    directory: str


@dataclass(frozen=True, slots=True)
class BoundOperation:
    """A handler with what it takes: a validator for each parameter that it has."""

    id: str
    operation: Operation | Operation2
    face: Face
    handler: Handler
    path: TypeAdapter[Any] | None
    query: TypeAdapter[Any] | None
    body: TypeAdapter[Any] | None
    body_optional: bool

    @property
    def wire(self) -> Wire:
        return 2 if isinstance(self.operation, Operation2) else 1


# --- marks -------------------------------------------------------------------------------------------


def extra(operation_id: str, method: str, path: str, *, face: Face, streams: bool = False) -> Callable[[HandlerT], HandlerT]:
    """The function serves a route that no document has, and that clients ask for."""
    return mark(operation_id, Operation(method, path, "extra", streams), face)


def mark(operation_id: str, row: Operation | Operation2, face: Face) -> Callable[[HandlerT], HandlerT]:
    """The function serves this operation; `face` says its errors. Each face has decorators of its own that call this."""

    def mark(handler: HandlerT) -> HandlerT:
        setattr(handler, _MARK, (operation_id, row, face))
        return handler

    return mark


def collect(modules: Iterable[ModuleType]) -> list[BoundOperation]:
    """All marked functions of the modules. Raises ValueError if two serve the same operation."""
    bound: dict[tuple[Wire, str], BoundOperation] = {}
    for module in modules:
        for value in vars(module).values():
            mark = getattr(value, _MARK, None) if inspect.isfunction(value) else None
            if mark is None or value.__module__ != module.__name__:
                continue
            name, row, face = cast("tuple[str, Operation | Operation2, Face]", mark)
            one = _bind(name, row, face, value)
            first = bound.setdefault((one.wire, name), one)
            if first is not one:
                raise ValueError(f"{name} is served by {first.handler.__qualname__} and {module.__name__}.{value.__name__}")
    return list(bound.values())


@cache
def _bind(name: str, row: Operation | Operation2, face: Face, handler: Handler) -> BoundOperation:
    hints = get_type_hints(handler)
    unknown = set(inspect.signature(handler).parameters) - {"ctx", "path", "query", "body"}
    if unknown:
        raise ValueError(f"{name}: a handler takes ctx, path, query and body, not {', '.join(sorted(unknown))}")
    optional = NoneType in get_args(hints.get("body"))
    if optional:  # it may be left out; a body that says `null` is refused, as by native 1.18.33
        hints["body"] = Union[tuple(one for one in get_args(hints["body"]) if one is not NoneType)]  # noqa: UP007 - of a tuple
    path, query, body = (TypeAdapter[Any](hints[key]) if key in hints else None for key in ("path", "query", "body"))
    return BoundOperation(name, row, face, handler, path, query, body, optional)


# --- the way in and out ----------------------------------------------------------------------------------


def register(app: web.Application, bound: Iterable[BoundOperation]) -> None:
    """Add the routes. A `/` at the end of a path is tolerated, as by native; GET routes answer HEAD."""
    for one in bound:
        add_route(app, one.operation, _route(one), one.face)


def add_route(
    app: web.Application, row: Operation | Operation2, handler: Callable[[web.Request], Awaitable[web.StreamResponse]], face: Face
) -> None:
    """One operation's routes, for a handler of aiohttp's form. In: `face`, whose errors the routes answer with."""
    belongs_to(face, handler)
    forms = (row.path, row.path + "/") if "*" not in row.path else (row.path.replace("*", "{tail:.*}"),)
    for form in forms:
        app.router.add_route(row.method, form, handler)
        if row.method == "GET":
            app.router.add_route("HEAD", form, _stream_head if row.streams else handler)


async def _stream_head(_request: web.Request) -> web.StreamResponse:
    return web.Response(content_type="text/event-stream")


def _route(one: BoundOperation) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def route(request: web.Request) -> web.StreamResponse:
        return to_response(await one.handler(**await arguments(one, request)))

    return route


async def arguments(
    one: BoundOperation, request: web.Request, rewritten: Callable[[AskedField], AskedField] | None = None
) -> dict[str, object]:
    """What the handler is called with. In: `rewritten`, of what a client of another dialect says. Raises RequestError."""
    services = request.app[SERVICES]
    directory = resolve(request.query, request.headers, str(services.settings.directory))
    if services.settings.roots:
        _check_roots(services, directory, request.match_info.get("sessionID"))
    found: dict[str, object] = {"ctx": Ctx(request, services, directory)}
    if one.path is not None:
        found["path"] = _validate(one.path, dict(request.match_info), "Params")
    if one.query is not None or one.body is not None:
        asked = AskedField(_first_values(request), await _body(request) if one.body is not None else None)
        limits.check(one.id, asked.body)
        asked = asked if rewritten is None else rewritten(asked)
        if one.query is not None:
            found["query"] = _validate(one.query, asked.query, "Query")
        if one.body is not None:
            found["body"] = _validated_body(one.body, asked.body, optional=one.body_optional)
    return found


def _check_roots(services: Services, directory: str, session_id: str | None) -> None:
    """The directory of the request, and of the session that it names. Raises OutsideRoots."""
    require(directory, services.settings.roots)
    if session_id is not None:
        try:
            record = services.sessions.record(session_id)
        except SessionNotFound:
            return
        require(record.directory, services.settings.roots)


def _first_values(request: web.Request) -> dict[str, str]:
    values: dict[str, str] = {}
    for name, value in request.query.items():
        values.setdefault(name, value)
    return values


async def _body(request: web.Request) -> Any:
    """The body's value, MISSING if there is none; any content type will do, as for native. Raises InvalidRequest."""
    raw = await request.read()
    try:
        return wire_json.loads(raw) if raw.strip() else MISSING
    except wire_json.MalformedJson as error:
        raise InvalidRequest(f"The body is not JSON: {error}") from error


def _validated_body(model: TypeAdapter[Any], value: Any, *, optional: bool) -> object:
    if value is MISSING:
        if optional:
            return None
        value = {}
    return _validate(model, value, "Payload")


def _validate(model: TypeAdapter[Any], value: Any, kind: Location) -> object:
    """Raises InvalidRequest with OpenCode's words. Texts of paths and queries are converted, values of bodies are not.

    Strict rules for Python values are those for JSON as long as bodies have only types of JSON: no tuple, set, enum or date.
    """
    try:
        return model.validate_python(value, strict=kind == "Payload")
    except ValidationError as error:
        found = fault(error, value)
        raise InvalidRequest(found.reason, kind, found.path) from error


def need_id(prefix: str) -> AfterValidator:
    """For a field that holds an id which begins with `prefix` (`shim.ids.is_id`); another text is refused with what is wrong."""

    def check(value: str) -> str:
        if is_id(value, prefix):
            return value
        expected = ID_FORM if value.startswith(prefix) else f'a string starting with "{prefix}"'
        raise PydanticCustomError("id_form", "Expected {expected}", {"expected": expected})

    return AfterValidator(check)


def to_response(result: object, status: int = 200, headers: Mapping[str, str] | None = None) -> web.StreamResponse:
    """The response for what a handler returned."""
    if isinstance(result, web.StreamResponse):
        return result
    if result is NO_CONTENT:
        return web.Response(status=204, headers=headers)
    body = wire_json.dumps(result)
    response = web.Response(body=body, status=status, headers=headers, content_type="application/json")
    if len(body) > COMPRESS_ABOVE_BYTES:
        response.enable_compression()
    return response
