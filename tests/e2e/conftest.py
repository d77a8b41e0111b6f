"""Fixtures of the end-to-end tests: one server for all tests of a module and agent that do not end it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .support.bench import Bench, bench
from .support.wire import Stream


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
