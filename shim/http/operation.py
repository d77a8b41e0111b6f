"""Connects handlers to HTTP: `@operation("session.fork")` names the operation, and this module does the rest.

    @operation("session.fork")
    async def fork(ctx: Ctx, path: SessionPath, body: ForkBody | None) -> object: ...

Each face has its own decorator (`shim/faces/*/endpoint.py`), because both wires have a `session.list`. Parameters are found by
name. `path`, `query` and `body` are annotated with pydantic models. `body: Model | None` may be missing (not `null`); a missing
required body is read as `{}`. Method and path come from the generated table of operations. A handler returns a model, dict,
list or scalar (200 JSON), None (204), or a finished response (streams, texts).

The decorators only mark the function: `collect` reads the marks of modules, `register` adds routes to an app. Bodies may also
be unions and plain types. Annotations are evaluated, so a handler's module must import the annotated types at run time.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from heapq import merge
from pathlib import Path
from types import ModuleType, NoneType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, Union, cast, get_args, get_type_hints
from urllib.parse import unquote, urlsplit

from aiohttp import web
from pydantic import AfterValidator, TypeAdapter, ValidationError
from pydantic_core import PydanticCustomError

from shim.host.files.roots import require, require_blocking, visible_sessions
from shim.http import wire_json
from shim.http.access import PERSON, READING
from shim.http.directory import resolve
from shim.http.faces import Face, belongs_to
from shim.http.operations import OpenCode2Operation, Operation, RequestInput
from shim.http.people import OWNER, Person, meet, without_secrets
from shim.http.services import Services
from shim.lib.complaints import fault
from shim.lib.errors import InvalidRequest, Location, PayloadTooLarge, RequestError, SessionNotFound, place_text
from shim.lib.ids import ID_FORM, ID_LIMIT, is_id
from universal.lib.paths import is_in

if TYPE_CHECKING:
    from shim.stream.encoder import Encoder, PersonEncoder
    from universal.session.values import SessionRecord

# --- bounds of bodies -------------------------------------------------------------------------------------------

VALUES_LIMIT = 100_000
"""Maximum members of all arrays and objects of a body together."""
UNPARSED_LIMIT = 10 * VALUES_LIMIT
"""Maximum signs of values (`,`, `[`, `{`) before a body is parsed, which takes up to 0.25 s of the event loop."""
IMPORT_VALUES_LIMIT = 5_000_000
"""The same maximum for an imported document."""
IMPORTS = frozenset({"session.import", "experimental.session.import"})
ARRAYS: Mapping[str, int] = {
    **dict.fromkeys(("parts", "files", "agents", "skills", "answers", "attachments"), 1000),
    **dict.fromkeys(("permission", "permissions", "rules"), 2000),
}
"""Maximum members of an array, by name."""
TEXTS: Mapping[str, int] = {
    **dict.fromkeys(("id", "messageID", "sessionID", "partID", "parentID", "requestID", "projectID", "workspaceID"), ID_LIMIT),
    **dict.fromkeys(("providerID", "modelID", "agent", "mode", "variant", "agentMode", "permissionMode"), 256),
    **dict.fromkeys(("title", "description"), 2000),
    **dict.fromkeys(("name", "filename", "mime"), 1000),
    **dict.fromkeys(("directory", "cwd"), 4096),
}
"""Maximum characters of a text, by name."""
PLACES = frozenset({"directory", "cwd", "path", "filePath", "worktree"})
"""Members that name a file or a directory, which must lie in the roots of the person that sends them."""
PROSE = frozenset({"text", "message", "title", "description", "arguments"})
"""Members with words for a person or an agent. One that begins with `File:` names no file for this server to read."""
ASKS = ("requestID", "permissionID", "formID")
"""Names of a route for an ask, whose session may be another one than the route's."""
FORK = "session.fork"
"""The operation that changes nothing in its session, so that a server may do it with another one's."""
NAMED_DEPTH = 4
"""Levels of a body whose names are checked. Deeper levels contain values of tools and other programs."""
OPEN = frozenset({"metadata", "input", "config", "options", "format"})
"""Members with arbitrary contents of the client, whose names are not checked."""


def check_unparsed(operation_id: str, raw: bytes) -> None:
    """Raise PayloadTooLarge for a body that would take seconds and gigabytes to parse. Texts may have these signs too."""
    most = IMPORT_VALUES_LIMIT if operation_id in IMPORTS else UNPARSED_LIMIT
    if len(raw) > most and raw.count(b",") + raw.count(b"[") + raw.count(b"{") > most:
        raise PayloadTooLarge(f"The body has more than {most} values.", most)


def check(operation_id: str, body: Any) -> None:
    """Raise InvalidRequest for a too long text, PayloadTooLarge for too many members. Both name the field and the bound."""
    imports = operation_id in IMPORTS
    most = IMPORT_VALUES_LIMIT if imports else VALUES_LIMIT
    count = 0
    stack: list[tuple[Any, tuple[str | int, ...], bool]] = [(body, (), not imports)]
    while stack:
        value, path, named = stack.pop()
        if isinstance(value, dict):
            members = cast("dict[str, Any]", value)
            count += len(members)
            if count <= most:
                for key, inner in members.items():
                    if named and isinstance(inner, (str, list)):
                        sized = cast("str | list[Any]", inner)
                        bound = (TEXTS if isinstance(inner, str) else ARRAYS).get(key)
                        if bound is not None and len(sized) > bound:
                            raise _too_much(sized, bound, (*path, key))
                    if isinstance(inner, (dict, list)):
                        below = named and key not in OPEN and len(path) < NAMED_DEPTH
                        stack.append((cast("object", inner), (*path, key) if below else path, below))
        elif isinstance(value, list):
            items = cast("list[Any]", value)
            count += len(items)
            if count <= most:
                for inner in items:
                    if isinstance(inner, (dict, list)):
                        stack.append((cast("object", inner), path, named))
        if count > most:
            raise PayloadTooLarge(f"The body has more than {most} values.", most)


def _too_much(value: str | list[Any], most: int, path: tuple[str | int, ...]) -> Exception:
    """The error of a value of a name with a bound."""
    if isinstance(value, str):
        return InvalidRequest(f"Expected at most {most} characters, got {len(value)}", path=path)
    return PayloadTooLarge(f"Expected at most {most} items, got {len(value)}{place_text(path)}", most)


# --- handlers ---------------------------------------------------------------------------------------------------

BODY_LIMIT_BYTES = 64 * 2**20
"""Maximum size of a request's body. Prompts contain images as data URLs; 64 MiB are some forty photographs."""
COMPRESS_ABOVE_BYTES = 16 * 2**10
"""Answers above this size are compressed if the client accepts it, as in native OpenCode. Below, loopback is faster without."""

SERVICES: web.AppKey[Services] = web.AppKey("services", Services)
_MARK = "__operation__"

Handler: TypeAlias = Callable[..., Awaitable[object]]
OnRefusal: TypeAlias = Callable[[web.Request, RequestError], Awaitable[None]]
"""Called when a request of an operation is refused, before the answer; not if another server answers it."""
ON_REFUSAL: web.RequestKey[OnRefusal] = web.RequestKey("on_refusal")
Wire: TypeAlias = Literal[1, 2]
"""The generation of OpenCode's API that an operation belongs to. Extra routes count as 1."""
Rewrite: TypeAlias = Callable[[RequestInput], RequestInput]
HandlerT = TypeVar("HandlerT", bound=Handler)
EncoderT = TypeVar("EncoderT", bound="Encoder[Any]")


class _Empty(Enum):
    MISSING = 0


MISSING = _Empty.MISSING
"""Stands for the body of a request without one."""


@dataclass(frozen=True, slots=True)
class Ctx:
    """The context of a request. `directory`: absolute, without trailing `/`; it need not exist."""

    request: web.Request
    services: Services
    directory: str

    @property
    def person(self) -> Person:
        """Who makes the request."""
        return person_of(self.request)

    def visible_config(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """An OpenCode configuration as the request's person may see it."""
        return dict(config) if self.person.may("admin") else without_secrets(config)

    @property
    def roots(self) -> tuple[str, ...]:
        """The directories that the request may use; empty: all."""
        return roots_of(self.request, self.services)

    async def list_sessions(self, search: str | None, *, mixed: bool = True) -> Sequence[SessionRecord]:
        """The sessions that a list shows, the last changed first; those of the agents' own programs are mixed in, or follow."""
        services = self.services
        words = search or (self.person.name if self.person.is_alone else "")
        sessions = await visible_sessions(services.sessions.index.newest_first(words), self.roots)
        if self.person.is_alone:
            sessions = [record for record in sessions if record.owner == self.person.name]
        more = await services.native_sessions.records(self.directory, search) if self.person.may("admin") else ()
        if not more:
            return sessions
        return [*merge(sessions, more, key=lambda record: -record.updated_ms)] if mixed else [*sessions, *more]

    def sees(self, session_id: str) -> bool:
        """Whether the request may know of a session."""
        roots, person = self.roots, self.person
        if not (roots or person.is_alone):
            return True
        record = self.services.sessions.index.find_record(session_id)
        is_theirs = record is not None and (not person.is_alone or record.owner == person.name)
        return record is not None and is_theirs and (not roots or is_in(record.directory, roots))

    def stream_of(self, encoder: EncoderT) -> EncoderT | PersonEncoder:
        """The encoder of a stream for the request's person."""
        if not self.person.is_alone:
            return encoder
        from shim.stream.encoder import PersonEncoder  # imported here, because a start needs no streams

        return PersonEncoder(encoder, self.person.name, self.sees)


@dataclass(frozen=True, slots=True)
class BoundOperation:
    """A handler with a validator for each of its parameters."""

    id: str
    operation: Operation | OpenCode2Operation
    face: Face
    handler: Handler
    path: TypeAdapter[Any] | None
    query: TypeAdapter[Any] | None
    body: TypeAdapter[Any] | None
    body_optional: bool
    on_refusal: OnRefusal | None = None

    @property
    def wire(self) -> Wire:
        return 2 if isinstance(self.operation, OpenCode2Operation) else 1


# --- marks -------------------------------------------------------------------------------------------


def extra(operation_id: str, method: str, path: str, *, face: Face, streams: bool = False) -> Callable[[HandlerT], HandlerT]:
    """Mark a handler of a route that clients use but no API document lists."""
    return mark(operation_id, Operation(method, path, "extra", streams), face)


def mark(
    operation_id: str, row: Operation | OpenCode2Operation, face: Face, on_refusal: OnRefusal | None = None
) -> Callable[[HandlerT], HandlerT]:
    """Mark a handler of an operation. `face` renders its errors. The decorators of the faces call this."""

    def mark(handler: HandlerT) -> HandlerT:
        setattr(handler, _MARK, (operation_id, row, face, on_refusal))
        return handler

    return mark


def collect(modules: Iterable[ModuleType]) -> list[BoundOperation]:
    """Collect all marked functions of the modules, and those of their `HANDLERS`, which are made in a loop.

    Raises ValueError if two serve the same operation.
    """
    bound: dict[tuple[Wire, str], BoundOperation] = {}
    for module in modules:
        for value in (*vars(module).values(), *getattr(module, "HANDLERS", ())):
            mark = getattr(value, _MARK, None) if inspect.isfunction(value) else None
            if mark is None or value.__module__ != module.__name__:
                continue
            name, row, face, on_refusal = cast("tuple[str, Operation | OpenCode2Operation, Face, OnRefusal | None]", mark)
            operation = _bind(name, row, face, value, on_refusal)
            first = bound.setdefault((operation.wire, name), operation)
            if first is not operation:
                raise ValueError(f"{name} is served by {first.handler.__qualname__} and {module.__name__}.{value.__name__}")
    return list(bound.values())


@cache
def _bind(
    name: str, row: Operation | OpenCode2Operation, face: Face, handler: Handler, on_refusal: OnRefusal | None
) -> BoundOperation:
    hints = get_type_hints(handler)
    unknown = set(inspect.signature(handler).parameters) - {"ctx", "path", "query", "body"}
    if unknown:
        raise ValueError(f"{name}: a handler takes ctx, path, query and body, not {', '.join(sorted(unknown))}")
    optional = NoneType in get_args(hints.get("body"))
    if optional:  # the body may be missing; a body `null` is refused, as in native OpenCode 1.18.33
        hints["body"] = Union[tuple(hint for hint in get_args(hints["body"]) if hint is not NoneType)]  # noqa: UP007 - of a tuple
    path, query, body = (TypeAdapter[Any](hints[key]) if key in hints else None for key in ("path", "query", "body"))
    return BoundOperation(name, row, face, handler, path, query, body, optional, on_refusal)


# --- routes, requests and responses ------------------------------------------------------------------------


def register(app: web.Application, bound: Iterable[BoundOperation]) -> None:
    """Add the routes. As in native OpenCode, paths may end with `/`, and GET routes answer HEAD."""
    for operation in bound:
        add_route(app, operation.operation, _route(operation), operation.face)


def add_route(
    app: web.Application,
    row: Operation | OpenCode2Operation,
    handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
    face: Face,
) -> None:
    """Add the routes of one operation, for an aiohttp handler. In: `face`, which renders its errors."""
    belongs_to(face, handler)
    forms = (row.path, row.path + "/") if "*" not in row.path else (row.path.replace("*", "{tail:.*}"),)
    for form in forms:
        app.router.add_route(row.method, form, handler)
        if row.method == "GET":
            app.router.add_route("HEAD", form, _stream_head if row.streams else handler)


async def _stream_head(_request: web.Request) -> web.StreamResponse:
    return web.Response(content_type="text/event-stream")


def _route(bound: BoundOperation) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def route(request: web.Request) -> web.StreamResponse:
        if bound.on_refusal is not None:
            request[ON_REFUSAL] = bound.on_refusal
        try:
            result = await bound.handler(**await arguments(bound, request))
        except SessionNotFound as error:
            result = await open_and_perform(bound, request, error)
        return to_response(result)

    return route


async def open_and_perform(
    bound: BoundOperation, request: web.Request, error: SessionNotFound, rewritten: Rewrite | None = None
) -> object:
    """Open the conversation of an agent's own program that a list has shown under an unknown id, and perform the operation again.

    In: `rewritten`, as `arguments` has it. Raises the error if there is none. Only admins see such lists.
    """
    is_allowed = person_of(request).may("admin")
    if not is_allowed or not await request.app[SERVICES].native_sessions.open_listed(error.session_id):
        raise error
    return await bound.handler(**await arguments(bound, request, rewritten))


async def arguments(bound: BoundOperation, request: web.Request, rewritten: Rewrite | None = None) -> dict[str, object]:
    """Build the arguments of a handler. Raises RequestError.

    In: `rewritten`, which converts the fields of a client with another dialect.
    """
    services = request.app[SERVICES]
    directory = await services.links.real(resolve(request.query, request.headers, str(services.settings.directory)))
    person = request.get(PERSON, OWNER)
    own, owner = person.roots, person.name if person.is_alone else None
    roots = roots_of(request, services) if own or services.settings.roots else ()
    if roots or owner:
        await _check_roots(services, directory, request.match_info, roots, owner)
    if request.method not in READING and bound.id != FORK:
        await _need_ours(services, request.match_info)
    values: dict[str, object] = {"ctx": Ctx(request, services, directory)}
    if bound.path is not None:
        values["path"] = _validate(bound.path, dict(request.match_info), "Params")
    if bound.query is not None or bound.body is not None:
        fields = RequestInput(_first_values(request), await _body(request, bound.id) if bound.body is not None else None)
        check(bound.id, fields.body)
        if own:
            await asyncio.to_thread(_check_places, fields.body, directory, roots)
        if not person.sees_all:
            for named in _sessions_of(fields.body):
                await _check_roots(services, directory, {"sessionID": named}, roots, owner)
        fields = fields if rewritten is None else rewritten(fields)
        if bound.query is not None:
            values["query"] = _validate(bound.query, fields.query, "Query")
        if bound.body is not None:
            is_empty = fields.body is MISSING
            body: Any = {} if is_empty else fields.body
            values["body"] = None if is_empty and bound.body_optional else _validate(bound.body, body, "Payload")
    return values


def person_of(request: web.Request) -> Person:
    """Who makes a request; in tests without a gate, the owner of the password."""
    return request.get(PERSON, OWNER)


def roots_of(request: web.Request, services: Services) -> tuple[str, ...]:
    """The directories that a request may use, by the settings and by its person; empty: all."""
    own, all_ = person_of(request).roots, services.settings.roots
    return meet(map(str, all_), own) if own else tuple(map(str, all_))


def _check_places(body: Any, directory: str, roots: Sequence[str]) -> None:
    """Check the files and directories that the body of a person with roots names. Raises OutsideRoots. Blocking."""
    stack: list[tuple[str, Any]] = [("", body)]
    while stack:
        key, value = stack.pop()
        if isinstance(value, dict):
            stack.extend(cast("dict[str, Any]", value).items())
        elif isinstance(value, list):
            stack.extend((key, inner) for inner in cast("list[Any]", value))
        elif isinstance(value, str) and key not in PROSE and value.lower().startswith("file:"):
            require_blocking(unquote(urlsplit(value).path) or directory, roots)
        elif isinstance(value, str) and key in PLACES:
            require_blocking(str(Path(directory, value)), roots)


def _sessions_of(body: Any) -> list[str]:
    """The sessions that a body names."""
    members = cast("dict[str, Any]", body) if isinstance(body, dict) else {}
    return [value for key in ("parentID", "sessionID") if isinstance(value := members.get(key), str)]


async def _check_roots(
    services: Services, directory: str, names: Mapping[str, str], roots: Sequence[str], owner: str | None
) -> None:
    """Check the directories of the request, of its session, and of the session whose ask it answers.

    In: `owner`, the person whose these sessions must be; None: anybody's. Raises OutsideRoots, SessionNotFound.
    """
    await require(directory, roots)
    asks = [services.sessions.requests.session_of(names[name]) for name in ASKS if name in names]
    for session_id in (names.get("sessionID"), *asks):
        record = services.sessions.index.find_record(session_id) if session_id is not None else None
        if record is not None and owner not in (None, record.owner):
            raise SessionNotFound(record.id)
        if record is not None:
            await require(record.directory, roots)


async def _need_ours(services: Services, names: Mapping[str, str]) -> None:
    """Check the session of a changing request, and the one whose ask it answers. Raises SessionElsewhere, StoreError."""
    for name, value in names.items():
        session_id = value if name == "sessionID" else None
        if name in ASKS:
            await services.sessions.others.find_request(value)
            session_id = services.sessions.requests.session_of(value)
        if session_id is not None:
            await services.sessions.need_ours(session_id)


def _first_values(request: web.Request) -> dict[str, str]:
    values: dict[str, str] = {}
    for name, value in request.query.items():
        values.setdefault(name, value)
    return values


async def _body(request: web.Request, operation_id: str) -> Any:
    """Parse the body, MISSING if there is none. Any content type is accepted, as in native OpenCode.

    Raises InvalidRequest, PayloadTooLarge.
    """
    raw = await request.read()
    check_unparsed(operation_id, raw)
    try:
        return wire_json.loads(raw) if raw.strip() else MISSING
    except wire_json.MalformedJson as error:
        raise InvalidRequest(f"The body is not JSON: {error}") from error


def _validate(model: TypeAdapter[Any], value: Any, kind: Location) -> object:
    """Validate a value. Raises InvalidRequest with OpenCode's words.

    Texts of paths and queries are converted; bodies are validated strictly. pydantic's strict rules for Python values equal those
    for JSON as long as bodies have only JSON types: no tuple, set, enum or date.
    """
    try:
        return model.validate_python(value, strict=kind == "Payload")
    except ValidationError as error:
        first = fault(error, value)
        raise InvalidRequest(first.reason, kind, first.path) from error


def need_id(prefix: str) -> AfterValidator:
    """Return a validator for ids that begin with `prefix` (see `shim.lib.ids.is_id`)."""

    def check(value: str) -> str:
        if is_id(value, prefix):
            return value
        expected = ID_FORM if value.startswith(prefix) else f'a string starting with "{prefix}"'
        raise PydanticCustomError("id_form", "Expected {expected}", {"expected": expected})

    return AfterValidator(check)


def to_response(result: object, headers: Mapping[str, str] | None = None) -> web.StreamResponse:
    """Turn a handler's result into a response: None into 204 with an empty body."""
    if isinstance(result, web.StreamResponse):
        return result
    if result is None:
        return web.Response(status=204, headers=headers)
    body = wire_json.dumps(result)
    response = web.Response(body=body, headers=headers, content_type="application/json")
    if len(body) > COMPRESS_ABOVE_BYTES:
        response.enable_compression()
    return response
