"""A lazy value is made once, by whoever needs it first; a failure is not kept."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from shim.lib.tasks import Lazy

WAIT_S = 5


class Maker:
    """Counts how often it is called; its values come when `may_end` is set."""

    def __init__(self, *, failures: int = 0) -> None:
        self.calls = 0
        self.failures = failures
        self.begun, self.may_end = asyncio.Event(), asyncio.Event()

    async def make(self) -> str:
        self.calls += 1
        self.begun.set()
        await self.may_end.wait()
        if self.calls <= self.failures:
            raise ValueError(f"failure {self.calls}")
        return f"value {self.calls}"


async def test_users_that_come_together_share_one_value() -> None:
    maker = Maker()
    lazy = Lazy(maker.make)
    assert lazy.value is None
    maker.may_end.set()
    async with asyncio.timeout(WAIT_S):
        assert await asyncio.gather(lazy.get(), lazy.get()) == ["value 1", "value 1"]
        assert (await lazy.get(), lazy.value, maker.calls) == ("value 1", "value 1", 1)


async def test_after_a_failure_the_next_user_tries_again() -> None:
    maker = Maker(failures=1)
    lazy = Lazy(maker.make)
    maker.may_end.set()
    async with asyncio.timeout(WAIT_S):
        with pytest.raises(ValueError, match="failure 1"):
            await lazy.get()
        assert lazy.value is None
        assert await lazy.get() == "value 2"


async def test_a_user_that_is_cancelled_does_not_end_the_making() -> None:
    maker = Maker()
    lazy = Lazy(maker.make)
    user = asyncio.create_task(lazy.get())
    async with asyncio.timeout(WAIT_S):
        await maker.begun.wait()
        user.cancel()
        await asyncio.wait([user])
        maker.may_end.set()
        assert (await lazy.get(), maker.calls) == ("value 1", 1)


async def test_cancel_ends_the_making_and_whoever_waits_for_it() -> None:
    maker = Maker()
    lazy = Lazy(maker.make)
    user = asyncio.create_task(lazy.get())
    async with asyncio.timeout(WAIT_S):
        await maker.begun.wait()
        await lazy.cancel()
        await asyncio.wait([user])
        assert user.cancelled()
        assert lazy.value is None
        await lazy.cancel()  # nothing runs


async def test_a_failure_whose_users_have_gone_is_no_bug_in_the_log() -> None:
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: complaints.append(context))
    maker = Maker(failures=1)
    lazy = Lazy(maker.make)
    user = asyncio.create_task(lazy.get())
    async with asyncio.timeout(WAIT_S):
        await maker.begun.wait()
        user.cancel()
        await asyncio.wait([user])
        del user
        maker.may_end.set()
        (making,) = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.wait([making])
        assert await lazy.get() == "value 2"
    del making
    gc.collect()
    assert complaints == []
