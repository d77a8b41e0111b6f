"""A value that is made when it is first needed, so that the server starts without it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from shim.lib.tasks import retrieve_error

T = TypeVar("T")


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
        if self._making is not None and not self._making.done():
            self._making.cancel()
            await asyncio.wait([self._making])

    async def _keep(self) -> T:
        self._value = await self._make()
        return self._value
