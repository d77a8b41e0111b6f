"""Recordings of Claude Code 2.1.332 that other versions lack: prompts sent into a turn, known uuids, refusals, limits."""

from __future__ import annotations

import pytest

from tests.support import replay as engine
from tests.support.replay import Replay
from universal.events import EventType
from universal.items import ItemKind
from universal.session.values import Text
from universal.turn import Input

VERSION = "2.1.332-powers"


def play(scene: str) -> Replay:
    return engine.play(f"claude/{VERSION}/{scene}")


def ends(replay: Replay) -> list[tuple[Input, bool]]:
    """(DONE or FAILED, aborted) of each end of a prompt."""
    return [(s.input, s.aborted) for s in replay.signals() if s.input in (Input.DONE, Input.FAILED)]


@pytest.mark.parametrize("scene", ["send_now_text", "send_now_tool"])
def test_a_prompt_that_was_cut_off_by_another_is_aborted(scene: str) -> None:
    """Its result says "success"."""
    replay = play(scene)
    assert ends(replay) == [(Input.FAILED, True), (Input.DONE, False)]
    assert replay.facts(EventType.ERROR) == []


@pytest.mark.parametrize("scene", ["uuid_after_resume", "uuid_of_killed_tool"])
def test_a_prompt_that_is_in_the_resumed_conversation_already_fails_at_once(scene: str) -> None:
    replay = play(scene)
    assert [fact.data.code for fact in replay.facts(EventType.ERROR)] == ["prompt_answered"]
    assert replay.turns()[0] == ("user", "error")
    assert all(reason == "completed" for _, reason in replay.turns()[1:])


def test_prompts_that_are_folded_into_a_turn_are_answered_once() -> None:
    assert ends(play("steer_tool")) == [(Input.DONE, False)] * 2


def test_a_refused_answer_is_taken_back_when_another_model_answers() -> None:
    """The first refusal stays: Claude goes on after it. The second and the third are by two models for the same place."""
    replay = play("refusal")
    (retracted,) = replay.statuses("retracted")
    assert retracted.metadata == {"item_ids": [replay.items(ItemKind.MESSAGE)[1].item_id]}
    assert replay.texts()[:3] == ["I can't"] * 3
    shown = [
        part.text
        for message in replay.state.session.messages.values()
        for part in message.parts.values()
        if isinstance(part, Text)
    ]
    assert shown.count("I can't") == 2


def test_a_refusal_without_another_model_ends_the_turn_with_an_error() -> None:
    replay = play("refusal_haiku")
    assert replay.facts(EventType.UNPARSED) == []
    assert [fact.data.code for fact in replay.facts(EventType.ERROR)] == ["invalid_request"]
    assert replay.statuses("retracted") == []


def test_retries_of_a_subagent_are_in_its_session() -> None:
    replay = play("sub_retry")
    child = replay.children[0]
    assert [item.metadata["attempt"] for item in replay.items(ItemKind.STATUS, child)] == [1, 2]
    assert replay.turns(child)[-1][1] == "completed"


def test_prompts_of_mcp_servers_have_the_name_that_runs_them() -> None:
    names = {command.name for command in play("mcp_prompts").codec.catalogue.commands}
    assert "mcp__pm__greet" in names
    assert not [name for name in names if " " in name]


@pytest.mark.parametrize(("scene", "retries"), [("overload_529", 2), ("limit_429_long", 0), ("forbidden_403", 0)])
def test_not_all_errors_of_the_api_are_tried_again(scene: str, retries: int) -> None:
    replay = play(scene)
    assert len(replay.statuses("retry")) == retries
    assert replay.turns() == [("user", "error")]


@pytest.mark.parametrize(("scene", "resets_at"), [("limit_rejected", 1795655781), ("limit_429_long", None)])
def test_a_turn_that_hits_the_limit_says_when_it_resets(scene: str, resets_at: int | None) -> None:
    """Only an account with a plan has a limit that resets. Before, trying again has no use."""
    (error,) = play(scene).facts(EventType.ERROR)
    assert (error.data.code, error.data.details.get("resets_at")) == ("rate_limit", resets_at)
    assert error.data.details["is_retryable"] is (resets_at is None)


@pytest.mark.parametrize("scene", ["limit_overage", "limit_warning"])
def test_a_limit_that_refuses_nothing_is_no_error(scene: str) -> None:
    replay = play(scene)
    assert replay.facts(EventType.ERROR) == []
    assert {reason for _, reason in replay.turns()} == {"completed"}
