"""Lists conversations that agents have stored themselves, and opens one: a session with its history, in which prompts go on.

A list of sessions shows them under ids of their own, marked by the agent's name. A request for such an id opens the conversation
(docs/adr/0041-sessions-of-agents-own-programs.md).
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter, OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import nullcontext, suppress
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from shim.agents.directory import Agent
from shim.host.files.roots import require
from shim.host.git.projects import GLOBAL, Identity
from shim.lib import disk
from shim.lib.clock import DAY_MS
from shim.lib.errors import InvalidRequest, ShimError
from shim.lib.ids import slug
from shim.lib.tasks import end_tasks, retrieve_error
from shim.sessions.index.manager import SessionManager
from shim.sessions.session.native_sessions import NativeSession
from shim.sessions.session.session_state import SessionState
from shim.sessions.transfer.fork import announce
from shim.sessions.transfer.removals import ask_program
from universal.agent_spec import Conversation, ConversationEvent, ConversationPrompt
from universal.events import EventData, EventType, ItemData, Source, TurnData, UniversalEvent
from universal.items import Item, ItemKind, ItemStatus, Json, StatusPart, TextPart
from universal.lib.jsonline import objects
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
LIST_WAIT_S = 2.0
"""Seconds that a list of sessions waits for the agents' own. What comes later is in the next answer."""
FRESH_MS = 20_000
"""Milliseconds until an agent's list is read again."""
LISTS = 64
"""Lists, each of an agent in a directory, that are kept."""
OFFERS = 2_000
"""Conversations that have an id, since a list has shown them."""
PROGRAMS = 2
"""Programs of agents that are asked for their lists at once."""
OWN_SESSION = "own_session"
"""Key of a session's metadata: the agent, the id and the command of the conversation of the agent's own program."""
JUST_WRITTEN_MS = 600_000
"""Milliseconds since its last change in which a conversation may still be open in the agent's own program."""
OPEN_ELSEWHERE = (
    "{agent} has written to this conversation in the last ten minutes, so that it may still be open in a terminal. Close it "
    "there before you go on here."
)
_ID = re.compile(r"[A-Za-z0-9_-]{8,64}")


class StoredSession(NamedTuple):
    """A conversation, when it was written last (ms since 1970), and the session that has it here ("" for none)."""

    own: Conversation
    updated_ms: int
    session_id: str


class NativeSessions:
    """The conversations of agents' own programs that lists of sessions show. `late`: lists that came too late, by agent."""

    def __init__(self, manager: SessionManager) -> None:
        self.late = Counter[str]()
        self._manager = manager
        self._lists = OrderedDict[tuple[str, str], tuple[int, Sequence[Conversation]]]()
        self._reading: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._ids: dict[tuple[str, str], str] = {}
        self._offers = OrderedDict[str, tuple[str, Conversation]]()
        self._opening: dict[tuple[str, str], asyncio.Task[SessionRecord]] = {}
        self._room = asyncio.Semaphore(PROGRAMS)

    async def close(self) -> None:
        await end_tasks(*self._reading.values(), *self._opening.values())

    async def records(self, directory: str, search: str | None) -> Sequence[SessionRecord]:
        """What a list shows of a directory beside the sessions, as records without a session, the newest first.

        Each conversation once, and none that has a session.
        """
        deps = self._manager.deps
        which = deps.settings.native_sessions
        if which == "off" or not (search or which == "list") or deps.store.ownership.sessions_move:
            return ()
        agents = [agent for agent in deps.agents.usable() if agent.spec.abilities.conversations is not None]
        project = await deps.find_project(directory)
        tasks = {agent.spec.name: task for agent in agents if (task := self._read_again(agent, directory)) is not None}
        if tasks:
            await asyncio.wait(tasks.values(), timeout=LIST_WAIT_S)
        self.late.update(name for name, task in tasks.items() if not task.done())
        if project is None:
            return ()
        seen = {native.id for entry in self._manager.index for native in entry.native.values()}
        records = list[SessionRecord]()
        for agent in agents:
            for own in self._lists.get((agent.spec.name, directory), (0, ()))[1]:
                if own.id not in seen:
                    seen.add(own.id)
                    records.append(self._record(agent, own, project))
        return sorted(records, key=lambda record: -record.updated_ms)

    async def open(self, agent: Agent, id_: str, directory: str, session_id: str | None = None) -> SessionRecord:
        """Open a conversation, once for all who ask. Raises InvalidRequest, LimitReached, OutsideRoots."""
        key = agent.spec.name, id_
        if (task := self._opening.get(key)) is None:
            work = open_stored(self._manager, agent, id_, directory, session_id or self._ids.get(key))
            task = self._opening[key] = asyncio.create_task(work, name=f"open {id_}")
            task.add_done_callback(lambda _: self._opening.pop(key, None))
            task.add_done_callback(retrieve_error)
        return await asyncio.shield(task)

    async def open_listed(self, session_id: str) -> bool:
        """Open the conversation that a list has shown under this id; False if there is none. Raises as `open`."""
        name, own = self._offers.get(session_id, ("", None))
        agent = self._manager.deps.agents.get(name)
        if own is None or agent is None:
            return False
        return (await self.open(agent, own.id, own.directory, session_id)).id == session_id

    def _read_again(self, agent: Agent, directory: str) -> asyncio.Task[None] | None:
        """Read an agent's list, unless it is current. None: it is."""
        key = agent.spec.name, directory
        at, _ = self._lists.get(key, (-FRESH_MS, ()))
        if key in self._reading or self._manager.deps.clock.now_ms() - at < FRESH_MS:
            return self._reading.get(key)
        task = self._reading[key] = asyncio.create_task(self._read_list(agent, directory), name=f"list {agent.spec.name}")
        task.add_done_callback(lambda _: self._reading.pop(key, None))
        return task

    async def _read_list(self, agent: Agent, directory: str) -> None:
        store, deps = agent.spec.abilities.conversations, self._manager.deps
        found: list[StoredSession] = []
        with suppress(ShimError):  # an agent that does not start has no list
            async with self._room if store is not None and not store.files else nullcontext():
                found = await stored_sessions(self._manager, agent, directory, deps.settings.native_sessions_days)
        self._lists[agent.spec.name, directory] = deps.clock.now_ms(), [one.own for one in found]
        while len(self._lists) > LISTS:
            self._lists.popitem(last=False)

    def _record(self, agent: Agent, own: Conversation, project: Identity) -> SessionRecord:
        key = agent.spec.name, own.id
        if (session_id := self._ids.get(key)) is None:
            session_id = self._ids[key] = self._manager.deps.ids.new("session")
        self._offers[session_id] = agent.spec.name, own
        self._offers.move_to_end(session_id)
        while len(self._offers) > OFFERS:
            _, (name, oldest) = self._offers.popitem(last=False)
            del self._ids[name, oldest.id]
        created_ms = ms_of(own.created) or own.updated_ms
        return SessionRecord(
            session_id,
            slug(session_id),
            self._manager.deps.session_version,
            project.id,
            own.directory,
            project.path_of(own.directory),
            _title(agent, own),
            created_ms,
            own.updated_ms or created_ms,
            model=ModelRef(agent.spec.name, agent.catalogue.default_model or "default"),
            metadata=_metadata(agent, own.id),
        )


def _title(agent: Agent, own: Conversation) -> str:
    """The title of a conversation's session, which says where it was begun."""
    return f"{agent.spec.title} · {own.title}"


def _metadata(agent: Agent, id_: str) -> dict[str, Json]:
    store = agent.spec.abilities.conversations
    return {OWN_SESSION: {"agent": agent.spec.name, "id": id_, "command": store.command.format(id=id_) if store else ""}}


def ms_of(at: str) -> int:
    """Unix milliseconds of a time in any form of ISO 8601, or 0."""
    with suppress(ValueError):
        return int(datetime.fromisoformat(at).timestamp() * 1000)
    return 0


async def stored_sessions(manager: SessionManager, agent: Agent, directory: str, days: int) -> list[StoredSession]:
    """The conversations of an agent in a directory that it has written in so many days, the newest first."""
    here = {native.id: entry.record.id for entry in manager.index if (native := entry.native.get(agent.spec.name)) is not None}
    since_ms = manager.deps.clock.now_ms() - days * DAY_MS

    def look() -> Iterator[Conversation]:
        for updated_ms, path in files_of(manager, agent, "*"):
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


async def open_stored(
    manager: SessionManager, agent: Agent, id_: str, directory: str, session_id: str | None = None
) -> SessionRecord:
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
        for _, path in files_of(manager, agent, id_):
            with disk.open_file(path) as (file, state):
                if state.st_size > FILE_BYTES:
                    raise InvalidRequest(f"{path.name} has {state.st_size} bytes; at most {FILE_BYTES} are read.", path=("id",))
                rows = [*objects(file.read(FILE_BYTES))]
            own = store.reader().read(rows)
            own = own._replace(updated_ms=int(state.st_mtime * 1000)) if own is not None else None
        is_here = own is not None and own.directory == directory
        return own, [*store.reader().events(rows, manager.deps.ids.new)] if is_here else []

    told = () if store.files else await _ask_program(manager, agent, directory, id_)
    own, events = await asyncio.to_thread(look, next(iter(told), ()))
    if own is None or own.directory != directory:
        where = f" It is one of {own.directory}." if own is not None else ""
        raise InvalidRequest(f"{agent.spec.title} has stored no conversation {id_} of this directory.{where}", path=("id",))
    await require(directory, manager.deps.roots)
    project = await manager.deps.find_project(directory) or Identity(GLOBAL, "/")
    if (record := find()) is not None:  # somebody else has opened it meanwhile
        return record
    record = manager.create(
        directory,
        project,
        title=_title(agent, own),
        agent_name=name,
        session_id=session_id,
        path=project.path_of(directory),
        metadata=_metadata(agent, id_),
    )
    entry = manager.index.get(record.id)
    entry.native[name] = NativeSession(id_, started=True)
    state = await manager.state(record.id)
    await _copy(state, events, manager, ModelRef(name, model))
    manager.index.save(entry)
    if manager.deps.clock.now_ms() - (own.updated_ms or 0) < JUST_WRITTEN_MS:
        state.status("notice", OPEN_ELSEWHERE.format(agent=agent.spec.title))
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
            status = Item(
                item_id=manager.deps.ids.new("item"),
                kind=ItemKind.STATUS,
                status=ItemStatus.COMPLETED,
                content=(StatusPart(label="prompt"),),
                metadata={"state": "handed", "item_id": item.item_id, "agent": model.provider_id},
            )
            note(at, EventType.ITEM_COMPLETED, ItemData(item=status))
        elif turn_id:
            note(at, said.type, said.data, said.raw)
    if turn_id:
        note(at, EventType.TURN_ENDED, TurnData(phase="ended", turn_id=turn_id, metadata={"reason": "completed"}))


def files_of(manager: SessionManager, agent: Agent, name: str) -> list[tuple[int, Path]]:
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
    output = await ask_program(manager.deps.agents, path, asked, ANSWER_S, PROGRAM_LINES)
    return await asyncio.to_thread(program.parse, output.text, id_)
