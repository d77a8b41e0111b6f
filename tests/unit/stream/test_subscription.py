"""Readers that do not read, and how frames are gathered."""

from __future__ import annotations

import asyncio
import math

import pytest
from structlog.testing import capture_logs

from shim.faces.opencode1.wire_event import OpenCodeEvent
from shim.stream.frame import Frame
from shim.stream.hub import HubBounds
from shim.stream.subscription import CHUNK_BYTES, Bounds, State, batches
from tests.unit.stream.reading import (
    ReceivedFrame,
    delta,
    drain,
    make_hub,
    numbered_event,
    numbers,
    parse_batches,
    subscribe,
)

SMALL = HubBounds(reader=Bounds(frames=10, bytes=5_000, grace_s=0))


async def judgement() -> None:
    """Wait until a reader over its bounds was judged."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)


def types(found: list[ReceivedFrame]) -> list[str]:
    return [got.type for got in found]


def test_batches_end_with_the_frame_that_fills_them() -> None:
    frames = [Frame(f"evt_{number}", b"", number == 4) for number in range(5)]
    sizes = [1, CHUNK_BYTES, 2, CHUNK_BYTES - 2, 3]
    found = batches(frames, lambda frame: bytes(sizes[frames.index(frame)]))
    assert [list(batch.frames) for batch in found] == [frames[:2], frames[2:4], frames[4:]]
    assert [len(batch.data) for batch in found] == [CHUNK_BYTES + 1, CHUNK_BYTES, 3]
    assert [batch.urgent for batch in found] == [False, False, True]
    assert batches([], bytes) == []


async def test_a_slow_reader_is_dropped_and_the_others_get_everything() -> None:
    hub = make_hub(SMALL)
    slow = subscribe(hub, scope=None)
    good = [subscribe(hub, scope=None) for _ in range(3)]
    got: list[list[ReceivedFrame]] = [[], [], []]
    with capture_logs() as logs:
        for number in range(50):
            hub.publish(numbered_event(number))
            for reader, seen in zip(good, got, strict=True):
                seen += await drain(reader)
            await judgement()
    assert slow.state is State.DROPPED
    assert slow.over
    assert await slow.take() == []
    assert [numbers(seen) for seen in got] == [list(range(50))] * 3
    assert hub.stats() == (3, 50, 1, 0, 0)
    (entry,) = logs
    assert entry["event"] == "subscriber.dropped"
    assert entry["frames"] == 11
    for reader in good:
        reader.close()


async def test_a_burst_within_the_grace_is_not_held_against_a_reader() -> None:
    hub = make_hub(SMALL)
    reader = subscribe(hub, scope=None)
    await drain(reader)
    taking = asyncio.ensure_future(reader.take(10.0))
    await asyncio.sleep(0)
    for number in range(60):
        hub.publish(numbered_event(number))
    async with asyncio.timeout(1):
        found = parse_batches(reader, await taking)
    assert numbers(found) == list(range(60))
    assert reader.state is State.OPEN
    reader.close()


async def test_far_too_much_is_too_much_at_once() -> None:
    hub = make_hub(SMALL)
    reader = subscribe(hub, scope=None)
    for number in range(81):
        hub.publish(numbered_event(number))
    assert reader.state is State.DROPPED
    assert reader.pending == (0, 0)


@pytest.mark.parametrize(("large", "state"), [(1, State.OPEN), (2, State.DROPPED)])
async def test_bytes_count_beside_the_largest_frame(large: int, state: State) -> None:
    hub = make_hub(SMALL)
    reader = subscribe(hub, scope=None)
    await drain(reader)
    for number in range(large):
        hub.publish(OpenCodeEvent("test.said", {"n": number, "x": "y" * 8_000}))
    hub.publish(numbered_event(3))
    await judgement()
    assert reader.state is state
    reader.close()


async def test_a_reader_that_takes_large_frames_within_the_grace_is_not_slow() -> None:
    hub = make_hub(HubBounds(reader=Bounds(frames=10, bytes=5_000)))
    reader = subscribe(hub, scope=None)
    await drain(reader)
    for number in range(4):
        hub.publish(OpenCodeEvent("test.said", {"n": number, "x": "y" * 8_000}))
    await judgement()
    assert numbers(await drain(reader)) == [0, 1, 2, 3]
    assert reader.state is State.OPEN
    reader.close()


async def test_text_of_a_slow_reader_is_joined_before_it_is_dropped() -> None:
    hub = make_hub(SMALL)
    reader = subscribe(hub, scope=None)
    text = ""
    for number in range(200):
        piece = f"{number} "
        text += piece
        hub.publish(delta(piece))
        await judgement()
    assert reader.state is State.OPEN
    assert reader.pending[0] <= 10
    found = [got for got in await drain(reader) if got.type == "message.part.delta"]
    assert "".join(got.event["properties"]["delta"] for got in found) == text
    reader.close()


async def test_heartbeats_count_too() -> None:
    hub = make_hub(SMALL)
    reader = subscribe(hub, scope=None)
    for _ in range(12):
        reader.send_heartbeat()
        await judgement()
    assert reader.state is State.DROPPED


# Waiting.


async def test_take_gathers_until_something_is_urgent() -> None:
    hub = make_hub()
    reader = subscribe(hub, scope=None)
    assert types(parse_batches(reader, await reader.take(1000.0))) == ["server.connected"]
    async with asyncio.timeout(1):
        taking = asyncio.ensure_future(reader.take(1000.0))
        for number in range(3):
            hub.publish(numbered_event(number))
            await asyncio.sleep(0)
        assert not taking.done()
        hub.publish(numbered_event(3, urgent=True))
        assert numbers(parse_batches(reader, await taking)) == [0, 1, 2, 3]
        hub.publish(numbered_event(4))
        assert numbers(parse_batches(reader, await reader.take(0.001))) == [4]
    reader.close()


async def test_the_pause_between_writes_grows_under_load(monkeypatch: pytest.MonkeyPatch) -> None:
    hub = make_hub()
    reader = subscribe(hub, scope=None)
    now, waits = [asyncio.get_running_loop().time()], list[float]()
    await reader.take()
    now[0] = math.ceil(now[0]) + 10.0

    def record_wait(until: float | None) -> asyncio.Future[None]:
        assert until is not None
        waits.append(round(until - now[0], 9))
        now[0] = until
        over = asyncio.get_running_loop().create_future()
        over.set_result(None)
        return over

    monkeypatch.setattr(reader, "_until", record_wait)
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now[0])
    for pause in (8.0, *[0.0] * 5, 8.0, 0.0, 0.5):
        now[0] += pause
        hub.publish(numbered_event(1))
        await reader.take(8.0)
    assert waits == [1.0, 2.0, 4.0, 8.0, 8.0, 1.0, 1.5]
    reader.close()


async def test_a_take_that_is_cancelled_loses_nothing() -> None:
    hub = make_hub()
    reader = subscribe(hub, scope=None)
    await drain(reader)
    for _ in range(3):
        taking = asyncio.ensure_future(reader.take(1000.0))
        await asyncio.sleep(0)
        hub.publish(numbered_event(1))
        await asyncio.sleep(0)
        taking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await taking
    assert numbers(await drain(reader)) == [1, 1, 1]
    reader.close()


async def test_large_backlogs_come_in_chunks() -> None:
    hub = make_hub()
    reader = subscribe(hub, scope=None)
    for number in range(10):
        hub.publish(OpenCodeEvent("test.said", {"n": number, "x": "y" * 100_000}))
    chunks = []
    async with asyncio.timeout(1):
        while reader.pending[0]:
            chunks.append(numbers(parse_batches(reader, await reader.take(1000.0))))
    assert len(chunks) > 2
    assert reader.pending == (0, 0)
    assert [n for chunk in chunks for n in chunk] == list(range(10))
    reader.close()
