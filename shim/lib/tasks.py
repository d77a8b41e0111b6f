"""Helpers for asyncio's tasks."""

from __future__ import annotations

import asyncio
from typing import Any


def retrieve_error(task: asyncio.Task[Any]) -> None:
    """Take the error of a task that has ended, as its `done` callback.

    Whoever awaits the task gets it all the same. If all who did were cancelled, asyncio would log an error that is none.
    """
    if not task.cancelled():
        task.exception()
