"""Short runs of `make cluster-chaos`: the kinds of faults that some seconds have room for, and all checks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.chaos.plan import Fault, Kind
from tools.chaos.run import HOPPERS, Parameters, Run

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

SEEDS = (5, 31, 44)
"""A full JetStream and a lost connection, a restart and a killed NATS server, a cut and a killed NATS server."""

PLAN = (
    Fault(0.5, Kind.KILL, 1, 1.0),
    Fault(1.0, Kind.NATS, 2, 1.0),
    Fault(2.5, Kind.SILENCE, 2, 2.0),
    Fault(4.0, Kind.RESET, 1, 1.0),
)


@pytest.mark.nightly
async def test_a_cluster_keeps_its_promises_under_faults(tmp_path: Path) -> None:
    lines: list[str] = []
    report = await Run(Parameters(nodes=2, sessions=8, seconds=6.0), tmp_path, lines.append, PLAN).run()
    assert not report.violations, "\n".join((*lines, *map(str, report.violations)))
    figures = report.figures
    assert all(figures[f"faults of kind {fault.kind}"] for fault in PLAN)
    assert figures["prompts acknowledged"] >= 16
    assert figures["agents at the end"]
    assert figures["streams from begin to end"] == 2 + HOPPERS


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_short_run_of_a_seed_breaks_no_promise(tmp_path: Path, seed: int) -> None:
    lines: list[str] = []
    report = await Run(Parameters(nodes=2, sessions=4, seconds=9.0, seed=seed), tmp_path, lines.append).run()
    assert not report.violations, "\n".join((*lines, *map(str, report.violations)))
    assert report.figures["prompts acknowledged"]
