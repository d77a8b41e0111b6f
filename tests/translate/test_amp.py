"""Recordings of Amp 0.0.1774569934: what holds for all of them, and what single scenes show."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.support import replay as engine
from tests.support.opencode1_views import view
from tests.support.recordings import load_all
from tests.support.replay import Replay
from tests.support.replay_checks import check_replay
from universal.codec import Signal, Stop
from universal.events import EventType
from universal.items import ItemKind, ItemStatus
from universal.turn import Input

VERSION = "0.0.1774569934-g39e3ec"
RECORDINGS = load_all("amp")


def play(scene: str) -> Replay:
    return engine.play(f"amp/{VERSION}/{scene}")


def test_all_recordings_are_here() -> None:
    assert Counter(r.version for r in RECORDINGS) == {VERSION: 24}


@pytest.mark.parametrize("scene", [r.scene for r in RECORDINGS])
async def test_a_recording(scene: str) -> None:
    replay = play(scene)
    await check_replay(replay)


@pytest.mark.parametrize(
    ("scene", "reasons"),
    [
        ("text", ["completed"]),
        ("multi_turn", ["completed"] * 3),
        ("queue", ["completed"]),
        ("error", ["error"]),
        ("overload", ["error"]),
        ("max_tokens", ["completed"]),
        ("hang_sigint", ["aborted"]),
        ("kill9", ["agent_exited"]),
        ("eof_midturn", ["completed"]),
        ("bad_start.bad_flag", ["agent_exited"]),
        ("bad_start.bad_mode", ["agent_exited"]),
        ("bad_start.no_auth", ["error"]),
    ],
)
def test_turns(scene: str, reasons: list[str]) -> None:
    assert [reason for _, reason in play(scene).turns()] == reasons


@pytest.mark.parametrize(
    ("scene", "cards"),
    [
        ("read_edit", [("read", "completed"), ("edit", "completed")]),
        ("bash", [("bash", "completed")]),
        ("parallel", [("read", "completed"), ("read", "completed")]),
        ("fail_tool", [("read", "error")]),
        ("task", [("task", "completed")]),
        ("kill9", [("bash", "error")]),
        ("queue", [("bash", "error")]),
    ],
)
def test_cards(scene: str, cards: list[tuple[str, str]]) -> None:
    assert play(scene).cards() == cards


def test_texts_are_one_synthetic_delta_each() -> None:
    replay = play("long")
    [delta] = replay.facts(EventType.ITEM_DELTA)
    assert delta.synthetic
    assert [delta.data.delta] == replay.texts()


def test_thinking_is_sent() -> None:
    replay = play("reason_thinking")
    [item] = [item for item in replay.items(ItemKind.MESSAGE) if item.role == "assistant"]
    assert [(part.type, part.text) for part in item.content] == [
        ("reasoning", "Let me think about this carefully."),
        ("text", "After thinking: 42."),
    ]


def test_the_diff_of_an_edit_is_in_the_session() -> None:
    [entry] = view(play("read_edit").state.session).diffs
    assert (entry["file"], entry["additions"], entry["deletions"]) == ("README.md", 1, 1)


def test_a_token_limit_ends_the_turn_and_the_process() -> None:
    replay = play("max_tokens")
    assert [s.input for s in replay.signals()] == [Input.DONE]
    assert [type(out) for out in replay.outputs[-2:]] == [Stop, Signal]
    [item] = [item for item in replay.items(ItemKind.MESSAGE) if item.role == "assistant"]
    assert item.metadata["finish"] == "length"


def test_usage_is_of_the_turn() -> None:
    [done] = play("read_edit").signals()
    usage = {"input": 360, "output": 60, "reasoning": 0, "cache_read": 0, "cache_write": 0}
    assert done == Signal(Input.DONE, metadata={"usage": usage})


def test_errors_are_reported_once_and_in_words() -> None:
    [error] = play("error").facts(EventType.ERROR)
    assert (error.data.message, error.data.details["status_code"]) == ("400: scripted failure", 400)
    [overloaded] = play("overload").facts(EventType.ERROR)
    assert (overloaded.data.code, overloaded.data.details["is_retryable"]) == ("overloaded", True)
    [login] = play("bad_start.no_auth").facts(EventType.ERROR)
    assert login.data.code == "authentication_failed"
    assert "AMP_API_KEY" in login.data.details["hint"]


def test_a_command_has_its_output_and_exit_code() -> None:
    [result] = play("bash").items(ItemKind.TOOL_RESULT)
    assert (result.content[0].output, result.metadata["exit_code"]) == ("hi\nREADME.md\nnotes.txt\n", 0)


def test_a_cancelled_tool_has_failed() -> None:
    [result] = play("queue").items(ItemKind.TOOL_RESULT)
    assert (result.status, result.metadata) == (ItemStatus.FAILED, {"interrupted": True})


def test_a_thread_is_continued() -> None:
    replay = play("resume.2")
    assert replay.codec.native_session_id == "T-01a1ffea-b798-7547-bd96-330295329c7a"
