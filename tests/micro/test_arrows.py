"""CPU of each arrow for one piece of text, as a multiple of what a fixed loop takes on the same machine in the same minute.

    agent process -> native event -> universal event -> turn state -> OpenCode event -> SSE bytes -> client

`make micro` measures, and holds each against its budget; among other tests, in several processes, the same code only runs. A
budget is three times what was measured when it was written: it finds a mistake (a copy of what grows, a model that is built
anew each time), not a percentage.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from shim.faces.opencode1.events import EventEncoder, render
from shim.faces.opencode1.wire_event import OpenCodeEvent
from shim.lib.clock import ManualClock, rfc3339
from shim.lib.ids import Ids
from shim.processes.agent_pipes import LINES_AT_ONCE
from shim.store.sqlite import SqliteStore
from shim.stream.hub import Hub
from tests.bench import agent
from universal.agents.claude.codec import ClaudeCodec
from universal.codec import Fact, Prompt
from universal.events import EventType, ItemDeltaData, Source, TurnData, UniversalEvent
from universal.lib.framing import LineFramer
from universal.session.reducer import Reducer
from universal.turn import Input, TurnMachine

PIECES = 1_000
ROUNDS = 9
READERS = 20
SESSION = "ses_0123456789abcdefghijkl"

BUDGETS = {
    "framer": 0.25,
    "codec": 3.5,
    "stamp": 2.2,
    "turn": 2.1,
    "projection": 1.9,
    "encode": 2.0,
    "hub": 3.8,
    "store": 4.6,
}
"""Of one piece, in units of one turn of `calibration`."""

pytestmark = pytest.mark.benchmark(timer=time.process_time, disable_gc=True, warmup=False)


def calibration() -> None:
    """What Python and its JSON do here: work of the same kind, that no change of ours makes faster or slower."""
    for number in range(PIECES):
        value = json.loads(json.dumps({"type": "piece", "number": number, "text": "word ", "of": {"item": "itm_1"}}))
        assert value["number"] == number


@pytest.fixture(scope="module")
def unit_s() -> float:
    """CPU seconds of one turn of `calibration`."""
    return min(cpu_s(calibration) for _ in range(ROUNDS)) / PIECES


def cpu_s(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def pair_cost(work: Callable[..., object], setup: Callable[[], tuple[Any, ...]]) -> float:
    """The cost of one round in units, which are measured right before it."""
    given = setup()
    unit = cpu_s(calibration)
    return cpu_s(lambda: work(*given)) / unit


@pytest.fixture
def hold(benchmark: BenchmarkFixture, request: pytest.FixtureRequest) -> Callable[..., None]:
    """Measures `work(*setup())` for PIECES pieces and holds the best round against the budget of the test's name."""

    def check_limit(work: Callable[..., object], setup: Callable[[], tuple[Any, ...]] = tuple) -> None:
        unit = request.getfixturevalue("unit_s")
        benchmark.pedantic(work, setup=lambda: (setup(), {}), rounds=ROUNDS, warmup_rounds=1)
        if benchmark.stats is None:  # in several processes at once nothing is measured
            return
        name = request.node.name.removeprefix("test_")
        # The slower of two measurements, since another program's start in between is not our regression.
        unit = max(unit, min(cpu_s(calibration) for _ in range(ROUNDS)) / PIECES)
        cost = benchmark.stats.stats.min / PIECES / unit
        if cost >= BUDGETS[name]:  # the machine may have changed its speed between the two: once more, in pairs
            cost = min(pair_cost(work, setup) for _ in range(ROUNDS))
        benchmark.extra_info["units"] = round(cost, 3)
        assert cost < BUDGETS[name], f"{name} takes {cost:.2f} units for a piece, its budget is {BUDGETS[name]}"

    return check_limit


# --- what goes along the line ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def lines() -> list[bytes]:
    """An answer as Claude Code writes it."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        agent.turn(f"[deltas:{PIECES}]", 1, 0)
    return out.getvalue().encode().splitlines()


@pytest.fixture(scope="module")
def facts(lines: list[bytes]) -> list[Fact]:
    """The same as the codec tells it."""
    codec = fresh_codec()
    found = [output for line in lines for output in codec.receive(line) if isinstance(output, Fact)]
    assert sum(isinstance(fact.data, ItemDeltaData) for fact in found) == PIECES
    return found


@pytest.fixture(scope="module")
def events(facts: list[Fact]) -> list[UniversalEvent]:
    """The same as it stands in the journal, after the beginning of its turn."""
    return stamp([Fact(EventType.TURN_STARTED, TurnData(phase="started", turn_id="trn_1"), synthetic=True), *facts])


@pytest.fixture(scope="module")
def opencode_events(events: list[UniversalEvent]) -> list[OpenCodeEvent]:
    """The same for OpenCode's clients."""
    return opencode1_events(Reducer(SESSION, "claude"), events)


def opencode1_events(reducer: Reducer, events: list[UniversalEvent]) -> list[OpenCodeEvent]:
    return [out for event in events for out in render(reducer.apply(event, 0), reducer.session, 0)]


def fresh_codec() -> ClaudeCodec:
    codec = ClaudeCodec(Ids(ManualClock()).new)
    codec.send(Prompt("itm_1", "say it"))
    return codec


def stamp(facts: list[Fact]) -> list[UniversalEvent]:
    clock = ManualClock()
    ids = Ids(clock)
    return [
        UniversalEvent.from_fields(
            {
                "event_id": ids.new("event"),
                "sequence": sequence,
                "time": rfc3339(clock.now_ms()),
                "session_id": SESSION,
                "native_session_id": None,
                "source": Source.DAEMON if fact.synthetic else Source.AGENT,
                "synthetic": fact.synthetic,
                "by": None,
                "type": fact.type,
                "data": fact.data,
                "raw": fact.raw,
            }
        )
        for sequence, fact in enumerate(facts, 1)
    ]


# --- the arrows --------------------------------------------------------------------------------------------


def test_framer(hold: Callable[..., None], lines: list[bytes]) -> None:
    text = b"\n".join(lines) + b"\n"
    cuts = [text[at : at + 4096] for at in range(0, len(text), 4096)]
    hold(lambda framer: [framer.push(cut) for cut in cuts], lambda: (LineFramer(),))


def test_codec(hold: Callable[..., None], lines: list[bytes]) -> None:
    hold(lambda codec: [codec.receive(line) for line in lines], lambda: (fresh_codec(),))


def test_stamp(hold: Callable[..., None], facts: list[Fact]) -> None:
    hold(lambda: stamp(facts))


def test_turn(hold: Callable[..., None]) -> None:
    """Each a call of a tool, opened and closed in a running turn. A piece of text is nothing to it."""

    def busy_machine() -> tuple[TurnMachine]:
        machine = TurnMachine()
        machine.apply(Input.PROMPT, "itm_1")
        return (machine,)

    def work(machine: TurnMachine) -> None:
        for _ in range(PIECES):
            machine.apply(Input.OPENED, "call")
            machine.apply(Input.CLOSED, "call")
        assert machine.busy

    hold(work, busy_machine)


def test_projection(hold: Callable[..., None], events: list[UniversalEvent]) -> None:
    hold(lambda reducer: opencode1_events(reducer, events), lambda: (Reducer(SESSION, "claude"),))


def test_encode(hold: Callable[..., None], opencode_events: list[OpenCodeEvent]) -> None:
    ids = Ids(ManualClock())
    encoder = EventEncoder(lambda: 0)

    def encode(event: OpenCodeEvent) -> bytes:
        position = ids.moment()
        frame = encoder.encode(event, position, position)
        assert frame is not None
        return encoder.layout(frame)

    hold(lambda: [encode(event) for event in opencode_events])


def test_hub(hold: Callable[..., None], opencode_events: list[OpenCodeEvent]) -> None:
    """To `READERS` readers, encoding and all, as many at once as an agent's lines are taken."""

    async def publish() -> None:
        clock = ManualClock()
        hub = Hub(clock, Ids(clock))
        readers = [hub.subscribe(EventEncoder(clock.now_ms)) for _ in range(READERS)]
        for at in range(0, len(opencode_events), LINES_AT_ONCE):
            with hub.bursts:
                for event in opencode_events[at : at + LINES_AT_ONCE]:
                    hub.publish(event)
        for reader in readers:
            reader.close()
        hub.close()

    with asyncio.Runner() as runner:
        hold(lambda: runner.run(publish()))


@pytest.fixture
def sqlite_store(tmp_path: Path) -> Iterator[tuple[asyncio.Runner, SqliteStore]]:
    with asyncio.Runner() as runner:
        store = SqliteStore(tmp_path / "journal.db")
        runner.run(store.open())
        yield runner, store
        runner.run(store.close())


def test_store(hold: Callable[..., None], sqlite_store: tuple[asyncio.Runner, SqliteStore], events: list[UniversalEvent]) -> None:
    """Until it is on the disk, the writing thread's work too; each round is a session of its own."""
    runner, store = sqlite_store
    rounds = iter(range(100))

    def another() -> tuple[list[UniversalEvent]]:
        session = f"ses_{next(rounds):022}"
        return ([event.model_copy(update={"session_id": session}) for event in events],)

    async def keep(journal: list[UniversalEvent]) -> None:
        for at in range(0, len(journal), LINES_AT_ONCE):
            store.append(journal[at : at + LINES_AT_ONCE])
        await store.flush()

    hold(lambda journal: runner.run(keep(journal)), another)
