"""Routes about the server itself: `/api/info`, which clients of 2.x call first, the document, statistics, pairing."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from functools import cache
from importlib import resources
from typing import Annotated, Any, Literal, TypeAlias
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field

from shim.faces.opencode2._generated import requests
from shim.faces.opencode2._generated.operations import OPENCODE2_VERSION
from shim.faces.opencode2.dialects import DIALECTS, V2_0
from shim.faces.opencode2.endpoint import extra, operation
from shim.faces.opencode2.routes.sessions import face
from shim.faces.opencode2.session_counts import Stats
from shim.faces.opencode2.unsupported_operations import CONSTANT, UNSUPPORTED
from shim.host.files.roots import require, visible_sessions
from shim.http import wire_json
from shim.http.access import CONNECTION, access_of
from shim.http.operation import Ctx
from shim.http.pairing import CODE_S, TOKEN_S, encode_person
from shim.http.people import Person, Role
from shim.lib.errors import InvalidRequest, PairingTokenNotFound
from universal.lib.jsonvalue import arr

EXTENSION = "x-opencode-shim"
"""Key of the document for what OpenCode's own document does not have."""
PARAMETERS = {
    "dialect": f"On every route: one of {', '.join(DIALECTS)}. This document describes {V2_0.name}, the default. Without it, the"
    " User-Agent and the request's form tell the dialect.",
    "after": "On /api/event, like the header Last-Event-ID: events after this position are sent again.",
}


@operation("server.info")
async def info(ctx: Ctx) -> object:
    """Version, addresses and folders of the server. Its terminals end with it, so none is persistent."""
    return {
        "version": OPENCODE2_VERSION,
        "pid": os.getpid(),
        "urls": [str(ctx.request.url.origin()) + ctx.services.settings.base_path],
        "paths": {"tmp": tempfile.gettempdir(), "home": str(ctx.services.config.home)},
        "capabilities": {"persistentPty": False},
    }


@extra("server.openapi", "GET", "/openapi.json")
async def openapi(ctx: Ctx) -> web.Response:
    """OpenAPI 3.1 of the served operations, with the payloads of events, which OpenCode's own document lacks."""
    response = web.Response(body=await asyncio.to_thread(document), content_type="application/json")
    response.enable_compression()
    return response


@cache
def document() -> bytes:
    """The document without refused operations. It does not change while the server runs."""
    whole: dict[str, Any] = json.loads(resources.files("shim.faces.opencode2").joinpath("schema.json").read_bytes())
    paths: dict[str, dict[str, Any]] = {}
    for path, item in whole["paths"].items():
        served = {method: row for method, row in item.items() if row["operationId"] not in UNSUPPORTED}
        if served:
            paths[path] = served
    tags = dict.fromkeys(str(tag) for item in paths.values() for row in item.values() for tag in arr(row["tags"]))
    more = {"parameters": PARAMETERS, "always_the_same": CONSTANT}
    return wire_json.dumps({**whole, EXTENSION: more, "tags": [{"name": tag} for tag in tags], "paths": paths})


# --- statistics ------------------------------------------------------------------------------------------


@operation("experimental.session.stats")
async def stats(ctx: Ctx, query: requests.StatsQuery) -> object:
    """Statistics of all sessions. Only sessions that are new or have changed are read, one by one."""
    try:
        zone = await asyncio.to_thread(ZoneInfo, query.timezone)
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise InvalidRequest(f"There is no time zone {query.timezone}", "Query", ("timezone",)) from error
    until = ctx.services.clock.now_ms() if query.to is None else query.to
    records = [
        record
        for record in await visible_sessions(ctx.services.sessions.index.records(), ctx.roots)
        if query.project in (None, record.project_id) and record.updated_ms >= (query.from_ or 0) and record.created_ms <= until
    ]
    first = min((record.created_ms for record in records), default=until)
    totals = Stats(first if query.from_ is None else query.from_, until, zone)
    for record in records:
        if (counted := await face(ctx).counted.of(record.id)) is not None:
            totals.add(counted)
    return {"data": totals.info(query.tools)}


# --- pairing ---------------------------------------------------------------------------------------------

# Routes for pairing another device without the password (`shim.http.pairing`), and `/api/service/stop`.
#
# A client calls `/api/service/stop` if its registration file names a server of another version. This server is in no such file,
# so it always refuses. A refused client does not kill the server.


@operation("server.pair")
async def pair(ctx: Ctx) -> object:
    """Create a code for `/auth/connect/{code}`, valid once. Only an authenticated client gets one."""
    code = access_of(ctx.request).pairing.code(asyncio.get_running_loop().time(), ctx.person)
    return {"code": code, "expires_in": int(CODE_S)}


INSPECTOR = "inspector/"
"""The page to which a browser is redirected if OpenCode's web UI is not served."""


class TokenPath(BaseModel):
    """`{id}` of a token."""

    id: str


@extra("server.pair.list", "GET", "/api/pair")
async def tokens(ctx: Ctx) -> object:
    """Valid tokens, newest first: the device and the expiry of each. The tokens themselves are not shown."""
    access = access_of(ctx.request)
    return [
        {"id": token.id, "name": token.name, "created": token.created * 1000, "expires": token.end * 1000}
        for token in access.pairing.tokens(access.epoch_s())
        if token.is_device
    ]


Limit: TypeAlias = Literal["max_running", "max_queued", "max_cost_day"]


class PersonChange(BaseModel):
    """What changes of a person. `roots`: absolute directories; none: all of the server's. `limits`: as in `Quota`; 0: any."""

    model_config = ConfigDict(extra="forbid")
    role: Role | None = None
    roots: Annotated[list[str] | None, Field(max_length=100)] = None
    ownSessions: bool | None = None
    limits: dict[Limit, Annotated[int | float, Field(ge=0, le=1e9)]] = {}


class NewPerson(PersonChange):
    """A named person."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$")]
    role: Role  # pyright: ignore[reportIncompatibleVariableOverride, reportGeneralTypeIssues] - a new person needs one


@extra("server.people.list", "GET", "/api/people")
async def people(ctx: Ctx) -> object:
    """The named people, newest first, each with the id by which `DELETE /api/pair/{id}` removes it."""
    access = access_of(ctx.request)
    quotas, rows = ctx.services.sessions.deps.quotas, list[dict[str, object]]()
    for token in access.pairing.tokens(access.epoch_s()):
        if not token.is_device:
            used = None if quotas is None else quotas.usage(token.person.name)
            now = {} if used is None else {"running": len(used.running), "queued": used.queued, "cost_day": used.cost_day}
            times = {"created": token.created * 1000, "expires": token.end * 1000}
            rows.append({"id": token.id, **encode_person(token.person), **times, "usage": now})
    return rows


@extra("server.people.add", "POST", "/api/people")
async def add_person(ctx: Ctx, body: NewPerson) -> object:
    """Create a person, or a new token for one: earlier tokens of the name end. The token is shown here only."""
    access = access_of(ctx.request)
    if access.secrets is None:
        raise InvalidRequest("This server has no password, so everybody may do all. Set one first (OPENCODE_SERVER_PASSWORD).")
    token = access.pairing.add_person(await _person_with(ctx, Person(body.name), body), access.epoch_s())
    await ctx.services.store.flush()
    return {"token": token}


async def _person_with(ctx: Ctx, person: Person, change: PersonChange) -> Person:
    """The person with the changes. Raises InvalidRequest, OutsideRoots."""
    role, roots, is_alone = change.role or person.role, person.roots, person.is_alone
    if (named := change.roots) is not None:
        roots = await asyncio.to_thread(lambda: tuple(os.path.realpath(root) for root in named))
        for root in roots:
            await require(root, ctx.services.settings.roots)
    is_alone = is_alone if change.ownSessions is None else change.ownSessions
    if role == "admin" and roots:
        raise InvalidRequest("An admin may use all directories: roots are for the roles view and work.", path=("roots",))
    if role != "work" and is_alone:
        raise InvalidRequest(
            "Only the role work has sessions of its own: view begins none, and admin sees all.", path=("ownSessions",)
        )
    return Person(person.name, role, roots, is_alone, person.quota._replace(**change.limits))


class PersonPath(BaseModel):
    """`{name}` of a person."""

    name: str


@extra("server.people.change", "PATCH", "/api/people/{name}")
async def change_person(ctx: Ctx, path: PersonPath, body: PersonChange) -> None:
    """Change what a person may do; their token stays. What they have open is closed, unless only limits change."""
    access = access_of(ctx.request)
    found = [token.person for token in access.pairing.tokens(access.epoch_s()) if token.person.name == path.name]
    if not found or not path.name:
        raise InvalidRequest(f"There is nobody with the name {path.name}. `opencode-shim people list` shows all.")
    access.pairing.change_person(await _person_with(ctx, found[0], body))
    await ctx.services.store.flush()


@extra("server.pair.revoke", "DELETE", "/api/pair/{id}")
async def revoke(ctx: Ctx, path: TokenPath) -> None:
    """Revoke a token: its next request is refused, and its streams and terminals are closed. Raises NotFound."""
    if not access_of(ctx.request).pairing.revoke(path.id, ctx.request[CONNECTION]):
        raise PairingTokenNotFound(path.id)
    await ctx.services.store.flush()


@operation("server.connect")
async def connect(ctx: Ctx, path: requests.CodePath) -> object:
    """Exchange a code. A browser gets a cookie and is redirected to the web UI or the inspector; a program gets a token."""
    if ctx.request.method == "HEAD":  # a link preview in a chat must not use up the code
        return web.Response()
    access = access_of(ctx.request)
    token = access.redeem(ctx.request, path.code, asyncio.get_running_loop().time())
    if "text/html" not in ctx.request.headers.get("Accept", ""):
        return {"token": token}
    home = f"{access.base_path}/"
    page = home if ctx.services.settings.web_ui else f"{home}{INSPECTOR}"
    answer = web.Response(status=303, headers={"Location": page, "Referrer-Policy": "no-referrer"})
    answer.set_cookie(
        access.cookie_name(ctx.request),
        token,
        max_age=TOKEN_S,
        path=home,
        httponly=True,
        samesite="Lax",
        secure=access.secure(ctx.request),
    )
    return answer


@extra("server.service.stop", "POST", "/api/service/stop")
async def stop(ctx: Ctx) -> object:
    """Refuse to stop."""
    return {"accepted": False}
