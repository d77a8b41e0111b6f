"""Recordings of Codex 0.169.0, each played to a new codec: what holds for all of them, and what single scenes show."""

from __future__ import annotations

import pytest

from tests.support.codex_replay import CodexReplay
from tests.support.played import check_asks, check_clients, check_everything_is_known, check_items, check_turns
from tests.support.recordings import load, load_all
from tests.support.views import view
from universal.events import EventType
from universal.items import ItemKind, ItemStatus

ALL = load_all("codex")
RECORDINGS = [r for r in ALL if "exec" not in r.argv]
"""`codex exec --json` is another dialect, which we do not speak; its recordings are kept beside."""
VERSION = "0.169.0"


async def play(scene: str) -> CodexReplay:
    replay = CodexReplay()
    await replay.begin()
    replay.play(load("codex", VERSION, scene))
    return replay


def test_all_recordings_are_here() -> None:
    assert (len(ALL), len(RECORDINGS)) == (57, 54)


@pytest.mark.parametrize("scene", [r.scene for r in RECORDINGS])
async def test_laws_of_every_recording(scene: str) -> None:
    replay = await play(scene)
    check_everything_is_known(replay)
    check_items(replay)
    check_asks(replay)
    check_turns(replay)
    await check_clients(replay)
    replay.check_children()


# --- single scenes ------------------------------------------------------------------------------------------


def shown(replay: CodexReplay) -> list[tuple[str, str]]:
    return [(card["tool"], card["state"]["status"]) for card in replay.cards_of(replay.state)]


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
async def test_turns(scene: str, turns: list[tuple[str, str]]) -> None:
    assert (await play(scene)).turns() == turns


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
async def test_cards(scene: str, cards: list[tuple[str, str]]) -> None:
    assert shown(await play(scene)) == cards


async def test_a_patch_shows_its_diff_and_the_turn_its_changes() -> None:
    replay = await play("read_edit")
    _, card = replay.cards_of(replay.state)
    (file,) = card["state"]["metadata"]["files"]
    assert (file["relativePath"], file["type"], file["additions"], file["deletions"]) == ("README.md", "update", 1, 1)
    assert "-Hello\n+Hello" in file["patch"]
    assert card["state"]["input"]["patchText"].startswith("*** Begin Patch\n*** Update File: /home/user/project/README.md\n@@")
    assert view(replay.state.session).info["summary"] == {"additions": 1, "deletions": 1, "files": 1}


async def test_a_command_shows_its_output_and_exit_code() -> None:
    replay = await play("fail_tool")
    (card,) = replay.cards_of(replay.state)
    assert "No such file" in card["state"]["output"]
    assert card["state"]["metadata"]["exit"] == 1
    assert card["state"]["input"]["command"].startswith("cat ")


async def test_a_command_that_outlives_its_turn_is_in_the_background() -> None:
    replay = await play("slow_bash_long")
    (result,) = replay.items(ItemKind.TOOL_RESULT)
    assert result.metadata == {"background": True}
    assert replay.codec.counters()["ignored:item/completed outside of its turn"] == 1


async def test_usage_by_step_and_by_turn() -> None:
    replay = await play("read_edit")
    steps = [item.metadata["usage"] for item in replay.items(ItemKind.MESSAGE)]
    assert [step["input"] for step in steps] == [120, 120, 120]
    (done,) = [signal for signal in replay.signals() if signal.metadata]
    assert done.metadata["usage"]["input"] == 360


async def test_reasoning_comes_before_the_text() -> None:
    (message,) = (await play("reason")).items(ItemKind.MESSAGE)
    assert [part.type for part in message.content] == ["reasoning", "text"]


async def test_subagents_have_sessions_of_their_own() -> None:
    replay = await play("task_v1")
    (key,) = replay.children
    (opened,) = replay.facts(EventType.SESSION_STARTED)
    assert (opened.child, opened.data.metadata["prompt"]) == (key, "[scene:text] say what you see")
    messages = [m.wire() for m in view(replay.children[key].session).messages.values()]
    assert [m["info"]["role"] for m in messages] == ["user", "assistant"]
    card = replay.cards_of(replay.state)[0]
    assert card["state"]["metadata"]["sessionId"] == replay.children[key].id


async def test_a_broken_connection_leaves_the_piece_that_came() -> None:
    replay = await play("drop")
    assert replay.texts() == ["This will break off", "Back again."]
    assert [item.status for item in replay.items(ItemKind.MESSAGE)] == [ItemStatus.FAILED, ItemStatus.COMPLETED]
    assert [item.metadata["attempt"] for item in replay.statuses("retry")] == [1]


async def test_errors_are_told_once_and_retries_are_no_errors() -> None:
    replay = await play("error_401")
    assert [item.metadata["attempt"] for item in replay.statuses("retry")] == [1, 2, 3, 4, 5]
    (error,) = replay.facts(EventType.ERROR)
    assert (error.data.code, error.data.details["status_code"]) == ("authentication_failed", 401)


async def test_models_with_their_efforts() -> None:
    replay = CodexReplay()
    await replay.begin()
    replay.play(load("codex", VERSION, "controls"))
    catalogue = replay.codec.catalogue
    assert catalogue is not None
    assert catalogue.default_model == "gpt-6.1-sol"
    assert catalogue.models[0].variants == ("low", "medium", "high", "xhigh", "max", "ultra")
    assert [item.metadata["phase"] for item in replay.statuses("compaction")] == ["started", "completed"]
    assert [item.metadata["title"] for item in replay.statuses("title")] == ["a name"]


async def test_a_resumed_thread_keeps_its_id() -> None:
    replay = await play("resume.2")
    assert replay.codec.native_session_id == load_thread("resume.2")


def load_thread(scene: str) -> str:
    asked = [row.msg for row in load("codex", VERSION, scene).rows if row.direction == "in"]
    return next(msg["params"]["threadId"] for msg in asked if msg.get("method") == "thread/resume")
