"""The whole server with the mock, and a client of 2.x in each dialect."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.http.opencode2.client import Tui, tui
from tests.support.live import Live

DIALECTS = ("v2_0", "v2_july")


@pytest.fixture(params=DIALECTS)
async def client(request: pytest.FixtureRequest, server: Live) -> AsyncIterator[Tui]:
    async with tui(server, request.param) as made:
        yield made


@pytest.fixture
async def r(server: Live) -> AsyncIterator[Tui]:
    """A client of `v2_0` alone."""
    async with tui(server, "v2_0") as made:
        yield made
