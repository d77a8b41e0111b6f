"""So many in each turn of the loop, in order, and nobody is forgotten."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack

import pytest

from shim.stream.turnstile import Turnstile

WAIT_S = 10.0


async def test_so_many_in_each_turn_in_order() -> None:
    turnstile, order, turns = Turnstile(3), list[int](), list[int]()
    turn = 0

    async def reader(number: int) -> None:
        await turnstile.enter()
        order.append(number)
        turns.append(turn)

    async with asyncio.timeout(WAIT_S), asyncio.TaskGroup() as group:
        for number in range(20):
            group.create_task(reader(number))
        while len(order) < 20:
            turn += 1
            await asyncio.sleep(0)
    assert order == list(range(20))
    assert max(turns.count(one) for one in set(turns)) == 3


async def test_one_alone_never_waits() -> None:
    turnstile = Turnstile(2)
    async with asyncio.timeout(WAIT_S):
        for _ in range(10):
            step = turnstile.enter()
            try:
                step.send(None)
            except StopIteration:
                pass
            else:
                raise AssertionError("it waited")
            await asyncio.sleep(0)
            await asyncio.sleep(0)


async def test_who_goes_away_holds_nobody_up() -> None:
    turnstile = Turnstile(1)
    async with asyncio.timeout(WAIT_S):
        await turnstile.enter()
        tasks = [asyncio.ensure_future(turnstile.enter()) for _ in range(5)]
        await asyncio.sleep(0)
        for task in tasks[:4]:
            task.cancel()
        await tasks[4]


async def test_streams_are_counted() -> None:
    turnstile = Turnstile()
    with ExitStack() as stack:
        for number in range(3):
            assert turnstile.streams == number
            stack.enter_context(turnstile.stream(lambda: False, lambda: None))
    assert turnstile.streams == 0


async def test_who_has_gone_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shim.stream.turnstile.LOOK_S", 0.001)
    turnstile, closed, gone = Turnstile(), asyncio.Event(), [False, False]
    with (
        turnstile.stream(lambda: gone[0], lambda: pytest.fail("it is there")),
        turnstile.stream(lambda: gone[1], closed.set),
    ):
        gone[1] = True
        async with asyncio.timeout(WAIT_S):
            await closed.wait()
    closed.clear()
    with turnstile.stream(lambda: True, closed.set):  # looked for anew, after a time without streams
        async with asyncio.timeout(WAIT_S):
            await closed.wait()
