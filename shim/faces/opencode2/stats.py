"""Sums up the work of sessions in a span of time: prompts, steps, tokens, cost, tools, days. Pure.

A day begins at midnight in the client's time zone. A streak is a row of active days that ends on the last day of the span, or on
the day before, so that a person who has not worked yet today keeps it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta, tzinfo
from statistics import median
from typing import TYPE_CHECKING, Literal, TypeAlias

from shim.faces.opencode2 import names
from shim.faces.opencode2.session_counts import CountedCall, CountedStep, Outcome, Summary
from shim.faces.opencode2.session_info import counts
from universal.session.values import ModelRef, Usage

if TYPE_CHECKING:
    from shim.faces.opencode2._generated import host_types

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
        """The `SessionStatsInfo` of the sums."""
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
