"""The history of sessions, for servers that follow this one. Source: a live OpenCode 1.18.33."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, Field, RootModel

from shim.clock import from_rfc3339
from shim.errors import InvalidRequest
from shim.faces.opencode1.endpoint import operation
from shim.faces.opencode1.history import BrokenHistory, fold, row
from shim.faces.opencode1.render import render
from shim.faces.opencode1.routes.transfer import path_of
from shim.faces.opencode1.transfer import import_
from shim.host.roots import visible
from shim.http.directory import resolve
from shim.http.operation import Ctx, need_id
from universal.jsonvalue import JsonObject
from universal.session.reducer import Reducer


class KnownSequences(RootModel[dict[str, Annotated[int, Field(ge=0)]]]):
    """The last `seq` that the client has, by session."""


@operation("sync.history.list")
async def history(ctx: Ctx, body: KnownSequences) -> object:
    """The lasting events of all sessions, less what the client has; rebuilt from the journal."""
    await ctx.services.store.flush()
    found: list[JsonObject] = []
    shown = visible(ctx.services.sessions.records(), ctx.services.settings.roots)
    for record in sorted(shown, key=lambda one: (one.created_ms, one.id)):
        reducer = Reducer(record.id, ctx.services.sessions.agent_of(record.id))
        after = body.root.get(record.id, -1)
        for event in await ctx.services.store.events(record.id):
            at_ms = from_rfc3339(event.time)
            events = render(reducer.apply(event, at_ms), reducer.session, at_ms)
            found += [row(e) for e in events if e.sync is not None and e.sync.seq > after]
    return found


@operation("sync.start")
async def start(ctx: Ctx) -> object:
    """Starts what follows other servers for the project's workspaces. Ours are folders of this machine: there is none."""
    return True


class Event(BaseModel):
    """One event of a history."""

    id: Annotated[str, need_id("evt_")]
    aggregateID: str
    seq: Annotated[int, Field(ge=0)]
    type: str
    data: dict[str, Any]


class ReplayBody(BaseModel):
    """`POST /sync/replay`: one session's whole history, and where it shall be."""

    directory: str
    events: Annotated[list[Event], Field(min_length=1)]


@operation("sync.replay")
async def replay(ctx: Ctx, body: ReplayBody) -> object:
    """The session that the history comes to, in that directory. One that is here already gets the messages that it has not."""
    try:
        document = fold(e.model_dump() for e in body.events)
    except BrokenHistory as error:
        raise InvalidRequest(f"This history cannot be replayed: {error}.") from error
    directory = resolve({"directory": body.directory}, {}, ctx.directory)
    project = await ctx.services.projects.identity(directory)
    record = await import_(ctx.services.sessions, document, directory, project, path_of(directory, project))
    await ctx.services.store.flush()
    return {"sessionID": record.id}
