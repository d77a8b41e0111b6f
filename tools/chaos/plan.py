"""The faults of a run, from a seed: equal parameters give an equal plan. Pure."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

FIRST_S = 2.0
"""Seconds of quiet work before the first fault."""
REST_S = 6.0
"""Minimum seconds between two faults of the same node, and of two NATS servers: only one of them is down at a time."""
GAP_S = 4.0
"""Mean seconds between the begins of two faults."""


class Kind(StrEnum):
    """What is done to a machine, or to all NATS servers (FULL)."""

    KILL = "kill"
    PAUSE = "pause"
    SILENCE = "silence"
    RESET = "reset"
    RESTART = "restart"
    NATS = "nats"
    FULL = "full"
    SLOW = "slow"


OF_NATS = (Kind.NATS, Kind.FULL)
"""Faults of NATS itself: one at a time."""


@dataclass(frozen=True, slots=True)
class Form:
    """How a kind of fault is written, and how long it lasts: some end before the lease of 9 s, some after."""

    about: str
    seconds: Sequence[float]


FORMS: Mapping[Kind, Form] = {
    Kind.KILL: Form("kill -9 node{target}, started again after {for_s:g} s", (1.0, 4.0, 13.0)),
    Kind.PAUSE: Form("STOP node{target}, CONT after {for_s:g} s", (3.0, 11.0, 15.0)),
    Kind.SILENCE: Form("cut node{target} off from NATS for {for_s:g} s, connections stay", (2.0, 7.0, 14.0)),
    Kind.RESET: Form("cut node{target} off from NATS for {for_s:g} s, connections are reset", (1.0, 7.0, 14.0)),
    Kind.RESTART: Form("TERM to node{target}, which drains; started again after {for_s:g} s", (7.0, 15.0)),
    Kind.FULL: Form("JetStream has no room for {for_s:g} s", (3.0, 8.0)),
    Kind.SLOW: Form("each message between node{target} and NATS takes half a second, for {for_s:g} s", (5.0, 12.0)),
    Kind.NATS: Form("kill -9 nats{target}, started again after {for_s:g} s", (1.0, 6.0)),
}


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault: seconds after the start of the work at which it begins, the number of the machine, and how long it lasts."""

    at_s: float
    kind: Kind
    target: int
    for_s: float

    @property
    def end_s(self) -> float:
        """Seconds after the start at which it is undone."""
        return self.at_s + self.for_s

    def __str__(self) -> str:
        return f"{self.at_s:6.1f} s  {FORMS[self.kind].about.format(target=self.target, for_s=self.for_s)}"


def make_plan(seed: int, seconds: float, nodes: int, nats: int) -> tuple[Fault, ...]:
    """The faults of a run, in order. At least half of the nodes are untouched at any time."""
    chance = random.Random(seed)  # noqa: S311 - equal seeds must give equal plans
    plan: list[Fault] = []
    kinds: list[Kind] = []
    at_s = FIRST_S
    while True:
        if not kinds:
            kinds = chance.sample(list(Kind), len(Kind))
        kind = kinds.pop()
        for_s = chance.choice(FORMS[kind].seconds)
        at_s = round(at_s, 1)
        if at_s + for_s > seconds:
            return tuple(plan)
        free = _free(plan, kind, at_s, nodes, nats)
        if free:
            plan.append(Fault(at_s, kind, chance.choice(free), for_s))
        else:
            kinds.append(kind)
        at_s += chance.uniform(0.2, 2.0) * GAP_S / 1.1


def _free(plan: Sequence[Fault], kind: Kind, at_s: float, nodes: int, nats: int) -> list[int]:
    """The numbers of the machines on which a fault may begin."""
    if kind in OF_NATS:
        busy = any(fault.kind in OF_NATS and fault.end_s + REST_S > at_s for fault in plan)
        return [] if busy else list(range(1, nats + 1))
    hurt = {fault.target for fault in plan if fault.kind not in OF_NATS and fault.end_s > at_s}
    if len(hurt) >= max(1, nodes // 2):
        return []
    resting = {fault.target for fault in plan if fault.kind not in OF_NATS and fault.end_s + REST_S > at_s}
    return [number for number in range(1, nodes + 1) if number not in resting]


def is_in_order(plan: Sequence[Fault]) -> bool:
    """Whether the faults begin one after the other."""
    return all(before.at_s <= after.at_s for before, after in pairwise(plan))
