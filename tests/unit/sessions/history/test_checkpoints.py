"""Checkpoints that cannot be used are ignored, and the session is made from its journal; pages that are lost are made anew."""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from shim.faces.opencode1 import read as opencode1
from shim.faces.opencode2 import read as opencode2
from shim.lib.clock import ManualClock
from shim.lib.errors import StoreError
from shim.sessions.history import checkpoints
from shim.sessions.history.checkpoints import PageLost
from shim.sessions.history.journal_loader import load_journal, mend
from shim.sessions.session.session_state import SessionState, StoredCheckpoint
from shim.store.base import Checkpoint
from shim.store.memory import MemoryStore
from tests.support.opencode2_story import Story
from tests.support.scripted_model import Recorder
from tests.support.session_states import bare
from universal.session.value_codec import ENTRIES, MESSAGES

Change = Callable[[Checkpoint], Checkpoint]
OLD_HEAD = ["1-0123456789abcdef-0123456789abcdef", [[1, 305419896]], "[5]"]
"""The head of a checkpoint as it was before entries were in pages: format, pages with checksums, the state."""


def of_head(*head: object) -> Change:
    return lambda checkpoint: replace(checkpoint, head=zlib.compress(json.dumps(head).encode()))


def of_format(name: str) -> Change:
    return lambda checkpoint: of_head(name, *json.loads(zlib.decompress(checkpoint.head))[1:])(checkpoint)


def cut(checkpoint: Checkpoint) -> Checkpoint:
    return replace(checkpoint, head=checkpoint.head[:-7])


def no_json(checkpoint: Checkpoint) -> Checkpoint:
    return replace(checkpoint, head=b"nothing of the kind")


def of_another_event(checkpoint: Checkpoint) -> Checkpoint:
    return replace(checkpoint, sequence=checkpoint.sequence - 1)


def as_it_was(checkpoint: Checkpoint) -> Checkpoint:
    return checkpoint


def state_over(store: MemoryStore, story: Story) -> SessionState:
    return bare(story.id, "mock", store, Recorder(), ManualClock(0, 0))


def story_of(turns: int) -> Story:
    story = Story()
    for number in range(turns):
        story.turn(f"prompt {number}", "Hi.")
    return story


async def save_checkpoint(story: Story, store: MemoryStore) -> tuple[SessionState, Checkpoint, dict[int, bytes]]:
    """A session whose checkpoint is in the store, with its pages."""
    await store.open()
    store.append(story.journal)
    state = state_over(store, story)
    state.load(story.journal)
    state.session.messages.pack(MESSAGES, loose_count=1, page_size=2)
    state.session.timeline.entries.pack(ENTRIES, loose_count=1, page_size=2)
    state.stored.sequence = -checkpoints.EVERY  # due
    await checkpoints.save_in_steps(state, store)
    written = await store.checkpoint(story.id)
    assert written is not None and len(written.pages) > 4
    bodies = {number: store.checkpoint_page(story.id, number) or b"" for number in written.pages}
    return state, written, bodies


def put(story: Story, store: MemoryStore, checkpoint: Checkpoint, bodies: dict[int, bytes]) -> None:
    """The journal with another checkpoint."""
    store.delete_session(story.id)
    store.append(story.journal)
    store.save_checkpoint(story.id, checkpoint, bodies)


def client_views(state: SessionState) -> object:
    return opencode1.export(state.session), list(opencode2.messages(state.session))


@pytest.mark.parametrize(
    ("change", "is_used"),
    [
        (as_it_was, True),
        *((change, False) for change in (of_format("0-older"), of_format("99999-newer"), of_head(*OLD_HEAD))),
        *((change, False) for change in (of_head(), of_head("1", "2", "3", "4"), cut, no_json, of_another_event)),
    ],
)
async def test_a_checkpoint_that_cannot_be_used_is_ignored(change: Change, is_used: bool) -> None:
    story, store = story_of(5), MemoryStore()
    first, written, bodies = await save_checkpoint(story, store)
    put(story, store, change(written), bodies)
    second = state_over(store, story)
    assert await checkpoints.open_from(second, store) == is_used
    await load_journal(second, store)
    assert second.sequence == first.sequence
    assert client_views(second) == client_views(first)


async def test_a_checkpoint_without_one_of_its_pages_is_ignored() -> None:
    story, store = story_of(5), MemoryStore()
    first, written, bodies = await save_checkpoint(story, store)
    expected = client_views(first)
    for lost in bodies:
        put(story, store, written, {number: body for number, body in bodies.items() if number != lost})
        second = state_over(store, story)
        assert not await checkpoints.open_from(second, store)
        await load_journal(second, store)
        assert client_views(second) == expected


async def test_pages_of_a_checkpoint_that_was_ignored_are_removed() -> None:
    story, store = story_of(5), MemoryStore()
    _, written, bodies = await save_checkpoint(story, store)
    put(story, store, of_format("0-older")(written), bodies)
    again = state_over(store, story)
    await load_journal(again, store)
    again.stored.sequence = -checkpoints.EVERY
    await checkpoints.save_in_steps(again, store)
    newest = await store.checkpoint(story.id)
    assert newest is not None and newest.pages == frozenset()


async def test_a_checkpoint_of_another_journal_is_ignored() -> None:
    story, store = story_of(5), MemoryStore()
    _, written, bodies = await save_checkpoint(story, store)
    store.delete_session(story.id)
    store.append([event.model_copy(update={"event_id": f"{event.event_id}-other"}) for event in story.journal])
    store.save_checkpoint(story.id, written, bodies)
    assert not await checkpoints.open_from(state_over(store, story), store)


async def test_opening_reads_no_page(monkeypatch: pytest.MonkeyPatch) -> None:
    story, store = story_of(5), MemoryStore()
    await save_checkpoint(story, store)

    def read_page(session_id: str, number: int) -> bytes | None:
        raise AssertionError(f"page {number} was read")

    monkeypatch.setattr(store, "checkpoint_page", read_page)
    state = state_over(store, story)
    await load_journal(state, store)
    newest = next(reversed(state.session.messages.values()))
    assert newest.text() == "Hi."


async def test_damaged_pages_are_rebuilt_from_the_journal() -> None:
    story, store = story_of(6), MemoryStore()
    first, written, bodies = await save_checkpoint(story, store)
    expected = client_views(first)
    put(story, store, written, {number: body[:-1] + b"?" for number, body in bodies.items()})
    second = state_over(store, story)
    assert await checkpoints.open_from(second, store)
    with pytest.raises(PageLost, match="ask again"):
        client_views(second)
    assert second.stored.is_damaged
    await mend(second, state_over(store, story), store)
    assert client_views(second) == expected
    assert not second.stored.is_damaged
    await checkpoints.save_in_steps(second, store)
    third = state_over(store, story)
    assert await checkpoints.open_from(third, store)
    assert client_views(third) == expected


async def test_a_session_in_which_much_happens_is_mended_later(monkeypatch: pytest.MonkeyPatch) -> None:
    story, store = story_of(6), MemoryStore()
    await save_checkpoint(story, store)
    state = state_over(store, story)
    await load_journal(state, store)
    state.journal.sequence += 1
    with pytest.raises(StoreError, match="ask again"):
        await mend(state, state_over(store, story), store)


async def test_only_pages_that_have_changed_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    story, store = story_of(6), MemoryStore()
    state, written, _ = await save_checkpoint(story, store)
    old = next(iter(state.session.messages.values()))
    story.status("message.removed", message_id=old.info.id)
    store.append(story.journal[state.sequence :])
    state.load(story.journal[state.sequence :])
    state.stored.sequence = -checkpoints.EVERY
    await checkpoints.save_in_steps(state, store)
    again = await store.checkpoint(story.id)
    assert again is not None
    assert (len(again.pages - written.pages), len(written.pages - again.pages)) == (2, 2)  # of messages, of entries


async def test_events_during_the_encoding_of_a_checkpoint_are_not_in_it() -> None:
    story, store = story_of(6), MemoryStore()
    state, _, _ = await save_checkpoint(story, store)
    expected = client_views(state)
    state.stored.sequence = -checkpoints.EVERY
    snapshot = checkpoints.take(state)
    sequence = state.sequence
    ids = list(state.session.messages)
    story.status("message.removed", message_id=ids[0])
    story.turn("later", "much later")
    story.status("part.removed", message_id=ids[-1], part_id=next(reversed(state.session.messages[ids[-1]].parts)))
    store.append(story.journal[sequence:])
    state.load(story.journal[sequence:])
    store.save_checkpoint(story.id, Checkpoint(sequence, snapshot.encode(), snapshot.all), {})
    again = state_over(store, story)
    assert await checkpoints.open_from(again, store)
    assert client_views(again) == expected
    await load_journal(again, store)
    assert client_views(again) == client_views(state)


async def test_a_turn_that_begins_meanwhile_leaves_the_checkpoint_of_before() -> None:
    story, store = story_of(6), MemoryStore()
    state, written, _ = await save_checkpoint(story, store)
    story.start()
    store.append(story.journal[state.sequence :])
    state.load(story.journal[state.sequence :])
    state.stored.sequence = -checkpoints.EVERY
    await checkpoints.save_in_steps(state, store)
    assert await store.checkpoint(story.id) == written


async def test_a_session_that_was_deleted_meanwhile_gets_no_checkpoint() -> None:
    story, store = story_of(6), MemoryStore()
    state, _, _ = await save_checkpoint(story, store)
    state.stored.sequence = -checkpoints.EVERY
    saving = asyncio.create_task(checkpoints.save_in_steps(state, store))
    await asyncio.sleep(0)  # it is being encoded
    store.delete_session(story.id)
    state.journal.is_closed = True
    await saving
    assert await store.checkpoint(story.id) is None


async def test_a_checkpoint_is_due_after_many_events_and_one_is_written_at_a_time() -> None:
    state, _, _ = await save_checkpoint(story_of(6), MemoryStore())

    def is_due(events: int, **changes: Any) -> bool:
        state.stored = replace(StoredCheckpoint(state.sequence - events), **changes)
        return checkpoints.is_due(state)

    assert not is_due(checkpoints.EVERY - 1)
    assert is_due(checkpoints.EVERY)
    assert not is_due(checkpoints.EVERY, head_bytes=checkpoints.HEAD_STEP_BYTES)
    assert not is_due(checkpoints.EVERY, is_writing=True)
    assert not is_due(checkpoints.EVERY, is_off=True)


async def test_pages_are_read_ahead_in_a_thread() -> None:
    story, store = story_of(9), MemoryStore()
    await save_checkpoint(story, store)
    state = state_over(store, story)
    await load_journal(state, store)
    session = state.session
    ids = list(session.messages)
    await checkpoints.read_ahead(session, ids[5], 3, is_back=True)
    store.delete_session(story.id)
    assert [message.info.id for message in session.messages.until(ids[5])][:3] == [ids[5], ids[4], ids[3]]
