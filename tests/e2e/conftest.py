"""Fixtures of the end-to-end tests: one server for all tests of a module and agent that do not end it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .support.bench import Bench, bench
from .support.tmux import Terminal
from .support.tui import new_session
from .support.wire import Stream


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With pytest-xdist (`--dist loadgroup`), the tests that share a server and a terminal go to one worker."""
    for item in items:
        params = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
        if "served" in params:
            group = f"{item.path.stem} {params['served']} {params.get('version', '')}"
            item.add_marker(pytest.mark.xdist_group(group))


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
