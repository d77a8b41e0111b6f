"""The same server as in the HTTP tests, and the dialect of the only recordings of a server of 2.x."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.http.conftest import agents, api, place, project
from tests.support.july_dialect import speak_july

__all__ = ["agents", "api", "place", "project"]


@pytest.fixture(scope="module")
def july() -> Iterator[None]:
    """The servers of this module speak `v2_july` too."""
    with speak_july():
        yield
