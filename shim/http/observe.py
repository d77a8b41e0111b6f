"""Measures every request: its count and duration, ids for its log lines, and a span if tracing is on."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext

import structlog
from aiohttp import web
from aiohttp.typedefs import Handler

from shim.http.operation import SERVICES


@web.middleware
async def observe(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Count and trace a request, as the outermost middleware. It counts by route pattern, because paths contain ids."""
    telemetry = request.app[SERVICES].telemetry
    if telemetry is None:
        return await handler(request)
    resource = request.match_info.route.resource
    route = resource.canonical if resource is not None else "unknown"
    loop = asyncio.get_running_loop()
    began = loop.time()
    session_id = request.match_info.get("sessionID") or request.match_info.get("session_id")
    context = structlog.contextvars.bound_contextvars(session_id=session_id) if session_id else nullcontext()
    status = 500
    with context, telemetry.spans.request(request.method, route, request.headers) as span:
        try:
            response = await handler(request)
            status = response.status
            return response
        except web.HTTPException as error:
            status = error.status
            raise
        finally:
            telemetry.meters.request(request.method, route, status, loop.time() - began)
            span.set_status(status)
