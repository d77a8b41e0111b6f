"""Recordings of Pi 0.73.1 and 0.87.1: what holds for all of them, and what single scenes show."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.support import replay as engine
from tests.support.opencode1_views import view
from tests.support.recordings import load_all
from tests.support.replay import Replay
from tests.support.replay_checks import check_replay
from universal.codec import Signal
from universal.events import EventType
from universal.items import ItemKind, ItemStatus
from universal.turn import Input

RECORDINGS = load_all("pi")
BOTH = ("0.73.1", "0.87.1")
OLD, NEW = BOTH


def play(version: str, scene: str) -> Replay:
    return engine.play(f"pi/{version}/{scene}")


def test_all_recordings_are_here() -> None:
    assert Counter(r.version for r in RECORDINGS) == {OLD: 40, NEW: 42}


@pytest.mark.parametrize("name", [(r.version, r.scene) for r in RECORDINGS], ids="/".join)
async def test_a_recording(name: tuple[str, str]) -> None:
    replay = play(*name)
    await check_replay(replay)


USER = "user"
TURNS = {
    "text": [(USER, "completed")],
    "multi_turn": [(USER, "completed")] * 3,
    "error": [(USER, "error")],
    "status_503": [(USER, "error")],
    "overload": [(USER, "completed")],
    "max_tokens": [(USER, "completed")],
    "hang_interrupt": [(USER, "aborted"), (USER, "completed")],
    "interrupt_ask": [(USER, "aborted"), (USER, "completed")],
    "interrupt_idle": [(USER, "completed")],
    "kill9.1": [(USER, "agent_exited")],
    "eof_midturn": [(USER, "agent_exited")],
    "json_mode": [("agent", "completed")],
    "bad_start.no_auth": [(USER, "error")],
    "bad_start.bad_flag": [(USER, "agent_exited")],
    "resume.5_unknown": [(USER, "error")],
    "bash_ask_deny": [(USER, "completed")],
}


@pytest.mark.parametrize("version", BOTH)
@pytest.mark.parametrize("scene", TURNS)
def test_turns(version: str, scene: str) -> None:
    assert play(version, scene).turns() == TURNS[scene]


@pytest.mark.parametrize("version", BOTH)
@pytest.mark.parametrize(
    ("scene", "cards"),
    [
        ("read_edit", [("read", "completed"), ("edit", "completed")]),
        ("bash", [("bash", "completed")]),
        ("parallel", [("read", "completed"), ("read", "completed")]),
        ("question", [("question", "completed")]),
        ("fail_tool", [("read", "error")]),
        ("bash_ask_deny", [("bash", "error")]),
        ("interrupt_ask", [("bash", "error")]),
    ],
)
def test_cards(version: str, scene: str, cards: list[tuple[str, str]]) -> None:
    assert play(version, scene).cards() == cards


@pytest.mark.parametrize("version", BOTH)
def test_the_diff_of_an_edit_is_in_the_session(version: str) -> None:
    conversation = view(play(version, "read_edit").state.session)
    [entry] = conversation.diffs
    assert (entry["file"], entry["additions"], entry["deletions"]) == ("README.md", 1, 1)


@pytest.mark.parametrize("version", BOTH)
def test_retries_are_reported_and_end_no_turn(version: str) -> None:
    replay = play(version, "status_503")
    assert [item.metadata["delay_ms"] for item in replay.statuses("retry")] == [2000, 4000, 8000]
    [error] = replay.facts(EventType.ERROR)
    assert (error.data.code, error.data.details["status_code"]) == ("api_error", 503)
    assert [s.input for s in replay.signals()] == [Input.FAILED]
    assert replay.texts() == []


def test_text_that_was_cut_off_is_kept_apart_from_its_retry() -> None:
    replay = play(NEW, "drop")
    statuses = [item.status for item in replay.items(ItemKind.MESSAGE)]
    assert (replay.texts(), statuses) == (["This will break off", "Back again."], [ItemStatus.FAILED, ItemStatus.COMPLETED])


@pytest.mark.parametrize("version", BOTH)
def test_output_grows(version: str) -> None:
    replay = play(version, "slow_bash")
    pieces = [f.data.delta for f in replay.facts(EventType.ITEM_DELTA) if f.data.part_type == "tool_output"]
    assert pieces == ["tick 1\n", "tick 2\n", "tick 3\n"]
    [result] = replay.items(ItemKind.TOOL_RESULT)
    assert (result.content[0].output, result.metadata) == ("tick 1\ntick 2\ntick 3\n", {"exit_code": 0})


@pytest.mark.parametrize("version", BOTH)
def test_usage_and_cost_are_of_the_turn(version: str) -> None:
    replay = play(version, "read_edit")
    [done] = replay.signals()
    assert done == Signal(
        Input.DONE,
        metadata={
            "usage": {"input": 360, "output": 60, "reasoning": 0, "cache_read": 0, "cache_write": 0},
            "cost": pytest.approx(0.00198),
        },
    )


@pytest.mark.parametrize("version", BOTH)
def test_questions(version: str) -> None:
    replay = play(version, "question")
    [asked] = replay.facts(EventType.QUESTION_REQUESTED)
    assert [option.label for option in asked.data.questions[0].options] == ["Red", "Blue"]
    [result] = replay.items(ItemKind.TOOL_RESULT)
    assert result.metadata["answers"] == [["Blue"]]


@pytest.mark.parametrize("version", BOTH)
def test_models_and_their_levels(version: str) -> None:
    catalogue = play(version, "controls").codec.catalogue
    assert catalogue is not None
    assert [(m.id, m.variants, m.images, m.context) for m in catalogue.models] == [
        ("scripted/scripted", ("off", "minimal", "low", "medium", "high"), True, 200000),
        ("scripted/plain", (), False, 32000),
    ]
    assert catalogue.default_model == "scripted/scripted"


@pytest.mark.parametrize("version", BOTH)
def test_a_lost_conversation_is_reported_as_lost(version: str) -> None:
    replay = play(version, "resume.5_unknown")
    [failed] = replay.signals()
    assert failed.error["code"] == "session_not_found"


@pytest.mark.parametrize("version", BOTH)
def test_an_interrupt_closes_the_dialog_first(version: str) -> None:
    lines = [
        line for line in play(version, "interrupt_ask").written_lines() if line["type"] in ("abort", "extension_ui_response")
    ]
    assert [line["type"] for line in lines] == ["extension_ui_response", "abort"]
    assert lines[0]["cancelled"] is True
