"""Recordings of five ACP agents: what holds for all of them, and what single scenes show."""

from __future__ import annotations

from collections import Counter

import pytest

from shim.sessions.prompts.prompt_dispatch import Answer
from tests.support import replay as engine
from tests.support.opencode1_views import view
from tests.support.recordings import load_all
from tests.support.replay import Replay
from tests.support.replay_checks import check_replay
from universal.events import ErrorData, EventType
from universal.items import FileRefPart, ItemKind, ItemRole

RECORDINGS = load_all("acp")
VERSIONS = ("claude-agent-acp-0.100.0", "codex-acp-2.6.0", "opencode-1.18.33", "pi-acp-0.0.34", "zed-codex-acp-0.16.0")
"""Folders of recordings. The older Rust adapter of Codex is played as an agent of which nothing is known."""
CLAUDE, CODEX, OPENCODE, PI, ZED = VERSIONS


def play(version: str, scene: str) -> Replay:
    return engine.play(f"acp/{version}/{scene}")


def test_all_recordings_are_here() -> None:
    assert Counter(r.version for r in RECORDINGS) == {CLAUDE: 28, CODEX: 28, OPENCODE: 9, PI: 15, ZED: 8}


@pytest.mark.parametrize("name", [(r.version, r.scene) for r in RECORDINGS], ids="/".join)
async def test_a_recording(name: tuple[str, str]) -> None:
    replay = play(*name)
    await check_replay(replay)


USER = "user"
TURNS = {
    (CLAUDE, "text"): [(USER, "completed")],
    (CLAUDE, "multi_turn"): [(USER, "completed")] * 3,
    (CLAUDE, "error"): [(USER, "error")],
    (CLAUDE, "max_tokens"): [(USER, "error")],
    (CLAUDE, "hang_interrupt"): [(USER, "aborted"), (USER, "completed")],
    (CLAUDE, "interrupt_ask"): [(USER, "aborted")],
    (CLAUDE, "interrupt_tool"): [(USER, "aborted"), (USER, "completed")],
    (CLAUDE, "task"): [(USER, "completed"), ("agent", "completed")],
    (CLAUDE, "resume.2"): [(USER, "completed")],
    (CODEX, "error"): [(USER, "error")],
    (CODEX, "max_tokens"): [(USER, "error")],
    (CODEX, "overload"): [(USER, "completed")],
    (CODEX, "bash_ask_deny"): [(USER, "completed")],
    (CODEX, "interrupt_tool"): [(USER, "aborted"), (USER, "completed")],
    (CODEX, "resume.2"): [(USER, "completed")],
    (OPENCODE, "bash_ask_deny"): [(USER, "completed")],
    (OPENCODE, "interrupt_ask"): [(USER, "aborted")],
    (PI, "error"): [(USER, "completed")],
    (PI, "overload"): [(USER, "completed")],
    (PI, "interrupt_tool"): [(USER, "aborted"), (USER, "completed")],
    (ZED, "error"): [(USER, "error")],
    (ZED, "hang_interrupt"): [(USER, "aborted"), (USER, "completed")],
}


@pytest.mark.parametrize("name", TURNS, ids="/".join)
def test_turns(name: tuple[str, str]) -> None:
    assert play(*name).turns() == TURNS[name]


CARDS = {
    (CLAUDE, "read_edit"): [("read", "completed"), ("edit", "completed")],
    (CLAUDE, "bash"): [("bash", "completed")],
    (CLAUDE, "parallel"): [("read", "completed"), ("read", "completed")],
    (CLAUDE, "question_elicit"): [("question", "completed")],
    (CLAUDE, "fail_tool"): [("read", "error")],
    (CLAUDE, "interrupt_ask"): [("bash", "error")],
    (CLAUDE, "task"): [("task", "completed")],
    (CODEX, "read_edit"): [("read", "completed"), ("edit", "completed")],
    (CODEX, "bash"): [("bash", "completed")],
    (CODEX, "bash_ask_deny"): [("bash", "error")],
    (OPENCODE, "read_edit"): [("read", "completed"), ("edit", "completed")],
    (OPENCODE, "bash_ask_once"): [("bash", "completed")],
    (PI, "read_edit"): [("read", "completed"), ("edit", "completed")],
    (PI, "bash"): [("bash", "completed")],
    (ZED, "read_edit"): [("read", "completed"), ("edit", "completed")],
    (ZED, "bash_ask_once"): [("bash", "completed")],
}


@pytest.mark.parametrize("name", CARDS, ids="/".join)
def test_cards(name: tuple[str, str]) -> None:
    assert play(*name).cards() == CARDS[name]


@pytest.mark.parametrize("version", VERSIONS)
def test_an_edit_has_the_diff_of_the_file(version: str) -> None:
    replay = play(version, "read_edit")
    [ref] = [p for item in replay.items(ItemKind.TOOL_RESULT) for p in item.content if isinstance(p, FileRefPart) and p.diff]
    assert ref.path == "/home/user/project/README.md"
    # the scripted model wrote a backslash and an n: one line for one line
    assert [line for line in (ref.diff or "").splitlines() if line[:1] in "+-" and line[:3] not in ("+++", "---")] == [
        "-Hello",
        "+Hello\\nAdded line",
    ]
    edit = next(p for m in view(replay.state.session).messages.values() for p in m.wire()["parts"] if p.get("tool") == "edit")
    assert edit["state"]["input"]["filePath"].endswith("README.md")


@pytest.mark.parametrize(
    ("version", "message", "code"),
    [
        (CLAUDE, "API Error: 400 scripted failure", "agent_error"),
        (CODEX, "scripted failure", "model_error"),
        (ZED, "scripted failure", "agent_error"),
    ],
)
def test_an_error_is_reported_once_and_not_as_text(version: str, message: str, code: str) -> None:
    replay = play(version, "error")
    assert [(f.data.message, f.data.code) for f in replay.facts(EventType.ERROR)] == [(message, code)]
    assert replay.texts() == []


def test_an_error_that_pi_hides_is_an_answer_with_nothing_in_it() -> None:
    answer = Answer()
    answer.note(play(PI, "error").facts())
    error = answer.error("Pi (ACP)")
    assert error is not None
    assert (error.message, error.code) == ("Pi (ACP) ended the turn without an answer.", "no_answer")


def test_a_cut_answer_keeps_its_text() -> None:
    replay = play(CODEX, "max_tokens")
    assert replay.texts() == ["This answer is cut"]
    [error] = [fact.data for fact in replay.facts(EventType.ERROR)]
    assert isinstance(error, ErrorData)
    assert error.code == "max_output_tokens"


def test_thinking_and_the_answer_are_one_message() -> None:
    for version in (CLAUDE, CODEX):
        replay = play(version, "reason")
        [message] = [i for i in replay.items(ItemKind.MESSAGE) if i.role is ItemRole.ASSISTANT]
        assert [part.type for part in message.content] == ["reasoning", "text"]


def test_a_plan_is_a_todo_list() -> None:
    [item] = play(CODEX, "todo").statuses("todo")
    assert [(t["content"], t["status"]) for t in item.metadata["todos"]] == [("first", "completed"), ("second", "in_progress")]


def test_remarks_of_the_adapter_are_no_text() -> None:
    replay = play(PI, "overload")
    assert replay.texts() == ["Back again."]
    assert [item.metadata["attempt"] for item in replay.statuses("retry")] == [1, 2]


@pytest.mark.parametrize(("version", "lines"), [(PI, 3), (CODEX, 2), (OPENCODE, 3)])
def test_output_grows_while_the_command_runs(version: str, lines: int) -> None:
    replay = play(version, "queue")
    told = [f.data.delta for f in replay.facts(EventType.ITEM_DELTA) if f.data.part_type == "tool_output"]
    assert len(told) >= lines
    assert "".join(told).endswith("tick 3\n")


def test_usage_and_cost_of_each_prompt() -> None:
    replay = play(CLAUDE, "multi_turn")
    spent = [signal.metadata for signal in replay.signals()]
    assert all(row["usage"]["input"] > 0 and 0 < row["cost"] < 0.01 for row in spent)


def test_history_of_a_loaded_session_is_not_sent_again() -> None:
    for version in (CLAUDE, CODEX, PI):
        replay = play(version, "resume.2")
        assert replay.texts() == ["You said: resumed"]
        assert replay.cards() == []


def test_offered_models_and_commands() -> None:
    found = play(CODEX, "text").codec.catalogue
    assert found is not None
    assert "gpt-5.5" in [model.id for model in found.models]
    assert found.default_model == "gpt-5.5"
    assert {"low", "high"} <= set(found.models[0].variants)
    assert "plan" in [command.name for command in found.commands]
    pi = play(PI, "text").codec.catalogue
    assert pi is not None
    assert [(model.id, model.variants) for model in pi.models] == [
        ("scripted/scripted", ("off", "minimal", "low", "medium", "high"))
    ]
