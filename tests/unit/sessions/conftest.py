"""A world of sessions whose agents say what the test writes; at its end everything that was told is checked."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from shim.store.memory import MemoryStore
from tests.support.opencode1_views import view
from tests.support.scripted_model import World, world
from universal.codec import Prompt


@pytest.fixture
async def w(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    """The parameter, if there is one, is how long an agent gets to stop after an abort, in seconds."""
    store = MemoryStore()
    await store.open()
    made = world(store, abort_timeout_s=getattr(request, "param", 5.0))
    await made.manager.start()
    yield made
    await made.manager.close()
    for fold in made.hub.folds.values():
        fold.check()
    await _rebuilt_is_live(made)


async def _rebuilt_is_live(w: World) -> None:
    """For every session: a projection rebuilt from the journal, what SSE told, and what HTTP reads are the same."""
    for session_id, fold in w.hub.folds.items():
        if "session.deleted" in w.hub.kinds(session_id):
            continue
        again = world(w.store)
        for entry in again.manager.index:
            again.manager.index.remove(entry.record.id)
        await again.manager.start()
        live = view(await w.manager.session(session_id))
        rebuilt = view(await again.manager.session(session_id))
        assert [m.wire() for m in rebuilt.messages.values()] == [m.wire() for m in live.messages.values()]
        assert (rebuilt.info, rebuilt.todos, rebuilt.diffs, rebuilt.status) == (live.info, live.todos, live.diffs, live.status)
        assert fold.wire() == [m.wire() for m in live.messages.values()]
        assert (fold.info, fold.todos, fold.diffs, fold.status) == (live.info, live.todos, live.diffs, live.status)
        assert _parked_prompts(again, session_id) == _parked_prompts(w, session_id)
        await again.manager.close()


def _parked_prompts(w: World, session_id: str) -> dict[str, Prompt]:
    """What waits for a person's word."""
    actor = w.manager.index.get(session_id).actor
    return {id_: one.prompt for id_, one in actor.prompt_queue.parked.items()} if actor is not None else {}
