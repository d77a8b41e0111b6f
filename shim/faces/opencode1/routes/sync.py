"""Exports and replays the history of sessions, for servers that replicate this one. Source: a live OpenCode 1.18.33."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, RootModel

from shim.faces.opencode1._generated import requests
from shim.faces.opencode1.endpoint import operation
from shim.faces.opencode1.events import render
from shim.faces.opencode1.transfer import import_
from shim.faces.opencode1.wire_event import OpenCodeEvent
from shim.host.files.roots import visible_sessions
from shim.http.directory import resolve
from shim.http.operation import Ctx
from shim.lib.clock import from_rfc3339
from shim.lib.errors import InvalidRequest
from universal.lib.jsonvalue import JsonObject
from universal.session.reducer import Reducer

if TYPE_CHECKING:
    from shim.faces.opencode1._generated.types import HistoryEvent


PAUSE_EVENTS = 100
"""Events after which other requests get a turn: some milliseconds."""


class ClientSequences(RootModel[dict[str, Annotated[int, Field(ge=0)]]]):
    """The last `seq` that the client has, by session."""


@operation("sync.history.list")
async def history(ctx: Ctx, body: ClientSequences) -> object:
    """List the lasting events of all sessions that the client lacks, rebuilt from the journal."""
    await ctx.services.store.flush()
    rows: list[HistoryEvent] = []
    records = await visible_sessions(ctx.services.sessions.index.records(), ctx.services.settings.roots)
    for record in sorted(records, key=lambda entry: (entry.created_ms, entry.id)):
        reducer = Reducer(record.id, ctx.services.sessions.index.agent_of(record.id))
        after = body.root.get(record.id, -1)
        for number, event in enumerate(await ctx.services.store.events(record.id)):
            if number % PAUSE_EVENTS == 0:
                await asyncio.sleep(0)  # other requests go on while all journals are read
            at_ms = from_rfc3339(event.time)
            events = render(reducer.apply(event, at_ms), reducer.session, at_ms)
            rows += [row(e) for e in events if e.sync is not None and e.sync.seq > after]
    return rows


@operation("sync.replay")
async def replay(ctx: Ctx, body: requests.ReplayBody) -> object:
    """Import the session of a history into a directory. An existing session gets the messages that it lacks."""
    try:
        document = fold(e.model_dump() for e in body.events)
    except BrokenHistory as error:
        raise InvalidRequest(f"This history cannot be replayed: {error}.") from error
    directory = await ctx.services.links.real(resolve({"directory": body.directory}, {}, ctx.directory))
    project = await ctx.services.projects.identity(directory)
    record = await import_(ctx.services.sessions, document, directory, project, project.path_of(directory))
    await ctx.services.store.flush(record.id)
    return {"sessionID": record.id}


# --- history ---------------------------------------------------------------------------------------------

# The history of a session's lasting events, numbered as OpenCode does for servers that replicate each other. Pure.
#
# `seq` counts from 0 per session, without deltas, status, idle, errors, permissions and questions. The numbers depend only on the
# journal, so the live `sync` twins on `/global/event` equal a rebuilt history. Source: docs/wire.md.

LASTING_EVENTS = frozenset(
    {
        *("session.created", "session.updated", "session.deleted"),
        *("message.updated", "message.removed", "message.part.updated", "message.part.removed"),
    }
)
VERSION = ".1"
"""The suffix of each type: the version of its schema."""


def row(event: OpenCodeEvent) -> HistoryEvent:
    """Build one entry of `POST /sync/history` from a lasting event."""
    assert event.sync is not None
    return {
        "id": event.sync.id,
        "aggregate_id": event.sync.session_id,
        "seq": event.sync.seq,
        "type": event.type + VERSION,
        "data": event.properties,
    }


class BrokenHistory(ValueError):
    """The history cannot be replayed. The text says why."""


def fold(events: Iterable[Mapping[str, Any]]) -> JsonObject:
    """Replay a session's whole history into an exported document. Raises BrokenHistory."""
    info: JsonObject | None = None
    messages: dict[str, JsonObject] = {}
    session_id = ""
    for number, event in enumerate(sorted(events, key=lambda e: e["seq"])):
        session_id = session_id or event["aggregateID"]
        if event["aggregateID"] != session_id:
            raise BrokenHistory(f"events of two sessions, {session_id} and {event['aggregateID']}")
        if event["seq"] != number:
            raise BrokenHistory(f"event {number} is missing: the next one has seq {event['seq']}")
        kind, data = str(event["type"]).removesuffix(VERSION), event["data"]
        if kind not in LASTING_EVENTS:
            raise BrokenHistory(f"event {number} is of an unknown type, {event['type']}")
        try:
            info = _apply(kind, data, info, messages)
        except (KeyError, TypeError) as error:
            raise BrokenHistory(f"event {number} ({event['type']}) lacks {error}") from error
    if info is None:
        raise BrokenHistory("the session is deleted at its end" if messages else "no event makes a session")
    exported = [{"info": m["info"], "parts": list(m["parts"].values())} for m in messages.values()]
    return {"info": info, "messages": exported}


def _apply(kind: str, data: JsonObject, info: JsonObject | None, messages: dict[str, JsonObject]) -> JsonObject | None:
    match kind:
        case "session.created" | "session.updated":
            return {**(info or {}), **data["info"]}
        case "session.deleted":
            return None
        case "message.updated":
            messages.setdefault(data["info"]["id"], {"parts": {}})["info"] = data["info"]
        case "message.removed":
            messages.pop(data["messageID"], None)
        case "message.part.updated":
            messages[data["part"]["messageID"]]["parts"][data["part"]["id"]] = data["part"]
        case _:
            messages[data["messageID"]]["parts"].pop(data["partID"], None)
    return info
