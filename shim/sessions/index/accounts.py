"""Counts what each person uses, and holds them to their quotas: agents at work, prompts that wait, USD a day (of UTC).

A turn counts for the person whose prompt its agent was given last; what agents start counts for whom they work.
Turns of other servers of a cluster count by their sessions' rows, costs by a stored value of each server.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, NamedTuple, Protocol

from shim.lib.clock import Clock
from shim.lib.errors import LimitReached
from shim.lib.tasks import DOER, doer
from shim.sessions.feed import SessionChanges
from shim.sessions.index.session_entry import SessionEntry
from shim.sessions.index.session_index import SessionIndex
from shim.sessions.session.session_state import ACCOUNT
from shim.store.base import Store
from universal.lib.jsonvalue import arr, obj, text
from universal.session.changes import TurnEnded

NAMESPACE = "spending"
"""The store's namespace for costs: `SERVER PERSON` -> day and USD."""
ADVICE = "Whoever runs the server can change it: opencode-shim people change {name} --{option}."


class Usage(NamedTuple):
    """What a person uses. `running`: sessions in which an agent works for them, or will."""

    running: frozenset[str]
    queued: int
    cost_day: float


class Quota(Protocol):
    """The most that a person may use; 0: any."""

    @property
    def max_running(self) -> int: ...

    @property
    def max_queued(self) -> int: ...

    @property
    def max_cost_day(self) -> float: ...


class Accounts:
    """What all people use. In: `quota_of`, which knows the quota of a name."""

    def __init__(self, index: SessionIndex, store: Store, clock: Clock, quota_of: Callable[[str], Quota | None]) -> None:
        self._index = index
        self._store = store
        self._clock = clock
        self._quota_of = quota_of
        self._spent: dict[str, tuple[str, float]] = {}

    async def start(self) -> None:
        """Read what was spent, and remove what was spent before today."""
        for key, value in (await self._store.values(NAMESPACE)).items():
            self.note(key, value)
            if key not in self._spent:
                self._store.set_value(NAMESPACE, key, None)

    def note(self, key: str, value: Any) -> None:
        """Note what a server has stored."""
        day, usd = text(obj(value).get("day")), obj(value).get("usd")
        if day == self._today() and isinstance(usd, int | float):
            self._spent[key] = day, float(usd)

    def _today(self) -> str:
        return datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC).date().isoformat()

    async def check(self, session_id: str) -> None:
        """Refuse a prompt early, as `admit` does. Servers that share a disk tell each other nothing, so it is read."""
        if self.account_of(session_id) and (own := self._store.ownership).is_shared() and not own.sessions_move:
            await self.start()
        self.admit(session_id)

    def admit(self, session_id: str) -> str:
        """The person for whom a prompt counts; "" for nobody. Raises LimitReached at their quota."""
        name = self.account_of(session_id)
        quota = self._quota_of(name) if name else None
        if quota is None:
            return name
        used, entry = self.usage(name), self._index.get(session_id)
        if quota.max_queued and _is_busy(entry) and used.queued >= quota.max_queued:
            problem = f"{used.queued} prompts of {name} wait already. Wait for one, or withdraw one."
            raise _refusal(name, "max-queued N", "max_queued", quota.max_queued, problem)
        if quota.max_running and len(used.running - {session_id}) >= quota.max_running:
            problem = f"{len(used.running)} agents work for {name} already. Wait for one, or stop one."
            raise _refusal(name, "max-running N", "max_running", quota.max_running, problem)
        if quota.max_cost_day and used.cost_day >= quota.max_cost_day:
            problem = f"Agents have cost {used.cost_day:.4g} USD for {name} today. Go on tomorrow (UTC)."
            raise _refusal(name, "max-cost-day USD", "max_cost_day", quota.max_cost_day, problem)
        return name

    def account_of(self, session_id: str) -> str:
        """Who has a prompt on their account: who makes the request, or for whom the agent works that has begun the session."""
        if DOER.get() is not None and (name := doer()) is not None:
            return name
        entry = self._index.find(session_id)
        if entry is None or not entry.is_delegated:
            return ""
        above = self._index.find(entry.record.parent_id or "")
        return "" if above is None else _account(above)[0]

    def usage(self, name: str) -> Usage:
        """What a person uses now, and has spent today."""
        running, queued = set[str](), 0
        cost = sum(usd for key, (day, usd) in self._spent.items() if key.endswith(f" {name}") and day == self._today())
        for entry in self._index:
            if _is_busy(entry) and (account := _account(entry))[0] == name:
                running |= set() if entry.subagent else {entry.record.id}
                cost += entry.state.cost - account[1] if entry.state is not None else 0.0
            if entry.actor is not None and not entry.subagent:
                waiting = entry.actor.prompt_queue.count_waits(name)
                queued += waiting
                running |= {entry.record.id} if waiting else set()
        return Usage(frozenset(running), queued, cost)

    def charge(self, ended: SessionChanges) -> None:
        """Put the cost of a turn on the account for which it counts."""
        entry = self._index.find(ended.session.id)
        name, before = ("", 0.0) if entry is None else _account(entry)
        cost = ended.session.record.cost - before
        if name and cost > 0 and any(isinstance(change, TurnEnded) for change in ended.changes):
            key, today = f"{self._store.ownership.server_id} {name}", self._today()
            day, usd = self._spent.get(key, (today, 0.0))
            self._spent[key] = today, cost + (usd if day == today else 0.0)
            self._store.set_value(NAMESPACE, key, {"day": today, "usd": self._spent[key][1]})


def _account(entry: SessionEntry) -> tuple[str, float]:
    facts = entry.facts if entry.state is None else entry.state.facts
    row = arr(facts.get(ACCOUNT))
    return (text(row[0]), float(row[1])) if row else ("", 0.0)


def _is_busy(entry: SessionEntry) -> bool:
    return entry.busy if entry.state is None else entry.state.machine.busy


def _refusal(name: str, option: str, limit: str, value: float, problem: str) -> LimitReached:
    return LimitReached(limit, value, f"{problem} {ADVICE.format(name=name, option=option)}")
