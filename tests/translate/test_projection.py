"""Recordings of Claude Code as OpenCode clients see them, scene by scene. What holds for all is in `test_claude.py`."""

from __future__ import annotations

import pytest

from tests.support import replay as engine
from tests.support.opencode1_views import view
from tests.support.replay import Replay


def play(scene: str) -> Replay:
    return engine.play(f"claude/2.1.330/{scene}")


@pytest.mark.parametrize(
    ("scene", "cards"),
    [
        ("read_edit", [("read", "completed"), ("edit", "completed")]),
        ("bash", [("bash", "completed")]),
        ("parallel", [("read", "completed"), ("read", "completed")]),
        ("question", [("question", "completed")]),
        ("todo_write", [("todowrite", "completed")]),
        ("fail_tool", [("read", "error")]),
        ("task", [("task", "completed")]),
        ("interrupt_ask", [("bash", "error")]),
    ],
)
def test_cards(scene: str, cards: list[tuple[str, str]]) -> None:
    assert play(scene).cards() == cards


def test_an_error_is_reported_once() -> None:
    replay = play("error")
    fold = replay.hub.folds[replay.states[None].id]
    assert [e["name"] for e in fold.errors] == ["APIError"]
    texts = [p["text"] for m in fold.wire() if m["info"]["role"] == "assistant" for p in m["parts"] if p["type"] == "text"]
    assert texts == []


def test_a_refused_login_tells_what_to_do() -> None:
    replay = play("bad_start.no_auth")
    [error] = replay.hub.folds[replay.states[None].id].errors
    assert error["name"] == "ProviderAuthError"
    assert "/login" in error["data"]["message"]


def test_a_subagent_has_a_session_with_its_own_tools() -> None:
    replay = play("task_edit")
    [child] = replay.children
    assert [tool for tool, _ in replay.cards(child)] == ["read", "edit"]


def test_the_diff_of_an_edit_is_in_the_session() -> None:
    replay = play("read_edit")
    conversation = view(replay.states[None].session)
    [entry] = conversation.diffs
    # the scripted model wrote a backslash and an n: one line for one line
    assert (entry["file"], entry["additions"], entry["deletions"]) == ("README.md", 1, 1)
    assert conversation.info["summary"] == {"additions": 1, "deletions": 1, "files": 1}
