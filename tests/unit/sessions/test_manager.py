"""Sessions are loaded when they are needed, also while they are given up."""

from __future__ import annotations

import pytest

from shim.sessions.session_entry import SessionEntry
from tests.support.scripted_model import World, ask, world


async def test_a_session_that_is_released_at_the_moment_of_its_load_is_loaded_again(
    w: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that ends a dead server's turn loads the session and gives it up at once. A client may read it just then."""
    session = w.session()
    await ask(w, session)
    w.agent.end_turn()
    other = world(w.store)
    await other.manager.start()
    read, releases = other.manager._read, [session]  # pyright: ignore[reportPrivateUsage]

    async def read_and_release(session_id: str, entry: SessionEntry) -> SessionEntry:
        entry = await read(session_id, entry)
        if releases:
            releases.pop()
            entry.state = entry.actor = None
        return entry

    monkeypatch.setattr(other.manager, "_read", read_and_release)
    assert (await other.manager.state(session)).id == session
    assert not releases
    await other.manager.close()
