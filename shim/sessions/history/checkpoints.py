"""Checkpoints of sessions in the store: a session is opened from its newest one and the events after it.

    turn ends -> old messages and entries are packed in pages -> head and new pages are queued behind the events they stand for
    opened    -> head, then the rest of the journal; if the checkpoint cannot be used: the whole journal
    asked for -> a page is read from the store; if it is lost or damaged: it is made again from the journal

A checkpoint is a copy of what the journal says. It is used only if it was written by code with the same `FORMAT`, is whole, and
stands at an event that the journal has. There is one for each session; it is due when `EVERY` events have come, or more if it is
large, and written when the session is quiet (`CheckpointWriter`, docs/adr/0029).
"""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, TypeVar

import structlog

from shim.lib.errors import StoreError
from shim.lib.tasks import keep
from shim.sessions.prompts.pending_prompt import PendingPrompt
from shim.sessions.prompts.prompt_payload import pending_prompt_of
from shim.sessions.session.session_state import SessionState, StoredCheckpoint
from shim.store.base import Checkpoint, Store
from universal.events import SessionEndedData
from universal.items import Item, Json
from universal.session import checkpoint as core
from universal.session.entries import Entries, Entry
from universal.session.messages import Message, Messages
from universal.session.model import Session
from universal.session.pages import Page, PagedDict, PageRef, ReadPage, stored_page
from universal.session.value_codec import ENTRIES, MESSAGES, encode, read, shape_of

T = TypeVar("T")
log = structlog.get_logger(__name__)

EVERY = 500
"""Events between two checkpoints: some 50 ms when the session is opened."""
HEAD_STEP_BYTES = 2**17
"""For each so many bytes of its head, a checkpoint is written EVERY events later: so that its cost stays in proportion."""
HEAD_LIMIT_BYTES = 2**23
"""A larger head is not written: the session is opened from its journal, or from an older checkpoint."""
READ_AHEAD = 6
"""Pages that are read in a thread before they are asked for; fewer than are kept unpacked."""
UNUSABLE = (ValueError, TypeError, KeyError, IndexError, AttributeError, zlib.error)
"""What a text raises that was not written by this code, or is damaged."""


class PageLost(StoreError):
    """A checkpoint's page is missing from the store or damaged."""


@dataclass(frozen=True, slots=True)
class WriterState:
    """All that a session's writer knows between two turns, after the event `event_id`.

    announced          hashes of the instructions that its agent was told
    waiting            message ids and items of prompts that no agent has been given
    ended_prompts      messages of those whose clients wait for no answer any more (`PendingPrompts.ends`)
    messages, entries  those that are in no page
    """

    sequence: int
    event_id: str
    native_session_id: str | None
    turn_id: str
    ended: Json
    instructions: dict[str, Json]
    announced: dict[str, str]
    waiting: tuple[tuple[str, Json], ...]
    ended_prompts: tuple[str, ...]
    reducer: core.ReducerState
    messages: tuple[Message, ...]
    entries: tuple[Entry, ...]
    message_pages: tuple[PageRef, ...] = ()
    entry_pages: tuple[PageRef, ...] = ()


FORMAT = f"{core.FORMAT}-{shape_of(WriterState)}"


# --- writing ---------------------------------------------------------------------------------------------------------


def is_due(state: SessionState) -> bool:
    """Whether enough events have come since the session's checkpoint was written."""
    stored = state.stored
    if stored.is_off or stored.is_writing:
        return False
    return state.journal.sequence - stored.sequence >= EVERY * (1 + stored.head_bytes // HEAD_STEP_BYTES)


async def save_in_steps(state: SessionState, store: Store) -> None:
    """Write a checkpoint if one is due and the session is at rest. Never raises: without one, opening takes longer.

    The event loop is free between two pages, and while the head is encoded.
    """
    if not is_due(state):
        return
    stored = state.stored
    stored.is_writing = True
    try:
        await pack_in_steps(state)
        if not state.is_at_rest:
            return
        snapshot = take(state)
        head = await asyncio.to_thread(snapshot.encode)
        if state.journal.is_closed or not _queue(state, store, snapshot, head):
            return
        await store.flush()
        release(state, store, snapshot)
    except StoreError as error:  # the queue is full, or closed; or it cannot be written
        log.info("checkpoint.not_queued", session_id=state.id, error=str(error))
    except (TypeError, ValueError) as error:
        log.warning("checkpoint.failed", session_id=state.id, error=str(error))
        stored.is_off = True
    finally:
        stored.is_writing = False


async def pack_in_steps(state: SessionState) -> None:
    """Pack old messages and entries page by page, as long as the session is at rest. Raises TypeError or ValueError."""
    has_more = True
    while has_more:
        has_more = pack(state, most=1)
        if has_more:
            await asyncio.sleep(0)  # other sessions go on


def pack(state: SessionState, most: int | None = None) -> bool:
    """Pack old messages and entries of a session that is at rest, `most` pages of each. Returns whether there is more.

    Raises TypeError or ValueError for what cannot be written.
    """
    if not state.is_at_rest or state.stored.is_off:
        return False
    session = state.session
    has_more = session.messages.pack(MESSAGES, most=most)
    return session.timeline.entries.pack(ENTRIES, most=most) or has_more


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A session's state at one moment, which later events do not change.

    saved    without the refs of its pages, of which there may be many
    pages    those that are not stored, by number
    all      numbers of all its pages
    """

    saved: WriterState
    message_pages: tuple[Page[Message], ...]
    entry_pages: tuple[Page[Entry], ...]
    pages: Mapping[int, Page[Any]]
    all: frozenset[int]

    def encode(self) -> bytes:
        """Encode the checkpoint's head. Slow, so call it in a thread.

        Raises TypeError or ValueError for what cannot be written.
        """
        refs = {"message_pages": self.message_pages, "entry_pages": self.entry_pages}
        saved = replace(self.saved, **{name: tuple(page.ref() for page in pages) for name, pages in refs.items()})
        return zlib.compress(json.dumps([FORMAT, encode(saved, WriterState)]).encode(), 1)


def take(state: SessionState) -> Snapshot:
    """Take the snapshot of a session that is at rest and packed. New pages get their numbers."""
    session, waiting, stored = state.session, state.pending_prompts.prompts, state.stored
    messages, entries = session.messages, session.timeline.entries
    pages: list[Page[Any]] = [*messages.pages, *entries.pages]
    number = max(stored.pages, default=0)
    for page in pages:
        number = max(number, page.number)
    for page in pages:
        if page.number == 0:
            page.number = number = number + 1
    saved = WriterState(
        state.sequence,
        state.journal.event_id,
        state.journal.native_session_id,
        state.turn_id,
        state.ended.model_dump(mode="json") if state.ended is not None else None,
        dict(state.instructions.entries),
        dict(state.instructions.announced),
        tuple((id_, prompt.item.model_dump(mode="json")) for id_, prompt in waiting.items() if id_ in messages),
        tuple(id_ for id_ in waiting if id_ in state.pending_prompts.ends),
        core.state_of(state.reducer),
        tuple(core.detach(message) for message in messages.loose_values()),
        tuple(entries.loose_values()),
    )
    new = {page.number: page for page in pages if page.number not in stored.pages}
    return Snapshot(saved, tuple(messages.pages), tuple(entries.pages), new, frozenset(page.number for page in pages))


def _queue(state: SessionState, store: Store, snapshot: Snapshot, head: bytes) -> bool:
    """Queue a checkpoint for the store. Returns False if its head is too large. Raises StoreError."""
    stored, sequence = state.stored, snapshot.saved.sequence
    if len(head) > HEAD_LIMIT_BYTES:
        log.info("checkpoint.too_large", session_id=state.id, bytes=len(head))
        stored.sequence, stored.head_bytes = sequence, len(head)
        return False
    pages = {number: page.bytes() for number, page in snapshot.pages.items()}
    store.save_checkpoint(state.id, Checkpoint(sequence, head, snapshot.all), pages, stored.pages - snapshot.all)
    stored.sequence, stored.head_bytes, stored.pages = sequence, len(head), snapshot.all
    return True


def release(state: SessionState, store: Store, snapshot: Snapshot) -> None:
    """Drop the bytes of the pages that the store has now."""
    read_page = reader_of(state, store)
    for page in snapshot.pages.values():
        page.release(read_page)


# --- reading ---------------------------------------------------------------------------------------------------------


def reader_of(state: SessionState, store: Store) -> ReadPage:
    """A function that reads the pages of a session. It notes a lost page in the state and raises PageLost."""
    session_id = state.id

    def read_page(number: int, checksum: int) -> bytes:
        body = store.checkpoint_page(session_id, number)
        if body is None or zlib.crc32(body) != checksum:
            state.stored.is_damaged = True
            raise PageLost(
                f"Page {number} of session {session_id} is not in the store as it was written. "
                "It will be made again from the session's journal: ask again."
            )
        return body

    return read_page


def decode(checkpoint: Checkpoint) -> WriterState:
    """Decode a stored checkpoint. Slow, so call it in a thread. Raises UNUSABLE if it is damaged or of another format."""
    format_, *text = json.loads(zlib.decompress(checkpoint.head))
    if format_ != FORMAT:
        raise ValueError(f"its format is {format_}, not {FORMAT}")
    saved: WriterState = read(text[0], WriterState)
    if saved.sequence != checkpoint.sequence:
        raise ValueError(f"it stands at event {saved.sequence}, not {checkpoint.sequence}")
    missing = {ref.number for ref in (*saved.message_pages, *saved.entry_pages)} - checkpoint.pages
    if missing:
        raise ValueError(f"page {min(missing)} is missing")
    return saved


async def open_from(state: SessionState, store: Store, *, until: int | None = None) -> bool:
    """Bring a state that has read nothing to the newest checkpoint. Returns False if none can be used.

    In: `until`, the last event that may have been read then.
    """
    checkpoint = await store.checkpoint(state.id)
    if checkpoint is None or (until is not None and checkpoint.sequence > until):
        return False
    try:
        saved = await asyncio.to_thread(decode, checkpoint)
        await _need_event(store, state.id, saved)
    except UNUSABLE as error:
        log.info("checkpoint.ignored", session_id=state.id, sequence=checkpoint.sequence, why=str(error))
        state.stored = StoredCheckpoint(0, 0, checkpoint.pages)
        return False
    read_page = reader_of(state, store)
    messages = Messages.of(saved.messages, [stored_page(MESSAGES, ref, read_page) for ref in saved.message_pages])
    loose = ((entry.id, entry) for entry in saved.entries)
    entries = Entries(loose, [stored_page(ENTRIES, ref, read_page) for ref in saved.entry_pages])
    state.restore(core.restore(saved.reducer, messages, entries))
    state.journal.sequence, state.journal.event_id = saved.sequence, saved.event_id
    state.journal.native_session_id, state.turn_id = saved.native_session_id, saved.turn_id
    state.ended = None if saved.ended is None else SessionEndedData.model_validate(saved.ended)
    state.instructions.entries, state.instructions.announced = saved.instructions, saved.announced
    state.pending_prompts.prompts, state.pending_prompts.ends = _pending_prompts(saved.waiting), set(saved.ended_prompts)
    state.stored = StoredCheckpoint(saved.sequence, len(checkpoint.head), checkpoint.pages)
    return True


async def _need_event(store: Store, session_id: str, saved: WriterState) -> None:
    """Raises ValueError if the journal does not have the event at which the checkpoint stands."""
    rows = await store.rows(session_id, saved.sequence - 1, 1, with_raw=False)
    if not rows or rows[0].event_id != saved.event_id:
        raise ValueError(f"the journal has another event {saved.sequence}")


def _pending_prompts(items: tuple[tuple[str, Json], ...]) -> dict[str, PendingPrompt]:
    pending = ((id_, pending_prompt_of(Item.model_validate(item))) for id_, item in items)
    return {id_: replace(prompt, message_id=id_) for id_, prompt in pending if prompt is not None}


# --- pages that are asked for ------------------------------------------------------------------------------------------


async def read_ahead(session: Session, id_: str | None, count: int, *, is_back: bool) -> None:
    """Read the pages of `count` messages from this one on, so that a look does not block. `is_back`: back from it.

    In: `id_`, None for the first message, or with `is_back` for the last one. Raises StoreError.
    """
    await _unpack(session.messages, session.messages.pages_near(id_, count, is_back=is_back))


async def read_entries_ahead(session: Session, id_: str | None, count: int, *, is_back: bool) -> None:
    """Read the pages of `count` timeline entries and of their messages, as `read_ahead`. Raises StoreError."""
    entries = session.timeline.entries
    await _unpack(entries, entries.pages_near(id_, count, is_back=is_back))
    ids = (entries.ids_until(id_) if is_back else entries.ids_since(id_)) if id_ is not None else ()
    message_id = next((known_id for known_id in islice(ids, count) if known_id in session.messages), None)
    if id_ is None or message_id is not None:
        await read_ahead(session, message_id, count, is_back=is_back)


async def read_ids(session: Session) -> None:
    """Read the ids of all messages, so that a look at them does not block. Raises StoreError."""
    pages = [page for page in session.messages.pages if page.values is None]
    if pages:
        await asyncio.to_thread(lambda: [page.ids for page in pages])


async def _unpack(values: PagedDict[T], pages: Sequence[Page[T]]) -> None:
    """Unpack these pages in a thread, at most `READ_AHEAD` of them."""
    packed = [page for page in pages if values.needs(page)][:READ_AHEAD]
    if packed:
        unpacked = await asyncio.to_thread(lambda: [page.unpack() for page in packed])
        for page, content in zip(packed, unpacked, strict=True):
            if page in values.pages:
                values.keep(page, content)


def mend(state: SessionState, whole: Session) -> None:
    """Replace the session's stored pages by those of `whole`, made from its whole journal. They are due to be stored at once.

    Raises ValueError if `whole` has other values.
    """
    state.session.messages.mend(whole.messages, MESSAGES)
    state.session.timeline.entries.mend(whole.timeline.entries, ENTRIES)
    state.stored = StoredCheckpoint(-EVERY, 0, state.stored.pages)


# --- the writer ------------------------------------------------------------------------------------------

# Decides when the checkpoints of sessions are written: after their turns, once nobody waits for the server.
#
# A client that has seen the end of a turn reads the session again at once, and a program sends its next prompt. To encode a
# checkpoint takes time of the interpreter from them, so it waits until the session is quiet.

QUIET_S = 2.0
"""Seconds without a change of a session before its checkpoint is written."""
OVERDUE = 10_000
"""Events after which a checkpoint does not wait: a session is opened in about a second from so many."""
CLOSE_S = 5.0
"""Maximum seconds that a stopping server waits for checkpoints."""


class CheckpointWriter:
    """Writes checkpoints to the store, in tasks."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._due: dict[str, tuple[asyncio.TimerHandle, SessionState]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False

    def note(self, state: SessionState) -> None:
        """Note that a session has changed. Its checkpoint is written soon if one is due."""
        waiting = self._due.pop(state.id, None)
        if waiting is not None:
            waiting[0].cancel()
        if self._is_closed or state.journal.is_closed or not is_due(state):
            return
        delay_s = QUIET_S if state.sequence - state.stored.sequence < OVERDUE else 0
        self._due[state.id] = asyncio.get_running_loop().call_later(delay_s, self._write, state), state

    def _write(self, state: SessionState) -> None:
        self._due.pop(state.id, None)
        if state.journal.is_closed:
            return
        keep(asyncio.create_task(save_in_steps(state, self._store), name=f"checkpoint {state.id}"), self._tasks)

    async def close(self) -> None:
        """Write those that are due, within CLOSE_S. Later changes are not noted."""
        self._is_closed = True
        for timer, state in tuple(self._due.values()):
            timer.cancel()
            self._write(state)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSE_S)
