"""Serves the health and the API document of `/v1`, and `GET /metrics` in Prometheus' text format."""

from __future__ import annotations

import asyncio
import re
import sys
from collections import Counter
from importlib import resources
from importlib.metadata import version

from aiohttp import web

from shim.faces.v1.models import (
    HealthResponse,
    HolderInfo,
    HolderListResponse,
    NodeChange,
    NodeListResponse,
    UnservedList,
    UnservedRequest,
)
from shim.faces.v1.routes.endpoint import universal, v1
from shim.http.operation import Ctx
from shim.lib.bounded_output import dropped_lines
from shim.processes.held_process import agents_of, holders
from shim.sessions.session.tape import ROWS
from shim.store.base import TERMINALS

VERSION = version("opencode-shim")


@v1("GET", "/v1/health", tag="meta", answer=HealthResponse)
async def get_health(ctx: Ctx) -> object:
    """The server is healthy."""
    return HealthResponse(status="ok", version=VERSION)


@v1("GET", "/v1/openapi.json", tag="meta", answer=dict[str, object])
async def get_openapi(ctx: Ctx) -> object:
    """This document. It is generated from the handlers by `tools/universal.py`."""
    body = await asyncio.to_thread(resources.files("shim.faces.v1").joinpath("openapi.json").read_bytes)
    return web.Response(body=body, content_type="application/json")


@v1("GET", "/v1/x-unserved", tag="meta", answer=UnservedList)
async def list_unserved(ctx: Ctx) -> object:
    """What clients have asked of this server, since its start, that it does not have."""
    keys = UnservedRequest.model_fields
    asked = [UnservedRequest.model_validate(dict(zip(keys, row, strict=True))) for row in ctx.services.unserved_requests.rows()]
    return UnservedList(version=VERSION, asked=asked)


@v1("GET", "/v1/x-holders", tag="agents", answer=HolderListResponse)
async def list_holders(ctx: Ctx) -> object:
    """The agents and terminals that outlive this server."""
    store, folder = ctx.services.store, ctx.services.settings.data_dir / "held"
    sessions = {row["token"]: session for session, row in (await store.values(ROWS)).items() if row is not None}
    terminals = {row["tokens"][1]: id_ for id_, row in (await store.values(TERMINALS)).items()}
    places = await asyncio.to_thread(lambda: [(place, is_live, agents_of(place)) for place, is_live in holders(folder).items()])
    return HolderListResponse(
        holders=[
            HolderInfo(
                id=place.name,
                isAlive=is_live,
                pids=pids,
                session=sessions.get(place.name),
                terminal=terminals.get(place.name),
            )
            for place, is_live, pids in places
        ]
    )


# --- servers of a cluster --------------------------------------------------------------------------------


@v1("GET", "/v1/x-nodes", tag="nodes", answer=NodeListResponse)
async def list_nodes(ctx: Ctx) -> object:
    """The servers of the cluster that live, this one first. A server without a cluster answers an empty list."""
    return universal(ctx).nodes.overview()


@v1("PATCH", "/v1/x-nodes/{node}", tag="nodes", answer=NodeListResponse, errors=(404,))
async def change_node(ctx: Ctx, body: NodeChange) -> object:
    """Let a server of the cluster, by id or name, take no more sessions, or give up those that it has, or take them again.

    A session that is given up goes on at the server where somebody prompts next; one with a turn is given up at its end.
    """
    nodes = universal(ctx).nodes
    answer = await nodes.change(ctx.request, ctx.request.match_info["node"], body.duty)
    return nodes.overview() if answer is None else answer


# --- counts ----------------------------------------------------------------------------------------------


def tasks() -> dict[str, int]:
    """Count the loop's tasks by the first word of their names. Unnamed ones count as `Task`."""
    return dict(sorted(Counter(re.split(r"\W", task.get_name(), maxsplit=1)[0] for task in asyncio.all_tasks()).items()))


@v1("GET", "/metrics", tag="meta", form="text")
async def get_metrics(ctx: Ctx) -> object:
    """Counts, durations and gauges of the server, for Prometheus."""
    from shim.faces.v1.prometheus import CONTENT_TYPE, Gauges, render  # late: it takes long

    services, telemetry = ctx.services, ctx.services.telemetry
    assert telemetry is not None
    feed, hub = services.sessions.deps.feed, services.hub.stats()
    spares = services.sessions.deps.spares
    open_asks, oldest_ms = services.sessions.requests.open_asks()
    gauges = Gauges(
        sessions=sum(1 for _ in services.sessions.index.records()),
        busy=len(services.sessions.index.busy()),
        opencode_readers=hub.readers,
        universal_readers=feed.listeners,
        lag=feed.lag(),
        dropped=hub.dropped,
        cut_off=feed.cut_off,
        events=feed.events,
        published=hub.published,
        tasks=tasks(),
        blocks=sys.getallocatedblocks(),
        agents={
            "session": sum(actor.process.is_alive for actor in services.sessions.index.actors()),
            "spare": spares.count if spares is not None else 0,
        },
        open_asks=open_asks,
        oldest_ask_s=max(0.0, (services.clock.now_ms() - oldest_ms) / 1000) if oldest_ms is not None else 0.0,
        asks_unattended=services.sessions.deps.unattended_counts,
        late_lists=services.native_sessions.late,
        sandbox_refusals=services.sessions.deps.refusal_counts,
        plans=universal(ctx).plans.agents,
        lines_dropped=dropped_lines(),
        more=universal(ctx).nodes.families(),
    )
    return web.Response(body=render(telemetry.meters, gauges), headers={"Content-Type": CONTENT_TYPE})
