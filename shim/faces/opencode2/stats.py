"""Sums up the work of sessions in a span of time: prompts, steps, tokens, cost, tools, days. Pure: reads messages of `v2_0`.

A day begins at midnight in the client's time zone. A streak is a row of active days that ends on the last day of the span, or on
the day before, so that a person who has not worked yet today keeps it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta, tzinfo
from functools import reduce
from statistics import median
from typing import TYPE_CHECKING, Literal, TypeAlias

from shim.faces.opencode2.events import Wire
from shim.faces.opencode2.session_info import add_usage
from universal.jsonvalue import text
from universal.session.model import SessionRecord

if TYPE_CHECKING:
    from shim.faces.opencode2 import types

Detail: TypeAlias = Literal["none", "summary", "detail"]
OUTCOMES = {"completed": "succeeded", "error": "failed"}
COUNTS = ("calls", "succeeded", "failed", "unfinished")


@dataclass(slots=True)
class _Model:
    ref: types.ModelRef
    steps: int = 0
    cost: float = 0
    tokens: types.TokenUsageInfo = field(default_factory=lambda: _no_tokens())


@dataclass(slots=True)
class _Tool:
    counts: Counter[str] = field(default_factory=Counter[str])
    durations: list[float] = field(default_factory=list[float])


class Stats:
    """The sums. In: the span in epoch milliseconds, both ends included; `zone`, the time zone of days."""

    def __init__(self, since_ms: int, until_ms: int, zone: tzinfo) -> None:
        self._since, self._until, self._zone = since_ms, until_ms, zone
        self._sessions = self._subagents = self._prompts = 0
        self._steps: Counter[date] = Counter()
        self._models: dict[tuple[str, str, str], _Model] = {}
        self._tools: dict[str, _Tool] = {}

    def add(self, record: SessionRecord, messages: Iterable[Wire]) -> None:
        """Add a session. It counts if one of its messages lies in the span."""
        inside = [one for one in messages if self._since <= one["time"]["created"] <= self._until]
        if not inside:
            return
        if record.parent_id:
            self._subagents += 1
        else:
            self._sessions += 1
        for one in inside:
            if one["type"] == "user":
                self._prompts += 1
            elif one["type"] == "assistant":
                self._step(one)

    def wire(self, tools: Detail) -> Wire:
        """The `SessionStatsInfo` of the sums."""
        models = sorted(self._models.values(), key=lambda one: -one.steps)
        days = sorted(self._steps)
        return {
            "range": {"from": self._since, "to": self._until},
            "sessions": self._sessions,
            "subagents": self._subagents,
            "prompts": self._prompts,
            "steps": sum(self._steps.values()),
            "tokens": _sum(one.tokens for one in models),
            "cost": sum(one.cost for one in models),
            "tools": self._tool_stats(tools),
            "activeDays": len(days),
            "streak": self._streak(),
            "activity": [{"date": day.isoformat(), "steps": self._steps[day]} for day in days],
            "models": [{"model": one.ref, "steps": one.steps, "tokens": one.tokens, "cost": one.cost} for one in models],
        }

    # --- inside

    def _step(self, message: Wire) -> None:
        self._steps[self._day(message["time"]["created"])] += 1
        ref = message["model"]
        key = (ref["providerID"], ref["id"], text(ref.get("variant")))
        model = self._models.setdefault(key, _Model(ref))
        model.steps += 1
        model.cost += message.get("cost", 0)
        model.tokens = _sum([model.tokens, message.get("tokens") or _no_tokens()])
        for part in message["content"]:
            if part["type"] == "tool":
                self._tool(part)

    def _tool(self, part: Wire) -> None:
        tool = self._tools.setdefault(part["name"], _Tool())
        tool.counts["calls"] += 1
        tool.counts[OUTCOMES.get(part["state"]["status"], "unfinished")] += 1
        time = part["time"]
        if "completed" in time:
            tool.durations.append(time["completed"] - time.get("ran", time["created"]))

    def _tool_stats(self, detail: Detail) -> Wire:
        if detail == "none":
            return {"mode": "none"}
        totals = Counter[str]()
        for one in self._tools.values():
            totals.update(one.counts)
        found: Wire = {"mode": detail, "totals": {name: totals[name] for name in COUNTS}}
        if detail == "summary":
            return found
        rows = sorted(self._tools.items(), key=lambda row: (-row[1].counts["calls"], row[0]))
        return {**found, "usage": [_usage(name, one) for name, one in rows]}

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


def _usage(name: str, tool: _Tool) -> Wire:
    row: Wire = {"name": name, **{key: tool.counts[key] for key in COUNTS}}
    return {**row, "durationP50": median(tool.durations)} if tool.durations else row


def _no_tokens() -> types.TokenUsageInfo:
    return {"input": 0, "output": 0, "reasoning": 0, "cache": {"read": 0, "write": 0}}


def _sum(rows: Iterable[types.TokenUsageInfo]) -> types.TokenUsageInfo:
    return reduce(add_usage, rows, _no_tokens())
