"""Serves `/mcp`: JSON-RPC of the Model Context Protocol over Streamable HTTP, without a state of the connection.

    POST  a request -> its answer as JSON; as an event stream with progress, if it takes more than QUICK_S
          a notification or an answer -> 202; `notifications/cancelled` ends the call
    GET   405: this server sends nothing unasked

OpenCode has operations of its own at this path. Clients of MCP alone accept event streams there (`is_mcp`).
Source: modelcontextprotocol.io, 2025-11-25; the client of the `mcp` SDK 2.3.0, which falls back to it.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any, Literal, TypeAlias

from aiohttp import web
from aiohttp.web_urldispatcher import UrlMappingMatchInfo
from pydantic import BaseModel

from shim.faces.mcp.tools import TOOLS, Call, call_tool
from shim.http import log_stream, wire_json
from shim.http.access import AGENT, RELAYED, for_agents
from shim.http.faces import Face, belongs_to
from shim.http.log_stream import send
from shim.http.operation import SERVICES, check, check_unparsed
from shim.lib import errors
from shim.lib.errors import InvalidRequest, LimitReached, RequestError, RouteUnknown, row_of
from shim.lib.tasks import doer, go_on_for
from universal.lib.jsonvalue import obj, text

PATH = "/mcp"
VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""Revisions of the protocol that a client may speak here, oldest first. What this face uses is the same in all."""
QUICK_S = 1.0
"""Seconds after which a call that is not done becomes an event stream."""
PROGRESS_S = 5.0
"""Seconds between two signs of life of a call that takes long. A client that has gone is noticed at one."""
CALLS_LIMIT, CALLS_OF_ONE_LIMIT = 256, 32
"""Maximum calls at once, and of one agent, or of all persons' clients together."""
SHOWN = 100
"""Characters of a client's word in an error."""
SESSION = "Mcp-Session-Id"
"""Header that tells the calls of one client from those of others. It opens nothing: each request shows its credentials."""
WAITS = "mcp waits:"
"""Beginning of the name of a task that may be cancelled."""
PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS, SERVER_ERROR = -32700, -32600, -32601, -32602, -32000
STATUSES: Mapping[type[RequestError], int] = {
    RequestError: 500,
    errors.InvalidRequest: 400,
    errors.PayloadTooLarge: 413,
    errors.NotFound: 404,
    errors.RouteUnknown: 404,
    errors.MethodNotAllowed: 405,
    errors.LimitReached: 429,
    errors.Forbidden: 403,
    errors.LoginRefused: 401,
    errors.TooManyLogins: 429,
}
"""Refusals of whole requests. Tools tell theirs in an answer."""
INSTRUCTIONS = (
    "Hand work to other coding agents on this machine. `list_agents` names them; `start_session` gives one a prompt; `wait` "
    "returns when it is done or asks something; `read` has its answer. A person sees all of it, and answers permissions."
)

Id: TypeAlias = str | int


def render(error: RequestError) -> tuple[int, dict[str, Any]]:
    """Render an error as status and an answer of JSON-RPC."""
    return row_of(STATUSES, error), _failure(None, SERVER_ERROR, error.message)


FACE = Face("mcp", render)


def is_mcp(request: web.BaseRequest) -> bool:
    """Whether a request for this path is one of MCP, and none of OpenCode."""
    return any("text/event-stream" in line.lower() for line in request.headers.getall("Accept", ()))


class _Place(web.PlainResource):
    """This path for clients of MCP. The routes behind it get all others."""

    async def resolve(self, request: web.Request) -> tuple[UrlMappingMatchInfo | None, set[str]]:
        """Implement aiohttp's resource interface."""
        return await super().resolve(request) if is_mcp(request) else (None, set[str]())


def register(app: web.Application) -> None:
    """Add the routes, before those of OpenCode."""
    place = _Place(PATH)
    place.add_route("POST", for_agents(belongs_to(FACE, serve)))
    place.add_route("GET", belongs_to(FACE, refuse_stream))
    app.router.register_resource(place)


async def refuse_stream(request: web.Request) -> web.StreamResponse:
    """Refuse a stream of messages that nobody asked for."""
    _need_on(request)
    raise errors.MethodNotAllowed(request.method, PATH, ("POST",))


def _need_on(request: web.Request) -> None:
    if not request.app[SERVICES].settings.mcp:
        raise RouteUnknown(request.method, f"{PATH} with event streams. Start the server with --mcp to serve MCP there")
    if RELAYED in request:
        raise InvalidRequest("Ask the server itself that runs the session: calls of MCP are not passed on.")


# --- messages ---------------------------------------------------------------------------------------------------


class _Message(BaseModel):
    """A request or notification. Answers to this server have no method, and are dropped: it asks nothing."""

    jsonrpc: Literal["2.0"]
    id: Id | None = None
    method: str = ""
    params: dict[str, Any] | None = None


async def serve(request: web.Request) -> web.StreamResponse:
    """Answer one message."""
    _need_on(request)
    revision = request.headers.get("MCP-Protocol-Version", VERSIONS[-1])
    if revision not in VERSIONS:
        return _json(_failure(None, INVALID_REQUEST, f"Speak MCP of {', '.join(VERSIONS)} here, not {revision[:SHOWN]!r}."), 400)
    raw = await request.read()
    check_unparsed(PATH, raw)
    try:
        body = wire_json.loads(raw)
    except wire_json.MalformedJson as error:
        return _json(_failure(None, PARSE_ERROR, f"The body is not JSON: {error}"), 400)
    check(PATH, body)
    message = _message_of(body)
    if message is None:
        return _json(_failure(None, INVALID_REQUEST, "Send one message of JSON-RPC 2.0."), 400)
    if message.id is None or not message.method:
        if message.method == "notifications/cancelled":
            _cancel(request, obj(message.params).get("requestId"))
        return web.Response(status=202)
    params = message.params or {}
    if message.method == "initialize":
        return _json(_success(message.id, _greeting(params)), headers={SESSION: secrets.token_hex(16)})
    if message.method == "tools/call":
        return await _serve_call(request, message.id, params)
    return _json(_answer(message.id, message.method))


def _message_of(body: Any) -> _Message | None:
    try:
        message = _Message.model_validate(body, strict=True)
    except ValueError:
        return None
    return message if message.id is not None or "id" not in body else None


def _greeting(params: Mapping[str, Any]) -> dict[str, Any]:
    asked = params.get("protocolVersion")
    return {
        "protocolVersion": asked if asked in VERSIONS else VERSIONS[-1],
        "capabilities": {"tools": {"listChanged": False}},
        "serverInfo": {"name": "opencode-shim", "version": version("opencode-shim")},
        "instructions": INSTRUCTIONS,
    }


def _answer(id_: Id, method: str) -> dict[str, Any]:
    if method == "ping":
        return _success(id_, {})
    if method == "tools/list":
        return _success(id_, {"tools": [tool.row for tool in TOOLS.values()]})
    return _failure(id_, METHOD_NOT_FOUND, f"There is no method {method[:SHOWN]!r} here.")


def _success(id_: Id, result: Mapping[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id_, "result": result}


def _failure(id_: Id | None, code: int, message: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id_, "error": {"code": code, "message": message}}


def _json(body: object, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.Response(body=wire_json.dumps(body), status=status, content_type="application/json", headers=headers)


# --- calls ------------------------------------------------------------------------------------------------------

_Key: TypeAlias = tuple[int, str, str, Id]
_CALLS: dict[_Key, asyncio.Task[dict[str, Any]]] = {}
"""What runs now: server, agent, connection of a client, id -> the call. Ids are those of clients."""


def _key(request: web.Request, id_: Id) -> _Key:
    return id(request.app[SERVICES]), request[AGENT], request.headers.get(SESSION, ""), id_


def _cancel(request: web.Request, id_: Any) -> None:
    """End a call of the same client that only waits. Others end by themselves, so that none is left half done."""
    task = _CALLS.get(_key(request, id_)) if isinstance(id_, str | int) else None
    if task is not None and task.get_name().startswith(WAITS):
        task.cancel()


async def _serve_call(request: web.Request, id_: Id, params: Mapping[str, Any]) -> web.StreamResponse:
    name, key = text(params.get("name")), _key(request, id_)
    tool = TOOLS.get(name)
    if tool is None:
        return _json(_failure(id_, INVALID_PARAMS, f"There is no tool {name[:SHOWN]!r}. There are: {', '.join(TOOLS)}."))
    if key in _CALLS:
        return _json(_failure(id_, INVALID_REQUEST, "A call with this id runs."))
    if len(_CALLS) >= CALLS_LIMIT or sum(other[:2] == key[:2] for other in _CALLS) >= CALLS_OF_ONE_LIMIT:
        raise LimitReached("calls of MCP", CALLS_OF_ONE_LIMIT, "Wait for the end of some.")
    call = Call(request.app[SERVICES], request[AGENT])
    work = call_tool(call, tool, params.get("arguments"))
    task = _CALLS[key] = asyncio.create_task(go_on_for(doer(), work), name=f"{WAITS if tool.waits else 'mcp'} {name}")
    task.add_done_callback(lambda _: _CALLS.pop(key, None))
    try:
        await asyncio.wait({task}, timeout=QUICK_S)
        if task.done() and not task.cancelled():
            return _json(_success(id_, task.result()))
        return await _stream(request, id_, call, task, obj(params.get("_meta")).get("progressToken"))
    finally:
        if tool.waits:
            task.cancel()


async def _stream(
    request: web.Request, id_: Id, call: Call, task: asyncio.Task[dict[str, Any]], token: Any
) -> web.StreamResponse:
    """Tell how a call gets on, then its result; nothing after it was cancelled. Who does not read is cut off."""
    response = log_stream.event_response()
    loop = asyncio.get_running_loop()
    began = loop.time()
    with log_stream.cut_off_stalled(request):
        await send(response.prepare(request))
        while not task.done():
            progress = {"progressToken": token, "progress": round(loop.time() - began, 1), "message": call.note()}
            row = {"jsonrpc": "2.0", "method": "notifications/progress", "params": progress}
            await send(response.write(_frame(row) if isinstance(token, str | int) else b": it goes on\n\n"))
            await asyncio.wait({task}, timeout=PROGRESS_S)
        if not task.cancelled():
            await send(response.write(_frame(_success(id_, task.result()))))
        await send(response.write_eof())
    return response


def _frame(message: Mapping[str, Any]) -> bytes:
    return b"event: message\ndata: %b\n\n" % wire_json.dumps(message)
