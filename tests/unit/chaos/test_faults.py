"""Faults are done in turn, and undone."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from tools.chaos.faults import Injector
from tools.chaos.plan import Fault, Kind

WAIT_S = 10


class SlowNode:
    """A node that takes longer to start than the plan allows for."""

    def __init__(self) -> None:
        self.name = "node1"
        self.steps: list[str] = []
        self.calm: list[int] = []
        self.wire = SimpleNamespace(mend=lambda: None)
        self.injector: Injector | None = None
        self.is_next_due = asyncio.Event()

    async def kill(self) -> None:
        self.steps.append("kill")

    async def stop(self) -> None:
        self.steps.append("stop")

    def resume(self) -> None:
        """It is not paused."""

    async def start(self) -> None:
        assert self.injector is not None
        self.calm.append(len(self.injector.calm_nodes()))
        self.steps.append("start")
        await self.is_next_due.wait()
        self.steps.append("ready")

    def note(self, line: str) -> None:
        """A fault is due: the second one is a restart."""
        if "TERM" in line:
            self.is_next_due.set()


async def test_a_fault_of_a_node_waits_for_the_one_before() -> None:
    node = SlowNode()
    machines: Any = SimpleNamespace(nodes=[node])
    node.injector = Injector(machines, node.note)
    async with asyncio.timeout(WAIT_S):
        await node.injector.carry_out([Fault(0.0, Kind.KILL, 1, 0.0), Fault(0.01, Kind.RESTART, 1, 0.0)])
    assert node.steps == ["kill", "start", "ready", "stop", "start", "ready"]
    assert node.calm == [0, 0]
    assert node.injector.calm_nodes() == [node]
