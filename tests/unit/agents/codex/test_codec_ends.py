"""Codex's codec: the signs of a turn's end beside `turn/completed`, a late handshake, a lost thread, warnings,
commands that go on after their turn."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.agents.codex.test_codec import THREAD, TURN, Bench, facts, signals, written_lines
from universal.agents import kit
from universal.agents.codex.wire import ENDS
from universal.codec import Interrupt, Prompt, SetTimer, Stop
from universal.events import EventType
from universal.items import ItemKind
from universal.turn import Input

# --- other signs of a turn's end ---------------------------------------------------------------------------


def read_thread(bench: Bench) -> dict[str, Any]:
    """Let the time for `turn/completed` run out: the question whether the turn is over."""
    (read,) = written_lines(bench.codec.on_timer(THREAD))
    assert (read["method"], read["params"]["threadId"]) == ("thread/read", THREAD)
    return read


SIGNS: list[tuple[str, dict[str, Any], Input]] = [
    ("thread/status/changed", {"status": {"type": "idle"}}, Input.DONE),
    ("thread/status/changed", {"status": {"type": "systemError"}}, Input.FAILED),
    ("thread/status/changed", {"status": {"type": "notLoaded"}}, Input.DONE),
    ("thread/closed", {}, Input.DONE),
    ("thread/deleted", {}, Input.DONE),
    ("error", {"error": {"message": "stream failed"}, "willRetry": False}, Input.FAILED),
]


def test_every_sign_of_the_table_is_tested() -> None:
    assert {method for method, _, _ in SIGNS} == ENDS.keys() - {"turn/completed", "eof"}


@pytest.mark.parametrize(("method", "params", "end"), SIGNS)
@pytest.mark.parametrize("answer", ["confirmed", "refused", "empty", "silent"])
def test_each_sign_of_an_end_ends_the_turn_without_turn_completed(
    method: str, params: dict[str, Any], end: Input, answer: str
) -> None:
    bench = Bench().with_running_turn()
    outputs = bench.say(method, **params)
    assert (outputs, signals(outputs)) == ([SetTimer(THREAD, kit.END_S)], [])
    read = read_thread(bench)
    match answer:
        case "confirmed":
            outputs = bench.answer(read, {"thread": {"id": THREAD, "status": {"type": "idle"}, "turns": []}})
        case "refused":
            outputs = bench.answer(read, error="no such thread")
        case "empty":
            outputs = bench.answer(read, {})
        case _:
            outputs = bench.codec.on_timer(THREAD)
    assert signals(outputs) == [(end, False)]
    assert bench.codec.on_timer(THREAD) == []
    assert signals(bench.end()) == [], "a late turn/completed ends nothing more"


def test_the_history_tells_how_a_turn_has_ended() -> None:
    bench = Bench().with_running_turn()
    bench.say("thread/status/changed", status={"type": "idle"})
    turns = [{"id": TURN, "status": "failed", "error": {"message": "the limit of your plan"}}]
    outputs = bench.answer(read_thread(bench), {"thread": {"id": THREAD, "status": {"type": "idle"}, "turns": turns}})
    assert [error.message for error in facts(outputs, EventType.ERROR)] == ["the limit of your plan"]
    assert signals(outputs) == [(Input.FAILED, False)]


@pytest.mark.parametrize(
    ("native", "words"),
    [
        (None, "Codex has interrupted its turn by itself and gives no reason. Send the prompt again to go on."),
        ({"message": "the budget is spent"}, "the budget is spent"),
    ],
)
def test_a_turn_that_codex_interrupts_by_itself_ends_with_a_reason(native: dict[str, Any] | None, words: str) -> None:
    bench = Bench().with_running_turn()
    outputs = bench.end("interrupted", error=native)
    assert [error.message for error in facts(outputs, EventType.ERROR)] == [words]
    assert signals(outputs) == [(Input.FAILED, False)]


def test_a_thread_that_works_again_takes_the_sign_back() -> None:
    bench = Bench().with_running_turn()
    bench.say("thread/status/changed", status={"type": "idle"})
    assert SetTimer(THREAD, None) in bench.say("thread/status/changed", status={"type": "active", "activeFlags": []})
    assert bench.codec.on_timer(THREAD) == []
    bench.say("thread/status/changed", status={"type": "idle"})
    outputs = bench.answer(read_thread(bench), {"thread": {"id": THREAD, "status": {"type": "active", "activeFlags": []}}})
    assert signals(outputs) == []
    assert signals(bench.end()) == [(Input.DONE, False)]


def test_a_status_before_the_first_turn_says_nothing() -> None:
    bench = Bench()
    turn = bench.start_turn()
    assert bench.say("thread/status/changed", status={"type": "idle"}) == []
    bench.answer(turn, {"turn": {"id": TURN}})
    assert SetTimer(THREAD, kit.END_S) in bench.say("thread/status/changed", status={"type": "idle"}), (
        "turn/started may be lost too"
    )


@pytest.mark.parametrize("resume", [False, True])
def test_a_late_handshake_stops_the_process(*, resume: bool) -> None:
    bench = Bench(native_session_id=THREAD if resume else None, resume=resume)
    bench.ready()
    outputs = bench.codec.send(Prompt(key="k", text="hello"))
    assert SetTimer(kit.HANDSHAKE, kit.HANDSHAKE_S) in outputs
    (stop,) = bench.codec.on_timer(kit.HANDSHAKE)
    assert isinstance(stop, Stop)
    assert stop.error is not None
    assert stop.error["code"] == ("session_not_found" if resume else "handshake_timeout")
    assert "within 60 seconds" in stop.error["message"]


def test_a_handshake_in_time_ends_the_wait() -> None:
    bench = Bench()
    bench.ready()
    (start,) = written_lines(bench.codec.send(Prompt(key="k", text="hello")))
    assert SetTimer(kit.HANDSHAKE, None) in bench.answer(start, {"thread": {"id": THREAD}})
    assert bench.codec.on_timer(kit.HANDSHAKE) == []


@pytest.mark.parametrize("why", ["rollout at /x is empty", "invalid type: integer", "failed to load configuration", "no"])
def test_a_resume_that_is_refused_for_any_reason_is_a_lost_conversation(why: str) -> None:
    bench = Bench(native_session_id=THREAD, resume=True)
    bench.ready()
    (start,) = written_lines(bench.codec.send(Prompt(key="k", text="hello")))
    assert not bench.codec.has_conversation
    assert [error.code for error in facts(bench.answer(start, error=why), EventType.ERROR)] == ["session_not_found"]


def test_a_thread_that_another_process_has_open_is_not_lost() -> None:
    """Recorded with 0.171, whose refusal of `thread/resume` says so: a new conversation would leave that one behind."""
    bench = Bench(native_session_id=THREAD, resume=True)
    bench.ready()
    (start,) = written_lines(bench.codec.send(Prompt(key="k", text="hello")))
    outputs = bench.answer(start, error=f"thread {THREAD} already has an active writer")
    assert [error.code for error in facts(outputs, EventType.ERROR)] == ["conversation_in_use"]
    assert any(isinstance(out, Stop) for out in outputs), "the next prompt tries to resume it again"


def test_a_warning_is_a_note_once() -> None:
    bench = Bench().with_running_turn()
    (note,) = facts(bench.say("warning", message="Model metadata not found."), EventType.ITEM_COMPLETED)
    assert (note.item.kind, note.item.content[0].text) == (ItemKind.SYSTEM, "Model metadata not found.")
    assert bench.say("warning", message="Model metadata not found.") == []
    file = {"summary": "Invalid configuration; using defaults.", "details": "config.toml:1:6", "path": "/c/config.toml"}
    assert len(facts(bench.say("configWarning", **file), EventType.ITEM_COMPLETED)) == 1
    assert bench.say("configWarning", summary="Codex could not find bubblewrap", details=None) == []


# --- commands in the background ----------------------------------------------------------------------------


def test_a_command_in_the_background_is_live_work_until_its_end() -> None:
    bench = Bench().with_running_turn()
    bench.command(words="npm start")
    assert bench.codec.live_work() == [], "its call waits for it"
    bench.end()
    assert bench.codec.live_work() == ["npm start"]
    bench.say("item/completed", item={"type": "commandExecution", "id": "call_1", "status": "failed"})
    assert bench.codec.live_work() == []


@pytest.mark.parametrize("is_old", [False, True])
def test_an_interrupt_leaves_the_commands_of_earlier_turns(is_old: bool) -> None:
    bench = Bench().with_running_turn()
    bench.command(words="npm start")
    bench.end()
    (turn,) = written_lines(bench.codec.send(Prompt(key="k2", text="and now")))
    bench.answer(turn, {"turn": {"id": "t2"}})
    bench.say("turn/started", turn={"id": "t2"})
    bench.command("call_2", "make", turnId="t2")
    bench.codec.send(Interrupt())
    (which,) = written_lines(bench.say("turn/completed", turn={"id": "t2", "status": "interrupted"}))
    assert which["method"] == "thread/backgroundTerminals/list"
    rows = [{"itemId": "call_1", "processId": "1"}, {"itemId": "call_2", "processId": "2"}]
    (end,) = written_lines(bench.answer(which, error="unknown method") if is_old else bench.answer(which, {"data": rows}))
    one = {"method": "thread/backgroundTerminals/terminate", "params": {"threadId": THREAD, "processId": "2"}}
    every = {"method": "thread/backgroundTerminals/clean", "params": {"threadId": THREAD}}
    assert end == {"id": end["id"], **(every if is_old else one)}
