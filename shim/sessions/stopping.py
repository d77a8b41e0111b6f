"""Agents' processes that are of no more use to a session, until they have ended."""

from __future__ import annotations

import asyncio

from shim.agents.handle import AgentHandle

CLOSE_S = 3.0
"""For an agent to end by itself when the server stops; the whole stop must stay under 5 s."""


class Stopping:
    """Those of one session."""

    def __init__(self, session_id: str) -> None:
        self._session_id = session_id
        self._handles: dict[asyncio.Task[None], AgentHandle] = {}

    def add(self, handle: AgentHandle, *, kill: bool) -> None:
        """Stop it, in the background: politely, or at once."""
        if kill:
            handle.kill()
        task = asyncio.get_running_loop().create_task(handle.stop(), name=f"stop {self._session_id}")
        self._handles[task] = handle
        task.add_done_callback(lambda done: self._handles.pop(done, None))

    async def close(self) -> None:
        """Wait for all of them: politely for CLOSE_S, then they are killed."""
        if self._handles:
            await asyncio.wait(self._handles, timeout=CLOSE_S)
        for handle in list(self._handles.values()):
            handle.kill()
        if self._handles:
            await asyncio.wait(self._handles)
