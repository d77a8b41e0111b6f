"""The faults of a chaos run come from its seed, and leave enough of the cluster unharmed for its promises to hold."""

from __future__ import annotations

import pytest

from tools.chaos.plan import OF_NATS, Fault, Kind, is_in_order, make_plan

SEEDS = range(20)


def overlap(first: Fault, second: Fault) -> bool:
    return first.at_s < second.end_s and second.at_s < first.end_s


def test_a_seed_gives_the_same_plan_again_and_another_seed_another_plan() -> None:
    assert make_plan(7, 180, 4, 3) == make_plan(7, 180, 4, 3)
    assert make_plan(7, 180, 4, 3) != make_plan(8, 180, 4, 3)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_whole_run_has_every_kind_of_fault_and_some_longer_than_a_lease(seed: int) -> None:
    plan = make_plan(seed, 180, 4, 3)
    assert is_in_order(plan)
    assert {fault.kind for fault in plan} == set(Kind)
    assert any(fault.for_s > 9 for fault in plan if fault.kind not in OF_NATS)
    assert plan[-1].end_s <= 180


@pytest.mark.parametrize("seed", SEEDS)
def test_one_nats_server_is_down_at_a_time_and_half_of_the_nodes_are_unharmed(seed: int) -> None:
    plan = make_plan(seed, 180, 4, 3)
    nats = [fault for fault in plan if fault.kind in OF_NATS]
    nodes = [fault for fault in plan if fault.kind not in OF_NATS]
    assert not any(overlap(a, b) for a in nats for b in nats if a is not b)
    assert not any(overlap(a, b) for a in nodes for b in nodes if a is not b and a.target == b.target)
    assert all(sum(overlap(fault, b) for b in nodes if b.at_s <= fault.at_s) <= 2 for fault in nodes)


def test_a_fault_says_what_is_done() -> None:
    assert str(Fault(12.5, Kind.PAUSE, 2, 11.0)) == "  12.5 s  STOP node2, CONT after 11 s"
