"""Asks an agent for its models, modes and commands, and stores the answer for the next start.

`discover` starts an agent, runs the codec's handshake until `codec.catalogue` is set, and stops the agent. It sends no prompt, so
it costs nothing. A `StoredOffer` is valid only for the program file that was asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TypeAlias

from pydantic import TypeAdapter, ValidationError

from shim.lib.errors import AgentError
from shim.processes.handle import AgentHandle, OnExit, OnLines
from universal.codec import Catalogue, Codec, Fact, Model, Output, Signal, Stop, WriteLine
from universal.events import ErrorData
from universal.items import Json
from universal.launch import Exit
from universal.lib.jsonvalue import obj, text
from universal.turn import Input

DISCOVERY_TIMEOUT_S = 20.0
"""Timeout in seconds of a discovery. Claude Code takes 1 to 3 s, and more on its first start from a cold disk."""
SLOW = "slow"
"""Code of the error of an agent that ran and did not answer in time."""
STDERR_SHOWN_CHARS = 500
"""Maximum characters of a failing agent's stderr in the error."""

Spawn: TypeAlias = Callable[[Codec, OnLines, OnExit], Awaitable[AgentHandle]]
"""Starts a process for a codec. Raises AgentError."""


class DiscoveryFailed(AgentError):
    """The discovery failed. The text says why; `code` is that of the agent's error, if it reported one, or SLOW."""

    def __init__(self, why: str, code: str = "") -> None:
        super().__init__(why)
        self.code = code


async def discover(
    codec: Codec, spawn: Spawn, tell: Callable[[Catalogue], None], *, timeout_s: float = DISCOVERY_TIMEOUT_S
) -> None:
    """Discover one agent. `tell` gets the catalogue as soon as it is known; this returns when the process has ended.

    Cancelling it ends the process at once. Raises DiscoveryFailed, and the errors of `spawn`.
    """
    catalogue: asyncio.Future[Catalogue] = asyncio.get_running_loop().create_future()
    handle: AgentHandle | None = None

    def act(outputs: Sequence[Output]) -> None:
        if codec.catalogue is not None and not catalogue.done():
            catalogue.set_result(codec.catalogue)
        for output in outputs:
            if isinstance(output, WriteLine) and handle is not None and handle.alive:
                handle.write(output.data)
            elif (trouble := _trouble(output)) and not catalogue.done():
                catalogue.set_exception(trouble)

    def on_lines(lines: list[bytes]) -> None:
        for line in lines:
            act(codec.receive(line))

    def on_exit(exit_: Exit) -> None:
        act(codec.eof(exit_))
        if not catalogue.done():
            catalogue.set_exception(DiscoveryFailed(_exit_reason(exit_)))

    handle = await spawn(codec, on_lines, on_exit)
    try:
        act(codec.start())
        async with asyncio.timeout(timeout_s):
            tell(await catalogue)
            act(codec.discard())
    except TimeoutError:
        raise DiscoveryFailed(f"it did not say what it offers within {timeout_s:g} s", SLOW) from None
    except asyncio.CancelledError:
        handle.kill()
        raise
    finally:
        await _end(handle)


async def _end(handle: AgentHandle) -> None:
    """Stop the process; kill it if this task is cancelled meanwhile."""
    try:
        await handle.stop()
    except asyncio.CancelledError:
        handle.kill()
        await handle.stop()
        raise


def _trouble(output: Output) -> DiscoveryFailed | None:
    """Why the agent will not report its offers, if an output is an error. None for every other output."""
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


# --- stored for the next start -----------------------------------------------------------------------------

NAMESPACE = "agents"
"""Namespace in the store. The keys are names of agents."""


@dataclass(frozen=True, slots=True)
class StoredOffer:
    """The discovered offers of a program. They are valid as long as the file's `stamp` is the same."""

    path: str
    stamp: str
    version: str | None
    catalogue: Catalogue


def with_limits(catalogue: Catalogue, models: Iterable[Model], *, are_newer: bool) -> Catalogue:
    """The catalogue with the limits of `models` too. Claude and Codex tell theirs in a turn alone.

    In: `are_newer`, whether those limits were told after the catalogue's, so that they count where both have some.
    """
    others = {model.id: model for model in models}

    def merge(model: Model) -> Model:
        newer, older = others.get(model.id, model), model
        if not are_newer:
            newer, older = older, newer
        return replace(model, context=newer.context or older.context, output=newer.output or older.output)

    return replace(catalogue, models=tuple(map(merge, catalogue.models)))


@cache
def _offer_adapter() -> TypeAdapter[StoredOffer]:
    """Build the adapter at its first use, because that takes as long as the import of this module."""
    return TypeAdapter(StoredOffer)


def to_store(offer: StoredOffer) -> Json:
    """Encode an offer as a JSON value."""
    return _offer_adapter().dump_python(offer, mode="json")


def from_store(value: Json) -> StoredOffer | None:
    """The inverse of `to_store`. None for a value of another version of this server."""
    try:
        return _offer_adapter().validate_python(value)
    except ValidationError:
        return None
