"""The whole server with the mock, and a client of 2.x."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.http.opencode2.client import Tui, tui
from tests.support.live import Live


@pytest.fixture
async def client(server: Live) -> AsyncIterator[Tui]:
    async with tui(server, "v2_0") as made:
        yield made
