"""Ends the work of a server that is to stop or to be empty, so that no session is lost and other servers go on.

    1  it takes no more sessions, and the other servers know that
    2  event streams end, so that clients attach to another server; not if there is no other
    3  each session without a turn is given up: its agent ends, and another server may claim it
    4  a session with a turn is given up when the turn has ended; after the time limit, the turn fails

Background work and subagents keep a turn open (`universal/turn.py`). Without a cluster, nobody else may
claim a session: then the server waits for its turns, and refuses others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import KW_ONLY, dataclass

import structlog

from shim.sessions.index.manager import SessionManager
from shim.sessions.index.session_entry import SessionEntry
from shim.sessions.placement import Placement
from shim.sessions.session.exit_errors import drain_error
from shim.store.ownership import Ownership

log = structlog.get_logger()

AT_ONCE = 64
"""Sessions that are given up at the same time."""
CHECK_S = 1.0
"""Maximum seconds until it is looked again which sessions are at work."""
GIVE_UP_S = 8.0
"""Maximum seconds to end the turns that are left, and their agents."""


@dataclass(eq=False)
class Drain:
    """The end of this server's work.

    In: `name` of this server for people; `end_streams` ends all event streams.
    """

    _sessions: SessionManager
    _placement: Placement
    _ownership: Ownership
    _: KW_ONLY
    name: str
    end_streams: Callable[[], None]
    is_active: bool = False
    _emptying: asyncio.Task[None] | None = None
    _is_wanted: bool = False

    def empty(self, *, is_wanted: bool) -> None:
        """Give each session up as soon as it has no turn, while the server goes on, or keep those that are left.

        Its `Placement` takes no others meanwhile.
        """
        self._is_wanted = is_wanted
        if is_wanted and (self._emptying is None or self._emptying.done()):
            self._emptying = asyncio.create_task(self._give_up_while_wanted(), name="empty this server")

    async def _give_up_while_wanted(self) -> None:
        while self._is_wanted and await self._give_up_idle():
            pass

    async def close(self) -> None:
        """Finish the step that runs."""
        self._is_wanted = False
        if self._emptying is not None:
            await asyncio.wait([self._emptying])

    async def run(self, seconds: float, stop_listening: Callable[[], Awaitable[None]]) -> None:
        """Give all sessions up, those with a turn after `seconds` at most. If it is cancelled, it gives them up at once."""
        self.is_active, self._is_wanted = True, False
        began = asyncio.get_running_loop().time()
        self._placement.stop_taking()
        at_work = sum(entry.is_at_work for entry in self._loaded_sessions())
        log.info("drain.begun", turns=at_work, seconds=seconds)
        try:
            async with asyncio.timeout(seconds):
                if self._placement.has_successors():
                    await stop_listening()
                    self.end_streams()
                if (spares := self._sessions.deps.spares) is not None:
                    spares.limit = 0
                    spares.drop(None)
                while await self._give_up_idle():  # until all turns have ended
                    pass
        except TimeoutError:
            pass
        finally:
            waited_s = round(asyncio.get_running_loop().time() - began, 1)
            await self._give_up(waited_s)
            log.info("drain.done", seconds=waited_s)

    async def _give_up_idle(self) -> bool:
        """Give up the sessions without a turn, or wait for the end of one. Returns whether there are more."""
        idle = [entry for entry in self._loaded_sessions() if not entry.is_at_work]
        if self._ownership.sessions_move and idle:
            for at in range(0, len(idle), AT_ONCE):
                await asyncio.gather(*map(self._release_idle, idle[at : at + AT_ONCE]))
            return True
        at_work = [entry for entry in self._loaded_sessions() if entry.is_at_work]
        if at_work:
            await _first_end(at_work)
        return bool(at_work)

    async def _release_idle(self, entry: SessionEntry) -> None:
        if entry.state is not None and not entry.is_at_work:
            await self._sessions.others.release(entry)

    async def _give_up(self, waited_s: float) -> None:
        rest = [entry for entry in self._loaded_sessions() if entry.is_at_work]
        if not rest:
            return
        log.warning("drain.turns_given_up", sessions=[entry.record.id for entry in rest[:AT_ONCE]], count=len(rest))
        error = drain_error(self.name, waited_s)
        if self._ownership.sessions_move:
            ends = [self._sessions.others.release(entry, error) for entry in rest]
        else:
            ends = [entry.actor.close(error=error) for entry in rest if entry.actor is not None]
        tasks = [asyncio.ensure_future(end) for end in ends]
        await asyncio.wait(tasks, timeout=GIVE_UP_S)

    def _loaded_sessions(self) -> list[SessionEntry]:
        """Loaded sessions, without those of subagents that belong to another one's actor."""
        entries = [entry for entry in self._sessions.index if entry.state is not None]
        return [entry for entry in entries if entry.actor is None or entry.actor.main is entry.state]


async def _first_end(entries: Sequence[SessionEntry]) -> None:
    """Wait for the end of one of these turns, at most CHECK_S."""
    states = [entry.state for entry in entries if entry.state is not None]
    states += [child for entry in entries if entry.actor is not None for child in entry.actor.children]
    waits = [asyncio.ensure_future(state.idle()) for state in states if state.machine.busy]
    if waits:
        await asyncio.wait(waits, timeout=CHECK_S, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        await asyncio.wait(waits)
