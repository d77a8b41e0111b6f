"""What is published together is delivered together, and how many streams write in one turn of the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from shim.stream.hub import APART_S
from shim.stream.subscription import WriteQueue
from tests.unit.stream.reading import drain, make_hub, numbered_event, numbers, parse_batches, subscribe

WAIT_S = 10.0


async def test_a_burst_is_encoded_once_and_written_at_its_end() -> None:
    hub = make_hub()
    readers = [subscribe(hub, scope="/p") for _ in range(3)]
    other = subscribe(hub, scope="/q", wrapped=True)
    for reader in (*readers, other):
        await drain(reader)
    with hub.bursts:
        hub.publish(numbered_event(1, "/p"))
        with hub.bursts:
            hub.publish(numbered_event(2, "/q"))
        hub.publish(numbered_event(3, "/p", urgent=True))
        late = subscribe(hub, scope="/p")  # it is given what comes after it, and nothing twice
        hub.publish(numbered_event(4, "/p"))
    taken = [await reader.take(0.0) for reader in readers]
    assert [numbers(parse_batches(readers[0], got)) for got in taken] == [[1, 3, 4]] * 3
    for same in zip(*taken, strict=True):
        assert all(batch.data is same[0].data for batch in same)
    assert [[batch.urgent for batch in got] for got in taken] == [[True, False]] * 3
    assert numbers(await drain(other)) == [2]
    assert numbers(await drain(late)) == [4]
    for reader in (*readers, other, late):
        reader.close()


async def test_bursts_close_together_are_delivered_together() -> None:
    turns: list[Callable[[], None]] = []
    at = 0.0
    hub = make_hub(soon=turns.append, now=lambda: at)
    reader = subscribe(hub, scope=None)
    await drain(reader)

    def say(number: int, *, urgent: bool = False) -> list[list[int]]:
        """What waits after it, by the batch."""
        with hub.bursts:
            hub.publish(numbered_event(number, urgent=urgent))
        return [numbers(parse_batches(reader, [batch])) for batch in reader._live]

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


async def test_a_failed_burst_publishes_its_events() -> None:
    hub = make_hub()
    reader = subscribe(hub, scope=None)

    def fail() -> None:
        with hub.bursts:
            hub.publish(numbered_event(1))
            raise LookupError

    with pytest.raises(LookupError):
        fail()
    hub.publish(numbered_event(2))
    assert numbers(await drain(reader)) == [1, 2]
    reader.close()


# The queue of writes.


@pytest.fixture
def streams() -> Iterator[ExitStack]:
    """Open streams."""
    with ExitStack() as stack:
        yield stack


async def test_so_many_in_each_turn_in_order() -> None:
    write_queue, order, turns = WriteQueue(3), list[int](), list[int]()
    turn = 0

    async def reader(number: int) -> None:
        with write_queue.stream(lambda: False, lambda: None):
            await asyncio.sleep(0)  # all are open
            await write_queue.enter()
            order.append(number)
            turns.append(turn)
            await is_over.wait()

    is_over = asyncio.Event()
    async with asyncio.timeout(WAIT_S), asyncio.TaskGroup() as group:
        for number in range(20):
            group.create_task(reader(number))
        while len(order) < 20:
            turn += 1
            await asyncio.sleep(0)
        is_over.set()
    assert order == list(range(20))
    assert max(turns.count(one) for one in set(turns)) == 3


async def test_a_single_writer_never_waits() -> None:
    write_queue = WriteQueue(2)
    async with asyncio.timeout(WAIT_S):
        for _ in range(10):
            step = write_queue.enter()
            try:
                step.send(None)
            except StopIteration:
                pass
            else:
                raise AssertionError("it waited")
            await asyncio.sleep(0)
            await asyncio.sleep(0)


async def test_a_cancelled_writer_delays_no_other(streams: ExitStack) -> None:
    write_queue = WriteQueue(1)
    async with asyncio.timeout(WAIT_S):
        for _ in range(2):
            streams.enter_context(write_queue.stream(lambda: False, lambda: None))
        await write_queue.enter()
        tasks = [asyncio.ensure_future(write_queue.enter()) for _ in range(5)]
        await asyncio.sleep(0)
        for task in tasks[:4]:
            task.cancel()
        await tasks[4]


async def test_streams_are_counted() -> None:
    write_queue = WriteQueue()
    with ExitStack() as stack:
        for number in range(3):
            assert write_queue.streams == number
            stack.enter_context(write_queue.stream(lambda: False, lambda: None))
    assert write_queue.streams == 0


async def test_a_stream_whose_client_left_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shim.stream.subscription.CHECK_S", 0.001)
    write_queue, closed, gone = WriteQueue(), asyncio.Event(), [False, False]
    with (
        write_queue.stream(lambda: gone[0], lambda: pytest.fail("it is there")),
        write_queue.stream(lambda: gone[1], closed.set),
    ):
        gone[1] = True
        async with asyncio.timeout(WAIT_S):
            await closed.wait()
    closed.clear()
    with write_queue.stream(lambda: True, closed.set):  # looked for anew, after a time without streams
        async with asyncio.timeout(WAIT_S):
            await closed.wait()
