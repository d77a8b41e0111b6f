"""`GET /doc`: the API document of this server, generated from OpenCode's (`make gen`)."""

from __future__ import annotations

import asyncio
from importlib import resources

from aiohttp import web

from shim.faces.opencode1.endpoint import extra
from shim.http.operation import Ctx


@extra("server.doc", "GET", "/doc")
async def document(ctx: Ctx) -> web.Response:
    """Return the OpenAPI 3.1 document of the package."""
    body = await asyncio.to_thread(resources.files("shim.faces.opencode1").joinpath("openapi.json").read_bytes)
    response = web.Response(body=body, content_type="application/json")
    response.enable_compression()
    return response
