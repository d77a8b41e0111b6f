"""Checkpoints that cannot be used are ignored, and the session is made from its journal."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from dataclasses import replace

import pytest

from shim.clock import ManualClock
from shim.faces.opencode1 import read as opencode1
from shim.sessions import checkpoints
from shim.sessions.journal_loader import load_journal
from shim.sessions.session_state import SessionState
from shim.store.base import Checkpoint
from shim.store.memory import MemoryStore
from tests.support.opencode2_story import Story
from tests.support.scripted_model import Recorder
from tests.support.session_states import bare
from universal.session.value_codec import PACKER


def of_format(checkpoint: Checkpoint, name: str) -> Checkpoint:
    head = json.loads(zlib.decompress(checkpoint.head))
    return replace(checkpoint, head=zlib.compress(json.dumps([name, *head[1:]]).encode()))


def older(checkpoint: Checkpoint) -> Checkpoint:
    return of_format(checkpoint, "0-older")


def newer(checkpoint: Checkpoint) -> Checkpoint:
    return of_format(checkpoint, "99999-newer")


def cut(checkpoint: Checkpoint) -> Checkpoint:
    return replace(checkpoint, head=checkpoint.head[:-7])


def no_json(checkpoint: Checkpoint) -> Checkpoint:
    return replace(checkpoint, head=b"nothing of the kind")


def without_a_page(checkpoint: Checkpoint) -> Checkpoint:
    return replace(checkpoint, pages=dict(list(checkpoint.pages.items())[1:]))


def with_a_damaged_page(checkpoint: Checkpoint) -> Checkpoint:
    return replace(checkpoint, pages={number: body[:-1] + b"?" for number, body in checkpoint.pages.items()})


def of_another_event(checkpoint: Checkpoint) -> Checkpoint:
    return replace(checkpoint, sequence=checkpoint.sequence - 1)


def as_it_was(checkpoint: Checkpoint) -> Checkpoint:
    return checkpoint


def state_over(store: MemoryStore, story: Story) -> SessionState:
    return bare(story.id, "mock", store, Recorder(), ManualClock(0, 0))


@pytest.mark.parametrize(
    ("change", "is_used"),
    [
        (as_it_was, True),
        *((change, False) for change in (older, newer, cut, no_json, without_a_page, with_a_damaged_page, of_another_event)),
    ],
)
async def test_a_checkpoint_that_cannot_be_used_is_ignored(change: Callable[[Checkpoint], Checkpoint], is_used: bool) -> None:
    story, store = Story(), MemoryStore()
    for number in range(5):
        story.turn(f"prompt {number}", "Hi.")
    await store.open()
    store.append(story.journal)
    first = state_over(store, story)
    first.load(story.journal)
    first.session.messages.pack(PACKER, 1, 2)
    first.stored.sequence = -checkpoints.EVERY  # due
    checkpoints.save(first, store)
    written = await store.checkpoint(story.id)
    assert written is not None
    changed = change(written)
    store.delete_session(story.id)
    store.append(story.journal)
    store.save_checkpoint(story.id, changed)
    second = state_over(store, story)
    assert await checkpoints.open_from(second, store) == is_used
    await load_journal(second, store)
    assert second.sequence == first.sequence
    assert opencode1.export(second.session) == opencode1.export(first.session)


async def test_a_checkpoint_of_another_journal_is_ignored() -> None:
    story, store = Story(), MemoryStore()
    story.turn("hello", "Hi.")
    await store.open()
    store.append(story.journal)
    first = state_over(store, story)
    first.load(story.journal)
    first.stored.sequence = -checkpoints.EVERY
    checkpoints.save(first, store)
    written = await store.checkpoint(story.id)
    assert written is not None
    store.delete_session(story.id)
    store.append([event.model_copy(update={"event_id": f"{event.event_id}-other"}) for event in story.journal])
    store.save_checkpoint(story.id, written)
    assert not await checkpoints.open_from(state_over(store, story), store)
