"""Middlewares of every request: metrics and the log line, CORS, and the conversion of errors to answers, which are never HTML.

RequestError            status and body from the table of the request's face (`shim.http.faces`)
other ShimError         InternalError with its text, which is written for people, and a reference
errors of aiohttp       RouteUnknown, MethodNotAllowed, BodyTooLarge; native OpenCode sends its web page, which breaks clients
any other error         InternalError with only a reference, under which the log has the traceback
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from typing import TypeAlias

import structlog
from aiohttp import web
from aiohttp.typedefs import Handler

from shim.http import cors, wire_json
from shim.http.access import RELAYED
from shim.http.faces import face_of
from shim.http.operation import ON_REFUSAL, SERVICES
from shim.lib.errors import (
    BodyTooLarge,
    DirectoryElsewhere,
    HttpRefused,
    InternalError,
    InvalidRequest,
    MethodNotAllowed,
    NoServer,
    PasswordRefused,
    PlacedElsewhere,
    RequestError,
    RouteUnknown,
    ServerStopping,
    SessionElsewhere,
    ShimError,
    TooManyLogins,
    UnsupportedOperation,
)

log = structlog.get_logger(__name__)
_LEVELS = logging.getLogger(__name__)
"""Says whether `log` writes a line, for a hundredth of what a line costs that is not written."""

Unknown: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse | None]]
"""Answers a request without a route, or returns None for a 404."""

UNKNOWN: web.AppKey[Unknown] = web.AppKey("unknown")
_STARTED = web.RequestKey("started", bool)

SAFETY_HEADERS = {"X-Content-Type-Options": "nosniff", "X-Frame-Options": "SAMEORIGIN", "Referrer-Policy": "same-origin"}
"""Headers that keep other pages from framing ours (clickjacking), and our URLs, which may contain an `auth_token`, from other
sites."""
UNEXPECTED_ERROR = "Unexpected server error. Check server logs for details."
ENCODED = "The body has a Content-Encoding, and this server reads bodies only as they are: send it without one"
SHOWN_PATH_LENGTH = 300
NOT_HERE = "X-Shim-Not-Here"
"""Marks the answer of a server that cannot take a session or has no such directory, so that another one is asked."""
CHALLENGE = 'Basic realm="Secure Area", charset="UTF-8"'
"""The challenge that makes browsers ask for the password."""


@web.middleware
async def observe(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Count, trace and log a request, as the outermost middleware.

    It counts by route pattern, because paths contain ids. It logs no query, which may contain a user's search terms.
    """
    services = request.app[SERVICES]
    telemetry, audit = services.telemetry, services.audit
    resource = request.match_info.route.resource
    route = resource.canonical if resource is not None else "unknown"
    loop = asyncio.get_running_loop()
    began = loop.time()
    session_id = request.match_info.get("sessionID") or request.match_info.get("session_id")
    context = structlog.contextvars.bound_contextvars(session_id=session_id) if session_id else nullcontext()
    status = 500
    spans = nullcontext() if telemetry is None else telemetry.spans.request(request.method, route, request.headers)
    with context, spans as span:
        try:
            response = await handler(request)
            status = response.status
            return response
        except web.HTTPException as error:
            status = error.status
            raise
        finally:
            took_s = loop.time() - began
            if telemetry is not None and span is not None:
                telemetry.meters.request(request.method, route, status, took_s)
                span.set_status(status)
            if audit is not None and RELAYED not in request:
                audit.note(request, status)
            if _LEVELS.isEnabledFor(logging.DEBUG):
                path = request.path[:SHOWN_PATH_LENGTH]
                log.debug("request.done", method=request.method, path=path, status=status, duration_ms=round(took_s * 1000, 1))


@web.middleware
def preflight(request: web.Request, handler: Handler) -> Awaitable[web.StreamResponse]:
    """Answer any OPTIONS with 204, even on unknown paths, as native OpenCode does."""
    return handler(request) if request.method != "OPTIONS" else _grant(request)


async def _grant(request: web.Request) -> web.StreamResponse:
    return web.Response(status=204, headers=cors.preflight(request.headers.get("Access-Control-Request-Headers", "")))


async def add_headers(request: web.Request, response: web.StreamResponse) -> None:
    """Add CORS and safety headers. A signal, not a middleware, because streams send their headers inside of their handler."""
    request[_STARTED] = True
    response.headers.update(cors.headers(request.headers.get("Origin"), request.app[SERVICES].settings.cors))
    response.headers.update(SAFETY_HEADERS)


@web.middleware
async def errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn exceptions of handlers into answers. Refuse a compressed body, because nothing here inflates one (`cli.server`)."""
    try:
        if request.headers.get("Content-Encoding", "identity").lower() != "identity":
            raise InvalidRequest(ENCODED)
        return await handler(request)
    except RequestError as error:
        if (on_refusal := request.get(ON_REFUSAL)) is not None:
            await on_refusal(request, error)
        return _answer(request, error)
    except web.HTTPException as error:
        if error.status < 400:
            raise
        if isinstance(error, web.HTTPNotFound) and (ask := request.app.get(UNKNOWN)) is not None:
            response = await ask(request)
            if response is not None:
                return response
        return _answer(request, _typed_error(request, error))
    except ConnectionResetError:
        # The client disconnected during a write. aiohttp cleans up.
        raise
    except Exception as error:  # no fault of a handler ends the server or shows a traceback
        reference = f"err_{secrets.token_hex(4)}"
        where = {"ref": reference, "method": request.method, "path": request.path[:SHOWN_PATH_LENGTH]}
        if isinstance(error, ShimError):  # such as a store that fails: its text says what happened, and no code of ours is wrong
            log.error("request.failed", error=str(error), **where)
        else:
            log.exception("request.failed", **where)
        if request.get(_STARTED):
            # Part of the answer was sent. Only a broken connection tells the client that it is incomplete.
            raise
        return _answer(request, InternalError(str(error) if isinstance(error, ShimError) else UNEXPECTED_ERROR, reference))


def _typed_error(request: web.Request, error: web.HTTPException) -> RequestError:
    method, path = request.method, request.path[:SHOWN_PATH_LENGTH]
    match error:
        case web.HTTPNotFound():
            return RouteUnknown(method, path)
        case web.HTTPMethodNotAllowed():
            return MethodNotAllowed(method, path, error.allowed_methods)
        case web.HTTPRequestEntityTooLarge():
            return BodyTooLarge(method, path, request.client_max_size)
        case _:
            return HttpRefused(error.status, type(error).__name__.removeprefix("HTTP"), error.reason, method, path)


def _answer(request: web.Request, error: RequestError) -> web.StreamResponse:
    """Render an error with the request's face."""
    face = face_of(request, request.app[SERVICES].settings.base_path)
    status, body = face.render(error)
    if isinstance(error, RouteUnknown | MethodNotAllowed | UnsupportedOperation):
        agent = request.headers.get("User-Agent", "")
        request.app[SERVICES].unserved_requests.note(agent, request.method, request.path, status)
    headers = _headers(error)
    return web.Response(body=wire_json.dumps(body), status=status, headers=headers, content_type=face.error_type)


def _headers(error: RequestError) -> dict[str, str]:
    """Return the HTTP headers that belong to an error, on every face."""
    match error:
        case PasswordRefused():
            return {"WWW-Authenticate": CHALLENGE}
        case TooManyLogins():
            return {"Retry-After": str(error.wait_s)}
        case MethodNotAllowed():
            return {"Allow": error.allowed}
        case PlacedElsewhere() | NoServer() | ServerStopping() | DirectoryElsewhere() | SessionElsewhere():
            return {NOT_HERE: "1"}
        case _:
            return {}
