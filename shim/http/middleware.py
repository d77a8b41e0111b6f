"""What every request passes: a line in the log, CORS, and the one place where errors become answers. Never HTML.

ApiError                its own status and body
other ShimError         500 with its text, which is written for people, and a reference
anything else           500 that says nothing but the reference; the log has the traceback under it
unknown path, method    404, 405 (with Allow) that name it; native sends its web page, which breaks clients
too large a body        413 that says how much is taken
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import structlog
from aiohttp import web
from aiohttp.typedefs import Handler

from shim.errors import ApiError, ShimError
from shim.http import cors
from shim.http.operation import SERVICES, to_response
from shim.http.tagged import is_second

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
    except ApiError as error:
        return to_response(error.body, error.status, error.headers)
    except web.HTTPException as error:
        if error.status < 400:
            raise
        return await _refused(request, error)
    except ConnectionResetError:
        # The client has gone while we wrote to it; aiohttp closes the rest.
        raise
    except Exception as error:
        reference = f"err_{secrets.token_hex(4)}"
        log.exception("request.failed", ref=reference, method=request.method, path=request.path[:SHOWN_PATH_LENGTH])
        if request.get(_STARTED):
            # Half an answer is out: only a broken connection tells the client that the rest will not come.
            raise
        message = str(error) if isinstance(error, ShimError) else UNEXPECTED
        return to_response({"name": "UnknownError", "data": {"message": message, "ref": reference}}, 500)


async def _refused(request: web.Request, error: web.HTTPException) -> web.StreamResponse:
    where = f"{request.method} {request.path[:SHOWN_PATH_LENGTH]}"
    if isinstance(error, web.HTTPNotFound):
        ask = request.app.get(UNKNOWN)
        found = await ask(request) if ask is not None else None
        return (
            found
            if found is not None
            else _error(404, "NotFoundError", f"No such route: {where}. GET {_document(request)} lists what is served.")
        )
    if isinstance(error, web.HTTPMethodNotAllowed):
        allow = ", ".join(sorted(error.allowed_methods))
        answer = _error(405, "MethodNotAllowedError", f"No such method: {where}. Allowed here: {allow}.")
        answer.headers["Allow"] = allow
        return answer
    if isinstance(error, web.HTTPRequestEntityTooLarge):
        message = f"The body of {where} is too large: at most {request.client_max_size} bytes are taken."
        return _error(413, "PayloadTooLargeError", message)
    return _error(error.status, error.__class__.__name__.removeprefix("HTTP") + "Error", f"{error.reason}: {where}")


def _document(request: web.Request) -> str:
    return "/openapi.json" if is_second(request.path, request.app[SERVICES].settings.base_path) else "/doc"


def _error(status: int, name: str, message: str) -> web.StreamResponse:
    return to_response({"name": name, "data": {"message": message}}, status)
