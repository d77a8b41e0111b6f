"""Agents that lose their conversation, that are given up, and timers of codecs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from shim.sessions.index.manager import BACKGROUND_S
from tests.support.scripted_model import World, ask
from universal.codec import SetTimer, Signal, Stop
from universal.session.values import ModelRef
from universal.turn import Input


async def session_that_resumes(w: World) -> str:
    """A session whose agent was started to go on with its conversation, and has a prompt."""
    session = w.session()
    await ask(w, session, "remember 42")
    w.agent.text("I will")
    w.agent.end_turn()
    w.agent.exits(0)
    await ask(w, session, "which number?")
    assert w.agent.options.resume
    w.agent.has_conversation = False
    return session


LOSSES: dict[str, Callable[[World], None]] = {
    "exit": lambda w: w.agent.exits(1, stderr="damaged file"),
    "killed": lambda w: w.agent.exits(signal=9),
    "refusal": lambda w: w.agent.fail_turn("damaged file", "session_not_found"),
    "silence": lambda w: w.agent.says(Stop("silent", error={"message": "no answer", "code": "session_not_found"})),
}


@pytest.mark.parametrize("loss", LOSSES)
async def test_a_resume_that_fails_for_any_reason_leads_once_to_a_new_conversation(w: World, loss: str) -> None:
    session = await session_that_resumes(w)
    native = w.agent.options.native_session_id
    LOSSES[loss](w)
    await w.settle()
    assert not w.agent.options.resume
    assert "User:\nremember 42" in w.agent.prompts[0]
    assert w.hub.folds[session].errors == []
    w.agent.exits(1, stderr="no such option")
    await w.settle()
    (error,) = w.hub.folds[session].errors
    assert all(words in error["data"]["message"] for words in ("no such option", "could not resume", "opencode-shim doctor"))
    assert w.hub.folds[session].idles == 2
    await ask(w, session, "and now?")
    assert (w.agent.options.resume, w.agent.options.native_session_id) == (True, native), "the old conversation is tried again"
    w.agent.text("42")
    w.agent.end_turn()
    assert w.hub.folds[session].idles == 3


async def test_a_resumed_agent_that_dies_at_work_keeps_its_conversation(w: World) -> None:
    session = await session_that_resumes(w)
    w.agent.has_conversation = True
    w.agent.exits(1)
    await w.settle()
    (error,) = w.hub.folds[session].errors
    assert "the conversation is kept" in error["data"]["message"]


async def test_a_codec_that_gives_up_its_process_fails_the_prompt_with_the_words_of_stderr(w: World) -> None:
    session = w.session()
    await ask(w, session)
    first = w.agent
    first.stderr = "Error: cannot open the database"
    first.says(
        Stop("silent", error={"message": "One did not answer.", "code": "handshake_timeout", "details": {"hint": "Wait."}})
    )
    await w.settle()
    (shown,) = w.hub.folds[session].errors
    assert shown["data"]["message"] == "One did not answer.\nError: cannot open the database\nWait."
    assert (first.stopped, w.hub.folds[session].idles) == (True, 1)


async def test_timers_of_a_codec(w: World) -> None:
    timers: list[tuple[float, Callable[[], None]]] = []

    class Timer:
        def __init__(self, index: int) -> None:
            self.index = index

        def cancel(self) -> None:
            timers[self.index] = (0, lambda: None)

    def call_later(delay_s: float, call: Callable[[], None]) -> Timer:
        timers.append((delay_s, call))
        return Timer(len(timers) - 1)

    w.manager.deps.call_later = call_later
    session = w.session()
    await ask(w, session)
    agent = w.agent
    agent.timers["end"] = [Signal(Input.DONE)]
    agent.text("done")
    agent.says(SetTimer("end", 2.0), SetTimer("end", None))
    timers[-1][1]()
    assert w.hub.folds[session].idles == 0, "it was cancelled"
    agent.says(SetTimer("end", 2.0))
    assert timers[-1][0] == 2.0
    timers[-1][1]()
    assert w.hub.folds[session].idles == 1
    agent.says(SetTimer("end", 2.0))
    agent.timers["end"] = [Signal(Input.ACTIVITY)]
    agent.exits(0)
    timers[-1][1]()
    assert w.hub.folds[session].idles == 1, "the timers of a process end with it"


async def test_work_in_the_background_keeps_its_process_for_a_while(w: World) -> None:
    session = w.session()
    await ask(w, session)
    w.agent.text("It builds in the background.")
    w.agent.end_turn()
    w.agent.live_work = ["make"]
    now = w.clock.now_ms()
    idle_ms = int(w.manager.deps.settings.idle_reap_s * 1000) + 1
    assert (w.manager.reap(now + idle_ms), w.agent.alive) == (0, True)
    assert w.manager.reap(now + int(BACKGROUND_S * 1000) + 1) == 1
    await w.settle()
    assert not w.agent.alive
    toasts = [event.properties for event in w.hub.events if event.type == "tui.toast.show"]
    assert ["in the background: make." in toast["message"] for toast in toasts] == [True]


async def test_work_that_is_over_keeps_no_process(w: World) -> None:
    session = w.session()
    await ask(w, session)
    w.agent.text("done")
    w.agent.end_turn()
    assert w.manager.reap(w.clock.now_ms() + int(w.manager.deps.settings.idle_reap_s * 1000) + 1) == 1
    assert not [event for event in w.hub.events if event.type == "tui.toast.show"]


async def test_another_agent_ends_work_in_the_background_with_a_notice(w: World) -> None:
    session = w.session()
    await ask(w, session)
    w.agent.text("It builds in the background.")
    w.agent.end_turn()
    w.agent.live_work = ["make", "npm start"]
    await ask(w, session, "go on", model=ModelRef("two", "m2"))
    toasts = [event.properties["message"] for event in w.hub.events if event.type == "tui.toast.show"]
    assert any("in the background: make, npm start." in toast for toast in toasts)
