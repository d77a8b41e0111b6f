"""The event streams. Source: `docs/wire.md` section 1 and the clients' directory rules; ADR 0012 for the wire generation."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from aiohttp import web

from shim.faces.opencode1 import host, read
from shim.faces.opencode1.endpoint import operation
from shim.faces.opencode1.events import encoder_of, events_of, request_closed
from shim.faces.opencode1.generations import generation_of
from shim.faces.opencode1.wire_event import FACE, OpenCodeEvent
from shim.host.changes import RULES_TITLE, HostChanged, TuiToast
from shim.host.config.opencode_config import unread_rules_notice
from shim.http.operation import Ctx
from shim.http.services import need_room
from shim.stream.frame import Scope, normal_scope
from shim.stream.hub import Face
from shim.stream.response import stream, wants_gzip
from shim.stream.subscription import Subscription
from universal.session.values import StepInfo

if TYPE_CHECKING:
    from collections.abc import Callable

    from shim.faces.opencode1._generated.event_types import SessionEvent
    from universal.session.messages import Message


NOTICE_AFTER_S = 3.0
"""Seconds from the begin of a stream to a toast. The TUI 1.18.33 draws none before its first page."""
LOST_S = 60.0
"""Seconds for which clients that connect are told what they may have missed. The TUI tries again after at most 30 s."""


@operation("event.subscribe")
async def subscribe(ctx: Ctx) -> web.StreamResponse:
    """Stream the events of one directory."""
    return await _stream(ctx, ctx.directory, wrapped=False)


@operation("global.event")
async def subscribe_all(ctx: Ctx) -> web.StreamResponse:
    """Stream the events of all directories, whatever directory the client names."""
    return await _stream(ctx, ctx.roots if ctx.person.roots else None, wrapped=True)


async def _stream(ctx: Ctx, scope: Scope, *, wrapped: bool) -> web.StreamResponse:
    request = ctx.request
    need_room(ctx.services)
    named = scope if isinstance(scope, str) else ctx.directory  # the TUI hears all directories, and names its own
    project = (await ctx.services.projects.identity(named)).id
    last = request.headers.get("Last-Event-ID") or request.query.get("lastEventID")
    encoder = ctx.stream_of(encoder_of(ctx.services.clock.now_ms, generation_of(request.query, request.headers), wrapped=wrapped))
    subscription = await ctx.services.streams.subscribe(
        ctx.services.hub,
        encoder,
        scope=scope,
        last_event_id=last,
        greeting=partial(_greeting, ctx),
    )
    subscription.is_plugin = request.query.get("reader") == "plugins"  # the host of the person's plugins
    if isinstance(scope, str):
        ctx.services.watchers.visit(scope, project)
    gzip = wants_gzip(request.headers.get("Accept-Encoding", ""), request.remote, ctx.services.settings.compress_streams)
    notice = asyncio.create_task(_send_notice(ctx, subscription, named, project), name=f"notice {named}")
    try:
        return await stream(request, subscription, gzip=gzip, write_queue=ctx.services.hub.write_queue)
    finally:
        notice.cancel()


async def _send_notice(ctx: Ctx, subscription: Subscription, directory: str, project: str) -> None:
    """Tell a client that has connected that the rules of its directory cannot be read."""
    await asyncio.sleep(NOTICE_AFTER_S)
    if notice := unread_rules_notice(await ctx.services.config.fresh(directory)):
        toast = HostChanged(TuiToast(notice, "warning", title=RULES_TITLE), directory, project)
        for event in host.events_of(toast):
            ctx.services.hub.send(event, (subscription,))


def _greeting(ctx: Ctx, is_shown: Callable[[str], bool]) -> list[OpenCodeEvent]:
    turns = [*lost_turns(ctx, is_shown), *running_state(ctx, is_shown)]
    return [*turns, *closed_requests(ctx, is_shown), *open_requests(ctx, is_shown)]


def closed_requests(ctx: Ctx, is_shown: Callable[[str], bool]) -> list[OpenCodeEvent]:
    """Repeat which requests of turns that were taken up are closed: a TUI that was away would show their dialogs for ever.

    In: as `open_requests`.
    """
    events: list[OpenCodeEvent] = []
    since_ms = _lost_since(ctx)
    lost = {session.id for session in ctx.services.sessions.index.lost_since(since_ms) if is_shown(session.id)}
    for session, change in ctx.services.sessions.requests.closed_since(since_ms):
        if session.id in lost:
            kind, properties = request_closed(change, session.id)
            events.append(OpenCodeEvent(kind, properties, normal_scope(session.record.directory), session.record.project_id))
    return events


def _lost_since(ctx: Ctx) -> int:
    return ctx.services.clock.now_ms() - round(LOST_S * 1000)


def open_requests(ctx: Ctx, is_shown: Callable[[str], bool]) -> list[OpenCodeEvent]:
    """Repeat the open requests for each new stream, because the TUI has no other way to learn of them.

    In: whether the reader knows no more of a session than this server shows.
    """
    index = ctx.services.sessions.requests
    events: list[OpenCodeEvent] = []
    for kind, requests in (
        ("permission.asked", index.permissions()),
        ("question.asked", index.questions()),
    ):
        for session, request in requests:
            if not is_shown(session.id):
                continue
            wire, record = read.request(request, session.id), session.record
            subject, own_scope = (kind, request.id), normal_scope(record.directory)
            events.append(OpenCodeEvent(kind, wire, own_scope, record.project_id, urgent=True, subject=subject))
    return events


def running_state(ctx: Ctx, is_shown: Callable[[str], bool]) -> list[OpenCodeEvent]:
    """Repeat the state of running turns: the status, and unfinished messages with all their parts.

    A TUI that lost its stream reconnects without Last-Event-ID and does not read again. These events replace its state.
    In: as `open_requests`.
    """
    events: list[OpenCodeEvent] = []
    for session in filter(lambda session: is_shown(session.id), ctx.services.sessions.index.busy()):
        info = read.session(session.record)
        rows: list[SessionEvent] = [("session.status", {"sessionID": info["id"], "status": read.status(session.status)})]
        for message in session.messages.loose_values():  # older ones are over
            if not message.is_over:
                rows += _message(message, session.id)
        own_scope = normal_scope(session.record.directory)
        events += [OpenCodeEvent(kind, properties, own_scope, info["projectID"]) for kind, properties in rows]
    return events


def lost_turns(ctx: Ctx, is_shown: Callable[[str], bool]) -> list[OpenCodeEvent]:
    """Tell how turns have ended whose server was lost, also those that went on: a client that comes back saw them begin.

    `session.idle` was published once and is not repeated, since the status says the same. In: as `open_requests`.
    """
    events: list[OpenCodeEvent] = []
    for session in ctx.services.sessions.index.lost_since(_lost_since(ctx)):
        if session.is_busy or not is_shown(session.id):
            continue
        info, messages = read.session(session.record), list(session.messages.loose_values())
        rows: list[SessionEvent] = []
        prompts = [place for place, message in enumerate(messages) if not isinstance(message.info, StepInfo)]
        for message in messages[prompts[-1] if prompts else -1 :]:
            rows += _message(message, session.id)
        if messages and isinstance(last := messages[-1].info, StepInfo) and last.error is not None:
            rows.append(("session.error", {"sessionID": info["id"], "error": read.failure(last.error)}))
        rows.append(("session.status", {"sessionID": info["id"], "status": read.status(session.status)}))
        own_scope = normal_scope(session.record.directory)
        events += [OpenCodeEvent(kind, properties, own_scope, info["projectID"]) for kind, properties in rows]
    return events


def _message(message: Message, session_id: str) -> list[SessionEvent]:
    wire = read.message(message, session_id)
    time = wire["info"]["time"]["created"]
    rows: list[SessionEvent] = [("message.updated", {"sessionID": session_id, "info": wire["info"]})]
    for part in wire["parts"]:
        rows.append(("message.part.updated", {"sessionID": session_id, "part": part, "time": time}))
    return rows


OPENCODE1 = Face(FACE, events_of)
"""What the hub knows of OpenCode 1."""
