"""Finds what agents' own programs say in a terminal in conversations that are open here.

Such a program writes to the file of the conversation, and the agent that runs for the session does not read it again. What was
said there is recorded as a turn that no agent knows, so that it goes along with the next prompt as text. What was said while no
agent ran is recorded when a person opens the session, or before its next prompt. The agent that starts then goes on after it, and
knows it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import structlog

from shim.agents.directory import Agent
from shim.lib import disk
from shim.sessions.index.manager import SessionManager
from shim.sessions.prompts.prompt_dispatch import Answer
from shim.sessions.session.actor import SessionActor
from shim.sessions.session.native_sessions import NativeSession
from shim.sessions.transfer.conversations import FILE_BYTES, files_of, ms_of
from shim.sessions.undo.undo import has_undone
from universal.agent_spec import ConversationPrompt, ConversationStore
from universal.events import EventType, ItemData
from universal.items import TextPart
from universal.lib.jsonline import get_text, objects
from universal.lib.jsonvalue import JsonObject
from universal.session.user_prompt import PromptItem, UserPrompt
from universal.session.values import ModelRef, Text

log = structlog.get_logger()

LOOK_EVERY_S = 2.0
"""Seconds between two looks at the files of sessions whose agent runs."""
WRITTEN_ELSEWHERE = (
    "Somebody goes on with this conversation in `{program}`, while it is open here. What is said there is shown here when that "
    "turn is over, and the agent gets it with your next prompt. That program does not read what is said here: close it there, "
    "and open it again when you are done here."
)


@dataclass(slots=True)
class _File:
    """A conversation's file. `end`: how much was read; `rows`: of turns that are not recorded; `told`: of them."""

    path: Path
    end: int
    rows: Sequence[JsonObject] = ()
    told: bool = False


class OtherWriters:
    """Looks at the conversations of all sessions whose agent runs, if it can tell its own lines from others'.

    After a turn of others, the agent's next process continues after the last answer of this one, and not after theirs.
    """

    def __init__(self, manager: SessionManager) -> None:
        self._manager = manager
        self._files: dict[tuple[str, str], _File] = {}

    async def watch(self) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            try:
                await self.look()
            except Exception:  # the next look may find what this one did not
                log.exception("other_writers.failed")

    async def look(self) -> None:
        """Look once. In a file that was not looked at yet, what is older than `NativeSession.others_ms` counts as read."""
        at_ms = self._manager.deps.clock.now_ms()
        found = [it for actor in self._manager.index.actors() if (it := self._conversation(actor)) is not None]
        at_work = {key: (actor, agent) for actor, agent, key in found}
        self._files = {key: file for key, file in self._files.items() if key in at_work}
        if not at_work:
            return
        ready = {key for key, (actor, agent) in at_work.items() if not (_store(agent).at_rest and actor.main.machine.busy)}
        read_ms = {key: actor.native[agent.spec.name].others_ms for key, (actor, agent) in at_work.items()}
        lines = await asyncio.to_thread(self._read, {key: agent for key, (_, agent) in at_work.items()}, ready, read_ms)
        for key, (actor, agent) in at_work.items():
            if key in self._files and key in ready:
                self._note(actor, agent, self._files[key], lines.get(key, ()), at_ms)

    async def catch_up(self, actor: SessionActor) -> None:
        """Record what was said since an agent ran here last.

        Not if own lines are told apart by the agent that runs alone (`ConversationStore.at_rest`).
        """
        found = self._of_agent(actor, actor.main.session.agent) if _is_at_rest(actor) else None
        if found is None or _store(found[0]).at_rest or not (since_ms := found[1].others_ms):
            return
        agent, native = found
        at_ms = self._manager.deps.clock.now_ms()
        rows = await asyncio.to_thread(self._missed_rows, agent, native.id, since_ms)
        if rows and native.others_ms == since_ms and _is_at_rest(actor):
            log.info("conversation.written_meanwhile", session_id=actor.main.id, agent=agent.spec.name)
            native.others_ms = _end_ms(rows, at_ms)
            if (spares := self._manager.deps.spares) is not None:
                spares.renew_conversation(agent.spec.name, actor.directory, native.id)
            self._record(actor, agent, rows, is_known=native.resume_at is None)

    def _missed_rows(self, agent: Agent, id_: str, since_ms: int) -> Sequence[JsonObject]:
        """The rows of turns of another program since a time, if the last of them is over. Blocking."""
        foreign_rows, files = _store(agent).foreign_rows, files_of(self._manager, agent, id_)
        if foreign_rows is None or not files or files[0][0] < since_ms:
            return ()
        path = files[0][1]
        with suppress(OSError), disk.open_file(path) as (file, _):
            file.seek(_end_of_read(path, since_ms))
            rows, is_over = foreign_rows(file.read(FILE_BYTES).splitlines(), (), "")
            return rows if is_over else ()
        return ()

    def _of_agent(self, actor: SessionActor, name: str) -> tuple[Agent, NativeSession] | None:
        """An agent and its conversation in a session, if other programs' lines can be told apart in it."""
        agent, native = self._manager.deps.agents.get(name), actor.native.get(name)
        if agent is None or native is None or (own := agent.spec.abilities.conversations) is None or own.foreign_rows is None:
            return None
        return agent, native

    def _conversation(self, actor: SessionActor) -> tuple[SessionActor, Agent, tuple[str, str]] | None:
        found = self._of_agent(actor, actor.process.agent or "")
        if found is None:
            return None
        agent, native = found
        key = actor.main.id, native.id
        return (actor, agent, key) if actor.process.is_alive or (key in self._files and self._files[key].rows) else None

    def _read(
        self, agents: Mapping[tuple[str, str], Agent], ready: Container[tuple[str, str]], read_ms: Mapping[tuple[str, str], int]
    ) -> dict[tuple[str, str], list[bytes]]:
        """The lines that are new in each file that is ready. Blocking."""
        lines = dict[tuple[str, str], list[bytes]]()
        for key, agent in agents.items():
            with suppress(OSError):
                if (file := self._files.get(key)) is None:
                    for _, path in files_of(self._manager, agent, key[1])[:1]:
                        self._files[key] = _File(path, _end_of_read(path, read_ms[key]))
                elif key in ready and file.path.stat().st_size != file.end:
                    with disk.open_file(file.path) as (opened, _):
                        opened.seek(file.end)
                        new, newline, _ = opened.read(FILE_BYTES).rpartition(b"\n")
                    file.end += len(new) + len(newline)
                    lines[key] = new.splitlines()
        return lines

    def _note(self, actor: SessionActor, agent: Agent, file: _File, lines: Sequence[bytes], at_ms: int) -> None:
        store = _store(agent)
        assert store.foreign_rows is not None
        codec = actor.process.codec
        file.rows, is_over = store.foreign_rows(lines, file.rows, codec.anchor if codec is not None else "")
        if file.rows and not file.told:
            file.told = True
            actor.main.status("notice", WRITTEN_ELSEWHERE.format(program=store.command.partition(" ")[0]))
        if file.rows and is_over and not lines and not actor.main.machine.busy:
            log.info("conversation.written_elsewhere", session_id=actor.main.id, agent=agent.spec.name)
            rows, file.rows, file.told = file.rows, (), False
            actor.native[agent.spec.name].others_ms = _end_ms(rows, at_ms)
            self._record(actor, agent, rows)

    def _record(self, actor: SessionActor, agent: Agent, rows: Sequence[JsonObject], *, is_known: bool = False) -> None:
        """Record turns of another program as one turn here, at once. `is_known`: the agent's next process has them."""
        state, deps, store = actor.main, self._manager.deps, _store(agent)
        model = ModelRef(agent.spec.name, agent.catalogue.default_model or "default")
        native, codec = actor.native.get(agent.spec.name), actor.process.codec
        if native is not None and codec is not None and codec.anchor:  # until the agent answers again, and its lines are the last
            native.resume_at, actor.dispatcher.answer = codec.anchor, Answer()
        with deps.changes.burst, state.journal:
            actor.begin_local_work(lambda: None)  # it is over before anybody could stop it
            for _, said in store.reader().events(rows, deps.ids.new):
                if isinstance(said, ConversationPrompt):
                    prompt = UserPrompt(parts=(Text("", said.text),), mode="build", model=state.session.record.model or model)
                    item = PromptItem.of(deps.ids.new("item"), prompt, (TextPart(text=said.text),))
                    state.record(EventType.ITEM_COMPLETED, ItemData(item=item))
                    known = {"state": "handed", "agent": agent.spec.name} if is_known else {"state": "own"}
                    state.status("prompt", item_id=item.item_id, **known)
                else:
                    state.fact(said)
            actor.end_local_work()


def _end_of_read(path: Path, read_ms: int) -> int:
    """Where the lines begin that are not older than `read_ms`, by their `timestamp`. Blocking. Raises OSError.

    A line without one goes with the next. 0, the row of an earlier version: the end of the file, as that version took it.
    """
    with disk.open_file(path) as (file, state):
        end = state.st_size
        if read_ms:
            file.seek(max(0, end - FILE_BYTES))
            for line in reversed(file.read(min(end, FILE_BYTES)).splitlines(keepends=True)):
                at = next((get_text(row, "timestamp") for row in objects(line)), "")
                if at and ms_of(at) < read_ms:
                    break
                end -= len(line)
        return end


def _end_ms(rows: Sequence[JsonObject], at_ms: int) -> int:
    """The time after these rows, in which others may be written while they are read; `at_ms` if they tell no time."""
    return max((ms_of(at) + 1 for row in rows if (at := get_text(row, "timestamp"))), default=at_ms)


def _is_at_rest(actor: SessionActor) -> bool:
    return not (actor.process.is_alive or actor.main.machine.busy or has_undone(actor))


def _store(agent: Agent) -> ConversationStore:
    store = agent.spec.abilities.conversations
    assert store is not None
    return store
