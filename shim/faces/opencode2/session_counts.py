"""Reads sessions for statistics: their prompts and steps without texts, once for each state of the journal.

    CountedSessions.of(session)  -> its record, and what `shim.faces.opencode2.stats` counts

Sessions are read one after the other, also for several callers, and are not loaded: each is read from its checkpoint and the rest
of its journal, page by page. At most KEPT summaries are kept, with about 200 bytes for each step of a model. A session that has
changed is read again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from shim.faces.opencode2 import names
from shim.sessions.history.journal_loader import load_journal
from shim.sessions.session.session_state import SessionState
from shim.store.base import Store
from universal.session.entries import CallPiece, PromptEntry, StepEntry
from universal.session.model import Session, SessionRecord
from universal.session.values import ModelRef, ToolCall, Usage

Outcome: TypeAlias = Literal["succeeded", "failed", "unfinished"]
OUTCOMES: Mapping[str, Outcome] = {"completed": "succeeded", "error": "failed"}
SUMMARIES_LIMIT = 10_000
AT_ONCE = 32
"""Messages that are counted before others have their turn: a few ms, if they were packed."""


@dataclass(frozen=True, slots=True)
class CountedCall:
    """A tool call. `duration_ms` is None if it has not ended."""

    tool: str
    outcome: Outcome
    duration_ms: int | None


@dataclass(frozen=True, slots=True)
class CountedStep:
    """A step of a model."""

    created_ms: int
    model: ModelRef
    usage: Usage
    cost: float
    calls: tuple[CountedCall, ...] = ()


@dataclass(frozen=True, slots=True)
class Summary:
    """A session's record, the times of its prompts, and its steps, up to the event `sequence` of its journal."""

    sequence: int
    record: SessionRecord
    prompts_ms: tuple[int, ...]
    steps: tuple[CountedStep, ...]


class CountedSessions:
    """The summaries of sessions.

    In: `loaded`, which returns a session if it is loaded; `detached`, which makes a state to read one into that is not.
    """

    def __init__(
        self, store: Store, loaded: Callable[[str], Session | None], detached: Callable[[str], SessionState | None]
    ) -> None:
        self._store = store
        self._loaded = loaded
        self._detached = detached
        self._summaries: dict[str, Summary] = {}
        self._reading = asyncio.Lock()
        self.read = 0
        """Number of sessions that were read from the journal."""

    async def of(self, session_id: str) -> Summary | None:
        """The summary of a session, or None if it is gone or empty. Raises StoreError."""
        async with self._reading:
            summary = self._summaries.pop(session_id, None)
            if summary is None or summary.sequence != self._store.last_sequence(session_id):
                summary = await self._summary(session_id)
            if summary is not None:
                self._summaries[session_id] = summary  # at the end: the most recently used
                if len(self._summaries) > SUMMARIES_LIMIT:
                    del self._summaries[next(iter(self._summaries))]
            return summary

    async def _summary(self, session_id: str) -> Summary | None:
        sequence = self._store.last_sequence(session_id)
        if (session := self._loaded(session_id)) is not None:
            return await _summary_of(sequence, session.copy())
        state = self._detached(session_id)
        if state is None:
            return None
        self.read += 1
        await load_journal(state, self._store)
        return await _summary_of(state.sequence, state.session) if state.sequence else None


async def _summary_of(sequence: int, session: Session) -> Summary:
    prompts_ms: list[int] = []
    steps: list[CountedStep] = []
    for number, entry in enumerate(session.timeline.entries.values(), 1):
        if isinstance(entry, StepEntry):
            steps.append(_step(entry, session))
        elif isinstance(entry, PromptEntry) and entry.prompt.kind == "user":
            prompts_ms.append(entry.created_ms)
        if number % AT_ONCE == 0:
            await asyncio.sleep(0)  # other requests go on
    return Summary(sequence, session.record, tuple(prompts_ms), tuple(steps))


def _step(entry: StepEntry, session: Session) -> CountedStep:
    message = session.messages.peek(entry.message_id)
    parts = {} if message is None else message.parts
    pairs = [(piece, parts.get(piece.part_id)) for piece in entry.content if isinstance(piece, CallPiece)]
    calls = tuple(_call(piece, part) for piece, part in pairs if isinstance(part, ToolCall))
    usage, cost = (Usage(), 0) if entry.usage is None else (entry.usage, entry.cost or 0)
    return CountedStep(entry.created_ms, entry.model, usage, cost, calls)


def _call(piece: CallPiece, call: ToolCall) -> CountedCall:
    outcome: Outcome = "unfinished" if piece.ran_ms is None else OUTCOMES.get(call.status, "unfinished")
    start_ms = piece.created_ms if piece.ran_ms is None else piece.ran_ms
    duration = None if piece.completed_ms is None else piece.completed_ms - start_ms
    return CountedCall(names.tool_name(piece.tool), outcome, duration)
