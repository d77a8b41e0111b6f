"""Forks a session: creates a session with the conversation of another, up to a message.

The journal is copied (same times, new ids), so a fork is a session like any other: rebuilt, exported, forked again.
Its agent starts a new conversation, and gets this one as text with the first prompt (`context`).
"""

from __future__ import annotations

from collections.abc import Sequence

from shim.lib.clock import from_rfc3339
from shim.lib.errors import MessageNotFound
from shim.sessions.index.manager import SessionManager
from shim.sessions.session.session_state import SessionState
from universal.events import EventType, ItemData, PermissionData, QuestionData, UniversalEvent
from universal.items import Item, ItemKind, ItemRole, Json, StatusPart
from universal.lib.ids import IdSequence, hashed_tail, render
from universal.lib.jsonvalue import arr, obj, text
from universal.session.changes import MessageChanged, PartChanged
from universal.session.model import Session
from universal.session.reducer import Reducer
from universal.session.user_prompt import NO_PROMPT, prompt_of, with_prompt
from universal.session.values import ForkSource, SessionRecord
from universal.turn import Input


async def fork(manager: SessionManager, session_id: str, before: str | None) -> SessionRecord:
    """Fork a session before the message `before`, and return the new record. Raises NotFound."""
    source = await manager.session(session_id)
    if before is not None and before not in source.messages:
        raise MessageNotFound(session_id, before)
    await manager.deps.store.flush()
    events = up_to(await manager.deps.store.events(session_id), session_id, before)
    title = f"{source.record.title} (fork #"
    number = 1 + sum(record.title.startswith(title) for record in manager.index.newest_first(title))
    target = manager.copy_of(session_id, f"{title}{number})", _source_of(source, before))
    replay(target, events)
    manager.restore_pending_prompts(target.id)
    if source.elsewhere:  # of what was said there nothing can be put back here, wherever the copy was cut
        place = source.record
        target.status("moved", directory=place.directory, project_id=place.project_id, path=place.path)
    target.notify_changed()
    announce(manager, target)
    return target.session.record


def _source_of(source: Session, before: str | None) -> ForkSource | None:
    """The source of the copy, or None without any message, because that is a new session."""
    last = before or next(reversed(source.messages), None)
    return None if last is None else ForkSource(source.id, last, is_included=before is None)


def up_to(events: Sequence[UniversalEvent], session_id: str, before: str | None) -> list[UniversalEvent]:
    """The events before the message `before`, or all."""
    if before is None:
        return list(events)
    reducer = Reducer(session_id, "")
    copies: list[UniversalEvent] = []
    for event in events:
        reducer.load(event, from_rfc3339(event.time))
        if before in reducer.session.messages:
            break
        copies.append(event)
    return copies


def replay(target: SessionState, events: Sequence[UniversalEvent]) -> None:
    """Write the events into the new session's journal, without the ids that clients gave to the old one's messages."""
    renamer = Renamer(target.id)
    source = Reducer(target.id, "")
    answered = {_request_of(event, is_open=False) for event in events}
    for event in events:
        if (request := _request_of(event, is_open=True)) is not None and request not in answered:
            continue  # the source alone waits for it: its end in the copy would close it there
        if event.type in (EventType.SESSION_STARTED, EventType.SESSION_ENDED):
            source.load(event, from_rfc3339(event.time))
            continue
        data = event.data
        if isinstance(data, ItemData):
            meta = data.item.metadata or {}
            if data.item.kind is ItemKind.STATUS and (meta.get("title") or "share" in meta):  # tool calls have titles too
                continue
            item = _rename_status(data.item, source, target) if data.item.kind is ItemKind.STATUS else _without_ids(data.item)
            data = ItemData(item=renamer.item(item, event.time))
        target.copy(event.model_copy(update={"data": data}))
        source.load(event, from_rfc3339(event.time))
    if target.session.record.revert is not None:  # undone messages that are still there are shown again, as in OpenCode
        target.status("revert", revert=None)
    if target.session.record.archived_ms is not None:
        target.change_record(archived_ms=None)
    if target.machine.busy:
        target.apply(Input.ABORT)


def _request_of(event: UniversalEvent, *, is_open: bool) -> str | None:
    """The id of the permission or question that an event opens or closes."""
    match event.data:
        case PermissionData(permission_id=id_, status=status) | QuestionData(question_id=id_, status=status):
            return id_ if (status == "requested") is is_open else None
        case _:
            return None


_NAMES_MESSAGES = ("message.removed", "part.removed", "part.updated", "revert")


def _rename_status(item: Item, source: Reducer, target: SessionState) -> Item:
    """Rename messages and parts in a status item to those of the new session, which have the same order."""
    if not any(isinstance(p, StatusPart) and p.label in _NAMES_MESSAGES for p in item.content):
        return item
    names: dict[str, str] = {source.session.id: target.id}
    pairs = zip(source.session.messages.items(), target.session.messages.items(), strict=False)
    for (old, message), (new, copied) in pairs:
        names |= {old: new, **dict(zip(message.parts, copied.parts, strict=False))}

    def rename(value: Json) -> Json:
        if isinstance(value, dict):
            return {k: rename(v) for k, v in obj(value).items()}
        if isinstance(value, list):
            return [rename(v) for v in arr(value)]
        return names.get(value, value) if isinstance(value, str) else value

    return item.model_copy(update={"metadata": rename(item.metadata)})


def _without_ids(item: Item) -> Item:
    """The item without the ids that a client gave to its prompt, if it is a prompt."""
    if item.role is not ItemRole.USER or (prompt := prompt_of(item)) == NO_PROMPT:
        return item
    return with_prompt(item, prompt.without_ids())


def announce(manager: SessionManager, target: SessionState) -> None:
    """Publish the copied messages to clients, as OpenCode does."""
    for message in target.session.messages.values():
        created = message.info.created_ms
        parts = [PartChanged(message.info.id, part, created) for part in message.all_parts()]
        manager.deps.changes.publish([MessageChanged(message.info), *parts], target.session, created, is_resent=True)


class Renamer:
    """New ids for imported messages, their parts and their parents: a fork must not have those of its source."""

    def __init__(self, session_id: str) -> None:
        self._session_id = session_id
        self._ids = IdSequence()
        self._new: dict[str, str] = {}

    def item(self, item: Item, at: str) -> Item:
        """The item for the other session; `at` as in the event's envelope."""
        message = obj(obj(item.metadata).get("imported"))
        if not message:
            return item
        info, ms = dict(obj(message["info"])), from_rfc3339(at)
        info |= {"id": self._new_id("msg", text(info["id"]), ms), "sessionID": self._session_id}
        if "parentID" in info:
            info["parentID"] = self._new.get(info["parentID"], info["parentID"])
        ids = {"sessionID": self._session_id, "messageID": info["id"]}
        parts = [{**obj(p), **ids, "id": self._new_id("prt", text(obj(p)["id"]), ms)} for p in arr(message["parts"])]
        return item.model_copy(update={"metadata": {**obj(item.metadata), "imported": {"info": info, "parts": parts}}})

    def _new_id(self, prefix: str, old: str, ms: int) -> str:
        value = self._ids.next(ms)
        self._new[old] = render(prefix, value, hashed_tail(f"{self._session_id}:{prefix}:{value}"))
        return self._new[old]
