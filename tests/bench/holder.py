"""What a holder costs beside pipes: python -m tests.bench.holder [ROUNDS]

Both run the product's own classes in turn. A line carries the time at which the agent wrote it.
Prints a row for each figure of ADR 36. The machine's `loop` tells how fast it was: seconds of a fixed loop.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from shim.processes.agent_pipes import AgentProcess
from tests.process.support import NumberedProcess, new_hold
from universal.launch import LaunchSpec

AGENT = """
import sys, time
for line in sys.stdin:
    count, pause_s = int(line.split()[0]), float(line.split()[1])
    for _ in range(count):
        sys.stdout.write(str(time.monotonic_ns()).ljust(149) + "\\n")
        if pause_s:
            sys.stdout.flush()
            time.sleep(pause_s)
    print("end", flush=True)
"""
SINGLE, PAUSE_S, FLOOD = 2_000, 0.002, 200_000
READY_S = 1.0
"""For the next holder to start: in the product it has waited long before an agent needs it."""


class Lines:
    """The lines of a run, and when they came."""

    def __init__(self) -> None:
        self.delays_ms: list[float] = []
        self.ended = asyncio.Event()

    def take(self, lines: list[bytes]) -> None:
        now = time.monotonic_ns()
        for line in lines:
            if line == b"end":
                self.ended.set()
            else:
                self.delays_ms.append((now - int(line)) / 1e6)

    async def of(self, process: AgentProcess, count: int, pause_s: float) -> float:
        """Seconds until all lines of a command have come."""
        self.delays_ms.clear()
        self.ended.clear()
        began = time.monotonic()
        process.write(f"{count} {pause_s}".encode())
        await self.ended.wait()
        return time.monotonic() - began


@asynccontextmanager
async def run_agent(folder: Path | None, lines: Lines, starts_ms: list[float]) -> AsyncIterator[AgentProcess]:
    """An agent on pipes, or on a holder that has waited for it."""
    spec = LaunchSpec((sys.executable, "-I", "-S", "-u", "-c", AGENT), "/")
    end: Callable[[object], None] = lambda exit_: None  # noqa: E731 - a type of its own for the checker
    hold = None if folder is None else new_hold(folder)
    if hold is not None:
        hold.starts.begin()
        await asyncio.sleep(READY_S)
    began = time.monotonic()
    if hold is None:
        process = await AgentProcess.spawn(spec, os.environ, on_lines=lines.take, on_exit=end)
    else:
        process = await NumberedProcess.spawn_on(hold, spec, os.environ, on_lines=lines.take, on_exit=end)
    starts_ms.append((time.monotonic() - began) * 1000)
    yield process
    await process.stop()


def memory_mib(pid: int) -> dict[str, float]:
    """What the holder of an agent has in memory."""
    parent = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1]
    rows = (line.split() for line in Path(f"/proc/{parent}/smaps_rollup").read_text().splitlines()[1:])
    return {row[0].rstrip(":"): int(row[1]) / 1024 for row in rows}


async def measure(name: str, folder: Path | None, found: dict[str, list[float]]) -> None:
    lines, starts_ms = Lines(), list[float]()
    async with run_agent(folder, lines, starts_ms) as process:
        await lines.of(process, SINGLE, PAUSE_S)
        cuts = statistics.quantiles(lines.delays_ms, n=100)
        found.setdefault(f"{name}: a line, median, ms", []).append(cuts[49])
        found.setdefault(f"{name}: a line, p99, ms", []).append(cuts[98])
        found.setdefault(f"{name}: lines a second", []).append(FLOOD / await lines.of(process, FLOOD, 0))
        if folder is not None:
            memory = memory_mib(process.pid)
            found.setdefault("holder: resident, MiB", []).append(memory["Rss"])
            found.setdefault("holder: of its own (PSS), MiB", []).append(memory["Pss"])
    for _ in range(5):
        async with run_agent(folder, lines, starts_ms):
            pass
    found.setdefault(f"{name}: start, ms", []).append(statistics.median(starts_ms))


def loop_s() -> float:
    began = time.perf_counter()
    sum(number * number for number in range(10_000_000))
    return time.perf_counter() - began


async def main(rounds: int) -> None:
    found: dict[str, list[float]] = {}
    with TemporaryDirectory(prefix="hold-") as folder:
        for _ in range(rounds):
            await measure("pipes", None, found)
            await measure("holder", Path(folder), found)
    print(f"loop {loop_s():.2f} s, load {os.getloadavg()[0]:.1f}, {rounds} rounds")
    for name, values in found.items():
        print(f"{name:36} {statistics.median(values):12,.3f}   {min(values):,.3f} to {max(values):,.3f}")


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if sys.argv[1:] else 3))
