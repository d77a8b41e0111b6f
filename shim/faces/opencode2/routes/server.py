"""The server itself: what clients of 2.x ask first, and the document of its wire. Source: API notes of 2.0.21."""

from __future__ import annotations

import json
import os
import tempfile
from functools import cache
from importlib import resources
from typing import Any

from aiohttp import web

from shim.faces.opencode2.dialects import R
from shim.faces.opencode2.endpoint import extra, operation
from shim.faces.opencode2.negotiation import note
from shim.faces.opencode2.operations import OPENCODE2_VERSION
from shim.faces.opencode2.unsupported_operations import CONSTANT, UNSUPPORTED
from shim.http import wire_json
from shim.http.operation import Ctx
from universal.jsonvalue import arr

EXTENSION = "x-opencode-shim"
"""Where the document says what OpenCode's own does not have."""
PARAMETERS = {
    "dialect": "On every route: R (this document, the default), J (the build of July 2026), P (the preview in 1.18), if neither"
    " the User-Agent nor what the client has asked first says it.",
    "after": "On /api/event, as the header Last-Event-ID: what was missed since is sent again.",
}


@operation("server.info")
async def info(ctx: Ctx) -> object:
    """Who answers here. Terminals end with the server, so there are no persistent ones. Who asks this speaks R."""
    note(ctx.request, R.name)
    return {
        "version": OPENCODE2_VERSION,
        "pid": os.getpid(),
        "urls": [str(ctx.request.url.origin()) + ctx.services.settings.base_path],
        "paths": {"tmp": tempfile.gettempdir(), "home": str(ctx.services.config.home)},
        "capabilities": {"persistentPty": False},
    }


@extra("server.openapi", "GET", "/openapi.json")
async def openapi(ctx: Ctx) -> web.Response:
    """OpenAPI 3.1 of what is served, with the payloads of the events, which native's own document has not."""
    response = web.Response(body=document(), content_type="application/json")
    response.enable_compression()
    return response


@cache
def document() -> bytes:
    """The document, less what is refused. It does not change while the server runs."""
    whole: dict[str, Any] = json.loads(resources.files("shim.faces.opencode2").joinpath("schema.json").read_bytes())
    paths: dict[str, dict[str, Any]] = {}
    for path, item in whole["paths"].items():
        served = {method: row for method, row in item.items() if row["operationId"] not in UNSUPPORTED}
        if served:
            paths[path] = served
    tags = dict.fromkeys(str(tag) for item in paths.values() for row in item.values() for tag in arr(row["tags"]))
    more = {"parameters": PARAMETERS, "always_the_same": CONSTANT}
    return wire_json.dumps({**whole, EXTENSION: more, "tags": [{"name": tag} for tag in tags], "paths": paths})
