"""Finds the dialect of OpenCode 2's wire that a client speaks, and converts its requests and answers.

Handlers speak `v2_0` alone. The dialect of a request is the first of these that applies:

1. the name in `?dialect=` or in the header `x-opencode-dialect`
2. `preview` for programs of 1.18, by their User-Agent (`PREVIEW_AGENTS`), and for the JS SDK, which names its directory twice
3. `v2_0`

Routes that only `preview` has (`Dialect.aliases`) are served to every client, in that dialect.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeAlias

from aiohttp import web

from shim.faces.opencode2.dialects import DIALECTS, PREVIEW, V2_0, Dialect, dialect_of_body
from shim.faces.opencode2.errors import FACE
from shim.http.access import READING
from shim.http.operation import SERVICES, BoundOperation, add_route, arguments, open_and_perform, to_response
from shim.http.operations import OpenCode2Operation, RequestInput
from shim.lib.errors import InvalidRequest, SessionNotFound

PREVIEW_AGENTS = ("opencode/1.", "lildax/")
"""Beginnings of the User-Agent of programs that speak `preview`: the TUI of 1.18, and the "2.0 preview" of August."""
SDK_QUERY = frozenset({"directory", "location[directory]"})
"""Query of each GET of `/api` by the v2 client of `@opencode-ai/sdk` 1.19, if it has a directory."""
QUERY = "dialect"
HEADER = "x-opencode-dialect"

Route: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]


def dialect_of(request: web.Request) -> Dialect:
    """The dialect of a request. Raises InvalidRequest if the request names a dialect that does not exist."""
    name = request.query.get(QUERY) or request.headers.get(HEADER)
    if name is not None:
        if (dialect := DIALECTS.get(name)) is None:
            raise InvalidRequest(f"Unknown dialect {name!r}. Give one of {', '.join(DIALECTS)}, or leave it out.", "Query")
        return dialect
    is_preview = request.headers.get("User-Agent", "").startswith(PREVIEW_AGENTS) or _is_sdk(request)
    return PREVIEW if is_preview else V2_0


def _is_sdk(request: web.Request) -> bool:
    """Whether the JS SDK of 1.19 sent this request, with a directory.

    No other client names a directory at a session's routes, which need none. Routes of forms are the exception: their session
    may be `global`.
    """
    if request.method in READING:
        return request.query.keys() >= SDK_QUERY
    path = request.path.removeprefix(request.app[SERVICES].settings.base_path)
    return "x-opencode-directory" in request.headers and path.startswith("/api/session") and "/form/" not in path


# --- the edge ----------------------------------------------------------------------------------------


def register(app: web.Application, bound: Iterable[BoundOperation]) -> set[tuple[str, str]]:
    """Add the routes of OpenCode 2 and of its dialects. Return method and path of those that only dialects have."""
    operations = {operation.id: operation for operation in bound}
    for operation in operations.values():
        add_route(app, operation.operation, _route(operation), operation.face)
    aliases = [(alias, dialect) for dialect in DIALECTS.values() for alias in dialect.aliases if alias.operation in operations]
    for alias, dialect in aliases:
        row = OpenCode2Operation(alias.method, alias.path, "dialect")
        add_route(app, row, _route(operations[alias.operation], dialect), FACE)
    return {(alias.method, alias.path) for alias, _ in aliases}


def _route(bound: BoundOperation, dialect: Dialect | None = None) -> Route:
    """A handler of an operation, in the dialect of each request or in this one alone."""

    async def route(request: web.Request) -> web.StreamResponse:
        return await _answer(request, bound, dialect or dialect_of(request))

    return route


async def _answer(request: web.Request, bound: BoundOperation, dialect: Dialect) -> web.StreamResponse:
    """Convert the request to `v2_0`, call its handler, and convert the answer."""

    path_fields = {key: value for key, value in request.match_info.items() if f"{{{key}}}" not in bound.operation.path}

    def convert(fields: RequestInput) -> RequestInput:
        nonlocal dialect
        dialect = dialect_of_body(dialect, bound.id, fields)
        return dialect.request(bound.id, fields._replace(query={**fields.query, **path_fields}))

    try:
        result = await bound.handler(**await arguments(bound, request, convert))
    except SessionNotFound as error:
        result = await open_and_perform(bound, request, error, convert)
    if not isinstance(result, web.StreamResponse) and result is not None:
        result = dialect.answer(bound.id, result)
    return to_response(result)
