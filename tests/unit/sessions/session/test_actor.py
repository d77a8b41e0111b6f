"""Sessions at work, on an agent whose every word is written here: prompts, ends of turns, asks, faults."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, cast

import pytest

from shim.agents.spares.agent_room import AgentRoom
from shim.host.git.snapshot import Snapshots
from shim.lib.errors import Conflict, InvalidRequest, NotFound
from shim.sessions.prompts import prompt_request
from shim.sessions.prompts.prompt_request import PromptRequest
from shim.sessions.prompts.submit import submit
from shim.sessions.session.exit_errors import drain_error
from tests.support.opencode1_views import info, permissions, questions, statuses, view
from tests.support.scripted_model import ScriptedAgent, World, ask, body, world
from universal.agents.kit import Context
from universal.codec import Fact, Interrupt, InterruptProcess, Prompt, Signal, Stop
from universal.events import EventType
from universal.session.reducer import TITLE_CHARS
from universal.session.values import ModelRef, Text, title_of
from universal.tools.accesses import Place
from universal.turn import Input


async def test_a_turn_from_prompt_to_idle(w: World) -> None:
    session = w.session()
    await ask(w, session, "fix the bug\nplease")
    assert statuses(w.manager) == {session: {"type": "busy"}}
    assert w.agent.prompts == ["fix the bug\nplease"]
    w.agent.text("Done!")
    w.agent.end_turn(cost=0.5, usage={"input": 10})
    assert statuses(w.manager) == {}
    conversation = view(await w.manager.session(session))
    user, answer = (m.wire() for m in conversation.messages.values())
    assert user["parts"][0]["text"] == "fix the bug\nplease"
    assert [p["type"] for p in answer["parts"]] == ["step-start", "text", "step-finish"]
    assert answer["info"]["parentID"] == user["info"]["id"]
    assert answer["info"]["cost"] == 0.5
    assert answer["info"]["tokens"] == {"total": 16, "input": 10, "output": 5, "reasoning": 0, "cache": {"read": 1, "write": 0}}
    assert conversation.info["title"] == "fix the bug"
    assert w.hub.kinds(session)[-2:] == ["session.status", "session.idle"]


async def test_busy_is_published_before_the_prompt_is_acknowledged(w: World) -> None:
    session = w.session()
    await submit(w.manager, session, body())
    assert w.hub.folds[session].status == {"type": "busy"}
    await w.settle()
    w.agent.end_turn()


async def test_prompts_sent_while_busy_are_dispatched_in_order_and_end_in_one_idle(w: World) -> None:
    session = w.session()
    await ask(w, session, "first")
    second = await ask(w, session, "second")
    third = await ask(w, session, "third")
    assert w.agent.prompts == ["first"]
    w.agent.text("one")
    w.agent.end_turn()
    assert w.agent.prompts == ["first", "second"]
    w.agent.text("two")
    w.agent.end_turn()
    w.agent.text("three")
    w.agent.end_turn()
    assert w.agent.prompts == ["first", "second", "third"]
    assert w.hub.folds[session].idles == 1
    parents = [
        m.info["parentID"] for m in view(await w.manager.session(session)).messages.values() if m.info["role"] == "assistant"
    ]
    assert parents[1:] == [second, third]


async def test_a_model_error_ends_the_turn_once_with_the_error_on_the_message(w: World) -> None:
    session = w.session()
    await ask(w, session)
    w.agent.fail_turn("scripted failure", status_code=400)
    fold = w.hub.folds[session]
    assert fold.idles == 1
    assert fold.errors == [{"name": "APIError", "data": {"message": "scripted failure", "statusCode": 400, "isRetryable": False}}]
    last = list(view(await w.manager.session(session)).messages.values())[-1]
    assert last.info["error"] == fold.errors[0]
    assert "completed" in last.info["time"]


async def test_an_error_goes_on_with_the_queued_prompt(w: World) -> None:
    session = w.session()
    await ask(w, session, "first")
    await ask(w, session, "second")
    w.agent.fail_turn()
    assert w.hub.folds[session].idles == 0
    assert w.agent.prompts == ["first", "second"]
    w.agent.text("fine")
    w.agent.end_turn()
    assert w.hub.folds[session].idles == 1


@pytest.mark.parametrize("moment", ["before anything", "text", "tool", "permission", "question", "between steps"])
async def test_abort_at_any_moment_is_one_idle_and_leaves_nothing_open(w: World, moment: str) -> None:
    session = w.session()
    await ask(w, session)
    agent = w.agent
    if moment != "before anything":
        message = agent.begin()
        agent.delta(message, "I will")
    if moment in ("tool", "permission", "question"):
        agent.call(message, "c1")
    if moment == "permission":
        agent.ask("c1")
    if moment == "question":
        agent.question("c1")
    if moment == "between steps":
        agent.complete(message, "I will")
    waiting = asyncio.ensure_future(w.manager.abort(session))
    await w.settle()
    assert any(isinstance(c, Interrupt) for c in agent.commands)
    agent.abort_turn()
    await asyncio.wait_for(waiting, 5)
    fold = w.hub.folds[session]
    assert fold.idles == 1
    assert fold.errors == [{"name": "MessageAbortedError", "data": {"message": "Aborted"}}]
    last = list(view(await w.manager.session(session)).messages.values())[-1]
    assert last.info["error"]["name"] == "MessageAbortedError"
    assert permissions(w.manager) == questions(w.manager) == []
    await ask(w, session, "again")
    agent.text("here")
    agent.end_turn()
    assert fold.idles == 2


@pytest.mark.parametrize("w", [0.01], indirect=True)
async def test_an_agent_that_does_not_stop_is_killed_and_the_turn_ends_aborted(w: World) -> None:
    session = w.session()
    await ask(w, session)
    agent = w.agent
    async with asyncio.timeout(5):
        await w.manager.abort(session)
    assert agent.killed
    assert w.hub.folds[session].idles == 1
    assert not (await w.manager.actor(session)).prompt_queue.pending
    await ask(w, session, "again")
    assert w.agent is not agent
    w.agent.text("new process")
    w.agent.end_turn()
    assert w.hub.folds[session].idles == 2


async def test_abort_before_the_agent_has_started_never_gives_it_the_prompt(w: World) -> None:
    w.agents.gate = asyncio.Event()
    session = w.session()
    await ask(w, session)
    async with asyncio.timeout(5):
        await w.manager.abort(session)
    assert w.hub.folds[session].idles == 1
    w.agents.gate.set()
    await w.settle()
    assert w.agent.prompts == []
    await ask(w, session, "second")
    # what was cancelled is not lost: the agent hears of it with the next prompt
    assert w.agent.prompts[0].startswith("<earlier-in-this-conversation>\nUser:\nhello")
    assert w.agent.prompts[0].endswith("second")
    w.agent.end_turn()


async def test_no_agent_is_started_for_a_prompt_that_is_aborted_before_its_launch(w: World) -> None:
    gate = asyncio.Event()

    async def wait_for_place(directory: str) -> Place:
        await gate.wait()
        return await find_place(directory)

    find_place = w.manager.deps.find_place
    w.manager.deps = replace(w.manager.deps, find_place=wait_for_place)
    session = w.session()
    await ask(w, session)
    async with asyncio.timeout(5):
        await w.manager.abort(session)
    gate.set()
    await w.settle()
    assert w.agents.spawned == []


async def test_queued_prompts_are_cancelled_by_an_abort_and_sent_with_the_next_one(w: World) -> None:
    session = w.session()
    await ask(w, session, "first")
    await ask(w, session, "second")
    waiting = asyncio.ensure_future(w.manager.abort(session))
    await w.settle()
    w.agent.abort_turn()
    await waiting
    await ask(w, session, "third")
    assert "User:\nsecond" in w.agent.prompts[-1]
    w.agent.end_turn()
    await ask(w, session, "fourth")
    assert w.agent.prompts[-1] == "fourth"
    w.agent.end_turn()


@pytest.mark.parametrize(("code", "signal"), [(None, 9), (1, None), (0, None)])
async def test_an_agent_that_dies_ends_the_turn_once_and_is_resumed(w: World, code: int | None, signal: int | None) -> None:
    session = w.session()
    await ask(w, session)
    message = w.agent.begin()
    w.agent.call(message, "c1")
    w.agent.exits(code, signal, stderr="Segmentation fault")
    fold = w.hub.folds[session]
    assert fold.idles == 1
    assert "Segmentation fault" in fold.errors[0]["data"]["message"]
    await ask(w, session, "go on")
    assert (w.agent.options.resume, w.agent.options.native_session_id) == (True, "native-1")
    assert w.agent.prompts == ["go on"]
    w.agent.text("resumed")
    w.agent.end_turn()
    assert fold.idles == 2


async def test_a_crash_with_queued_prompts_hands_the_next_one_to_a_new_process(w: World) -> None:
    session = w.session()
    await ask(w, session, "first")
    await ask(w, session, "second")
    w.agent.exits(1)
    await w.settle()
    assert len(w.agents.spawned) == 2
    assert w.agent.prompts[0].endswith("second")
    w.agent.text("two")
    w.agent.end_turn()
    assert w.hub.folds[session].idles == 1


async def test_an_agent_that_cannot_start_is_an_error_with_its_reason(w: World) -> None:
    w.agents.fail = "Claude Code is not installed. Install it with ..."
    session = w.session()
    await ask(w, session)
    fold = w.hub.folds[session]
    assert fold.idles == 1
    assert "not installed" in fold.errors[0]["data"]["message"]
    w.agents.fail = None
    await ask(w, session, "again")
    w.agent.end_turn()
    assert fold.idles == 2


async def test_a_lost_native_conversation_is_replaced_by_ours_as_text(w: World) -> None:
    session = w.session()
    await ask(w, session, "remember 42")
    w.agent.text("I will")
    w.agent.end_turn()
    w.agent.exits(0)
    await ask(w, session, "which number?")
    assert w.agent.options.resume
    w.agent.fail_turn("No conversation found", "session_not_found")
    await w.settle()
    assert not w.agent.options.resume
    assert "User:\nremember 42\n\nAssistant:\nI will" in w.agent.prompts[0]
    w.agent.text("42")
    w.agent.end_turn()
    assert w.hub.folds[session].idles == 2
    assert w.hub.folds[session].errors == []


async def test_the_last_lines_of_a_process_may_report_a_lost_conversation(w: World) -> None:
    session = w.session()
    await ask(w, session, "remember 42")
    w.agent.text("I will")
    w.agent.end_turn()
    w.agent.exits(0)
    await ask(w, session, "which number?")
    w.agent.last_words(Signal(Input.FAILED, error={"message": "No session", "code": "session_not_found"}))
    w.agent.exits(1)
    await w.settle()
    assert not w.agent.options.resume
    assert "User:\nremember 42\n\nAssistant:\nI will" in w.agent.prompts[0]
    w.agent.text("42")
    w.agent.end_turn()
    assert w.hub.folds[session].idles == 2
    assert w.hub.folds[session].errors == []


async def test_a_prompt_that_needs_another_process_is_dispatched_to_it(w: World) -> None:
    session = w.session()
    await ask(w, session)
    first = w.agent
    w.agent.says(Stop("another mode", again=True))
    await w.settle()
    assert first.stopped
    assert w.agent is not first
    assert w.agent.prompts == first.prompts
    w.agent.text("here")
    w.agent.end_turn()
    assert w.hub.folds[session].idles == 1


class NoFiles:
    """Snapshots of a project without files."""

    async def track(self, directory: str) -> str:
        return "tree"

    async def changed_files(self, directory: str, before: str, after: str) -> list[str]:
        return []


async def test_a_prompt_that_needs_another_process_is_dispatched_to_it_with_snapshots(w: World) -> None:
    """Then a prompt is handed over by the task that also starts agents."""
    w.manager.deps = replace(w.manager.deps, snapshots=lambda _directory: cast(Snapshots, NoFiles()))
    session = w.session()
    await ask(w, session)
    first = w.agent
    first.text("here")
    first.end_turn()
    first.restarts = True
    await ask(w, session, "again")
    assert first.stopped
    assert w.agent is not first
    assert w.agent.prompts == ["again"]
    w.agent.text("here")
    w.agent.end_turn()
    await reached_idles(w, session, 2)


async def test_work_of_the_agents_own_ends_no_turn_whose_prompt_it_does_not_have(w: World) -> None:
    gate = asyncio.Event()
    gate.set()

    class SlowFiles(NoFiles):
        async def track(self, directory: str) -> str:
            await gate.wait()
            return "tree"

    w.manager.deps = replace(w.manager.deps, snapshots=lambda _directory: cast(Snapshots, SlowFiles()))
    session = w.session()
    await ask(w, session)
    w.agent.text("here")
    w.agent.end_turn()
    await reached_idles(w, session, 1)
    gate.clear()
    await ask(w, session, "again")
    assert w.agent.prompts == ["hello"], "the prompt waits for the snapshot before it"
    w.agent.says(Signal(Input.ACTIVITY))
    w.agent.text("by the way")
    w.agent.end_turn()
    gate.set()
    async with asyncio.timeout(5):
        while w.agent.prompts == ["hello"]:
            await w.settle()
    assert (w.agent.prompts, w.hub.folds[session].idles) == (["hello", "again"], 1)
    w.agent.text("sure")
    w.agent.end_turn()
    await reached_idles(w, session, 2)


async def reached_idles(w: World, session: str, count: int) -> None:
    async with asyncio.timeout(5):
        while w.hub.folds[session].idles < count:
            await w.settle()


async def test_a_process_is_interrupted_by_a_signal_where_the_codec_says_so(w: World) -> None:
    session = w.session()
    await ask(w, session)
    w.agent.says(InterruptProcess())
    assert w.agent.interrupted
    w.agent.end_turn()


async def test_late_text_after_the_turn_is_journaled_but_not_shown(w: World) -> None:
    session = w.session()
    await ask(w, session)
    w.agent.text("answer")
    w.agent.end_turn()
    seen = len(w.hub.events)
    w.agent.text("late words")
    w.agent.end_turn()
    assert len(w.hub.events) == seen
    events = await w.store.events(session)
    assert any(e.type is EventType.ITEM_DELTA and "late words" in e.data.delta for e in events)  # type: ignore[union-attr]


async def test_background_work_holds_the_turn_and_a_wake_up_later_is_a_turn_of_its_own(w: World) -> None:
    session = w.session()
    await ask(w, session)
    w.agent.says(Signal(Input.OPENED, key="bg"))
    w.agent.text("started it")
    w.agent.end_turn()
    fold = w.hub.folds[session]
    assert (fold.idles, fold.status["type"]) == (0, "busy")
    w.agent.says(Signal(Input.CLOSED, key="bg"))
    assert fold.idles == 1
    w.agent.says(Signal(Input.ACTIVITY))
    w.agent.text("it is over")
    w.agent.end_turn()
    assert (fold.busies, fold.idles) == (2, 2)


async def test_an_invalid_prompt_stores_nothing(w: World) -> None:
    session = w.session()
    used = await ask(w, session, message_id="msg_mine")
    assert used == "msg_mine"
    before = len(w.hub.events)
    for wrong, error in [
        (body(message_id="msg_mine"), Conflict),
        (body(message_id="abc"), InvalidRequest),
        (body(mode="nosuch"), InvalidRequest),
        (body(model=ModelRef("nosuch", "m1")), InvalidRequest),
        (body(model=ModelRef("one", "nosuch")), InvalidRequest),
        (PromptRequest(parts=[Text("xyz", "x")]), InvalidRequest),
    ]:
        with pytest.raises(error):
            await submit(w.manager, session, wrong)
    with pytest.raises(NotFound):
        await submit(w.manager, "ses_nosuch", body())
    assert len(w.hub.events) == before
    w.agent.end_turn()


async def test_context_only_prompts_make_no_turn_and_reach_the_agent_with_the_next(w: World) -> None:
    session = w.session()
    await submit(w.manager, session, body("know this"), reply=False)
    assert w.hub.folds[session].busies == 0
    await ask(w, session, "now answer")
    assert "User:\nknow this" in w.agent.prompts[0]
    w.agent.end_turn()


async def test_another_agent_in_the_same_session_gets_the_conversation(w: World) -> None:
    session = w.session()
    await ask(w, session, "I am Ann", model=ModelRef("one", "m1"))
    w.agent.text("Hello Ann")
    w.agent.end_turn()
    await ask(w, session, "who am I?", model=ModelRef("two", "m2"))
    assert w.agents.spawned[0].stopped
    assert "User:\nI am Ann\n\nAssistant:\nHello Ann" in w.agent.prompts[0]
    w.agent.text("Ann")
    w.agent.end_turn()
    await ask(w, session, "and back", model=ModelRef("one", "m1"))
    assert w.agent.options.native_session_id == "native-1"
    assert "who am I?" in w.agent.prompts[0]
    assert "I am Ann" not in w.agent.prompts[0]
    w.agent.end_turn()


async def test_model_variant_and_mode_reach_the_agent(w: World) -> None:
    session = w.session()
    await ask(w, session, model=ModelRef("one", "m1"), variant="high", mode="plan")
    [prompt] = [c for c in w.agent.commands if isinstance(c, Prompt)]
    assert (prompt.model, prompt.variant, prompt.mode) == ("m1", "high", "plan")
    shown = info(w.manager, session)
    assert (shown["agent"], shown["model"]) == ("plan", {"id": "m1", "providerID": "one", "variant": "high"})
    w.agent.end_turn()


async def test_deleting_a_busy_session_ends_its_turn_and_its_agent(w: World) -> None:
    session = w.session()
    await ask(w, session)
    agent = w.agent
    await w.manager.delete(session)
    assert agent.killed
    kinds = w.hub.kinds(session)
    assert kinds.count("session.idle") == 1
    assert kinds[-1] == "session.deleted"
    with pytest.raises(NotFound):
        info(w.manager, session)


async def test_idle_agents_are_ended_and_resumed_at_the_next_prompt(w: World) -> None:
    session = w.session()
    await ask(w, session)
    w.agent.text("hi")
    w.agent.end_turn()
    assert w.manager.reap(w.clock.now_ms()) == 0
    assert w.manager.reap(w.clock.now_ms() + 10_000_000) == 1
    await w.settle()
    assert w.agent.stopped
    await ask(w, session, "again")
    assert w.agent.options.resume
    w.agent.end_turn()


async def test_a_turn_that_ran_when_the_server_died_is_closed_at_the_next_start(w: World) -> None:
    session = w.session()
    await ask(w, session)
    message = w.agent.begin()
    w.agent.call(message, "c1")
    w.agent.ask("c1")
    after = world(w.store)
    await after.manager.start()  # as if the first server had been killed
    assert statuses(after.manager) == {}
    conversation = view(await after.manager.session(session))
    assert conversation.permissions == {}
    last = list(conversation.messages.values())[-1]
    assert "server was stopped" in last.info["error"]["data"]["message"]
    assert after.hub.kinds(session)[-1] == "session.idle"
    await after.manager.close()
    await w.manager.delete(session)


async def test_fork_has_the_conversation_before_a_message_and_tells_its_agent(w: World) -> None:
    from shim.sessions.transfer.fork import fork

    session = w.session()
    await ask(w, session, "one", message_id="msg_client1")
    w.agent.text("first answer")
    w.agent.end_turn()
    second = await ask(w, session, "two")
    w.agent.text("second answer")
    w.agent.end_turn()
    made = await fork(w.manager, session, second)
    conversation = view(await w.manager.session(made.id))
    assert made.title == "one (fork #1)"
    assert [m.text() for m in conversation.messages.values()] == ["one", "first answer"]
    assert not set(conversation.messages) & set(view(await w.manager.session(session)).messages)
    await ask(w, made.id, "three")
    assert "User:\none\n\nAssistant:\nfirst answer" in w.agent.prompts[0]
    assert "second" not in w.agent.prompts[0]
    w.agent.text("third")
    w.agent.end_turn()
    assert w.hub.folds[made.id].idles == 1


async def test_a_retry_is_shown_until_something_comes(w: World) -> None:
    from universal.events import ItemData
    from universal.items import Item, ItemKind, ItemStatus, StatusPart

    session = w.session()
    await ask(w, session)
    meta = {"attempt": 1, "message": "Overloaded", "delay_ms": 500}
    item = Item(
        item_id="itm_r", kind=ItemKind.STATUS, status=ItemStatus.COMPLETED, content=(StatusPart(label="retry"),), metadata=meta
    )
    w.agent.says(Fact(EventType.ITEM_COMPLETED, ItemData(item=item)))
    status = statuses(w.manager)[session]
    assert (status["type"], status["attempt"], status["message"]) == ("retry", 1, "Overloaded")
    w.agent.text("back")
    assert statuses(w.manager)[session] == {"type": "busy"}
    w.agent.end_turn()


async def test_an_agent_that_does_not_leave_is_killed_when_the_server_stops(w: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shim.sessions.session.session_agent.CLOSE_S", 0.01)
    session = w.session()
    await ask(w, session)
    w.agent.end_turn()
    gone = asyncio.Event()
    agent = w.agent

    async def stop() -> None:
        await gone.wait()

    def kill() -> None:
        agent.killed = True
        gone.set()

    agent.stop, agent.kill = stop, kill  # type: ignore[method-assign]
    async with asyncio.timeout(5):
        await w.manager.close()
    assert agent.killed


@pytest.mark.parametrize(("how", "error"), [("delete", NotFound), ("terminate", Conflict)])
async def test_a_prompt_whose_session_ends_while_it_is_read_is_refused(
    w: World, monkeypatch: pytest.MonkeyPatch, how: str, error: type[Exception]
) -> None:
    session = w.session()
    choose = prompt_request.choose

    async def slowly(*given: Any) -> prompt_request.Choice:
        await getattr(w.manager, how)(session)
        return await choose(*given)

    monkeypatch.setattr(prompt_request, "choose", slowly)
    with pytest.raises(error):
        await submit(w.manager, session, body())
    assert w.hub.folds[session].idles == 0
    assert w.agents.spawned == []


async def test_a_turn_that_the_server_gives_up_fails_once_and_keeps_what_waits(w: World) -> None:
    session = w.session()
    await ask(w, session, "first")
    waiting = await ask(w, session, "second")
    w.agent.text("half")
    actor = await w.manager.actor(session)
    await actor.close(error=drain_error("mine", 3))
    assert w.hub.folds[session].idles == 1
    assert w.agent.prompts == ["first"]
    answers = [m for m in view(await w.manager.session(session)).messages.values() if m.info["role"] == "assistant"]
    assert "The server mine was stopped while this turn ran" in answers[0].info["error"]["data"]["message"]
    assert list(actor.prompt_queue.parked) == [waiting]
    await actor.close(error=drain_error("mine", 3))
    assert w.hub.folds[session].idles == 1


async def fill_room(w: World) -> tuple[str, ScriptedAgent]:
    """A session whose turn waits, because another session's agent, which is the second value, takes all room."""
    w.manager.deps.room = AgentRoom(1, w.manager.index.running_agents)
    first, second = w.session(), w.session()
    await ask(w, first, "one")
    agent = w.agent
    await ask(w, second, "two")
    return second, agent


async def test_a_turn_without_room_for_its_agent_waits_and_its_status_says_why(w: World) -> None:
    second, agent = await fill_room(w)
    status = statuses(w.manager)[second]
    assert status["type"] == "retry"
    assert "this server runs 1 agents at once (max_agents)" in status["message"]
    agent.text("done")
    agent.end_turn()
    await w.settle()
    assert w.agent is not agent
    assert w.agent.prompts == ["two"]
    w.agent.text("too")
    assert statuses(w.manager) == {second: {"type": "busy"}}
    w.agent.end_turn()
    assert w.hub.folds[second].idles == 1


async def test_a_turn_that_waits_for_room_can_be_aborted(w: World) -> None:
    second, agent = await fill_room(w)
    await w.manager.abort(second)
    assert w.hub.folds[second].idles == 1
    agent.end_turn()
    await w.settle()
    assert w.agent is agent, "no agent was started for it"


async def test_a_prompt_during_a_release_loads_its_session_again(w: World) -> None:
    """Its files were read, or its configuration, while the server has given the session up: it is placed anew."""
    session = w.session()
    await ask(w, session, "first")
    w.agent.end_turn()
    await w.manager.deps.store.flush()
    released = list[str]()

    async def release(directory: str) -> None:
        entry = w.manager.index.get(session)
        if not released and entry.actor is not None and entry.state is not None:
            released.append(directory)
            state, actor = entry.state, entry.actor
            entry.state = entry.actor = None
            await actor.close()
            state.journal.is_closed = True

    w.manager.deps.config_refresh = release
    await ask(w, session, "second")
    assert released
    assert [prompt.endswith("second") for prompt in w.agent.prompts] == [True]
    w.agent.end_turn()


TITLES = [
    (None, "fix the login button", "Login button", "Login button"),
    (None, "fix the login button, which is on the page of the start and does nothing", "Login button", "Login button"),
    ("Mine", "fix it", "Login button", "Mine"),
    ("fix", "fix it", "Login button", "fix"),
    (None, "fix it", "fix it", "fix it"),
    (None, "fix  it\nnow", "fix it now", "fix  it"),
    (None, "fix it", "", "fix it"),
    (None, "fix it", "New session - 2026-01-01T00:00:00Z", "fix it"),
    (None, "fix it", " A\n long " + "word " * 30, ("A long " + "word " * 30)[:TITLE_CHARS]),
]
"""A person's title, the first prompt, the agent's title -> the title after."""


@pytest.mark.parametrize(("title", "prompt", "given", "expected"), TITLES)
async def test_an_agents_title_replaces_one_made_of_the_prompt(
    w: World, title: str | None, prompt: str, given: str, expected: str
) -> None:
    session = w.session(title=title)
    await ask(w, session, prompt)
    record = (await w.manager.state(session)).session.record
    assert record.title == (title or title_of(prompt))
    [sent] = [command for command in w.agent.commands if isinstance(command, Prompt)]
    assert sent.names == (title is None), "an agent makes a title only where the person has not"
    w.agent.says(Context("scripted", lambda kind: kind).status("title", given, {"title": given}, None))
    assert (await w.manager.state(session)).session.record.title == expected
    assert ("session.updated" in w.hub.kinds(session)[-1:]) == (expected != record.title)
    w.agent.end_turn()
