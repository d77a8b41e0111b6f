"""A short run of `make cluster-chaos`: each kind of fault that a few seconds have room for, and all checks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.chaos.plan import Fault, Kind
from tools.chaos.run import HOPPERS, Parameters, Run

pytestmark = [pytest.mark.timeout(180), pytest.mark.slow]

PLAN = (
    Fault(0.5, Kind.KILL, 1, 1.0),
    Fault(1.0, Kind.NATS, 2, 1.0),
    Fault(2.5, Kind.SILENCE, 2, 2.0),
    Fault(4.0, Kind.RESET, 1, 1.0),
)


async def test_a_cluster_keeps_its_promises_under_faults(tmp_path: Path) -> None:
    lines: list[str] = []
    report = await Run(Parameters(nodes=2, sessions=8, seconds=6.0), tmp_path, lines.append, PLAN).run()
    assert not report.violations, "\n".join((*lines, *map(str, report.violations)))
    figures = report.figures
    assert all(figures[f"faults of kind {fault.kind}"] for fault in PLAN)
    assert figures["prompts acknowledged"] >= 16
    assert figures["agents at the end"]
    assert figures["streams from begin to end"] == 2 + HOPPERS
