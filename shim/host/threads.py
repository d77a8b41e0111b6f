"""Files and folders that are opened, made and removed in a thread, for work that goes on on the event loop."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path


@asynccontextmanager
async def scratch_folder(prefix: str, parent: Path | None = None) -> AsyncGenerator[str]:
    """A temporary folder that is removed at the end of the block. Raises OSError."""
    folder = await asyncio.to_thread(tempfile.mkdtemp, prefix=prefix, dir=parent)
    try:
        yield folder
    finally:
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)


async def open_descriptor(path: Path, flags: int, mode: int) -> int:
    """`os.open`. A descriptor that comes after a cancellation is closed. Raises OSError."""
    opening = asyncio.ensure_future(asyncio.to_thread(os.open, path, flags, mode))
    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:
        opening.add_done_callback(_close)
        raise


def _close(opening: asyncio.Future[int]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        os.close(opening.result())
