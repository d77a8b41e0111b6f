"""Streams of `/v1` begin where their clients are, also at a server that knows less than they."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from shim.sessions.feed import Feed
from shim.sessions.index.named_sessions import NamedSessions
from shim.store.memory import MemoryStore
from tests.unit.store.store_contract import event

KNOWN, STORED = 56, 80


class Manager:
    """Knows the first events of a session, of which another server has stored more."""

    deps = SimpleNamespace(feed=Feed())

    async def readable_state(self, session_id: str) -> Any:
        return SimpleNamespace(sequence=KNOWN)


@pytest.mark.parametrize(("after", "begin"), [(0, 0), (KNOWN, KNOWN), (KNOWN + 1, KNOWN + 1), (STORED, STORED), (10_000, KNOWN)])
async def test_a_stream_begins_behind_what_its_client_has_of_another_server(after: int, begin: int) -> None:
    store = MemoryStore()
    await store.open()
    store.append([event(number) for number in range(1, STORED + 1)])
    manager: Any = Manager()
    agents: Any = None
    follower = await NamedSessions(manager, agents, store).row_follower("ses_a", after)
    assert follower.position == begin
    rest = await follower.take() if begin < STORED else []
    assert [row.sequence for row in rest] == list(range(begin + 1, STORED + 1))
    follower.close()
