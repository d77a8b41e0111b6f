"""Reads sessions for statistics: their prompts and steps without texts, once for each state of the journal.

    CountedSessions.of(session)  -> its record, and what `Stats` counts

Sessions are read one after the other, also for several callers, and are not loaded: each is read from its checkpoint and the rest
of its journal, page by page. At most KEPT summaries are kept, with about 200 bytes for each step of a model. A session that has
changed is read again.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta, tzinfo
from statistics import median
from typing import TYPE_CHECKING, Literal, TypeAlias

from shim.faces.opencode2 import names
from shim.faces.opencode2.session_info import counts
from shim.sessions.history.journal_loader import load_journal
from shim.sessions.session.session_state import SessionState
from shim.store.base import Store
from universal.session.entries import CallPiece, PromptEntry, StepEntry
from universal.session.model import Session
from universal.session.values import ModelRef, SessionRecord, ToolCall, Usage

if TYPE_CHECKING:
    from shim.faces.opencode2._generated import host_types


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


# --- stats -----------------------------------------------------------------------------------------------

# Sums up the work of sessions in a span of time: prompts, steps, tokens, cost, tools, days. Pure.
#
# A day begins at midnight in the client's time zone. A streak is a row of active days that ends on the last day of the span, or
# on the day before, so that a person who has not worked yet today keeps it.

Detail: TypeAlias = Literal["none", "summary", "detail"]


@dataclass(slots=True)
class _Model:
    ref: ModelRef
    steps: int = 0
    cost: float = 0
    usage: Usage = field(default_factory=Usage)


@dataclass(slots=True)
class _Tool:
    outcomes: Counter[Outcome] = field(default_factory=Counter[Outcome])
    durations: list[int] = field(default_factory=list[int])


class Stats:
    """The sums. In: the span in epoch milliseconds, both ends included; `zone`, the time zone of days."""

    def __init__(self, since_ms: int, until_ms: int, zone: tzinfo) -> None:
        self._since, self._until, self._zone = since_ms, until_ms, zone
        self._sessions = self._subagents = self._prompts = 0
        self._steps: Counter[date] = Counter()
        self._models: dict[tuple[str, str, str], _Model] = {}
        self._tools: dict[str, _Tool] = {}

    def add(self, session: Summary) -> None:
        """Add a session. It counts if one of its prompts or steps lies in the span."""
        prompts = sum(self._since <= created_ms <= self._until for created_ms in session.prompts_ms)
        steps = [step for step in session.steps if self._since <= step.created_ms <= self._until]
        if not prompts and not steps:
            return
        if session.record.parent_id:
            self._subagents += 1
        else:
            self._sessions += 1
        self._prompts += prompts
        for step in steps:
            self._add_step(step)

    def info(self, tools: Detail) -> host_types.SessionStatsInfo:
        models = sorted(self._models.values(), key=lambda model: -model.steps)
        days = sorted(self._steps)
        return {
            "range": {"from": self._since, "to": self._until},
            "sessions": self._sessions,
            "subagents": self._subagents,
            "prompts": self._prompts,
            "steps": sum(self._steps.values()),
            "tokens": counts(sum((model.usage for model in models), Usage())),
            "cost": sum(model.cost for model in models),
            "tools": self._tool_stats(tools),
            "activeDays": len(days),
            "streak": self._streak(),
            "activity": [{"date": day.isoformat(), "steps": self._steps[day]} for day in days],
            "models": [
                {"model": names.model_ref(model.ref), "steps": model.steps, "tokens": counts(model.usage), "cost": model.cost}
                for model in models
            ],
        }

    # --- inside

    def _add_step(self, step: CountedStep) -> None:
        self._steps[self._day(step.created_ms)] += 1
        ref = names.model_ref(step.model)
        key = (ref["providerID"], ref["id"], ref.get("variant", ""))
        model = self._models.setdefault(key, _Model(step.model))
        model.steps += 1
        model.cost += step.cost
        model.usage += step.usage
        for call in step.calls:
            self._add_call(call)

    def _add_call(self, call: CountedCall) -> None:
        tool = self._tools.setdefault(call.tool, _Tool())
        tool.outcomes[call.outcome] += 1
        if call.duration_ms is not None:
            tool.durations.append(call.duration_ms)

    def _tool_stats(
        self, detail: Detail
    ) -> host_types.SessionStatsInfoToolsNone | host_types.SessionStatsInfoToolsSummary | host_types.SessionStatsInfoToolsDetail:
        if detail == "none":
            return {"mode": "none"}
        totals = _totals(sum((tool.outcomes for tool in self._tools.values()), Counter[Outcome]()))
        if detail == "summary":
            return {"mode": "summary", "totals": totals}
        rows = sorted(self._tools.items(), key=lambda row: (-row[1].outcomes.total(), row[0]))
        return {"mode": "detail", "totals": totals, "usage": [_usage(name, tool) for name, tool in rows]}

    def _streak(self) -> int:
        last = self._day(self._until)
        day = last if last in self._steps else last - timedelta(days=1)
        streak = 0
        while day in self._steps:
            streak += 1
            day -= timedelta(days=1)
        return streak

    def _day(self, ms: float) -> date:
        return datetime.fromtimestamp(ms / 1000, self._zone).date()


def _totals(outcomes: Counter[Outcome]) -> host_types.SessionStatsToolTotals:
    return {
        "calls": outcomes.total(),
        "succeeded": outcomes["succeeded"],
        "failed": outcomes["failed"],
        "unfinished": outcomes["unfinished"],
    }


def _usage(name: str, tool: _Tool) -> host_types.SessionStatsInfoToolsDetailUsageItem:
    row: host_types.SessionStatsInfoToolsDetailUsageItem = {"name": name, **_totals(tool.outcomes)}
    return {**row, "durationP50": median(tool.durations)} if tool.durations else row
