"""What every request passes: a line in the log, CORS, and the one place where errors become answers. Never HTML.

RequestError            status and body by the table of the face that was asked (`shim.http.faces`)
other ShimError         InternalError with its text, which is written for people, and a reference
anything else           InternalError that says nothing but the reference; the log has the traceback under it
of aiohttp              RouteUnknown, MethodNotAllowed, BodyTooLarge; native sends its web page, which breaks clients
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import structlog
from aiohttp import web
from aiohttp.typedefs import Handler

from shim.errors import (
    BodyTooLarge,
    HttpRefused,
    InternalError,
    MethodNotAllowed,
    RequestError,
    RouteUnknown,
    ShimError,
    TooManyLogins,
    Unauthorized,
)
from shim.http import cors, wire_json
from shim.http.faces import face_of
from shim.http.operation import SERVICES

log = structlog.get_logger(__name__)

Unknown: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse | None]]
"""Asked for an answer to a request that no route knows, before it becomes a 404."""

UNKNOWN: web.AppKey[Unknown] = web.AppKey("unknown")
_STARTED = web.RequestKey("started", bool)

SAFETY_HEADERS = {"X-Content-Type-Options": "nosniff", "X-Frame-Options": "SAMEORIGIN", "Referrer-Policy": "same-origin"}
"""No page may show ours in a frame and have its buttons clicked; no address of ours, with an `auth_token` perhaps, is told to
others."""
UNEXPECTED = "Unexpected server error. Check server logs for details."
SHOWN_PATH_LENGTH = 300
CHALLENGE = 'Basic realm="Secure Area", charset="UTF-8"'
"""Makes browsers ask for the password."""


@web.middleware
async def request_log(request: web.Request, handler: Handler) -> web.StreamResponse:
    """One line a request, at debug. Queries are left out: they may hold what a person searched for."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    status = 0
    try:
        response = await handler(request)
        status = response.status
        return response
    finally:
        log.debug(
            "request.done",
            method=request.method,
            path=request.path[:SHOWN_PATH_LENGTH],
            status=status,
            duration_ms=round((loop.time() - began) * 1000, 1),
        )


@web.middleware
async def preflight(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Any OPTIONS is answered with 204, on unknown paths too, as by native."""
    if request.method != "OPTIONS":
        return await handler(request)
    return web.Response(status=204, headers=cors.preflight(request.headers.get("Access-Control-Request-Headers", "")))


async def add_headers(request: web.Request, response: web.StreamResponse) -> None:
    """`on_response_prepare`: a signal and not a middleware, since streams send their headers while they are handled."""
    request[_STARTED] = True
    response.headers.update(cors.headers(request.headers.get("Origin"), request.app[SERVICES].settings.cors))
    response.headers.update(SAFETY_HEADERS)


@web.middleware
async def errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """The boundary: below it errors are exceptions, above it answers."""
    try:
        return await handler(request)
    except RequestError as error:
        return _answer(request, error)
    except web.HTTPException as error:
        if error.status < 400:
            raise
        if isinstance(error, web.HTTPNotFound) and (ask := request.app.get(UNKNOWN)) is not None:
            found = await ask(request)
            if found is not None:
                return found
        return _answer(request, _typed_error(request, error))
    except ConnectionResetError:
        # The client has gone while we wrote to it; aiohttp closes the rest.
        raise
    except Exception as error:
        reference = f"err_{secrets.token_hex(4)}"
        log.exception("request.failed", ref=reference, method=request.method, path=request.path[:SHOWN_PATH_LENGTH])
        if request.get(_STARTED):
            # Half an answer is out: only a broken connection tells the client that the rest will not come.
            raise
        return _answer(request, InternalError(str(error) if isinstance(error, ShimError) else UNEXPECTED, reference))


def _typed_error(request: web.Request, error: web.HTTPException) -> RequestError:
    """Our error for one of aiohttp's."""
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
    """The error as the face says it that was asked."""
    face = face_of(request, request.app[SERVICES].settings.base_path)
    status, body = face.render(error)
    headers = _headers(error)
    return web.Response(body=wire_json.dumps(body), status=status, headers=headers, content_type=face.error_type)


def _headers(error: RequestError) -> dict[str, str]:
    """The headers that HTTP wants beside an error, on every face."""
    match error:
        case Unauthorized():
            return {"WWW-Authenticate": CHALLENGE}
        case TooManyLogins():
            return {"Retry-After": str(error.wait_s)}
        case MethodNotAllowed():
            return {"Allow": error.allowed}
        case _:
            return {}
