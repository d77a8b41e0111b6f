"""Lists conversations that agents have stored themselves, and opens one: a session with its history, in which prompts go on."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from shim.agents.directory import Agent
from shim.host.files.roots import require
from shim.host.git.projects import Identity
from shim.lib import disk
from shim.lib.errors import InvalidRequest
from shim.processes.answers import ask
from shim.sessions.index.manager import SessionManager
from shim.sessions.session.native_sessions import NativeSession
from shim.sessions.session.session_state import SessionState
from shim.sessions.transfer.fork import announce
from universal.agent_spec import Conversation, ConversationEvent, ConversationPrompt
from universal.events import EventData, EventType, ItemData, Source, TurnData, UniversalEvent
from universal.items import TextPart
from universal.lib.jsonline import objects, result_of
from universal.lib.jsonvalue import JsonObject
from universal.session.model import SessionRecord
from universal.session.user_prompt import PromptItem, UserPrompt
from universal.session.values import ModelRef, Text

LOOK_BYTES = 2**17
"""Bytes that are read of the beginning and of the end of each file for the list."""
FILE_BYTES = 2**26
"""Maximum size of a conversation that is opened: 64 MiB. Claude Code writes 350 KB for five small turns."""
LISTED = 200
COPIED = 50
"""Events that are copied before others have the loop."""
ANSWER_S = 30.0
"""Seconds for an answer of the agent's own program. Codex: 0.7 s with one conversation."""
PROGRAM_LINES = 200_000
"""Lines that are read of its output."""
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

    def look() -> Iterator[Conversation]:
        for updated_ms, path in _files(manager, agent, "*"):
            if updated_ms < since_ms:
                break
            own = _read(agent, path, directory)
            if own is not None:
                yield own._replace(updated_ms=updated_ms)

    if (store := agent.spec.abilities.conversations) is None:
        return []
    if store.files:
        found = await asyncio.to_thread(lambda: [*islice(look(), LISTED)])
    else:
        told = await _ask_program(manager, agent, directory)
        found = [own for rows in told if (own := store.reader().read(rows)) is not None]
    return [
        StoredSession(own, own.updated_ms, here.get(own.id, ""))
        for own in found
        if own.directory == directory and (own.updated_ms >= since_ms or not own.updated_ms)
    ]


async def open_stored(manager: SessionManager, agent: Agent, id_: str, project: Identity, directory: str) -> SessionRecord:
    """Make a session of a conversation, or return the one that has it. Raises InvalidRequest, LimitReached, Forbidden."""
    name, store, model = agent.spec.name, agent.spec.abilities.conversations, agent.catalogue.default_model or "default"

    def find() -> SessionRecord | None:
        return next((e.record for e in manager.index if (native := e.native.get(name)) is not None and native.id == id_), None)

    if (record := find()) is not None:
        return record
    if store is None or _ID.fullmatch(id_) is None:
        raise InvalidRequest(f"{agent.spec.title} has no conversation {id_[:100]} that could be opened.", path=("id",))

    def look(rows: Sequence[JsonObject]) -> tuple[Conversation | None, list[ConversationEvent]]:
        own = store.reader().read(rows) if rows else None
        for _, path in _files(manager, agent, id_):
            with disk.open_file(path) as (file, state):
                if state.st_size > FILE_BYTES:
                    raise InvalidRequest(f"{path.name} has {state.st_size} bytes; at most {FILE_BYTES} are read.", path=("id",))
                rows = [*objects(file.read(FILE_BYTES))]
            own = store.reader().read(rows)
        is_here = own is not None and own.directory == directory
        return own, [*store.reader().events(rows, manager.deps.ids.factory())] if is_here else []

    told = () if store.files else await _ask_program(manager, agent, directory, id_)
    own, events = await asyncio.to_thread(look, next(iter(told), ()))
    if own is None or own.directory != directory:
        where = f" It is one of {own.directory}." if own is not None else ""
        raise InvalidRequest(f"{agent.spec.title} has stored no conversation {id_} of this directory.{where}", path=("id",))
    await require(directory, manager.deps.roots)
    if (record := find()) is not None:  # somebody else has opened it meanwhile
        return record
    metadata = {"own_session": {"agent": name, "id": id_, "command": store.command.format(id=id_)}}
    title = f"{own.title} ({agent.spec.title})"
    record = manager.create(directory, project, title=title, agent_name=name, path=project.path_of(directory), metadata=metadata)
    entry = manager.index.get(record.id)
    entry.native[name] = NativeSession(id_, started=True)
    state = await manager.state(record.id)
    await _copy(state, events, manager, ModelRef(name, model))
    manager.index.save(entry)
    state.notify_changed()
    announce(manager, state)
    return state.session.record


async def _copy(state: SessionState, events: Sequence[ConversationEvent], manager: SessionManager, model: ModelRef) -> None:
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
    for place, (at, said) in enumerate(events):
        if place % COPIED == 0:
            await asyncio.sleep(0)  # a long history would hold up every other client
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
    """(time of the last change in ms, path) of the agent's files with this id, the newest first. Blocking."""
    folder, own = agent.spec.rules.own_folder, agent.spec.abilities.conversations
    if folder is None or own is None:
        return []
    environ = manager.deps.agents.environment()
    place = environ.get(folder.variable) or folder.path.replace("~", environ.get("HOME") or str(Path.home()), 1)
    found = list[tuple[int, Path]]()
    for path in Path(place).glob(own.files.format(id=name)) if own.files else ():
        with suppress(OSError):  # removed meanwhile
            state = path.lstat()
            found += [(int(state.st_mtime * 1000), path)] if disk.is_regular(state) else []  # no link, no pipe
    return sorted(found, reverse=True)


def _read(agent: Agent, path: Path, directory: str) -> Conversation | None:
    """The conversation of a file, from its beginning and its end. None for one of another directory, or that is gone."""
    own = agent.spec.abilities.conversations
    with suppress(OSError), disk.open_file(path) as (file, state):
        head = file.read(LOOK_BYTES)
        file.seek(max(state.st_size - LOOK_BYTES, len(head)))
        tail = file.read(LOOK_BYTES)
        name = json.dumps(directory, ensure_ascii=False).encode()
        if own is None or (name not in head and name not in tail):  # most files are of other projects, and are not parsed
            return None
        session = own.reader().read([*objects(head), *objects(tail)])
        return session._replace(id=path.stem.rpartition("_")[2]) if session is not None else None
    return None


async def _require_trust(manager: SessionManager, agent: Agent, directory: str) -> None:
    """Raise InvalidRequest if the agent would load settings of a project that nobody has trusted."""
    trust, families = manager.deps.trust, agent.spec.rules.project_settings.reads
    if trust is not None and not await asyncio.to_thread(trust.is_trusted, directory, families):
        raise InvalidRequest(
            f"{agent.spec.title} would load settings of this project that run programs or allow calls, and nobody has trusted "
            f"them. To trust them: `opencode-shim trust {directory}`; then open the conversation again."
        )


async def _ask_program(manager: SessionManager, agent: Agent, directory: str, id_: str = "") -> Sequence[Sequence[JsonObject]]:
    """The rows of each conversation that the agent's own program tells; none for an error. Raises AgentError, InvalidRequest."""
    store, path = agent.spec.abilities.conversations, agent.located.path
    if store is None or store.program is None or path is None:
        return ()
    program = store.program()
    asked = program.ask(directory, id_)
    if asked.loads:
        await _require_trust(manager, agent, directory)
    environ = {**manager.deps.agents.environment(), **asked.variables}

    def is_last(line: str) -> bool:
        return bool(asked.lines) and result_of(objects(line.encode()), 1) is not None

    argv = (path, *asked.args)
    output = await ask(argv, environ, wait_s=ANSWER_S, lines=asked.lines, enough=is_last, most_lines=PROGRAM_LINES)
    return await asyncio.to_thread(program.parse, output.text, id_)
