"""Helpers for asyncio's tasks, and for which named person a task works."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple, TypeVar
from weakref import ref

T = TypeVar("T")


def retrieve_error(task: asyncio.Task[Any]) -> None:
    """Take the error of a task that has ended, as its `done` callback.

    Whoever awaits the task gets it all the same. If all who did were cancelled, asyncio would log an error that is none.
    """
    if not task.cancelled():
        task.exception()


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
