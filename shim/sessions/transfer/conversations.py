"""Lists conversations that agents have stored themselves, and opens one: a session with its history, in which prompts go on."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from shim.agents.directory import Agent
from shim.host.files.roots import require
from shim.lib import disk
from shim.lib.errors import InvalidRequest
from shim.sessions.index.manager import SessionManager
from shim.sessions.session.dependencies import DirectoryProject
from shim.sessions.session.native_sessions import NativeSession
from shim.sessions.session.session_state import SessionState
from shim.sessions.transfer.fork import announce
from universal.codec import Conversation, ConversationEvent, ConversationPrompt
from universal.events import EventData, EventType, ItemData, Source, TurnData, UniversalEvent
from universal.items import TextPart
from universal.lib.jsonline import parse
from universal.lib.jsonvalue import JsonObject
from universal.session.model import SessionRecord
from universal.session.user_prompt import PromptItem, UserPrompt
from universal.session.values import ModelRef, Text

LOOK_BYTES = 2**17
"""Bytes that are read of the beginning and of the end of each file for the list."""
FILE_BYTES = 2**28
LISTED = 200
DAY_MS = 86_400_000
_ID = re.compile(r"[A-Za-z0-9_-]{8,64}")


class StoredSession(NamedTuple):
    """A conversation, when it was written last (ms since 1970), and the session that has it here ("" for none)."""

    own: Conversation
    updated_ms: int
    session_id: str


async def stored_sessions(manager: SessionManager, agent: Agent, directory: str, days: int) -> list[StoredSession]:
    """The conversations of an agent in a directory that it has written in so many days, the newest first."""
    here = {native.id: entry.record.id for entry in manager.index if (native := entry.native.get(agent.spec.name)) is not None}
    since_ms = manager.deps.clock.now_ms() - days * DAY_MS

    def look() -> list[StoredSession]:
        found: list[StoredSession] = []
        for updated_ms, path in _files(manager, agent, "*"):
            if updated_ms < since_ms or len(found) == LISTED:
                break
            own = _read(agent, path)
            if own is not None and own.directory == directory:
                found.append(StoredSession(own, updated_ms, here.get(own.id, "")))
        return found

    return await asyncio.to_thread(look)


async def open_stored(
    manager: SessionManager, agent: Agent, id_: str, project: DirectoryProject, directory: str
) -> SessionRecord:
    """Make a session of a conversation, or return the one that has it. Raises InvalidRequest, LimitReached, Forbidden."""
    name = agent.spec.name
    for entry in manager.index:
        if (native := entry.native.get(name)) is not None and native.id == id_:
            return entry.record
    if agent.spec.conversations is None or _ID.fullmatch(id_) is None:
        raise InvalidRequest(f"{agent.spec.title} has no conversation {id_[:100]} that could be opened.", path=("id",))

    def look() -> tuple[Conversation | None, list[JsonObject]]:
        for _, path in _files(manager, agent, id_):
            with disk.open_file(path) as (file, _state):
                return _read(agent, path), [*_rows(file.read(FILE_BYTES))]
        return None, []

    own, rows = await asyncio.to_thread(look)
    if own is None or own.directory != directory:
        where = f" It is one of {own.directory}." if own is not None else ""
        raise InvalidRequest(f"{agent.spec.title} has stored no conversation {id_} of this directory.{where}", path=("id",))
    await require(directory, manager.deps.roots)
    command = agent.spec.conversations.command.format(id=id_)
    metadata = {"own_session": {"agent": name, "id": id_, "command": command}}
    title = f"{own.title} ({agent.spec.title})"
    record = manager.create(directory, project, title=title, agent_name=name, path=project.path_of(directory), metadata=metadata)
    state = await manager.state(record.id)
    model = ModelRef(name, agent.catalogue.default_model or "default")
    events = agent.spec.conversations.events(rows, manager.deps.ids.factory())
    _copy(state, events, manager, model)
    actor = await manager.actor(record.id)
    actor.native[name] = NativeSession(id_, started=True)
    if (entry := manager.index.find(record.id)) is not None:
        manager.index.save(entry)
    state.notify_changed()
    announce(manager, state)
    return state.session.record


def _copy(state: SessionState, events: Iterator[ConversationEvent], manager: SessionManager, model: ModelRef) -> None:
    """Write what was said into a session's journal, each prompt with its answer as a turn."""
    turn_id = ""

    def note(at: str, type_: EventType, data: EventData, raw: object = None) -> None:
        event = UniversalEvent(
            event_id="",
            sequence=0,
            time=at,
            session_id=state.id,
            source=Source.AGENT,
            synthetic=False,
            type=type_,
            data=data,
            raw=raw,
        )
        state.copy(event)

    at = ""
    for at, said in events:
        if isinstance(said, ConversationPrompt):
            if turn_id:
                note(at, EventType.TURN_ENDED, TurnData(phase="ended", turn_id=turn_id, metadata={"reason": "completed"}))
            prompt = UserPrompt(parts=(Text("", said.text),), mode="build", model=model)
            item = PromptItem.of(manager.deps.ids.new("item"), prompt, (TextPart(text=said.text),))
            note(at, EventType.ITEM_COMPLETED, ItemData(item=item))
            turn_id = manager.deps.ids.new("turn")
            note(at, EventType.TURN_STARTED, TurnData(phase="started", turn_id=turn_id, metadata={"origin": "user"}))
        elif turn_id:
            note(at, said.type, said.data, said.raw)
    if turn_id:
        note(at, EventType.TURN_ENDED, TurnData(phase="ended", turn_id=turn_id, metadata={"reason": "completed"}))


def _files(manager: SessionManager, agent: Agent, name: str) -> list[tuple[int, Path]]:
    """(time of the last change in ms, path) of the agent's files with this name, the newest first. Blocking."""
    folder, own = agent.spec.own_folder, agent.spec.conversations
    if folder is None or own is None:
        return []
    environ = manager.deps.agents.environment()
    place = environ.get(folder.variable) or folder.path.replace("~", environ.get("HOME") or str(Path.home()), 1)
    found = Path(place).glob(own.files.replace("*.jsonl", f"{name}.jsonl"))
    return sorted(((int(path.stat().st_mtime * 1000), path) for path in found), reverse=True)


def _read(agent: Agent, path: Path) -> Conversation | None:
    own = agent.spec.conversations
    with disk.open_file(path) as (file, state):
        head = file.read(LOOK_BYTES)
        file.seek(max(state.st_size - LOOK_BYTES, len(head)))
        rows = [*_rows(head), *_rows(file.read(LOOK_BYTES))]
    session = own.read(rows) if own is not None else None
    return session._replace(id=path.stem) if session is not None else None


def _rows(data: bytes) -> Iterator[JsonObject]:
    """The JSON objects among the lines of a piece of a file, whose first and last line may be cut."""
    for line in data.splitlines():
        with suppress(ValueError):
            row = parse(line)
            if isinstance(row, dict):
                yield row
