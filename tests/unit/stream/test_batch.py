"""What is published together goes to the readers together."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from shim.stream.batch import CHUNK_BYTES, batches
from shim.stream.burst import APART_S
from shim.stream.frame import encode
from tests.unit.stream.reading import drain, make_hub, numbers, parsed, said


def test_batches_end_with_the_frame_that_fills_them() -> None:
    frames = [encode(said(number, urgent=number == 4), f"evt_{number:012x}") for number in range(5)]
    sizes = [1, CHUNK_BYTES, 2, CHUNK_BYTES - 2, 3]
    found = batches(frames, lambda frame: bytes(sizes[frames.index(frame)]))
    assert [list(batch.frames) for batch in found] == [frames[:2], frames[2:4], frames[4:]]
    assert [len(batch.data) for batch in found] == [CHUNK_BYTES + 1, CHUNK_BYTES, 3]
    assert [batch.urgent for batch in found] == [False, False, True]
    assert batches([], bytes) == []


async def test_what_is_published_together_is_formed_once_and_handed_over_at_the_end() -> None:
    hub = make_hub()
    readers = [hub.subscribe(scope="/p", wrapped=False) for _ in range(3)]
    other = hub.subscribe(scope="/q", wrapped=True)
    for reader in (*readers, other):
        await drain(reader)
    with hub.burst():
        hub.publish(said(1, "/p"))
        with hub.burst():
            hub.publish(said(2, "/q"))
        hub.publish(said(3, "/p", urgent=True))
        late = hub.subscribe(scope="/p", wrapped=False)  # it is given what comes after it, and nothing twice
        hub.publish(said(4, "/p"))
    taken = [await reader.take(0.0) for reader in readers]
    assert [numbers(parsed(readers[0], got)) for got in taken] == [[1, 3, 4]] * 3
    for same in zip(*taken, strict=True):
        assert all(batch.data is same[0].data for batch in same)
    assert [[batch.urgent for batch in got] for got in taken] == [[True, False]] * 3
    assert numbers(await drain(other)) == [2]
    assert numbers(await drain(late)) == [4]
    for reader in (*readers, other, late):
        reader.close()


async def test_bursts_close_together_are_handed_over_together() -> None:
    turns: list[Callable[[], None]] = []
    at = 0.0
    hub = make_hub(soon=turns.append, now=lambda: at)
    reader = hub.subscribe(scope=None, wrapped=False)
    await drain(reader)

    def say(number: int, *, urgent: bool = False) -> list[list[int]]:
        """What waits after it, by the batch."""
        with hub.burst():
            hub.publish(said(number, urgent=urgent))
        return [numbers(parsed(reader, [batch])) for batch in reader._live]

    assert say(1) == [[1]]
    assert [say(2), say(3)] == [[[1]], [[1]]]
    assert len(turns) == 1
    assert say(4, urgent=True) == [[1], [2, 3, 4]]
    turns.pop()()
    assert say(5) == [[1], [2, 3, 4]]
    turns.pop()()
    at = APART_S
    assert say(6) == [[1], [2, 3, 4], [5], [6]]
    assert turns == []
    assert numbers(await drain(reader)) == [1, 2, 3, 4, 5, 6]
    reader.close()


async def test_a_burst_that_fails_has_published_what_it_said() -> None:
    hub = make_hub()
    reader = hub.subscribe(scope=None, wrapped=False)

    def fail() -> None:
        with hub.burst():
            hub.publish(said(1))
            raise LookupError

    with pytest.raises(LookupError):
        fail()
    hub.publish(said(2))
    assert numbers(await drain(reader)) == [1, 2]
    reader.close()
