"""What a session's agent asks of this machine: carried out for the codec that is current, and answered to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shim.runtime.host_calls import HostCalls
from shim.sessions.deps import SessionDeps
from universal.codec import BackgroundingCodec, Codec, HostedCodec, Output
from universal.host import HostAnswer


def host_calls(
    deps: SessionDeps, directory: str, codec: Callable[[], Codec | None], process: Callable[[Sequence[Output]], None]
) -> HostCalls:
    """Those of one session; `process` takes what the codec says to each answer."""

    def answer(told: HostAnswer) -> None:
        current = codec()
        if isinstance(current, HostedCodec):
            process(current.hosted(told))

    return HostCalls(directory, deps.roots, deps.agents.environment, answer)


def moved(codec: Codec | None, process: Callable[[Sequence[Output]], None]) -> bool:
    """Tell an agent to move what its turn waits for to the background; False if it is not there, or cannot be told so."""
    if not isinstance(codec, BackgroundingCodec):
        return False
    process(codec.background())
    return True
