"""Exports and replays the history of sessions, for servers that replicate this one. Source: a live OpenCode 1.18.33."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, Field, RootModel

from shim.faces.opencode1.endpoint import operation
from shim.faces.opencode1.history import BrokenHistory, fold, row
from shim.faces.opencode1.render import render
from shim.faces.opencode1.transfer import import_
from shim.host.files.roots import visible_sessions
from shim.http.directory import resolve
from shim.http.operation import Ctx, need_id
from shim.lib.clock import from_rfc3339
from shim.lib.errors import InvalidRequest
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


@operation("sync.start")
async def start(ctx: Ctx) -> object:
    """Do nothing: our workspaces are local folders, so there is no server to replicate."""
    return True


class Event(BaseModel):
    """One event of a history."""

    id: Annotated[str, need_id("evt_")]
    aggregateID: str
    seq: Annotated[int, Field(ge=0)]
    type: str
    data: dict[str, Any]


class ReplayBody(BaseModel):
    """`POST /sync/replay`: one session's whole history, and its target directory."""

    directory: str
    events: Annotated[list[Event], Field(min_length=1)]


@operation("sync.replay")
async def replay(ctx: Ctx, body: ReplayBody) -> object:
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
