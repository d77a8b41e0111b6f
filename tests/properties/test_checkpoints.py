"""A session that is opened from a checkpoint and the events after it is the session that its whole journal makes.

For any history, and each recording: wherever the checkpoint stands, and however many of its messages are packed. Planted bugs
show that the property would see one.
"""

from __future__ import annotations

import asyncio
import lzma
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shim.faces.opencode1 import read as opencode1
from shim.faces.opencode2 import read as opencode2
from shim.lib.clock import ManualClock
from shim.sessions.history import checkpoints
from shim.sessions.session.session_state import SessionState
from shim.store.memory import MemoryStore
from shim.store.sqlite import SqliteStore
from tests.conftest import LAW_EXAMPLES
from tests.goldens.journals import JOURNALS, journal_names
from tests.properties.walk import Walk
from tests.support.opencode2_story import Story
from tests.support.session_states import state_deps
from universal.events import UniversalEvent
from universal.items import ItemKind, ItemRole, TextPart
from universal.session import transcript
from universal.session.checkpoint import restore, state_of
from universal.session.entries import Entries
from universal.session.messages import Messages
from universal.session.pages import Page, PagedDict
from universal.session.value_codec import ENTRIES, MESSAGES

HISTORY = st.binary(min_size=40, max_size=240)


def branch_of(session_id: str, store: MemoryStore, agent: str = "mock") -> SessionState:
    clock = ManualClock(0, 0)
    return SessionState(session_id, agent, state_deps(store, clock))


def picture(branch: SessionState) -> dict[str, Any]:
    """All that a session's writer knows; messages as objects."""
    state = state_of(branch.reducer)
    session = branch.session
    return {
        "messages": list(session.messages.items()),
        "known": {id_: set(session.messages.known_by(id_)) for id_ in session.messages},
        "entries": list(session.timeline.entries.items()),
        "session": replace(session, messages=Messages(), timeline=replace(session.timeline, entries=Entries())),
        "transcript": state.transcript,
        "reducer": (state.late, state.command),
        "branch": (branch.sequence, branch.journal.event_id, branch.journal.native_session_id, branch.turn_id, branch.ended),
        "instructions": (list(branch.instructions.entries.items()), branch.instructions.announced),
        "waiting": list(branch.pending_prompts.prompts.items()),
        "without answer": branch.pending_prompts.without_answer(),
        "opencode1": opencode1.export(session),
        "opencode2": [opencode2.info(session), *opencode2.messages(session)],
    }


async def check(events: Sequence[UniversalEvent], agent: str, held: int, page: int, cut: int) -> int:
    """Raise unless all ways to the session lead to the same; how many checkpoints were tried.

    In: `held` and `page`, how messages are packed; `cut`, one of so many turn ends has a checkpoint.
    """
    store = MemoryStore()
    await store.open()
    store.append(events)
    session_id = events[0].session_id
    whole, grown = branch_of(session_id, store, agent), branch_of(session_id, store, agent)
    whole.load(events)
    expected, ends = picture(whole), count()
    for at, event in enumerate(events, 1):
        grown.load((event,))
        if not grown.is_at_rest or next(ends) % cut:
            continue
        grown.session.messages.pack(MESSAGES, loose_count=held, page_size=page)
        grown.session.timeline.entries.pack(ENTRIES, loose_count=held, page_size=page)
        snapshot = checkpoints.take(grown)
        await checkpoints.save_in_steps(grown, store)
        assert grown.stored.sequence == at
        assert all(page.stored is None for page in snapshot.pages.values())
        again = branch_of(session_id, store, agent)
        assert await checkpoints.open_from(again, store)
        assert again.sequence == at
        assert picture(again) == picture(grown)
        again.load(events[again.sequence :])
        assert picture(again) == expected
    assert picture(grown) == expected
    return next(ends)


@pytest.fixture(autouse=True, scope="module")
def at_each_event() -> Iterator[None]:
    """Checkpoints are due at once, and items are forgotten early."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoints, "EVERY", 1)
        patch.setattr(transcript, "ITEMS", 6)
        patch.setattr(transcript, "ITEMS_LEFT", 3)
        yield


@settings(max_examples=LAW_EXAMPLES // 4, deadline=None)
@given(HISTORY, st.integers(0, 4), st.integers(1, 3), st.integers(1, 4))
def test_checkpoint_and_tail_equal_the_whole_journal(history: bytes, held: int, page: int, cut: int) -> None:
    asyncio.run(check(Walk(history).story.journal, "mock", held, page, cut))


def pending_prompt(story: Story, words: str) -> str:
    """A prompt that waits for an agent; its item."""
    sent = {"parts": [{"type": "text", "text": words}]}
    prompt = {"agent": "mock", "text": [0]}
    return story.item(ItemKind.MESSAGE, TextPart(text=words), role=ItemRole.USER, opencode=sent, prompt=prompt)


def long_story() -> Story:
    """Turns whose prompts are undone, removed and handed late: what reaches back to old messages."""
    story = Story(step_ms=0)  # ids must go on where they were
    noted = pending_prompt(story, "noted")
    cancelled = pending_prompt(story, "cancelled")
    story.status("prompt", state="cancelled", item_id=cancelled)
    for number in range(6):
        story.turn(f"prompt {number}", f"answer {number}")
    messages = list(story.reducer.session.messages)
    parked = pending_prompt(story, "parked")
    first, second = story.reducer.session.messages[messages[0]], story.reducer.session.messages[messages[3]]
    story.status("message.removed", message_id=messages[2])
    story.status("part.removed", message_id=messages[3], part_id=next(iter(second.parts)))
    part = {**opencode1.part(next(iter(first.parts.values())), story.id, messages[0]), "text": "rewritten"}
    story.status("part.updated", part=part)
    story.turn("after", "yes")
    story.start()
    story.hand(parked, carried=[story.message_id(noted)])
    story.say("late")
    story.end()
    story.status("revert", revert={"messageID": messages[4]}, diffs=[])
    story.status("revert", revert=None, messages=messages[4:6], parts=[])
    story.status("moved", directory="/home/user/other", project_id="p", path="")
    story.turn("there", "too")
    return story


@pytest.mark.parametrize(("held", "page"), [(0, 1), (0, 3), (2, 2), (128, 64)])
async def test_changes_of_old_messages_reach_their_pages(held: int, page: int) -> None:
    assert await check(long_story().journal, "mock", held, page, 1) > 8


@pytest.mark.parametrize("name", journal_names())
async def test_recorded_sessions_equal_their_journals(name: str, tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    path.write_bytes(lzma.decompress((JOURNALS / f"{name}.db.xz").read_bytes()))
    source = SqliteStore(path)
    await source.open()
    try:
        tried = 0
        for row in await source.sessions():
            tried += await check(await source.events(row.id), row.data.get("agent", "mock"), 1, 2, 1)
        assert tried > 0
    finally:
        await source.close()


# --- planted bugs -------------------------------------------------------------------------------------------------


def _state_without(patch: pytest.MonkeyPatch, **lost: Any) -> None:
    real = transcript.Transcript.state

    def state(self: transcript.Transcript) -> transcript.TranscriptState:
        return replace(real(self), **lost)

    patch.setattr(transcript.Transcript, "state", state)


def forgets_the_last_id(patch: pytest.MonkeyPatch) -> None:
    _state_without(patch, last_id=-1)


def forgets_prompts(patch: pytest.MonkeyPatch) -> None:
    _state_without(patch, prompt_of_item={})


def forgets_who_knows(patch: pytest.MonkeyPatch) -> None:
    def with_known(self: Page[Any], known: object) -> Page[Any]:
        return self

    patch.setattr(Page, "with_known", with_known)


def changes_a_copy_of_a_page(patch: pytest.MonkeyPatch) -> None:
    def open_page(self: PagedDict[Any], page: Page[Any]) -> object:
        return page.unpack()

    patch.setattr(PagedDict, "_open", open_page)


def _keeps_stale_pages_of(kind: type[PagedDict[Any]], patch: pytest.MonkeyPatch) -> None:
    real_open, real_close = Page.open, PagedDict._close
    before: dict[Page[Any], Page[Any]] = {}

    def open_page(self: Page[Any], values: dict[str, Any]) -> Page[Any]:
        opened = real_open(self, values)
        before[opened] = self
        return opened

    def close(self: PagedDict[Any], packer: Any, opened: Page[Any], page_size: int) -> None:
        at = self._pages.index(opened)
        real_close(self, packer, opened, page_size)
        if isinstance(self, kind) and opened in before:
            self._pages[at : at + 1] = [before[opened]]

    patch.setattr(Page, "open", open_page)
    patch.setattr(PagedDict, "_close", close)


def keeps_a_stale_page_of_messages(patch: pytest.MonkeyPatch) -> None:
    _keeps_stale_pages_of(Messages, patch)


def keeps_a_stale_page_of_entries(patch: pytest.MonkeyPatch) -> None:
    _keeps_stale_pages_of(Entries, patch)


def loses_a_page_of_messages(patch: pytest.MonkeyPatch) -> None:
    def messages(held: Any, pages: list[Any]) -> Messages:
        return Messages(((one.info.id, one) for one in held), pages[1:])

    patch.setattr(checkpoints.Messages, "of", messages)


def loses_a_page_of_entries(patch: pytest.MonkeyPatch) -> None:
    def entries(held: Any, pages: list[Any]) -> Entries:
        return Entries(held, pages[1:])

    patch.setattr(checkpoints, "Entries", entries)


def forgets_to_write_a_page(patch: pytest.MonkeyPatch) -> None:
    real = checkpoints.take

    def take(state: SessionState) -> checkpoints.Snapshot:
        found = real(state)
        return replace(found, pages=dict(list(found.pages.items())[1:]))

    patch.setattr(checkpoints, "take", take)


def takes_one_page_for_another(patch: pytest.MonkeyPatch) -> None:
    real = PagedDict._page_of

    def page_of(self: PagedDict[Any], id_: str) -> Page[Any] | None:
        found = real(self, id_)
        return self._pages[0] if found is not None else None

    patch.setattr(PagedDict, "_page_of", page_of)


def forgets_items_that_wait(patch: pytest.MonkeyPatch) -> None:
    def no_fields(items: object) -> dict[str, Any]:
        return {}

    patch.setattr(checkpoints, "_pending_prompts", no_fields)


def forgets_cancelled_prompts(patch: pytest.MonkeyPatch) -> None:
    real = checkpoints.take

    def take(state: SessionState) -> checkpoints.Snapshot:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(state.pending_prompts, "ends", set())
            return real(state)

    patch.setattr(checkpoints, "take", take)


def begins_with_another_event(patch: pytest.MonkeyPatch) -> None:
    real = checkpoints.open_from

    async def open_from(branch: SessionState, store: Any, *, until: int | None = None) -> bool:
        is_open = await real(branch, store, until=until)
        branch.journal.sequence += 1
        return is_open

    patch.setattr(checkpoints, "open_from", open_from)


def forgets_the_session(patch: pytest.MonkeyPatch) -> None:
    real = checkpoints.core.restore

    def fresh(state: Any, messages: Messages, entries: Entries) -> Any:
        reducer = real(state, messages, entries)
        reducer.session.record = replace(reducer.session.record, cost=0.0, title="")
        return reducer

    patch.setattr(checkpoints.core, "restore", fresh)


BUGS: tuple[Callable[[pytest.MonkeyPatch], None], ...] = (
    forgets_the_last_id,
    forgets_prompts,
    forgets_who_knows,
    changes_a_copy_of_a_page,
    keeps_a_stale_page_of_messages,
    keeps_a_stale_page_of_entries,
    loses_a_page_of_messages,
    loses_a_page_of_entries,
    forgets_to_write_a_page,
    takes_one_page_for_another,
    forgets_items_that_wait,
    forgets_cancelled_prompts,
    begins_with_another_event,
    forgets_the_session,
)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
async def test_a_planted_bug_is_found(bug: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    events = long_story().journal
    bug(monkeypatch)
    with pytest.raises((AssertionError, KeyError, ValueError, checkpoints.PageLost)):
        await check(events, "mock", 0, 2, 1)
    monkeypatch.undo()
    assert restore is checkpoints.core.restore
