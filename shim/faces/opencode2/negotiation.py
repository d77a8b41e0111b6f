"""Finds the dialect of OpenCode 2's wire that a client speaks, and converts its requests and answers.

Handlers speak `v2_0` alone. The dialect of a request is the first of these that applies:

1. the name in `?dialect=` or in the header `x-opencode-dialect`
2. `preview` for programs of 1.18, by their User-Agent (`PREVIEW_AGENTS`), and for the JS SDK, which names its directory twice
3. the dialect of the client's last probe: `/api/health` is `v2_july`, or `web_ui` if a browser asks; `/api/info` is `v2_0`
4. `v2_july` for the User-Agent of July's programs, else `v2_0`

A client is identified by its address and User-Agent. Routes that only other dialects have (`Dialect.aliases`) are served to every
client, in that dialect.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeAlias

from aiohttp import web

from shim.faces.opencode2.dialects import DIALECTS, PREVIEW, Dialect, dialect_of_body, find_dialect
from shim.faces.opencode2.face import FACE
from shim.faces.opencode2.probes import dialect_by_agent
from shim.faces.opencode2.rewrite_rules import Alias, NoContent
from shim.http.access import READING
from shim.http.operation import NO_CONTENT, SERVICES, BoundOperation, add_route, arguments, to_response
from shim.http.operations import OpenCode2Operation, RequestInput
from shim.lib.errors import InvalidRequest

PREVIEW_AGENTS = ("opencode/1.", "lildax/")
"""Beginnings of the User-Agent of programs that speak `preview`: the TUI of 1.18, and the "2.0 preview" of August."""
SDK_QUERY = frozenset({"directory", "location[directory]"})
"""Query of each GET of `/api` by the v2 client of `@opencode-ai/sdk` 1.19, if it has a directory."""
BROWSER = "Mozilla/"
"""Beginning of every browser's User-Agent."""
QUERY = "dialect"
HEADER = "x-opencode-dialect"

Route: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]
Rows: TypeAlias = dict[str, tuple[Dialect, Alias]]
"""Name of a dialect -> the dialect and its alias for one route."""


def dialect_of(request: web.Request) -> Dialect:
    """The dialect of a request. Raises InvalidRequest if the request names a dialect that does not exist."""
    name = request.query.get(QUERY) or request.headers.get(HEADER)
    if name is not None:
        if (dialect := find_dialect(name)) is None:
            raise InvalidRequest(f"Unknown dialect {name!r}. Give one of {', '.join(DIALECTS)}, or leave it out.", "Query")
        return dialect
    agent = request.headers.get("User-Agent", "")
    if agent.startswith(PREVIEW_AGENTS) or _is_sdk(request):
        return PREVIEW
    face = request.app[SERVICES].opencode2
    probed = None if face is None else face.probes.last(client_of(request))
    return DIALECTS[probed if probed in DIALECTS else dialect_by_agent(agent)]


def _is_sdk(request: web.Request) -> bool:
    """Whether the JS SDK of 1.19 sent this request, with a directory.

    No other client names a directory at a session's routes, which need none. Routes of forms are the exception: their session
    may be `global`.
    """
    if request.method in READING:
        return request.query.keys() >= SDK_QUERY
    path = request.path.removeprefix(request.app[SERVICES].settings.base_path)
    return "x-opencode-directory" in request.headers and path.startswith("/api/session") and "/form/" not in path


def note(request: web.Request, name: str) -> None:
    """Note that the client has called a route which only clients of this dialect call first."""
    if (face := request.app[SERVICES].opencode2) is not None:
        face.probes.note(client_of(request), name)


def client_of(request: web.Request) -> tuple[str, str]:
    """The address and User-Agent by which a client is recognised from one request to the next."""
    return request.remote or "", request.headers.get("User-Agent", "")


# --- the edge ----------------------------------------------------------------------------------------


def register(app: web.Application, bound: Iterable[BoundOperation]) -> set[tuple[str, str]]:
    """Add the routes of OpenCode 2 and of its dialects. Return method and path of those that only dialects have."""
    operations = {operation.id: operation for operation in bound}
    for operation in operations.values():
        add_route(app, operation.operation, _route(operation), operation.face)
    rows: dict[tuple[str, str], Rows] = {}
    for dialect in DIALECTS.values():
        for alias in dialect.aliases:
            if alias.operation in operations:
                rows.setdefault((alias.method, alias.path), {})[dialect.name] = (dialect, alias)
    for (method, path), aliases in rows.items():
        add_route(app, OpenCode2Operation(method, path, "dialect"), _alias_route(operations, aliases), FACE)
    return set(rows)


def _route(bound: BoundOperation) -> Route:
    async def route(request: web.Request) -> web.StreamResponse:
        return await _answer(request, bound, dialect_of(request), bound.id)

    return route


def _alias_route(operations: dict[str, BoundOperation], rows: Rows) -> Route:
    async def route(request: web.Request) -> web.StreamResponse:
        dialect, alias = rows.get(dialect_of(request).name) or next(iter(rows.values()))
        return await _answer(request, operations[alias.operation], dialect, alias.row)

    return route


async def _answer(request: web.Request, bound: BoundOperation, dialect: Dialect, row: str) -> web.StreamResponse:
    """Convert the request to `v2_0`, call its handler, and convert the answer. In: `row`, the key of the dialect's tables."""

    path_fields = {key: value for key, value in request.match_info.items() if f"{{{key}}}" not in bound.operation.path}

    def convert(fields: RequestInput) -> RequestInput:
        nonlocal dialect
        dialect = dialect_of_body(dialect, row, fields)
        return dialect.request(row, fields._replace(query={**fields.query, **path_fields}))

    handler_arguments = await arguments(bound, request, convert)
    result = await bound.handler(**handler_arguments)
    if not isinstance(result, web.StreamResponse) and result is not NO_CONTENT:
        result = dialect.answer(row, result)
    return to_response(NO_CONTENT if isinstance(result, NoContent) else result)
