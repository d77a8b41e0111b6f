"""The error of a task whose waiters have gone is no error of the server."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

from shim.lib.tasks import retrieve_error


async def fail() -> None:
    raise ValueError("nobody waits for this")


async def test_asyncio_logs_no_error_that_was_retrieved() -> None:
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: complaints.append(context))
    for callbacks in ([], [retrieve_error]):
        task = asyncio.create_task(fail())
        for callback in callbacks:
            task.add_done_callback(callback)
        await asyncio.wait([task])
        await asyncio.sleep(0)
        del task
        gc.collect()
    assert len(complaints) == 1


async def test_a_cancelled_task_has_no_error() -> None:
    task = asyncio.create_task(fail())
    task.cancel()
    await asyncio.wait([task])
    retrieve_error(task)
    assert task.cancelled()
