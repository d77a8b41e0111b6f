"""Finds out that a person has opened a session or a directory.

Then its agent may be started ahead (`SpareAgents`), and what the agent's own program has said meanwhile is shown.

A TUI reads messages, todos and diffs of a session at once when a person opens it, and at no other time (1.18.33). The web UI
reads its messages, as a page of the same origin. Clients that list or poll sessions give neither sign.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import TYPE_CHECKING, Literal, TypeAlias

import structlog

from shim.lib.errors import ShimError

if TYPE_CHECKING:
    from shim.sessions.index.manager import SessionManager

log = structlog.get_logger()

Read: TypeAlias = Literal["messages", "todos", "diffs"]
"""A part of a session that a client has read."""

ALL_READS = frozenset[Read](("messages", "todos", "diffs"))
TOGETHER_MS = 5_000
"""Milliseconds within which a TUI reads all parts of a session that it opens."""
LATELY_MS = 7 * 24 * 3600 * 1000
"""Milliseconds that a directory counts as used after the last change of one of its sessions."""
CLIENTS = 64
"""Number of clients whose last reads are kept."""


@dataclass(frozen=True, slots=True)
class _Reads:
    """What a client has read of its last session since `since_ms`."""

    session_id: str
    since_ms: int
    parts: frozenset[Read]


class OpenSigns:
    """The last reads of each client of one server."""

    def __init__(self, manager: SessionManager) -> None:
        self._manager = manager
        self._reads: OrderedDict[str, _Reads] = OrderedDict()
        self._reading: set[asyncio.Task[None]] = set()

    def note(self, client: str, session_id: str, read: Read, now_ms: int) -> bool:
        """Note a read of a client. True if it completes the sign that a person has opened the session."""
        reads = self._reads.get(client)
        if reads is None or reads.session_id != session_id or now_ms - reads.since_ms > TOGETHER_MS:
            reads = _Reads(session_id, now_ms, frozenset[Read]())
        elif read in reads.parts:
            return False
        reads = replace(reads, parts=reads.parts | {read})
        self._reads.pop(client, None)
        if reads.parts == ALL_READS:
            return True
        self._reads[client] = reads
        while len(self._reads) > CLIENTS:
            self._reads.popitem(last=False)
        return False

    def note_visit(self, directory: str) -> None:
        """A client looks at a directory. Its last agent may be started, if it answered there lately.

        Nothing is started in a directory in which nobody has prompted: a repository runs no program by being looked at.
        """
        deps, index = self._manager.deps, self._manager.index
        spares = deps.spares
        if spares is None or not spares.has_room:
            return
        since_ms = deps.clock.now_ms() - LATELY_MS
        for record in takewhile(lambda record: record.updated_ms >= since_ms, index.newest_first()):
            if record.directory == directory and not (entry := index.get(record.id)).subagent and entry.native:
                agent = deps.agents.get(index.agent_of(record.id))
                if agent is not None:
                    spares.note_visit(agent, directory)
                return

    def note_read(self, session_id: str, read: Read, client: str, *, is_page: bool = False) -> None:
        """A client has read a part of a session. If that shows that a person has opened it, its agent may be started ahead.

        What the agent's own program has said since an agent ran here is recorded then.

        In: `client`, its address and name; `is_page`, whether it is a page of this server.
        """
        deps, manager = self._manager.deps, self._manager
        is_opened = is_page and read == "messages"
        if not is_opened and not self.note(client, session_id, read, deps.clock.now_ms()):
            return
        entry, spares = manager.index.find(session_id), deps.spares
        if entry is None or entry.subagent or entry.ended or manager.others.owner(session_id) is not None:
            return
        agent, native = deps.agents.get(entry.agent), entry.native.get(entry.agent)
        runs = entry.busy or (entry.actor is not None and entry.actor.process.is_alive)
        if agent is None or native is None or not native.started or runs:
            return
        if agent.spec.abilities.conversations is not None:
            task = asyncio.create_task(self._catch_up(session_id), name=f"read the conversation of {session_id}")
            self._reading.add(task)
            task.add_done_callback(self._reading.discard)
        directory = entry.current_record.directory
        # What was undone is cut off at the next prompt, and not before.
        if spares is not None and not native.resume_at and deps.listened(directory, session_id):
            spares.note_open(agent, directory, native.id)

    async def _catch_up(self, session_id: str) -> None:
        try:
            await self._manager.deps.catch_up(await self._manager.actor(session_id))
        except ShimError as error:  # it is tried again before the next prompt
            log.info("conversation.not_read", session_id=session_id, error=str(error))
        except Exception:  # nobody waits for it, and the session is read as it is
            log.exception("conversation.not_read", session_id=session_id)
