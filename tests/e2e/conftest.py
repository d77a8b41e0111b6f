"""Fixtures of the end-to-end tests: one server for all tests of a module and agent that do not end it."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

import pytest

from .support.bench import Bench, bench
from .support.groups import ByServer
from .support.tmux import Terminal
from .support.tui import new_session
from .support.wire import Stream

FAILED = pytest.StashKey[bool]()


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByServer | None:
    return ByServer(config, log) if config.getvalue("dist") == "loadgroup" else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    item.stash[FAILED] = item.stash.get(FAILED, False) or report.failed
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None]:
    """What a failed test leaves (a question nobody has answered, a full input box) would fail the next ones, and itself when it
    is tried again: they get a new server and a new terminal."""
    if item.stash.get(FAILED, False):
        item.stash[FAILED] = False
        item.session._setupstate.teardown_exact(None)  # pytest has no public way, and the plugin for retries keeps them
    yield


@pytest.fixture(scope="module")
def served(request: pytest.FixtureRequest) -> Iterator[Bench]:
    """A server with the agent that the test names: `@pytest.mark.parametrize("served", [MOCK], indirect=True)`."""
    with bench(request.param) as made:
        yield made


@pytest.fixture
def stream(served: Bench) -> Iterator[Stream]:
    """A recorder of the server's events of the project."""
    recorder = Stream(served.api)
    yield recorder
    recorder.close()


@pytest.fixture
def fresh(served: Bench, terminal: Terminal) -> Terminal:
    """A test file's `terminal` with the TUI at its first screen, on the project as it was at the start."""
    served.place.reset()
    new_session(terminal)
    return terminal
