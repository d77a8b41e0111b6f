"""Checkpoints of sessions in the store: a session is opened from its newest one and the events after it.

    turn ends -> old messages are packed in pages -> head and new pages are queued behind the events they stand for
    opened    -> head, pages, then the rest of the journal; if the checkpoint cannot be used: the whole journal

A checkpoint is a copy of what the journal says. It is used only if it was written by code with the same `FORMAT`, is whole, and
stands at an event that the journal has. There is one for each session; it is written when `EVERY` events have come, or more if
it is large (docs/adr/0029).
"""

from __future__ import annotations

import asyncio
import json
import struct
import zlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import structlog

from shim.errors import StoreError
from shim.sessions.prompts.prompt_payload import pending_prompt_of
from shim.store.base import Checkpoint, Store
from universal.events import SessionEndedData
from universal.items import Item, Json
from universal.session import checkpoint as core
from universal.session.messages import Messages, Page
from universal.session.model import Message
from universal.session.value_codec import PACKER, encode, read, shape_of

if TYPE_CHECKING:
    from shim.sessions.prompts.pending_prompt import PendingPrompt
    from shim.sessions.session_state import SessionState

log = structlog.get_logger(__name__)

EVERY = 500
"""Events between two checkpoints: some 50 ms when the session is opened."""
HEAD_STEP_BYTES = 2**17
"""For each so many bytes of its head, a checkpoint is written EVERY events later: so that its cost stays in proportion."""
ENTRIES = 2_000
"""A session whose timeline has more entries has no checkpoint: they are not packed in pages, and to write so many takes 50 ms."""
HEAD_LIMIT_BYTES = 2**23
"""A larger head is not written: the session is opened from its journal, or from an older checkpoint."""
LENGTH = struct.Struct(">I")
"""Stands before the index of a page: its length."""
UNUSABLE = (ValueError, TypeError, KeyError, IndexError, AttributeError, zlib.error, struct.error)
"""What a text raises that was not written by this code, or is damaged."""


@dataclass(frozen=True, slots=True)
class WriterState:
    """All that a session's writer knows between two turns, after the event `event_id`.

    announced  hashes of the instructions that its agent was told
    waiting    message ids and items of prompts that no agent has been given
    messages   those that are in no page
    """

    sequence: int
    event_id: str
    native_session_id: str | None
    turn_id: str
    ended: Json
    instructions: dict[str, Json]
    announced: dict[str, str]
    waiting: tuple[tuple[str, Json], ...]
    reducer: core.ReducerState
    messages: tuple[Message, ...]


FORMAT = f"{core.FORMAT}-{shape_of(WriterState)}"


@dataclass(slots=True)
class StoredCheckpoint:
    """What is stored of a session: the event of its checkpoint, the size of its head, its pages.

    is_off  it has something that cannot be written
    """

    sequence: int = 0
    head_bytes: int = 0
    pages: frozenset[int] = frozenset()
    is_off: bool = False

    def is_due(self, sequence: int) -> bool:
        """Whether enough has happened since it was written."""
        return sequence - self.sequence >= EVERY * (1 + self.head_bytes // HEAD_STEP_BYTES) and not self.is_off


def save(state: SessionState, store: Store) -> None:
    """Queue a checkpoint if one is due and the session is at rest. Never raises: without one, opening takes longer."""
    stored = state.stored
    if not stored.is_due(state.sequence) or not state.is_at_rest:
        return
    try:
        pack(state)
        if len(state.session.timeline.entries) > ENTRIES:
            state.stored = replace(stored, sequence=state.sequence)
            return
        pages = state.session.messages.pages
        number = max(stored.pages, default=0)
        for page in pages:
            if page.number == 0:
                page.number = number = number + 1
        head = _head(state)
        numbers = frozenset(page.number for page in pages)
        if len(head) > HEAD_LIMIT_BYTES:
            log.info("checkpoint.too_large", session_id=state.id, bytes=len(head))
            state.stored = StoredCheckpoint(state.sequence, len(head), stored.pages)
            return
        changed = {page.number: page_bytes(page) for page in pages if page.is_changed}
        store.save_checkpoint(state.id, Checkpoint(state.sequence, head, changed), stored.pages - numbers)
    except StoreError as error:  # the queue is full, or closed
        log.info("checkpoint.not_queued", session_id=state.id, error=str(error))
        return
    except (TypeError, ValueError) as error:
        log.warning("checkpoint.failed", session_id=state.id, error=str(error))
        stored.is_off = True
        return
    for page in pages:
        page.is_changed = False
    state.stored = StoredCheckpoint(state.sequence, len(head), numbers)


def pack(state: SessionState) -> None:
    """Pack old messages of a session that is at rest. Raises TypeError or ValueError for one that cannot be written."""
    if state.is_at_rest and not state.stored.is_off:
        state.session.messages.pack(PACKER)


def _head(state: SessionState) -> bytes:
    reducer, waiting = state.reducer, state.pending_prompts.prompts
    messages = state.session.messages
    saved = WriterState(
        state.sequence,
        state.journal.event_id,
        state.journal.native_session_id,
        state.turn_id,
        state.ended.model_dump(mode="json") if state.ended is not None else None,
        state.instructions.entries,
        state.instructions.announced,
        tuple((id_, one.item.model_dump(mode="json")) for id_, one in waiting.items() if id_ in messages),
        core.state_of(reducer),
        tuple(messages.unpacked_messages()),
    )
    pages = [[page.number, zlib.crc32(page_bytes(page))] for page in messages.pages]
    return zlib.compress(json.dumps([FORMAT, pages, encode(saved, WriterState)]).encode(), 1)


def page_bytes(page: Page) -> bytes:
    """A packed page as the store has it: its index, then its body."""
    assert page.body is not None
    index = json.dumps(
        [list(page.ids), list(page.created_times), [sorted(known) for known in page.known_by]], separators=(",", ":")
    )
    return LENGTH.pack(len(index)) + index.encode() + page.body


def page_of(number: int, stored: bytes) -> Page:
    """Read `page_bytes` back."""
    end = LENGTH.size + LENGTH.unpack_from(stored)[0]
    ids, created, known = json.loads(stored[LENGTH.size : end])
    return Page(PACKER, ids, created, [frozenset(one) for one in known], stored[end:], number)


@dataclass(frozen=True, slots=True)
class DecodedCheckpoint:
    """A checkpoint that was read."""

    saved: WriterState
    messages: Messages
    head_bytes: int


def decode(checkpoint: Checkpoint) -> DecodedCheckpoint:
    """What a stored checkpoint holds. Raises UNUSABLE if it is damaged or of another format. Takes a while: for a thread."""
    format_, index, text = json.loads(zlib.decompress(checkpoint.head))
    if format_ != FORMAT:
        raise ValueError(f"its format is {format_}, not {FORMAT}")
    for number, checksum in index:
        if zlib.crc32(checkpoint.pages[number]) != checksum:
            raise ValueError(f"page {number} is damaged")
    saved: WriterState = read(text, WriterState)
    if saved.sequence != checkpoint.sequence:
        raise ValueError(f"it stands at event {saved.sequence}, not {checkpoint.sequence}")
    pages = [page_of(number, checkpoint.pages[number]) for number, _ in index]
    return DecodedCheckpoint(saved, Messages(saved.messages, pages), len(checkpoint.head))


async def open_from(state: SessionState, store: Store) -> bool:
    """Bring a state that has read nothing to the session's newest checkpoint; False if there is none that can be used."""
    checkpoint = await store.checkpoint(state.id)
    if checkpoint is None:
        return False
    try:
        found = await asyncio.to_thread(decode, checkpoint)
        await _need_event(store, state.id, found.saved)
    except UNUSABLE as error:
        log.info("checkpoint.ignored", session_id=state.id, sequence=checkpoint.sequence, why=str(error))
        state.stored = StoredCheckpoint(0, 0, frozenset(checkpoint.pages))
        return False
    saved = found.saved
    state.reducer = core.restore(saved.reducer, found.messages)
    state.journal.sequence, state.journal.event_id = saved.sequence, saved.event_id
    state.journal.native_session_id, state.turn_id = saved.native_session_id, saved.turn_id
    state.ended = None if saved.ended is None else SessionEndedData.model_validate(saved.ended)
    state.instructions.entries, state.instructions.announced = saved.instructions, saved.announced
    state.pending_prompts.prompts = _pending_prompts(saved.waiting)
    state.stored = StoredCheckpoint(saved.sequence, found.head_bytes, frozenset(page.number for page in found.messages.pages))
    return True


async def _need_event(store: Store, session_id: str, saved: WriterState) -> None:
    """Raises ValueError if the journal does not have the event at which the checkpoint stands."""
    rows = await store.rows(session_id, saved.sequence - 1, 1, with_raw=False)
    if not rows or rows[0].event_id != saved.event_id:
        raise ValueError(f"the journal has another event {saved.sequence}")


def _pending_prompts(items: tuple[tuple[str, Json], ...]) -> dict[str, PendingPrompt]:
    pending = ((id_, pending_prompt_of(Item.model_validate(item))) for id_, item in items)
    return {id_: prompt.with_message_id(id_) for id_, prompt in pending if prompt is not None}
