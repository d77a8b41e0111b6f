"""Every prompt that was accepted ends, also when its server does: with an answer, with an error, or in an inbox that shows it."""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable

import pytest

from shim.sessions.index.drain import drain_error
from shim.sessions.session.exit_errors import PROMPT_LOST
from shim.store.memory import MemoryStore
from tests.support.opencode1_views import view
from tests.support.scripted_model import World, ask, world
from universal.session.user_prompt import PromptDetails


async def kill(w: World) -> World:
    """The server dies: another one finds what is stored."""
    store = MemoryStore()
    for name in ("_sessions", "_events", "_values"):
        setattr(store, name, copy.deepcopy(getattr(w.store, name)))
    await store.open()
    again = world(store)
    await again.manager.start()
    return again


async def drain(w: World) -> World:
    """The server stops, and its limit for running turns is over."""
    for entry in w.manager.index:
        if entry.actor is not None:
            await entry.actor.close(error=drain_error("mine", 3))
    return w


ENDS: dict[str, Callable[[World], Awaitable[World]]] = {"is killed": kill, "is stopped": drain}


async def answers(w: World, session: str) -> dict[str, list[str]]:
    """Prompt -> the errors of its answers, "" for one without."""
    found: dict[str, list[str]] = {}
    for message in view(await w.manager.session(session)).messages.values():
        if message.info["role"] == "user":
            found.setdefault(message.info["id"], [])
        else:
            error = message.info.get("error") or {}
            found.setdefault(message.info["parentID"], []).append(error.get("data", {}).get("message", ""))
    return found


@pytest.mark.parametrize("how", ENDS)
async def test_a_prompt_behind_a_turn_has_an_error_and_goes_along_with_the_next(w: World, how: str) -> None:
    session = w.session()
    first = await ask(w, session, "first")
    second = await ask(w, session, "second")
    w.agent.text("half")
    again = await ENDS[how](w)
    found = await answers(again, session)
    assert [len(found[id_]) for id_ in (first, second)] == [1, 1]
    assert "was stopped while this turn ran" in found[first][0]
    assert found[second] == [PROMPT_LOST]
    assert again.hub.kinds(session).count("session.error") == 2
    assert again.hub.kinds(session).count("session.idle") == 1
    assert again.hub.kinds(session)[-1] == "session.idle"
    third = await ask(again, session, "third")
    again.agent.text("done")
    again.agent.end_turn()
    await again.settle()
    assert "second" in again.agent.prompts[-1]
    found = await answers(again, session)
    assert (found[second], found[third]) == ([PROMPT_LOST], [""])
    await again.manager.close()


@pytest.mark.parametrize("how", ENDS)
async def test_a_prompt_that_an_inbox_shows_waits_there(w: World, how: str) -> None:
    session = w.session()
    await ask(w, session, "first")
    waiting = await ask(w, session, "second", details=PromptDetails("steer"))
    again = await ENDS[how](w)
    assert (await answers(again, session))[waiting] == []
    assert list((await again.manager.actor(session)).prompt_queue.parked) == [waiting]
    await again.manager.close()


async def test_a_prompt_is_lost_once_and_an_abort_loses_none(w: World) -> None:
    session = w.session()
    await ask(w, session, "first")
    waiting = await ask(w, session, "second")
    aborted = w.session()
    await ask(w, aborted, "first")
    cancelled = await ask(w, aborted, "second")
    (await w.manager.actor(aborted)).abort()
    w.agent.end_turn()
    await w.settle()
    once = await kill(w)
    await once.manager.session(session)
    twice = await kill(once)
    assert (await answers(twice, session))[waiting] == [PROMPT_LOST]
    assert (await answers(twice, aborted))[cancelled] == []
    for each in (once, twice):
        await each.manager.close()


async def test_a_prompt_that_was_stored_just_before_its_turn_has_an_error(w: World) -> None:
    session = w.session()
    prompt = await ask(w, session, "first")
    events = await w.store.events(session)
    [place] = [n for n, event in enumerate(events) if event.type == "turn.started"]
    store = MemoryStore()
    store._sessions = copy.deepcopy(w.store._sessions)  # pyright: ignore
    store._events = {session: events[:place]}
    await store.open()
    again = world(store)
    await again.manager.start()
    assert (await answers(again, session))[prompt] == [PROMPT_LOST]
    assert again.hub.kinds(session).count("session.idle") == 0
    w.agent.end_turn()
    await w.settle()
    await again.manager.close()


@pytest.mark.parametrize("answered", [False, True], ids=["while the agent works", "after its answer"])
@pytest.mark.parametrize("how", ENDS)
async def test_an_offer_that_was_not_taken_in_has_an_error_and_no_new_agent(w: World, how: str, answered: bool) -> None:
    session = w.session()
    await ask(w, session, "first")
    w.agent.steers = True
    offer = await ask(w, session, "second")
    assert [prompt.text for prompt in w.agent.offers] == ["second"]
    if answered:
        w.agent.text("one")
        w.agent.end_turn()
    again = await ENDS[how](w)
    assert (await answers(again, session))[offer] == [PROMPT_LOST]
    assert len(w.agents.spawned) == 1
    assert again.hub.kinds(session).count("session.idle") == 1
    await again.manager.close()
