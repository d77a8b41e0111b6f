"""The tables of the permission matrix agree with what the registry tells people."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.support.agents import AGENTS
from tests.e2e.support.matrix import ROWS, Driver
from tests.e2e.support.matrix_drivers import DRIVERS
from universal.permissions import PERMISSION_KEYS, Enforcement
from universal.registry import agents

ROOT = Path(__file__).parents[2]
TABLE = [pytest.param(driver, agents()[AGENTS[name].provider].rules.enforcement, id=name) for name, driver in DRIVERS.items()]


@pytest.mark.parametrize(("driver", "enforcement"), TABLE)
def test_every_gap_is_documented(driver: Driver, enforcement: Enforcement) -> None:
    untold = {action for action, _ in driver.gaps if enforcement.gap(ROWS[action].key) is None}
    assert untold == set()


@pytest.mark.parametrize(("driver", "enforcement"), TABLE)
def test_every_key_that_claims_to_hold_is_played(driver: Driver, enforcement: Enforcement) -> None:
    played = {ROWS[action].key for action in driver.scenes}
    promised = {key for key in PERMISSION_KEYS if key not in enforcement.absent and enforcement.gap(key) is None}
    assert promised - played - driver.elsewhere.keys() == set()


@pytest.mark.parametrize(("driver", "enforcement"), TABLE)
def test_tests_outside_the_matrix_exist(driver: Driver, enforcement: Enforcement) -> None:
    for test in driver.elsewhere.values():
        path, _, name = test.partition("::")
        assert f"def {name}(" in (ROOT / path).read_text("utf-8")


@pytest.mark.parametrize(("driver", "enforcement"), TABLE)
def test_exceptions_name_cases_that_there_are(driver: Driver, enforcement: Enforcement) -> None:
    exceptions = {*driver.in_e2e, *driver.gaps, *driver.switched_off, *driver.lacks, *driver.held_anyway}
    assert {action for action, _ in exceptions} <= driver.scenes.keys()
    assert {mode for _, mode in exceptions} <= {*driver.modes, "*"}
