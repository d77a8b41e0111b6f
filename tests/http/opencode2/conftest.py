"""The whole server with the mock, and a client of 2.x in each dialect."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.http.opencode2.client import Tui, tui
from tests.support.live import Live

DIALECTS = ("R", "J")


@pytest.fixture(params=DIALECTS)
async def client(request: pytest.FixtureRequest, server: Live) -> AsyncIterator[Tui]:
    async with tui(server, request.param) as made:
        yield made


@pytest.fixture
async def r(server: Live) -> AsyncIterator[Tui]:
    """In R's dialect alone."""
    async with tui(server, "R") as made:
        yield made
