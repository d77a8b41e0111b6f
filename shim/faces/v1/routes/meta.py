"""Serves the health and the API document of `/v1`."""

from __future__ import annotations

import asyncio
from importlib import resources
from importlib.metadata import version

from aiohttp import web

from shim.faces.v1.models import HealthResponse, NodeListResponse
from shim.faces.v1.routes.endpoint import universal, v1
from shim.http.operation import Ctx

VERSION = version("opencode-shim")


@v1("get_health", "GET", "/v1/health", tag="meta", answer=HealthResponse)
async def get_health(ctx: Ctx) -> object:
    """The server is healthy."""
    return HealthResponse(status="ok", version=VERSION)


@v1("get_openapi", "GET", "/v1/openapi.json", tag="meta", answer=dict[str, object], ours=True)
async def get_openapi(ctx: Ctx) -> object:
    """This document. It is generated from the handlers by `tools/universal.py`."""
    body = await asyncio.to_thread(resources.files("shim.faces.v1").joinpath("openapi.json").read_bytes)
    return web.Response(body=body, content_type="application/json")


# --- servers of a cluster --------------------------------------------------------------------------------


@v1("list_nodes", "GET", "/v1/x-nodes", tag="nodes", answer=NodeListResponse, ours=True)
async def list_nodes(ctx: Ctx) -> object:
    """The servers of the cluster that live, this one first. A server without a cluster answers an empty list."""
    return universal(ctx).nodes.overview()
