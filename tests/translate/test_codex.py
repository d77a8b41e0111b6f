"""Recordings of Codex 0.169.0, each played to a new codec: what holds for all of them, and what single scenes show."""

from __future__ import annotations

import pytest

from tests.support import replay as engine
from tests.support.opencode1_views import view
from tests.support.recordings import load, load_all
from tests.support.replay import Replay
from tests.support.replay_checks import check_replay
from universal.events import EventType
from universal.items import ItemKind, ItemStatus
from universal.session.values import StepInfo
from universal.turn import Input

ALL = load_all("codex")
RECORDINGS = [r for r in ALL if "exec" not in r.argv]
"""`codex exec --json` is another dialect, which we do not speak; its recordings are kept beside."""
VERSION = "0.169.0"
POWERS = "0.169.0-powers"


def play(scene: str, version: str = VERSION) -> Replay:
    return engine.play(f"codex/{version}/{scene}")


def test_all_recordings_are_here() -> None:
    assert (len(ALL), len(RECORDINGS)) == (62, 59)


@pytest.mark.parametrize(("version", "scene"), [(r.version, r.scene) for r in RECORDINGS])
async def test_laws_of_every_recording(version: str, scene: str) -> None:
    replay = play(scene, version)
    await check_replay(replay)


# --- prompts during a turn ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scene", "offers", "turns"),
    [
        ("steer_tool", [(Input.TAKEN, "key_4")], [("user", "completed")]),
        ("steer_ask", [(Input.TAKEN, "key_4")], [("user", "completed")]),
        ("steer_twice", [(Input.TAKEN, "key_4"), (Input.TAKEN, "key_5")], [("user", "completed")]),
        ("steer_tool_interrupt", [(Input.RETURNED, "key_4")], [("user", "aborted"), ("user", "completed")]),
    ],
)
def test_a_prompt_is_taken_in_after_the_tool_or_comes_back(
    scene: str, offers: list[tuple[Input, str]], turns: list[tuple[str, str]]
) -> None:
    replay = play(scene, POWERS)
    assert [(s.input, s.key) for s in replay.signals() if s.input in (Input.TAKEN, Input.RETURNED)] == offers
    assert replay.turns() == turns


def test_the_answer_stands_below_the_prompt_that_was_taken_in() -> None:
    messages = list(play("steer_tool", POWERS).state.session.messages.values())
    assert [m.is_user for m in messages] == [True, False, True, False]
    assert isinstance(messages[3].info, StepInfo)
    assert messages[3].info.parent_id == messages[2].info.id


# --- single scenes ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scene", "turns"),
    [
        ("text", [("user", "completed")]),
        ("multi_turn", [("user", "completed")] * 3),
        ("error", [("user", "error")]),
        ("error_401", [("user", "error")]),
        ("drop", [("user", "completed")]),
        ("max_tokens", [("user", "error")]),
        ("hang_interrupt", [("user", "aborted"), ("user", "completed")]),
        ("interrupt_tool", [("user", "aborted"), ("user", "completed")]),
        ("bash_ask_cancel", [("user", "aborted")]),
        ("bash_ask_deny", [("user", "completed")]),
        ("eof_midturn", [("user", "agent_exited")]),
        ("kill9.1", [("user", "agent_exited")]),
        ("task", [("user", "completed")]),
    ],
)
def test_turns(scene: str, turns: list[tuple[str, str]]) -> None:
    assert play(scene).turns() == turns


@pytest.mark.parametrize(
    ("scene", "cards"),
    [
        ("read_edit", [("bash", "completed"), ("apply_patch", "completed")]),
        ("code_mode_read_edit", [("bash", "completed"), ("apply_patch", "completed")]),
        ("edit_ask_deny", [("bash", "completed"), ("apply_patch", "error")]),
        ("bash_ask_deny", [("bash", "error")]),
        ("question", [("question", "completed")]),
        ("todo", [("todowrite", "completed")]),
        ("task", [("task", "completed"), ("wait", "completed")]),
        ("task_v1", [("task", "completed"), ("wait", "completed")]),
        ("fail_tool", [("bash", "completed")]),
        ("slow_bash_long", [("bash", "completed")]),
        ("interrupt_tool", [("bash", "error")]),
    ],
)
def test_cards(scene: str, cards: list[tuple[str, str]]) -> None:
    assert play(scene).cards() == cards


def test_a_patch_shows_its_diff_and_the_turn_its_changes() -> None:
    replay = play("read_edit")
    _, card = replay.tool_parts()
    (file,) = card["state"]["metadata"]["files"]
    assert (file["relativePath"], file["type"], file["additions"], file["deletions"]) == ("README.md", "update", 1, 1)
    assert "-Hello\n+Hello" in file["patch"]
    assert card["state"]["input"]["patchText"].startswith("*** Begin Patch\n*** Update File: /home/user/project/README.md\n@@")
    assert view(replay.state.session).info["summary"] == {"additions": 1, "deletions": 1, "files": 1}


def test_a_command_shows_its_output_and_exit_code() -> None:
    replay = play("fail_tool")
    (card,) = replay.tool_parts()
    assert "No such file" in card["state"]["output"]
    assert card["state"]["metadata"]["exit"] == 1
    assert card["state"]["input"]["command"].startswith("cat ")


def test_a_command_that_outlives_its_turn_is_in_the_background() -> None:
    replay = play("slow_bash_long")
    (result,) = replay.items(ItemKind.TOOL_RESULT)
    assert result.metadata == {"background": True}
    assert replay.codec.counters()["ignored:item/completed outside of its turn"] == 1


def test_usage_by_step_and_by_turn() -> None:
    replay = play("read_edit")
    steps = [item.metadata["usage"] for item in replay.items(ItemKind.MESSAGE)]
    assert [step["input"] for step in steps] == [120, 120, 120]
    (done,) = [signal for signal in replay.signals() if signal.metadata]
    assert done.metadata["usage"]["input"] == 360


def test_reasoning_comes_before_the_text() -> None:
    (message,) = play("reason").items(ItemKind.MESSAGE)
    assert [part.type for part in message.content] == ["reasoning", "text"]


def test_subagents_have_sessions_of_their_own() -> None:
    replay = play("task_v1")
    (key,) = replay.children
    (opened,) = replay.facts(EventType.SESSION_STARTED)
    assert (opened.child, opened.data.metadata["prompt"]) == (key, "[scene:text] say what you see")
    messages = [m.wire() for m in view(replay.states[key].session).messages.values()]
    assert [m["info"]["role"] for m in messages] == ["user", "assistant"]
    card = replay.tool_parts()[0]
    assert card["state"]["metadata"]["sessionId"] == replay.states[key].id


def test_a_broken_connection_leaves_the_piece_that_came() -> None:
    replay = play("drop")
    assert replay.texts() == ["This will break off", "Back again."]
    assert [item.status for item in replay.items(ItemKind.MESSAGE)] == [ItemStatus.FAILED, ItemStatus.COMPLETED]
    assert [item.metadata["attempt"] for item in replay.statuses("retry")] == [1]


def test_errors_are_reported_once_and_retries_are_no_errors() -> None:
    replay = play("error_401")
    assert [item.metadata["attempt"] for item in replay.statuses("retry")] == [1, 2, 3, 4, 5]
    (error,) = replay.facts(EventType.ERROR)
    assert (error.data.code, error.data.details["status_code"]) == ("authentication_failed", 401)


def test_models_with_their_efforts() -> None:
    replay = play("controls")
    catalogue = replay.codec.catalogue
    assert catalogue is not None
    assert catalogue.default_model == "gpt-6.1-sol"
    assert catalogue.models[0].variants == ("low", "medium", "high", "xhigh", "max", "ultra")
    assert [item.metadata["phase"] for item in replay.statuses("compaction")] == ["started", "completed"]
    assert [item.metadata["title"] for item in replay.statuses("title")] == ["a name"]


def test_a_resumed_thread_keeps_its_id() -> None:
    replay = play("resume.2")
    assert replay.codec.native_session_id == load_thread("resume.2")


def load_thread(scene: str) -> str:
    asked = [row.msg for row in load("codex", VERSION, scene).rows if row.direction == "in"]
    return next(msg["params"]["threadId"] for msg in asked if msg.get("method") == "thread/resume")
