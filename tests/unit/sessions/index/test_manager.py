"""Sessions are loaded when they are needed, also while they are given up. What is done in them is answered when it is stored."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from shim.lib.errors import SessionElsewhere, StoreUnavailable
from shim.sessions.index.session_entry import SessionEntry
from shim.sessions.session import tape
from shim.store.ownership import Look, LostSession, SessionChange
from shim.store.servers import ServerRef
from tests.support.scripted_model import World, ask, world
from universal.events import EventType
from universal.permissions import Access

BOUND_S = 10.0
AWAY = StoreUnavailable("NATS is away")


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


async def test_a_start_waits_until_tapes_are_read(w: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client of the server before may have seen what stands on them. One that goes on and on is not waited for."""
    monkeypatch.setattr(tape, "READ_S", BOUND_S)
    other, loop = world(w.store), asyncio.get_running_loop()
    tapes = other.manager.deps.tapes = tape.Tapes(cast(tape.TapeStore, w.store), tmp_path / "held", w.manager.deps.clock)
    tapes.unread = [unread] = [loop.create_future()]
    start = asyncio.create_task(other.manager.start())
    await asyncio.wait({start}, timeout=0.1)
    assert not start.done()
    unread.set_result(None)
    await asyncio.wait_for(start, BOUND_S)
    monkeypatch.setattr(tape, "READ_S", 0.01)
    tapes.unread = [loop.create_future()]
    await asyncio.wait_for(tapes.read(), BOUND_S)
    await other.manager.close()


@pytest.fixture
async def unloaded_session(w: World) -> AsyncIterator[tuple[World, str]]:
    """A server that has just started, and a session that it has not loaded."""
    session = w.session()
    await ask(w, session)
    w.agent.end_turn()
    other = world(w.store)
    await other.manager.start()
    yield other, session
    await other.manager.close()


async def test_a_load_that_fails_after_its_callers_have_gone_is_no_bug_in_the_log(unloaded_session: tuple[World, str]) -> None:
    w, session = unloaded_session
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: complaints.append(context))
    begun, may_fail = asyncio.Event(), asyncio.Event()

    async def fail(session_id: str, entry: SessionEntry) -> SessionEntry:
        begun.set()
        await may_fail.wait()
        raise AWAY

    w.manager._read = fail  # type: ignore[method-assign]  # pyright: ignore[reportPrivateUsage]
    caller = asyncio.ensure_future(w.manager.state(session))
    await asyncio.wait_for(begun.wait(), BOUND_S)
    caller.cancel()
    await asyncio.wait([caller])
    may_fail.set()
    await w.settle()
    del caller
    gc.collect()
    assert complaints == []


async def test_a_server_that_stops_loads_no_more(unloaded_session: tuple[World, str]) -> None:
    """The load would open a session, and end its turn, behind the end of all others."""
    w, session = unloaded_session
    begun, ended = asyncio.Event(), asyncio.Event()

    async def read(session_id: str, entry: SessionEntry) -> SessionEntry:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        raise AssertionError("not reached")

    w.manager._read = read  # type: ignore[method-assign]  # pyright: ignore[reportPrivateUsage]
    caller = asyncio.ensure_future(w.manager.state(session))
    await asyncio.wait_for(begun.wait(), BOUND_S)
    await w.manager.close()
    assert ended.is_set()
    await asyncio.wait([caller])
    assert caller.cancelled()


# --- what is answered when it is stored ----------------------------------------------------------------------------------

OTHER = ServerRef("other", 1)


@pytest.fixture
async def lossy() -> AsyncIterator[World]:
    """A world whose sessions may be taken by another server."""
    made = world()
    await made.store.open()
    await made.manager.start()
    yield made
    await made.manager.close()


def fail_flush(w: World, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    async def flush(session_id: str | None = None) -> None:
        raise error

    monkeypatch.setattr(w.store, "flush", flush)


async def abort(w: World, session: str) -> None:
    """Abort a turn whose agent obeys."""
    aborting = asyncio.create_task(w.manager.abort(session))
    await w.settle()
    w.agent.abort_turn()
    await aborting


async def lose(w: World, session: str) -> None:
    """Another server has taken a session, and the look that found it is over: the store knows nothing of it any more."""
    await w.manager.others.give_up(LostSession(session, OTHER, w.store.last_sequence(session)))


async def test_an_abort_that_the_store_does_not_take_ends_the_turn_and_says_that_it_is_not_stored(
    lossy: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = lossy.session()
    await ask(lossy, session)
    fail_flush(lossy, monkeypatch, AWAY)
    with pytest.raises(StoreUnavailable, match="No turn runs here any more, but this is not stored yet: NATS is away"):
        await abort(lossy, session)
    assert lossy.hub.folds[session].idles == 1
    with pytest.raises(StoreUnavailable):
        await lossy.manager.abort(session)


async def test_events_at_the_end_of_a_lost_session_reach_no_reader(lossy: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its agent is ended here. The events of that are in no journal: the server that has taken the session writes others."""
    session = lossy.session()
    await ask(lossy, session)
    feed, observed = lossy.manager.deps.feed, list[EventType]()
    feed.observe(lambda event: observed.append(event.type))
    actor = await lossy.manager.actor(session)
    close, reader = actor.close, feed.listen("another session")

    async def listen_and_close(**options: Any) -> None:
        nonlocal reader
        reader = feed.listen(session)
        await close(**options)

    monkeypatch.setattr(actor, "close", listen_and_close)
    await lose(lossy, session)
    assert EventType.TURN_ENDED in observed, "metrics and spans end with the turn"
    assert reader.drain() == []


async def test_an_abort_of_a_session_that_was_lost_meanwhile_goes_to_the_other_server(lossy: World) -> None:
    """The turn ended here because the session was given up, not because it was aborted."""
    session = lossy.session()
    await ask(lossy, session)
    aborting = asyncio.create_task(lossy.manager.abort(session))
    await lossy.settle()
    await lose(lossy, session)
    with pytest.raises(SessionElsewhere) as caught:
        await aborting
    assert caught.value.owner == OTHER


async def test_an_end_for_good_of_a_session_that_was_lost_meanwhile_goes_to_the_other_server(
    lossy: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = lossy.session()
    actor = await lossy.manager.actor(session)
    close = actor.close

    async def close_and_lose(**options: Any) -> None:
        await close(**options)
        await lose(lossy, session)

    monkeypatch.setattr(actor, "close", close_and_lose)
    with pytest.raises(SessionElsewhere):
        await lossy.manager.terminate(session)


async def test_a_session_that_another_server_has_taken_is_not_deleted(lossy: World, monkeypatch: pytest.MonkeyPatch) -> None:
    session = lossy.session()
    fail_flush(lossy, monkeypatch, SessionElsewhere(session, OTHER))
    with pytest.raises(SessionElsewhere):
        await lossy.manager.delete(session)
    entry = lossy.manager.index.get(session)
    assert (entry.state, entry.actor) == (None, None), "it can be read, and nothing is written here"
    assert lossy.manager.others.owner(session) == OTHER
    assert "session.deleted" not in lossy.hub.kinds(session)


async def test_a_session_that_another_server_has_taken_and_deleted_meanwhile_is_not_kept(
    lossy: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look reads of the deletion while this server's own is refused. No later look tells of it again."""
    session = lossy.session()

    async def look_and_fail(session_id: str | None = None) -> None:
        await lossy.manager.others.look()
        raise SessionElsewhere(session, OTHER)

    look = Look((SessionChange(session, OTHER, None),), lost=(LostSession(session, OTHER, 0),))
    monkeypatch.setattr(lossy.store.ownership, "look", partial(asyncio.sleep, 0, look))
    monkeypatch.setattr(lossy.store, "flush", look_and_fail)
    await lossy.manager.delete(session)
    assert session not in lossy.manager.index
    assert lossy.hub.kinds(session).count("session.deleted") == 1


async def test_a_deletion_while_the_store_is_away_is_an_error_and_made_up_for_later(
    lossy: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = lossy.session()
    fail_flush(lossy, monkeypatch, AWAY)
    with pytest.raises(StoreUnavailable):
        await lossy.manager.delete(session)
    assert session not in lossy.manager.index
    assert lossy.hub.kinds(session).count("session.deleted") == 1


async def test_a_deletion_is_shown_when_it_is_stored(lossy: World, monkeypatch: pytest.MonkeyPatch) -> None:
    session, is_free = lossy.session(), asyncio.Event()

    async def flush(session_id: str | None = None) -> None:
        assert session_id == session
        await is_free.wait()

    monkeypatch.setattr(lossy.store, "flush", flush)
    deleting = asyncio.create_task(lossy.manager.delete(session))
    await lossy.settle()
    assert session not in lossy.manager.index
    assert "session.deleted" not in lossy.hub.kinds(session)
    is_free.set()
    await deleting
    assert lossy.hub.kinds(session).count("session.deleted") == 1


# --- rules of parents ---------------------------------------------------------------------------------------------


def rule(permission: str, action: str) -> dict[str, Any]:
    return {"permission": permission, "pattern": "*", "action": action}


DENY, ALLOW, ASK = rule("bash", "deny"), rule("bash", "allow"), rule("bash", "ask")


@pytest.mark.parametrize("is_loaded", [True, False], ids=["loaded", "as after a restart"])
@pytest.mark.parametrize(
    ("line", "action"),
    [
        ([[DENY], []], "deny"),
        ([[DENY], [ALLOW]], "deny"),
        ([[DENY], [ASK]], "deny"),
        ([[DENY], [], []], "deny"),
        ([[DENY], [ALLOW], [ALLOW]], "deny"),
        ([[rule("*", "deny"), ALLOW], [rule("edit", "allow")]], "allow"),
        ([[], [DENY]], "deny"),
        ([[ASK], [ALLOW]], "allow"),
        ([[ALLOW], []], "allow"),
    ],
)
async def test_a_session_is_held_to_the_denies_of_all_its_parents(
    w: World, line: list[list[dict[str, Any]]], action: str, is_loaded: bool
) -> None:
    """Else a client, or an agent that starts sessions, would have more rights in a child than where it came from."""
    parent: str | None = None
    for permission in line:
        parent = w.session(parent_id=parent, permission=permission)
    assert parent is not None
    if not is_loaded:
        await w.store.flush()
        other = world(w.store)
        await other.manager.start()
        w = other
    state = await w.manager.state(parent)
    assert [entry.state is not None for entry in w.manager.index].count(True) == (len(line) if is_loaded else 1)
    assert w.manager.policy(state).action(Access("bash", ("ls",))) == action
    if not is_loaded:
        await w.manager.close()
