"""Routes about the server itself: `/api/info`, which clients of 2.x call first, and the OpenAPI document."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from functools import cache
from importlib import resources
from typing import Any

from aiohttp import web

from shim.faces.opencode2._generated.operations import OPENCODE2_VERSION
from shim.faces.opencode2.dialects import DIALECTS, V2_0
from shim.faces.opencode2.endpoint import extra, operation
from shim.faces.opencode2.negotiation import note
from shim.faces.opencode2.unsupported_operations import CONSTANT, UNSUPPORTED
from shim.http import wire_json
from shim.http.operation import Ctx
from universal.lib.jsonvalue import arr

EXTENSION = "x-opencode-shim"
"""Key of the document for what OpenCode's own document does not have."""
PARAMETERS = {
    "dialect": f"On every route: one of {', '.join(DIALECTS)}. This document describes {V2_0.name}, the default. Without it, the"
    " User-Agent and the client's first call tell the dialect.",
    "after": "On /api/event, like the header Last-Event-ID: events after this position are sent again.",
}


@operation("server.info")
async def info(ctx: Ctx) -> object:
    """Version, addresses and folders of the server. Its terminals end with it, so none is persistent. Callers speak `v2_0`."""
    note(ctx.request, V2_0.name)
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
