"""How many of our functions a piece of text crosses, from the agent's bytes to the reader's write.

`sys.setprofile` counts calls of this project's functions in the thread of the loop. A count does not depend on the machine. Each
limit is what was counted when it was last lowered, with a little room for how the pipe cuts the bytes: it may only fall.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any, NamedTuple

import pytest

from shim.store.sqlite import SqliteStore
from tests.support.api import EventStream
from tests.support.live import Live, live, with_claude

ROOT = Path(__file__).resolve().parents[2]
OURS = (f"{ROOT}/shim/", f"{ROOT}/universal/")
PIECES = 2_000
LONE_PIECES = 40
TURN_S = 60.0


class Limits(NamedTuple):
    """The most calls of a piece, files that a lone one crosses, and calls of a prompt.

    A prompt is counted from the body of its request to the write to the agent, with one client that reads the events of it.
    """

    in_a_burst: int
    alone: int
    files: int
    prompt: int
    writes: tuple[str, str]


LIMITS = {
    "plain": Limits(7, 68, 24, 450, ("shim/processes/agent_pipes.py", "AgentProcess.write")),
    "outlive": Limits(9, 70, 25, 490, ("shim/processes/held_process.py", "HeldProcess.write")),
}
"""The line itself, and with an agent on a holder, whose tape has a row that is written with all events but pieces of text."""


class Calls:
    """Counts calls of our functions while it is on: (file, function) -> calls."""

    def __init__(self) -> None:
        self.functions: Counter[tuple[str, str]] = Counter()

    def __enter__(self) -> Calls:
        sys.setprofile(self._note)
        return self

    def __exit__(self, *error: object) -> None:
        sys.setprofile(None)

    def _note(self, frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(OURS):
            self.functions[code.co_filename.removeprefix(f"{ROOT}/"), code.co_qualname] += 1

    def beyond(self, other: Calls) -> Counter[tuple[str, str]]:
        """What this turn has called more often than another one."""
        return self.functions - other.functions


BODY = ("shim/http/operation.py", "_body")
"""Reads the body of a request."""


class CallsUntilWrite(Calls):
    """Counts from the body on until something is written to the agent. The answer to the request may be written meanwhile."""

    def __init__(self, writes: tuple[str, str]) -> None:
        super().__init__()
        self._writes = writes

    def _note(self, frame: FrameType, event: str, argument: Any) -> None:
        is_body = event == "call" and frame.f_code.co_qualname == BODY[1] and frame.f_code.co_filename.endswith(BODY[0])
        if (is_body or self.functions[BODY]) and not self.functions[self._writes]:
            super()._note(frame, event, argument)


@pytest.fixture
def limits(request: pytest.FixtureRequest) -> Limits:
    """The limits of the fixture `server`."""
    return LIMITS[request.node.callspec.params["server"]]


@pytest.fixture(params=list(LIMITS))
async def server(request: pytest.FixtureRequest) -> AsyncIterator[Live]:
    """The whole server on SQLite, with a program that speaks Claude Code's protocol. A holder's socket needs a short path."""
    with TemporaryDirectory(prefix="calls-") as name:
        folder = Path(name)
        store = SqliteStore(folder / "journal.db")
        async with live(folder, environ=with_claude(folder), store=store, outlive=request.param == "outlive") as running:
            yield running


@pytest.fixture
async def events(server: Live) -> AsyncIterator[EventStream]:
    """The only client that reads the server's events."""
    async with server.api.stream("/event") as stream:
        yield stream


async def turn(server: Live, events: EventStream, session: str, text: str, calls: Calls | None = None) -> Calls:
    """The calls of a whole turn, read by one client."""
    calls = calls or Calls()
    body = {"parts": [{"type": "text", "text": text}], "model": {"providerID": "claude", "modelID": "default"}}
    async with asyncio.timeout(TURN_S):
        with calls:
            await server.api.post(f"/session/{session}/prompt_async", body, status=204)
            while (await events.next())["type"] != "session.idle":
                pass
    return calls


async def is_at_rest() -> None:
    """Wait until the end of the last turn is stored, and its agent's holder knows."""
    if leases := [task for task in asyncio.all_tasks() if task.get_name().startswith("lease of ")]:
        await asyncio.wait(leases, timeout=TURN_S)


async def test_a_prompt_takes_few_calls_until_the_agent_has_it(server: Live, events: EventStream, limits: Limits) -> None:
    session = await server.session()
    await turn(server, events, session, "[deltas:10]")
    counts: list[Counter[tuple[str, str]]] = []
    for _ in range(10):
        await is_at_rest()
        counts.append((await turn(server, events, session, "[deltas:10]", CallsUntilWrite(limits.writes))).functions)
    fewest = min(counts, key=lambda count: count.total())  # the client may read in between
    assert fewest[limits.writes] == 1
    assert fewest.total() <= limits.prompt, fewest.most_common(60)


async def test_a_piece_in_a_burst_takes_few_calls(server: Live, events: EventStream, limits: Limits) -> None:
    session = await server.session()
    await turn(server, events, session, "[deltas:10]")
    few = await turn(server, events, session, "[deltas:10]")
    many = await turn(server, events, session, f"[deltas:{PIECES + 10}]")
    beyond = many.beyond(few)
    assert PIECES * 5 < beyond.total() <= PIECES * limits.in_a_burst, beyond.most_common(60)


async def test_a_lone_piece_takes_few_calls_and_files(server: Live, events: EventStream, limits: Limits) -> None:
    session = await server.session()
    few = await turn(server, events, session, "[deltas:10][rate:20]")
    many = await turn(server, events, session, f"[deltas:{LONE_PIECES + 10}][rate:20]")
    beyond = many.beyond(few)
    assert LONE_PIECES * 10 < beyond.total() <= LONE_PIECES * limits.alone, beyond.most_common(160)
    files = {file for (file, _), calls in beyond.items() if calls >= LONE_PIECES * 0.9}
    assert len(files) <= limits.files, sorted(files)
