"""Prompts that a working agent is offered: which, and what becomes of each until the one idle."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from shim.lib.settings import Settings
from tests.support.opencode1_views import view
from tests.support.scripted_model import World, ask
from universal.codec import SetTimer
from universal.session.user_prompt import PromptDetails


async def with_offers(w: World, *texts: str) -> tuple[str, list[str]]:
    """A session whose agent works on "first", and prompts that came then: session, message ids."""
    session = w.session()
    await ask(w, session, "first")
    w.agent.steers = True
    return session, [await ask(w, session, text) for text in texts]


def offers(w: World) -> list[str]:
    return [prompt.text for prompt in w.agent.offers]


async def prompts_of_answers(w: World, session: str) -> list[str]:
    """The prompts of the answers, by their texts."""
    messages = view(await w.manager.session(session)).messages
    text_of = {m.info["id"]: m.wire()["parts"][0]["text"] for m in messages.values() if m.info["role"] == "user"}
    return [text_of[m.info["parentID"]] for m in messages.values() if m.info["role"] == "assistant"]


async def test_one_answer_is_for_a_prompt_and_its_offers(w: World) -> None:
    session, _ = await with_offers(w, "second")
    w.agent.text("one")
    w.agent.take_in()
    w.agent.text("two")
    w.agent.end_turn()
    assert (w.agent.prompts, offers(w)) == (["first"], ["second"])
    assert await prompts_of_answers(w, session) == ["first", "second"]
    assert w.hub.folds[session].idles == 1


async def test_an_offer_that_is_taken_in_after_the_answer_holds_the_turn(w: World) -> None:
    session, _ = await with_offers(w, "second")
    w.agent.text("one")
    w.agent.end_turn()
    assert w.hub.folds[session].idles == 0
    w.agent.take_in()
    w.agent.text("two")
    w.agent.end_turn()
    assert await prompts_of_answers(w, session) == ["first", "second"]
    assert (w.hub.folds[session].idles, w.hub.folds[session].errors) == (1, [])


async def test_an_offer_that_comes_back_is_dispatched_and_not_offered_again(w: World) -> None:
    session, _ = await with_offers(w, "second", "third")
    w.agent.give_back()
    w.agent.give_back(0)
    assert offers(w) == ["second", "third"]
    for text in ("one", "two", "three"):
        w.agent.text(text)
        w.agent.end_turn()
    assert w.agent.prompts == ["first", "second", "third"]
    assert w.hub.folds[session].idles == 1


async def test_an_abort_parks_what_was_not_taken_in(w: World) -> None:
    session, (_, third) = await with_offers(w, "second", "third")
    w.agent.take_in(0)
    aborted = asyncio.ensure_future(w.manager.abort(session))
    await w.settle()
    w.agent.abort_turn()
    await asyncio.wait_for(aborted, 5)
    actor = await w.manager.actor(session)
    assert (list(actor.prompt_queue.parked), actor.prompt_queue.pending) == ([third], {})
    assert w.hub.folds[session].idles == 1
    w.agent.take_in(1)  # too late
    assert w.hub.folds[session].idles == 1


async def test_a_process_that_dies_loses_no_offer(w: World) -> None:
    session, _ = await with_offers(w, "second")
    w.agent.text("one")
    w.agent.exits(code=1)
    await w.settle()
    assert w.agent.prompts == ["second"]
    w.agent.text("two")
    w.agent.end_turn()
    assert w.hub.folds[session].idles == 1


async def test_a_prompt_that_the_answer_cannot_take_in_waits(w: World) -> None:
    _, _ = await with_offers(w, "/compact", "after it")
    assert offers(w) == []


async def test_a_prompt_in_another_mode_or_for_the_end_waits(w: World) -> None:
    session, _ = await with_offers(w)
    await ask(w, session, "queued", details=PromptDetails("queue"))
    assert offers(w) == []
    await ask(w, session, "planned", mode="plan")
    assert offers(w) == []


@pytest.mark.parametrize(("details", "seen"), [(PromptDetails(), []), (PromptDetails("steer"), ["second"])])
async def test_clients_that_choose_are_heard_when_the_setting_is_off(w: World, details: PromptDetails, seen: list[str]) -> None:
    w.manager.deps.settings = Settings(steer=False)
    session, _ = await with_offers(w)
    await ask(w, session, "second", details=details)
    assert offers(w) == seen


async def test_a_prompt_is_offered_as_soon_as_the_agent_can_take_it(w: World) -> None:
    session = w.session()
    await ask(w, session, "first")
    await ask(w, session, "second")
    w.agent.steers = True
    w.agent.text("one")
    assert offers(w) == ["second"]


async def test_a_timer_alone_shows_that_the_agent_can_take_a_prompt(w: World) -> None:
    """An ACP agent takes one in when its call has run for a second, in which it says nothing."""
    calls: list[Callable[[], None]] = []
    w.manager.deps.call_later = lambda _delay_s, call: (calls.append(call), asyncio.get_running_loop().call_later(0, int))[1]
    session = w.session()
    await ask(w, session, "first")
    await ask(w, session, "second")
    w.agent.says(SetTimer("steady", 1.0))
    w.agent.steers = True
    assert offers(w) == []
    calls[-1]()
    assert offers(w) == ["second"]


async def test_an_offer_can_be_removed(w: World) -> None:
    session, (second,) = await with_offers(w, "second")
    actor = await w.manager.actor(session)
    recall = asyncio.ensure_future(actor.offers.recall(second, None))
    await w.settle()
    w.agent.give_back()
    assert await recall
    w.agent.text("one")
    w.agent.end_turn()
    assert second not in view(await w.manager.session(session)).messages
    assert (w.agent.prompts, w.hub.folds[session].idles) == (["first"], 1)


async def test_an_offer_can_be_sent_to_the_end(w: World) -> None:
    session, (second,) = await with_offers(w, "second")
    actor = await w.manager.actor(session)
    assert await actor.offers.recall(second, "steer")
    recall = asyncio.ensure_future(actor.offers.recall(second, "queue"))
    await w.settle()
    w.agent.give_back()
    assert await recall
    await ask(w, session, "third")
    assert offers(w) == ["second", "third"]
    assert actor.main.machine.queue == [actor.prompt_queue.pending[w.agent.offers[0].key].prompt.key]


async def test_an_offer_that_is_taken_in_cannot_be_removed(w: World) -> None:
    session, (second,) = await with_offers(w, "second")
    actor = await w.manager.actor(session)
    recall = asyncio.ensure_future(actor.offers.recall(second, None))
    await w.settle()
    w.agent.take_in()
    assert not await recall
    assert not await actor.offers.recall(second, None)
    assert second in view(await w.manager.session(session)).messages


async def test_an_agent_that_gives_nothing_back_is_not_waited_for(w: World) -> None:
    session, (second,) = await with_offers(w, "second")
    w.agent.gives_back = False
    assert not await (await w.manager.actor(session)).offers.recall(second, None)
    assert w.agent.recalled == [w.agent.offers[0].key]


async def test_the_end_of_a_turn_answers_who_waits_for_an_offer(w: World) -> None:
    session, (second,) = await with_offers(w, "second")
    recall = asyncio.ensure_future((await w.manager.actor(session)).offers.recall(second, None))
    await w.settle()
    w.agent.exits(code=1)
    await w.settle()
    w.agent.fail_turn()
    assert await asyncio.wait_for(recall, 5) is False
