"""Files and folders of a thread."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import pytest

from shim.host import threads

LIMIT_S = 10


async def test_a_scratch_folder_is_removed_with_what_is_in_it(tmp_path: Path) -> None:
    async with threads.scratch_folder("try-", tmp_path) as folder:
        Path(folder, "file").write_text("x")
        assert [place.name.startswith("try-") for place in tmp_path.iterdir()] == [True]
    assert list(tmp_path.iterdir()) == []


async def test_a_file_is_opened_in_a_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[threading.Thread] = []
    real = os.open

    def note_call(*arguments: object) -> int:
        opened.append(threading.current_thread())
        return real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", note_call)
    descriptor = await threads.open_descriptor(tmp_path / "file", os.O_RDWR | os.O_CREAT, 0o600)
    os.close(descriptor)
    assert opened and threading.main_thread() not in opened


async def test_a_descriptor_that_comes_too_late_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    began, go_on = threading.Event(), threading.Event()
    descriptors: list[int] = []
    closed = asyncio.Event()
    real_open, real_close = os.open, os.close

    def slow(*arguments: object) -> int:
        began.set()
        assert go_on.wait(LIMIT_S)
        descriptors.append(real_open(*arguments))  # type: ignore[arg-type]
        return descriptors[0]

    def note_call(descriptor: int) -> None:
        real_close(descriptor)
        if descriptor in descriptors:
            closed.set()

    monkeypatch.setattr(os, "open", slow)
    monkeypatch.setattr(os, "close", note_call)
    task = asyncio.ensure_future(threads.open_descriptor(tmp_path / "file", os.O_RDWR | os.O_CREAT, 0o600))
    assert await asyncio.to_thread(began.wait, LIMIT_S)
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()
    go_on.set()
    await asyncio.wait_for(closed.wait(), LIMIT_S)
