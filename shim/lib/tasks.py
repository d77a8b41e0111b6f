"""Helpers for asyncio's tasks: their errors, values that one makes for all, and for which named person a task works."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, Generic, NamedTuple, TypeVar
from weakref import ref

T = TypeVar("T")


def retrieve_error(task: asyncio.Task[Any]) -> None:
    """Take the error of a task that has ended, as its `done` callback.

    Whoever awaits the task gets it all the same. If all who did were cancelled, asyncio would log an error that is none.
    """
    if not task.cancelled():
        task.exception()


async def wait_at_most(work: Awaitable[object], limit_s: float) -> bool:
    """Await something, and cancel it when the time is over. Out: whether it ended before."""
    with suppress(TimeoutError):
        async with asyncio.timeout(limit_s):
            await work
            return True
    return False


def keep(task: asyncio.Task[T], tasks: set[asyncio.Task[T]]) -> asyncio.Task[T]:
    """Keep a task in a set until it ends: the event loop alone does not keep it."""
    tasks.add(task)
    task.add_done_callback(tasks.discard)
    return task


async def end_tasks(*tasks: asyncio.Future[Any] | None) -> None:
    """Cancel tasks, and wait until they have ended. Their errors are not raised. None is no task."""
    ending = [task for task in tasks if task is not None]
    for task in ending:
        task.cancel()
    if ending:
        await asyncio.wait(ending)


class Lazy(Generic[T]):
    """A value that is made for its first user, once, also if several users come at the same time.

    In: `make`. If it raises, those who wait get its error, and the next one tries again.
    """

    def __init__(self, make: Callable[[], Awaitable[T]]) -> None:
        self._make = make
        self._value: T | None = None
        self._making: asyncio.Task[T] | None = None

    @property
    def value(self) -> T | None:
        """The value, or None before it is made."""
        return self._value

    async def get(self) -> T:
        """Return the value. A task of its own makes it, which goes on if the user that waits for it is cancelled."""
        if self._value is not None:
            return self._value
        if self._making is None or self._making.done():
            self._making = asyncio.create_task(self._keep(), name="make a lazy value")
            self._making.add_done_callback(retrieve_error)
        return await asyncio.shield(self._making)

    async def cancel(self) -> None:
        """End a making that runs. Returns when it has ended."""
        await end_tasks(self._making)

    async def _keep(self) -> T:
        self._value = await self._make()
        return self._value


# --- whose doing ------------------------------------------------------------------------------------------------


class Doer(NamedTuple):
    """A person, and the task that works for them."""

    name: str
    task: ref[asyncio.Task[Any]]


DOER: ContextVar[Doer | None] = ContextVar("doer", default=None)
"""Tasks and timers inherit it from a request that begins them, and are not its person's doing: ask `doer`."""


def doer() -> str | None:
    """The person for whom this very task works. None: the owner of the password, an agent or the server itself acts."""
    found = DOER.get()
    return found.name if found is not None and found.task() is asyncio.current_task() else None


@contextmanager
def work_for(name: str | None) -> Generator[None]:
    """Let what this task does in the block be the doing of a person; None: of nobody."""
    task = asyncio.current_task()
    token = DOER.set(None if name is None or task is None else Doer(name, ref(task)))
    try:
        yield
    finally:
        DOER.reset(token)


def go_on_for(name: str | None, work: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
    """Work of a person's request, to be done in a task of its own."""
    return work if name is None else _work_for(name, work)


async def _work_for(name: str, work: Coroutine[Any, Any, T]) -> T:
    with work_for(name):
        return await work
