"""The processes of a session's agents: what they ask of this machine, and how they are stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from shim.agents.handle import AgentHandle
from shim.runtime.host_calls import HostCalls
from shim.sessions.dependencies import SessionDeps
from universal.codec import BackgroundingCodec, Codec, HostedCodec, Output
from universal.host import HostAnswer

CLOSE_S = 3.0
"""For an agent to end by itself when the server stops; the whole stop must stay under 5 s."""


class RetiringProcesses:
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


def host_calls(
    deps: SessionDeps, directory: str, codec: Callable[[], Codec | None], process: Callable[[Sequence[Output]], None]
) -> HostCalls:
    """Those of one session; `process` takes what the codec says to each answer."""

    def answer(told: HostAnswer) -> None:
        current = codec()
        if isinstance(current, HostedCodec):
            process(current.hosted(told))

    return HostCalls(directory, deps.roots, deps.agents.environment, answer)


def move_to_background(codec: Codec | None, process: Callable[[Sequence[Output]], None]) -> bool:
    """Tell an agent to move what its turn waits for to the background; False if it is not there, or cannot be told so."""
    if not isinstance(codec, BackgroundingCodec):
        return False
    process(codec.background())
    return True
