"""A checkpoint is written when its session is quiet, when it is overdue, or when the server stops."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from shim.lib.clock import ManualClock
from shim.sessions.history import checkpoints
from shim.sessions.history.checkpoints import CheckpointWriter
from shim.sessions.session.session_state import SessionState
from shim.store.memory import MemoryStore
from tests.support.opencode2_story import Story
from tests.support.scripted_model import Recorder
from tests.support.session_states import bare

WRITTEN_S = 10.0
"""The longest that a checkpoint may take to be written."""


class Checkpoints(MemoryStore):
    """A store that notes when each checkpoint was written (loop time)."""

    def __init__(self) -> None:
        super().__init__()
        self.times: list[float] = []
        self.written = asyncio.Event()

    def save_checkpoint(self, *args: Any, **more: Any) -> None:
        super().save_checkpoint(*args, **more)
        self.times.append(asyncio.get_running_loop().time())
        self.written.set()


@pytest.fixture
async def store() -> Checkpoints:
    store = Checkpoints()
    await store.open()
    return store


def due(store: Checkpoints, events: int = checkpoints.EVERY) -> SessionState:
    """A session at rest with so many events after its checkpoint."""
    story = Story()
    story.turn("prompt", "Hi.")
    store.append(story.journal)
    state = bare(story.id, "mock", store, Recorder(), ManualClock(0, 0))
    state.load(story.journal)
    state.stored.sequence = state.sequence - events
    return state


async def test_each_change_puts_the_checkpoint_off(store: Checkpoints, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "QUIET_S", 0.05)
    writer, state = CheckpointWriter(store), due(store)
    loop = asyncio.get_running_loop()
    last = loop.time()
    ends = last + 0.1
    while last < ends:  # without a rest of 0.05 s
        writer.note(state)
        await asyncio.sleep(0)
        last = loop.time()
    writer.note(state)
    async with asyncio.timeout(WRITTEN_S):
        await store.written.wait()
    assert len(store.times) == 1
    assert store.times[0] - last >= 0.05


async def test_an_overdue_checkpoint_does_not_wait(store: Checkpoints) -> None:
    writer = CheckpointWriter(store)
    writer.note(due(store, checkpoints.OVERDUE))
    async with asyncio.timeout(checkpoints.QUIET_S):
        await store.written.wait()


async def test_a_stop_writes_what_is_due(store: Checkpoints) -> None:
    writer, state = CheckpointWriter(store), due(store)
    writer.note(state)
    await writer.close()
    assert len(store.times) == 1
    state.stored.sequence = -checkpoints.EVERY
    writer.note(state)
    await writer.close()
    assert len(store.times) == 1


async def test_a_deleted_session_gets_none(store: Checkpoints) -> None:
    writer, state = CheckpointWriter(store), due(store)
    writer.note(state)
    state.journal.is_closed = True
    await writer.close()
    assert store.times == []


async def test_a_checkpoint_that_is_not_due_is_not_written(store: Checkpoints) -> None:
    writer = CheckpointWriter(store)
    writer.note(due(store, checkpoints.EVERY - 1))
    await writer.close()
    assert store.times == []
