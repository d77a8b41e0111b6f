"""Decides when the checkpoints of sessions are written: after their turns, once nobody waits for the server.

A client that has seen the end of a turn reads the session again at once, and a program sends its next prompt. To encode a
checkpoint takes time of the interpreter from them, so it waits until the session is quiet.
"""

from __future__ import annotations

import asyncio

from shim.sessions.history import checkpoints
from shim.sessions.session.session_state import SessionState
from shim.store.base import Store

QUIET_S = 2.0
"""Seconds without a change of a session before its checkpoint is written."""
OVERDUE = 10_000
"""Events after which a checkpoint does not wait: a session is opened in about a second from so many."""
CLOSE_S = 5.0
"""Maximum seconds that a stopping server waits for checkpoints."""


class CheckpointWriter:
    """Writes checkpoints to the store, in tasks."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._due: dict[str, tuple[asyncio.TimerHandle, SessionState]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False

    def note(self, state: SessionState) -> None:
        """Note that a session has changed. Its checkpoint is written soon if one is due."""
        waiting = self._due.pop(state.id, None)
        if waiting is not None:
            waiting[0].cancel()
        if self._is_closed or state.journal.is_closed or not checkpoints.is_due(state):
            return
        delay_s = QUIET_S if state.sequence - state.stored.sequence < OVERDUE else 0
        self._due[state.id] = asyncio.get_running_loop().call_later(delay_s, self._write, state), state

    def _write(self, state: SessionState) -> None:
        self._due.pop(state.id, None)
        if state.journal.is_closed:
            return
        task = asyncio.create_task(checkpoints.save_in_steps(state, self._store), name=f"checkpoint {state.id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Write those that are due, within CLOSE_S. Later changes are not noted."""
        self._is_closed = True
        for timer, state in tuple(self._due.values()):
            timer.cancel()
            self._write(state)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSE_S)
