"""What an agent offers, asked of the agent itself, and kept for the next start.

`discover` starts a throw-away agent, does the codec's handshake until `codec.catalogue` is set, and stops it again.
No prompt is sent, so it costs nothing. `Kept` is what the store holds: it counts only for the very file that was asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeAlias

from pydantic import TypeAdapter, ValidationError

from shim.agents.handle import AgentHandle, OnExit, OnLines
from shim.errors import AgentError
from universal.codec import Catalogue, Codec, Exit, Fact, Output, Signal, Stop, WriteLine
from universal.events import ErrorData
from universal.items import Json
from universal.jsonvalue import obj, text
from universal.turn import Input

DISCOVERY_TIMEOUT_S = 20.0
"""For an agent to tell what it offers. Claude Code takes 1 to 3 s, more on its first start from a cold disk."""
STDERR_SHOWN_CHARS = 500
"""So much of what a failing agent wrote is shown."""

Spawn: TypeAlias = Callable[[Codec, OnLines, OnExit], Awaitable[AgentHandle]]
"""Starts a process for this codec. Raises AgentError."""


class DiscoveryFailed(AgentError):
    """The agent did not say what it offers; the text says why, `code` is that of its error if it told one."""

    def __init__(self, why: str, code: str = "") -> None:
        super().__init__(why)
        self.code = code


async def discover(
    codec: Codec, spawn: Spawn, tell: Callable[[Catalogue], None], *, timeout_s: float = DISCOVERY_TIMEOUT_S
) -> None:
    """Ask one agent. `tell` gets its catalogue as soon as it is known; this returns when the process is gone.

    Cancelling it ends the process at once. Raises: DiscoveryFailed, and what `spawn` raises.
    """
    known: asyncio.Future[Catalogue] = asyncio.get_running_loop().create_future()
    handle: AgentHandle | None = None

    def act(outputs: Sequence[Output]) -> None:
        if codec.catalogue is not None and not known.done():
            known.set_result(codec.catalogue)
        for output in outputs:
            if isinstance(output, WriteLine) and handle is not None and handle.alive:
                handle.write(output.data)
            elif (trouble := _trouble(output)) and not known.done():
                known.set_exception(trouble)

    def on_lines(lines: list[bytes]) -> None:
        for line in lines:
            act(codec.receive(line))

    def on_exit(exit_: Exit) -> None:
        act(codec.eof(exit_))
        if not known.done():
            known.set_exception(DiscoveryFailed(_exit_reason(exit_)))

    handle = await spawn(codec, on_lines, on_exit)
    try:
        act(codec.start())
        async with asyncio.timeout(timeout_s):
            tell(await known)
    except TimeoutError:
        raise DiscoveryFailed(f"it did not say what it offers within {timeout_s:g} s") from None
    except asyncio.CancelledError:
        handle.kill()
        raise
    finally:
        await _end(handle)


async def _end(handle: AgentHandle) -> None:
    """Stop it politely; at once if we are cancelled meanwhile."""
    try:
        await handle.stop()
    except asyncio.CancelledError:
        handle.kill()
        await handle.stop()
        raise


def _trouble(output: Output) -> DiscoveryFailed | None:
    """Why an agent that says this will not tell what it offers; None for all that is no trouble."""
    if isinstance(output, Stop):
        return DiscoveryFailed(output.why)
    if isinstance(output, Fact) and isinstance(output.data, ErrorData):
        return DiscoveryFailed(output.data.message, output.data.code or "")
    if isinstance(output, Signal) and output.input is Input.FAILED:
        error = obj(output.error)
        return DiscoveryFailed(text(error.get("message"), "it failed"), text(error.get("code")))
    return None


def _exit_reason(exit_: Exit) -> str:
    how = f"signal {exit_.signal}" if exit_.signal is not None else f"exit code {exit_.code}"
    stderr = exit_.stderr.strip()[-STDERR_SHOWN_CHARS:]
    return f"it ended ({how}) before it said what it offers{': ' + stderr if stderr else ''}"


# --- kept for the next start -----------------------------------------------------------------------------

NAMESPACE = "agents"
"""In the store; the keys are names of agents."""


@dataclass(frozen=True, slots=True)
class StoredOffer:
    """What was discovered of a program: it is true as long as the file is the same (`stamp`)."""

    path: str
    stamp: str
    version: str | None
    catalogue: Catalogue


@cache
def _offer_adapter() -> TypeAdapter[StoredOffer]:
    """Built when it is first needed: that takes as long as importing this module."""
    return TypeAdapter(StoredOffer)


def stamp_of(path: str) -> str | None:
    """What changes when a program is installed anew, None when it is not there. Blocking.

    Not its time of modification alone: npm gives all files the same one.
    """
    try:
        real = Path(path).resolve()
        status = real.stat()
    except OSError:
        return None
    return f"{real} {status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}"


def to_store(kept: StoredOffer) -> Json:
    """A JSON value."""
    return _offer_adapter().dump_python(kept, mode="json")


def from_store(value: Json) -> StoredOffer | None:
    """The inverse of `to_store`; None for what another version of this server has written."""
    try:
        return _offer_adapter().validate_python(value)
    except ValidationError:
        return None
