"""Carries a plan out on the machines, and undoes every fault."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence

from tools.chaos.machines import Machines, Node
from tools.chaos.plan import Fault, Kind
from tools.chaos.readings import fill


class Injector:
    """The faults of one run. `counts`: those that were done. `say` prints a line."""

    def __init__(self, machines: Machines, say: Callable[[str], None]) -> None:
        self._machines = machines
        self._say = say
        self.counts: Counter[str] = Counter()
        self._nats = asyncio.Lock()
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    def calm_nodes(self) -> list[Node]:
        """The nodes with which nothing is done at present. They may not have read yet what the others have done."""
        return [node for node in self._machines.nodes if not self._turns[node.name].locked()]

    async def carry_out(self, plan: Sequence[Fault]) -> None:
        """Do all of it, and return when all is undone. Raises the error of a machine that does not come back."""
        began = asyncio.get_running_loop().time()
        async with asyncio.TaskGroup() as group:
            for fault in plan:
                group.create_task(self._carry_out(fault, began + fault.at_s))

    async def _carry_out(self, fault: Fault, at: float) -> None:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(max(0.0, at - loop.time()))
        self._say(f"{fault}")
        self.counts[fault.kind] += 1
        if fault.kind is Kind.NATS:
            await self._kill_nats(fault)
        elif fault.kind is Kind.FULL:
            await self._fill(fault)
        else:
            await self._hurt_node(fault)

    async def _kill_nats(self, fault: Fault) -> None:
        """The copies of the one before must be current: with three copies, one server may be down."""
        async with self._nats:
            await self._machines.wait_until_current()
            server = self._machines.nats[fault.target - 1]
            await asyncio.to_thread(server.stop, signal.SIGKILL)
            try:
                await asyncio.sleep(fault.for_s)
            finally:
                await asyncio.to_thread(server.start)

    async def _fill(self, fault: Fault) -> None:
        """Take all room that JetStream has left, and give it back."""
        async with self._nats:
            await self._machines.wait_until_current()
            async with fill([server.url for server in self._machines.nats]):
                await asyncio.sleep(fault.for_s)

    async def _hurt_node(self, fault: Fault) -> None:
        """Faults of one node follow each other: on a busy machine it may take longer to start than the plan allows for."""
        node = self._machines.nodes[fault.target - 1]
        async with self._turns[node.name]:
            await self._hurt(node, fault)

    async def _hurt(self, node: Node, fault: Fault) -> None:
        end = asyncio.get_running_loop().time() + fault.for_s
        try:
            if fault.kind is Kind.KILL:
                await node.kill()
            elif fault.kind is Kind.RESTART:
                await node.stop()
            elif fault.kind is Kind.PAUSE:
                node.pause()
            elif fault.kind is Kind.SILENCE:
                node.wire.silence()
            elif fault.kind is Kind.SLOW:
                node.wire.slow()
            else:
                node.wire.reset()
            await asyncio.sleep(max(0.0, end - asyncio.get_running_loop().time()))
        finally:
            node.resume()
            node.wire.mend()
        if fault.kind in (Kind.KILL, Kind.RESTART):
            await node.start()
