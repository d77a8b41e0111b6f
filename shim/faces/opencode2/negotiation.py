"""Which dialect of OpenCode 2's wire a client speaks, and the edge where it is turned into R's and back.

Handlers know R alone. A dialect is what `?dialect=` or the header `x-opencode-dialect` says, else P for clients of the preview
(`FIRST_GENERATION`, and the JS SDK, by how it names its directory), else that of the client's last probe: J has
`/api/health` where R has `/api/info`; a browser that asks there is the web UI of 1.18, W. Without a probe it is J for the
programs of July, by their User-Agent, else R. A client is its address and User-Agent.
Routes that only other dialects have (`Dialect.aliases`) are served to everybody, in that dialect.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeAlias

from aiohttp import web

from shim.errors import InvalidRequest
from shim.faces.opencode2.dialects import DIALECTS, Dialect, by_body
from shim.faces.opencode2.endpoint import FACE
from shim.faces.opencode2.probes import dialect_by_agent
from shim.faces.opencode2.rewrite_rules import Alias, NoContent
from shim.http.access import READING
from shim.http.operation import NO_CONTENT, SERVICES, BoundOperation, add_route, arguments, to_response
from shim.operations import AskedField, OpenCode2Operation

PREVIEW = "P"
"""The dialect of 1.18's own preview."""
FIRST_GENERATION = ("opencode/1.", "lildax/")
"""How the User-Agent of programs begins whose second wire is the preview: the TUI of 1.18, and 1.18's "2.0 preview"."""
TWICE = frozenset({"directory", "location[directory]"})
"""What the v2 client of `@opencode-ai/sdk` 1.19 puts into the query of each GET of `/api`, if it has a directory."""
BROWSER = "Mozilla/"
"""How every browser's begins."""
QUERY = "dialect"
HEADER = "x-opencode-dialect"
STATE: web.RequestKey[Any] = web.RequestKey("opencode2.state", object)
"""Where a request carries the state of its session that the answer is to be made from, if that is not the present one."""

Route: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]
Rows: TypeAlias = dict[str, tuple[Dialect, Alias]]
"""Dialect -> its row for one route."""


def dialect_of(request: web.Request) -> Dialect:
    """The dialect of a request. Raises InvalidRequest for one that is named and unknown."""
    named = request.query.get(QUERY) or request.headers.get(HEADER)
    if named is not None:
        if named not in DIALECTS:
            raise InvalidRequest(f"Unknown dialect {named!r}. Give one of {', '.join(DIALECTS)}, or leave it out.", "Query")
        return DIALECTS[named]
    agent = request.headers.get("User-Agent", "")
    if agent.startswith(FIRST_GENERATION) or _is_sdk(request):
        return DIALECTS[PREVIEW]
    face = request.app[SERVICES].opencode2
    probed = None if face is None else face.probes.last(client_of(request))
    return DIALECTS[probed if probed in DIALECTS else dialect_by_agent(agent)]


def _is_sdk(request: web.Request) -> bool:
    """Whether it is the JS SDK of 1.19 with a directory: no other client names one at a session's routes, which need none (but
    at those of forms, whose session may be `global`)."""
    if request.method in READING:
        return request.query.keys() >= TWICE
    path = request.path.removeprefix(request.app[SERVICES].settings.base_path)
    return "x-opencode-directory" in request.headers and path.startswith("/api/session") and "/form/" not in path


def note(request: web.Request, name: str) -> None:
    """This client has asked what only clients of this dialect ask first."""
    if (face := request.app[SERVICES].opencode2) is not None:
        face.probes.note(client_of(request), name)


def client_of(request: web.Request) -> tuple[str, str]:
    """What a client is known by from one request to the next."""
    return request.remote or "", request.headers.get("User-Agent", "")


# --- the edge ----------------------------------------------------------------------------------------


def register(app: web.Application, bound: Iterable[BoundOperation]) -> set[tuple[str, str]]:
    """Add the routes of the second wire, and those of its dialects; (method, path) of the latter."""
    operations = {one.id: one for one in bound}
    for one in operations.values():
        add_route(app, one.operation, _route(one), one.face)
    rows: dict[tuple[str, str], Rows] = {}
    for dialect in DIALECTS.values():
        for alias in dialect.aliases:
            if alias.operation in operations:
                rows.setdefault((alias.method, alias.path), {})[dialect.name] = (dialect, alias)
    for (method, path), found in rows.items():
        add_route(app, OpenCode2Operation(method, path, "dialect"), _alias_route(operations, found), FACE)
    return set(rows)


def _route(one: BoundOperation) -> Route:
    async def route(request: web.Request) -> web.StreamResponse:
        return await _answer(request, one, dialect_of(request), one.id)

    return route


def _alias_route(operations: dict[str, BoundOperation], rows: Rows) -> Route:
    async def route(request: web.Request) -> web.StreamResponse:
        dialect, alias = rows.get(dialect_of(request).name) or next(iter(rows.values()))
        return await _answer(request, operations[alias.operation], dialect, alias.row)

    return route


async def _answer(request: web.Request, one: BoundOperation, dialect: Dialect, row: str) -> web.StreamResponse:
    """R's answer to what was asked, in the dialect. In: `row`, by which the dialect knows it."""

    elsewhere = {key: value for key, value in request.match_info.items() if f"{{{key}}}" not in one.operation.path}

    def ask(asked: AskedField) -> AskedField:
        nonlocal dialect
        dialect = by_body(dialect, row, asked)
        return dialect.request(row, asked._replace(query={**asked.query, **elsewhere}))

    given = await arguments(one, request, ask)
    result = await _result(request, one, dialect, given)
    if not isinstance(result, web.StreamResponse) and result is not NO_CONTENT:
        result = dialect.answer(row, result)
    return to_response(NO_CONTENT if isinstance(result, NoContent) else result)


async def _result(request: web.Request, one: BoundOperation, dialect: Dialect, given: dict[str, Any]) -> object:
    """What the handler gives; for a client that overwrites events with it, made and timed as `Rereads` says."""
    services = request.app[SERVICES]
    if services.opencode2 is None:
        return await one.handler(**given)
    rereads, client, session_id = services.opencode2.rereads, client_of(request), request.match_info.get("sessionID", "")
    if request.method not in READING:
        rereads.end(client)
    if one.id not in dialect.overwrites or services.sessions.index.find_record(session_id) is None:
        return await one.handler(**given)
    async with rereads.hold_for_answer(dialect, client, session_id) as state:
        if state is not None:
            request[STATE] = state
        return await one.handler(**given)
