"""Routes of a session's messages, and of their undo. Source: recordings `endpoints`, `errors` of v2-20260717."""

from __future__ import annotations

from collections.abc import Container, Sequence
from itertools import islice
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from shim.faces.opencode2 import read, session_info
from shim.faces.opencode2._generated import requests
from shim.faces.opencode2.endpoint import operation
from shim.faces.opencode2.errors import CursorInvalid
from shim.faces.opencode2.routes.session import Limit, first_id
from shim.faces.opencode2.routes.sessions import SessionPath, read_cursor
from shim.host.git.snapshot import WHOLE_FILE, Snapshots, diffs_between
from shim.http.operation import Ctx
from shim.http.shapes import encode_cursor
from shim.lib.errors import InvalidRequest, MessageNotFound, SessionBusy, ShimError
from shim.sessions.history.checkpoints import read_entries_ahead
from shim.sessions.undo import undo
from shim.sessions.undo.undo_plan import files_changed_in
from universal.lib.diffs import FileDiff
from universal.session.entries import CompactionEntry, Entries, Entry
from universal.session.messages import Message
from universal.session.model import Session
from universal.session.values import StepStart, UserInfo

DEFAULT_LIMIT = 50
Type = Literal[
    "agent-switched",
    "model-switched",
    "location-switched",
    "user",
    "synthetic",
    "system",
    "skill",
    "shell",
    "assistant",
    "compaction",
    "idle",
]


class MessagesQuery(BaseModel):
    """`order` is sent with the first page only, `type` with each. `without`: types that the client's dialect does not have."""

    limit: Limit = DEFAULT_LIMIT
    order: Literal["asc", "desc"] | None = None
    cursor: str | None = None
    type: Type | None = None
    without: str = ""


@operation("session.message.list")
async def listing(ctx: Ctx, path: SessionPath, query: MessagesQuery) -> object:
    """A page of messages, by default newest first. A text that still grows is empty; its pieces come on the stream."""
    session = await ctx.services.sessions.session(path.sessionID)
    if query.cursor is None:
        order, anchor, back = query.order or "desc", None, False
    else:
        if query.order is not None:
            raise InvalidRequest('The cursor has the order of its list: leave out "order"', "Query", ("order",))
        cursor_fields = read_cursor(query.cursor)
        order, anchor, back = cursor_fields.get("order"), cursor_fields.get("id"), cursor_fields.get("direction") == "previous"
        if order not in ("asc", "desc") or not isinstance(anchor, str):
            raise CursorInvalid
    without = set(query.without.split(","))
    is_newer = (order == "asc") != back
    await ctx.services.sessions.read_ahead(
        session, lambda session: read_entries_ahead(session, anchor, query.limit + 1, is_back=not is_newer)
    )
    page = _page(session.timeline.entries, query, anchor, without, is_newer=is_newer)
    if is_newer == (order == "desc"):
        page.reverse()
    ends = {"previous": page[0], "next": page[-1]} if page else {}
    cursor = {way: encode_cursor({"id": entry.id, "order": order, "direction": way}) for way, entry in ends.items()}
    return {"data": [read.message(entry, session) for entry in page], "cursor": cursor}


def _page(entries: Entries, query: MessagesQuery, anchor: str | None, without: Container[str], *, is_newer: bool) -> list[Entry]:
    """The entries next to the anchor, the nearest first; those at the end of the list without one.

    Raises CursorInvalid if the anchor is not in the list any more.
    """
    if anchor is None:
        way = entries.values() if is_newer else reversed(entries.values())
    else:
        entry = entries.peek(anchor)
        if entry is None or read.kind_of(entry) in without:
            raise CursorInvalid
        way = islice(entries.since(anchor) if is_newer else entries.until(anchor), 1, None)
    kinds = ((entry, read.kind_of(entry)) for entry in way)
    return list(islice((entry for entry, kind in kinds if kind not in without and query.type in (None, kind)), query.limit))


@operation("session.message.get")
async def get(ctx: Ctx, path: requests.MessagePath) -> object:
    """One message."""
    message = read.message_at(await ctx.services.sessions.session(path.sessionID), path.messageID)
    if message is None:
        raise MessageNotFound(path.sessionID, path.messageID)
    return {"data": message}


@operation("session.context")
async def context(ctx: Ctx, path: SessionPath) -> object:
    """The model's context: the messages from the last compaction on, oldest first."""
    session = await ctx.services.sessions.session(path.sessionID)
    entries = session.timeline.entries
    last = next((entry for entry in reversed(entries.values()) if _is_summary(entry)), None)
    since = entries.values() if last is None else entries.since(last.id)
    return {"data": [read.message(entry, session) for entry in since]}


def _is_summary(entry: Entry) -> bool:
    return isinstance(entry, CompactionEntry) and entry.status == "completed"


class DiffQuery(BaseModel):
    """The prompts of the first turn (by default the newest) and of the last turn. `context`: lines around each change."""

    model_config = ConfigDict(populate_by_name=True)

    from_: str | None = Field(default=None, alias="from")
    to: str | None = None
    context: Annotated[int, Field(ge=0)] = WHOLE_FILE


@operation("session.diff")
async def diff(ctx: Ctx, path: SessionPath, query: DiffQuery) -> object:
    """File changes from before the first of these turns to after the last. Steered prompts belong to their turn."""
    sessions = ctx.services.sessions
    ids = [None if id_ is None else await first_id(ctx, path.sessionID, id_) for id_ in (query.from_, query.to)]
    session = await sessions.session(path.sessionID)
    await sessions.deps.config_refresh(session.record.directory)
    trees = sessions.deps.snapshots(session.record.directory)
    diffs = await changes(session, trees, ids[0], ids[1], query.context)
    return {"data": [session_info.file_diff(diff) for diff in diffs]}


# --- turn diff -------------------------------------------------------------------------------------------

# Finds file changes of turns: from the snapshot before the first prompt to the snapshot after the last answer.
#
# Without snapshots (switched off, or too old) only the changes that the agents' tools reported are known.


async def changes(session: Session, trees: Snapshots | None, first: str | None, last: str | None, context: int) -> list[FileDiff]:
    """The changes of the turns from prompt `first` (None: the newest) to `last` (None: the same)."""
    messages, later = turn_messages(session, first, last)
    before = next((tree for m in messages if (tree := _tree(m))), None)
    # The tree after a turn stands in the next turn's first step, because the last snapshot comes after the last part.
    after = next((tree for m in later if (tree := _tree(m))), session.snapshots.last)
    names = sorted(files_changed_in(session, messages))
    here = not any(m.info.id in session.elsewhere for m in messages)
    if here and trees is not None and before is not None and after is not None:
        try:
            diffs = await diffs_between(trees, session.record.directory, before, after, names, context)
        except ShimError:  # they are kept for a limited time
            diffs = None
        if diffs is not None:
            return diffs
    prompts = (message.info for message in messages if isinstance(message.info, UserInfo))
    return [diff for info in prompts for diff in info.diffs or ()]


def turn_messages(session: Session, first: str | None, last: str | None) -> tuple[Sequence[Message], Sequence[Message]]:
    """The messages from the prompt `first` to the end of the answers to `last`, and the later messages."""
    begin = first or session.last_user()
    if begin is None:
        return (), ()
    messages = list(session.messages.since(begin))
    end = last or begin
    ids = [m.info.id for m in messages]
    if end not in ids:
        return (), ()
    stop = ids.index(end) + 1
    while stop < len(messages) and not messages[stop].is_user:
        stop += 1
    return messages[:stop], messages[stop:]


def _tree(message: Message) -> str | None:
    starts = (part for part in message.parts.values() if isinstance(part, StepStart))
    return next((start.snapshot for start in starts if start.snapshot), None)


# --- undo ------------------------------------------------------------------------------------------------


@operation("session.revert.stage")
async def stage(ctx: Ctx, path: SessionPath, body: requests.StageBody) -> object:
    """Hide the messages from that one on. The next prompt, or `commit`, removes them."""
    message_id = await first_id(ctx, path.sessionID, body.messageID)
    await undo.revert(ctx.services.sessions, path.sessionID, message_id, None, files=body.files is not False)
    await ctx.services.store.flush(path.sessionID)
    return {"data": read.revert(await ctx.services.sessions.session(path.sessionID))}


@operation("session.revert.clear")
async def clear(ctx: Ctx, path: SessionPath) -> None:
    """Take back a staged undo. Succeeds also if nothing is staged."""
    await undo.unrevert(ctx.services.sessions, path.sessionID)
    await ctx.services.store.flush(path.sessionID)


@operation("session.revert.commit")
async def commit(ctx: Ctx, path: SessionPath) -> None:
    """Remove the hidden messages for good, also from the agent's memory. Succeeds also if nothing is staged."""
    actor = await ctx.services.sessions.actor(path.sessionID)
    if actor.main.machine.busy:
        raise SessionBusy(path.sessionID)
    await undo.settle(ctx.services.sessions, actor)
    await ctx.services.store.flush(path.sessionID)
