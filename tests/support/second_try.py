"""A test of CI that fails is run once more, alone: a busy machine is no bug. `.ci/parts.sh` starts both runs and counts.

The first run writes the names of what failed, and the second one takes only these. pytest-rerunfailures asks the process that
has the results before each test: 100 of 280 s of `make test`.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

FIRST, SECOND = "SHIM_FAILED", "SHIM_RERUNS"
"""The files of tests that failed, and of those that passed then. A variable without a value: nothing is written."""
IS_SECOND = "SHIM_SECOND_TRY"
MOST = 5
"""More failures than these are no busy machine: then there is no second run."""


def name_of(nodeid: str) -> str:
    """The name without the group that `--dist loadgroup` adds to it."""
    head, bracket, tail = nodeid.rpartition("]")
    return head + bracket + tail.partition("@")[0]


class SecondTry:
    """In a worker it selects; in the process that has the results it writes."""

    def __init__(self) -> None:
        self._failed: set[str] = set()
        self._passed: set[str] = set()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        if not os.environ.get(IS_SECOND):
            return
        wanted = _read_failed()
        left_out = [item for item in items if name_of(item.nodeid) not in wanted]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if name_of(item.nodeid) in wanted]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        (self._failed if report.failed else self._passed).add(name_of(report.nodeid))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """A run that broke off, or failed by more than its tests, has no second one. A test that is not found again failed."""
        if hasattr(session.config, "workerinput"):
            return
        if os.environ.get(IS_SECOND):
            if _read_failed() - self._passed - self._failed:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED
            _write(SECOND, self._passed - self._failed)
        elif session.exitstatus == pytest.ExitCode.TESTS_FAILED and len(self._failed) <= MOST:
            _write(FIRST, self._failed)


def _read_failed() -> set[str]:
    return set(Path(os.environ[FIRST]).read_text().splitlines())


def _write(variable: str, names: set[str]) -> None:
    if place := os.environ.get(variable):
        with Path(place).open("a") as lines:
            lines.writelines(f"{name}\n" for name in sorted(names))
