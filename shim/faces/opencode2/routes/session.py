"""Routes of sessions: create, list, read, change, fork, move and delete.

The sessions are the same as in OpenCode 1. Source: compat_fixtures/opencode2/operations.json, recordings of v2-20260717.
"""

from __future__ import annotations

import asyncio
import os.path
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import groupby, islice
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field

from shim.faces.opencode1.transfer import import_
from shim.faces.opencode2 import read, session_info
from shim.faces.opencode2._generated import requests
from shim.faces.opencode2.endpoint import operation
from shim.faces.opencode2.errors import CursorInvalid
from shim.faces.opencode2.routes.sessions import SessionPath, model_of, need, read_cursor
from shim.faces.opencode2.session_info import info_of
from shim.faces.opencode2.wire_event import ReadOnlyWire
from shim.host.files.roots import require
from shim.host.git.projects import belongs
from shim.host.values import Project
from shim.http.directory import resolve
from shim.http.forward import need_session_here
from shim.http.operation import Ctx
from shim.http.shapes import encode_cursor
from shim.lib.errors import InvalidRequest, MessageNotFound, SessionNotFound
from shim.sessions.transfer.fork import fork as fork_session
from shim.sessions.transfer.move import move as move_session
from shim.sessions.transfer.move import subpath
from universal.lib.jsonvalue import JsonObject
from universal.session.record_json import RecordChanges, fork_of
from universal.session.values import SessionRecord

if TYPE_CHECKING:
    from shim.faces.opencode2._generated import types


DEFAULT_LIMIT = 50
MAX_LIMIT = 200
ROOTS = "null"
"""The value of `parentID` that selects sessions without a parent."""


@operation("session.create")
async def create(ctx: Ctx, body: requests.SessionCreateBody) -> object:
    """Create a session. If a session with this id exists, it is returned unchanged."""
    services = ctx.services
    if body.id is not None and services.sessions.index.find_record(body.id) is not None:
        return {"data": read.info(await ctx.services.sessions.session(body.id))}
    directory = await _directory(ctx, body)
    await require(directory, ctx.roots)
    agent = body.model.providerID if body.model is not None else None
    await need_session_here(ctx, directory, agent, body.metadata)
    project = await services.projects.identity(directory)
    record = services.sessions.create(
        directory,
        project,
        title=body.title,
        parent_id=body.parentID,
        permission=[rule.first() for rule in body.permissions or ()] or None,
        agent_name=agent,
        session_id=body.id,
        mode=body.agent,
        model=model_of(body.model) if body.model is not None else None,
        metadata=body.metadata,
    )
    await services.store.flush(record.id)
    return {"data": read.info(await ctx.services.sessions.session(record.id))}


async def _directory(ctx: Ctx, body: requests.SessionCreateBody) -> str:
    if body.parentID is not None:
        parent = ctx.services.sessions.index.find_record(body.parentID)
        if parent is None:
            raise SessionNotFound(body.parentID)
        return parent.directory
    if body.location is None:
        return ctx.directory
    named = body.location.directory
    if not os.path.isabs(named):  # noqa: PTH117 - pure: no look at the disk
        raise InvalidRequest(f'Expected an absolute directory, got "{named}"', path=("location", "directory"))
    return await ctx.services.links.real(resolve({"directory": named}, {}, named))


def _integer(value: Any) -> Any:
    """Parse a number of a query, with OpenCode's error text."""
    try:
        return int(value)
    except (TypeError, ValueError):
        raise InvalidRequest("Expected an integer, got NaN", "Query", ("limit",)) from None


Limit = Annotated[int, BeforeValidator(_integer), Field(ge=1, le=MAX_LIMIT)]
"""A limit of messages. Limits of sessions have no maximum, because the web UI of 1.18 asks for 5,000."""


class ListQuery(BaseModel):
    """The filters. A cursor holds all of them except the limit."""

    limit: Annotated[int, BeforeValidator(_integer), Field(ge=1)] = DEFAULT_LIMIT
    order: Literal["asc", "desc"] = "desc"
    search: str | None = None
    parentID: str | None = None
    directory: str | None = None
    project: str | None = None
    subpath: str | None = None
    archived: Literal["true", "false"] | None = None
    cursor: str | None = None


FILTERS = ("order", "search", "parentID", "directory", "project", "subpath", "archived")


@operation("session.list")
async def listing(ctx: Ctx, query: ListQuery) -> object:
    """A page of sessions, the last changed first."""
    if query.directory is not None:
        directory = await ctx.services.links.real(query.directory)
        ctx.services.sessions.open_signs.note_visit(directory)
        query = query.model_copy(update={"directory": directory})
    anchor: JsonObject = {}
    if query.cursor is not None:
        cursor_fields = read_cursor(query.cursor)
        anchor = cursor_fields.get("anchor") or {}
        if not {"id", "time", "direction"} <= anchor.keys():
            raise CursorInvalid
        query = query.model_copy(update={key: cursor_fields.get(key, ListQuery.model_fields[key].default) for key in FILTERS})
    project = None if query.project is None else await ctx.services.projects.get(query.project)
    records = await ctx.list_sessions(query.search)
    ordered = sorted(records, key=_at) if query.order == "asc" else _newest_first(records)
    matches = (record for record in ordered if _is_wanted(record, query, project) and _is_beyond(record, anchor, query))
    limit = min(query.limit, len(records))
    page = list(islice(matches, limit) if anchor.get("direction") != "previous" else deque(matches, maxlen=limit))
    filters = {key: value for key in FILTERS if (value := getattr(query, key)) not in (None, "desc")}
    ends = {"previous": page[0], "next": page[-1]} if page else {}
    cursor = {
        way: encode_cursor({**filters, "anchor": {"id": record.id, "time": _at(record)[0], "direction": way}})
        for way, record in ends.items()
    }
    return {"data": [_session_json(ctx, record) for record in page], "cursor": cursor}


def _newest_first(records: Iterable[SessionRecord]) -> Iterator[SessionRecord]:
    """Sessions in the order of the index, with those that were changed at the same time by id, the largest first."""
    for _, group in groupby(records, key=lambda record: record.updated_ms):
        yield from sorted(group, key=_at, reverse=True)


def _is_beyond(record: SessionRecord, anchor: JsonObject, query: ListQuery) -> bool:
    """Whether a session is on the cursor's side. The cursor's session itself may have moved since."""
    if not anchor:
        return True
    place = (anchor["time"], anchor["id"])
    is_later = (anchor["direction"] == "next") == (query.order == "asc")
    return _at(record) > place if is_later else _at(record) < place


def _at(record: SessionRecord) -> tuple[int, str]:
    return record.updated_ms, record.id


def _is_wanted(record: SessionRecord, query: ListQuery, project: Project | None) -> bool:
    if query.parentID == ROOTS and record.parent_id is not None:
        return False
    return (
        query.parentID in (None, ROOTS, record.parent_id)
        and query.directory in (None, record.directory)
        and (
            query.project in (None, record.project_id)
            or (project is not None and belongs(project, record.project_id, record.directory))
        )
        and query.subpath in (None, record.path or "")
        and query.archived in (None, "true" if record.archived_ms is not None else "false")
        and (query.search or "").casefold() in record.title.casefold()
    )


def _session_json(ctx: Ctx, record: SessionRecord) -> types.SessionInfo:
    session = ctx.services.sessions.loaded_session(record.id)
    if session is not None:
        return read.info(session)
    index, info = ctx.services.sessions.index, info_of(record)
    if record.id not in index:  # of an agent's own program
        return info
    facts = index.facts(record.id)
    if "outcome" in facts:
        info["outcome"] = facts["outcome"]
    if (source := fork_of(facts.get("fork"))) is not None:
        info["fork"] = session_info.fork(source)
    if "idle" in facts:
        info["time"]["idle"] = facts["idle"]
    if "viewed" in facts:
        info["time"]["viewed"] = facts["viewed"]
    return info


@operation("session.active")
async def active(ctx: Ctx) -> object:
    """Sessions with a running turn, also one that waits for a person."""
    return {"data": {session_id: {"type": "running"} for session_id in filter(ctx.sees, ctx.services.sessions.statuses())}}


@operation("session.get")
async def get(ctx: Ctx, path: SessionPath) -> object:
    """One session."""
    return {"data": read.info(await ctx.services.sessions.session(path.sessionID))}


@operation("session.update")
async def update(ctx: Ctx, path: SessionPath, body: requests.SessionUpdateBody) -> None:
    """Rename, archive or restore a session, or set its metadata or rules. Archiving twice changes nothing."""
    changes: RecordChanges = {}
    if body.title is not None:
        changes["title"] = body.title
    if body.metadata is not None:
        changes["metadata"] = body.metadata
    if body.permissions is not None:
        changes["permission"] = [rule.first() for rule in body.permissions]
    if body.archived is not None and body.archived != (need(ctx, path.sessionID).archived_ms is not None):
        changes["archived_ms"] = ctx.services.clock.now_ms() if body.archived else None
    await ctx.services.sessions.patch(path.sessionID, **changes)
    await ctx.services.store.flush(path.sessionID)


@operation("session.remove")
async def remove(ctx: Ctx, path: SessionPath) -> None:
    """End what runs, and remove the session and its child sessions."""
    await ctx.services.sessions.delete(path.sessionID)


@operation("session.fork")
async def fork(ctx: Ctx, path: SessionPath, body: requests.ForkBody) -> object:
    """Create a session with a copy of the conversation up to a message."""
    need(ctx, path.sessionID)
    before = None if body.before is None else await first_id(ctx, path.sessionID, body.before)
    record = await fork_session(ctx.services.sessions, path.sessionID, before)
    await ctx.services.store.flush(record.id)
    return {"data": read.info(await ctx.services.sessions.session(record.id))}


async def first_id(ctx: Ctx, session_id: str, message_id: str) -> str:
    """The core's message with this id, or the one that an entry of the timeline belongs to. Raises MessageNotFound."""
    session = await ctx.services.sessions.session(session_id)
    if message_id in session.messages:
        return message_id
    # An entry that is no message of the core (a switch, an idle mark): the message after it stands for it.
    core_id = next((id_ for id_ in session.timeline.entries.ids_since(message_id) if id_ in session.messages), None)
    if core_id is not None:
        return core_id
    raise MessageNotFound(session_id, message_id)


@operation("session.switchAgent")
async def switch_agent(ctx: Ctx, path: SessionPath, body: requests.SwitchAgentBody) -> None:
    """Select a mode from the next prompt on. An unknown mode fails then, as in OpenCode."""
    await ctx.services.sessions.patch(path.sessionID, mode=body.agent)


@operation("session.switchModel")
async def switch_model(ctx: Ctx, path: SessionPath, body: requests.SwitchModelBody) -> None:
    """Select a model from the next prompt on. A model of another provider means another agent."""
    await ctx.services.sessions.patch(path.sessionID, model=model_of(body.model))


@operation("session.move")
async def move(ctx: Ctx, path: SessionPath, body: requests.MoveBody) -> None:
    """Move the session to another directory. Its agent starts there with the next prompt. 400 while it is at work."""
    here = need(ctx, path.sessionID).directory
    directory = await ctx.services.links.real(resolve({"directory": body.directory}, {}, here))
    if not await asyncio.to_thread(os.path.isdir, directory):
        raise InvalidRequest(f"There is no directory {directory}", path=("directory",))
    project = await ctx.services.projects.identity(directory)
    await move_session(ctx.services.sessions, path.sessionID, directory, project, subpath(directory, project.worktree))
    await ctx.services.store.flush(path.sessionID)


@operation("session.view")
async def view(ctx: Ctx, path: SessionPath, body: requests.ViewBody) -> None:
    """Note that the person has seen the end of a turn."""
    state = await ctx.services.sessions.state(path.sessionID)
    state.record_viewed(int(body.idle))
    await ctx.services.store.flush(path.sessionID)


# --- exports and imports ---------------------------------------------------------------------------------

HARMLESS_KEYS = frozenset(
    {"id", "type", "role", "time", "status", "mime", "finish", "outcome", "reason", "agent", "model", "name"}
)
"""Keys whose values reveal nothing of the work. `sanitize` keeps them."""
REDACTED = "[redacted]"
AT_ONCE = 32
"""Messages that are read before others have their turn: a few ms, if they were packed."""


@operation("experimental.session.export")
async def export(ctx: Ctx, path: SessionPath, query: requests.ExportQuery) -> object:
    """Export a session with all its messages, oldest first."""
    session = await ctx.services.sessions.session(path.sessionID)
    messages: list[ReadOnlyWire] = []
    for number, id_ in enumerate(list(session.timeline.entries), 1):
        messages += [] if (wire := read.message_at(session, id_)) is None else [wire]
        if number % AT_ONCE == 0:
            await asyncio.sleep(0)  # other requests go on
    info = {key: value for key, value in read.info(session).items() if key != "revert"}
    if query.sanitize == "true":
        info = {**info, "title": REDACTED, "location": {"directory": "/"}, **({"metadata": {}} if "metadata" in info else {})}
        messages = [sanitize(message) for message in messages]
    return {"data": {"info": info, "messages": messages}}


def sanitize(message: ReadOnlyWire) -> JsonObject:
    """Replace each text of a message. Its shape stays."""
    return {key: value if key in HARMLESS_KEYS else _hide(value) for key, value in message.items()}


def _hide(value: Any) -> Any:
    if isinstance(value, str):
        return REDACTED
    if isinstance(value, list):
        return [_hide(item) for item in value]  # pyright: ignore[reportUnknownVariableType] - JSON
    if isinstance(value, dict):
        return sanitize(value)  # pyright: ignore[reportUnknownArgumentType] - JSON
    return value


@operation("experimental.session.import")
async def take_in(ctx: Ctx, body: requests.ImportBody) -> object:
    """Import a session. If a session with this id exists, it gets the messages that it lacks."""
    named = ctx.directory if body.location is None else resolve({"directory": body.location.directory}, {}, ctx.directory)
    directory = await ctx.services.links.real(named)
    project = await ctx.services.projects.identity(directory)
    document = {"info": body.info, "messages": body.messages}
    record = await import_(ctx.services.sessions, document, directory, project, "")
    await ctx.services.store.flush(record.id)
    return {"data": read.info(await ctx.services.sessions.session(record.id))}
