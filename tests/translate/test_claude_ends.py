"""Recordings of Claude Code, scene by scene: errors, ends of processes, settings, slash commands, conversations."""

from __future__ import annotations

import pytest

from tests.support import replay as engine
from tests.support.recordings import load
from tests.support.replay import Replay
from universal.events import EventType
from universal.items import ItemKind, ItemStatus
from universal.turn import Input

BOTH = ("2.1.197", "2.1.330")
OLD, NEW = BOTH
COMPLETED = [("user", "completed")]


def play(version: str, scene: str) -> Replay:
    return engine.play(f"claude/{version}/{scene}")


# --- errors and ends ----------------------------------------------------------------------------------------


ERRORS = [
    ("error", "API Error: 400 scripted failure", {OLD: "unknown", NEW: "invalid_request_error"}, 400, False),
    ("error_401", "Failed to authenticate. API Error: 401 scripted failure", "authentication_failed", 401, False),
    ("error_404", "There's an issue with the selected model", "model_not_found", 404, False),
    ("bad_start.no_auth", "Not logged in · Please run /login", "authentication_failed", None, False),
    ("bad_start.model_down", "API Error: ", "server_error", None, True),
    ("resume.6_unknown", "No conversation found with session ID", "session_not_found", None, False),
]


@pytest.mark.parametrize("version", BOTH)
@pytest.mark.parametrize(("scene", "message", "code", "status", "retryable"), ERRORS, ids=[row[0] for row in ERRORS])
def test_errors_are_reported_once(
    version: str,
    scene: str,
    message: str,
    code: str | dict[str, str],
    status: int | None,
    retryable: bool,
) -> None:
    replay = play(version, scene)
    (error,) = replay.facts(EventType.ERROR)
    assert error.data.message.startswith(message)
    assert error.data.code == (code[version] if isinstance(code, dict) else code)
    assert error.data.details.get("status_code") == status
    assert error.data.details["is_retryable"] is retryable
    assert replay.texts() == []
    (failed,) = [s for s in replay.signals() if s.input is Input.FAILED]
    assert failed.error == error.data.model_dump()
    assert not failed.aborted
    assert replay.outputs.index(error) < replay.outputs.index(failed)
    assert replay.turns() == [("user", "error")]


@pytest.mark.parametrize("scene", ["bad_start.no_auth", "error_401"])
def test_a_login_problem_says_what_to_do(scene: str) -> None:
    (error,) = play(NEW, scene).facts(EventType.ERROR)
    assert "/login" in error.data.details["hint"]
    assert "ANTHROPIC_API_KEY" in error.data.details["hint"]


@pytest.mark.parametrize("version", BOTH)
def test_bypass_as_root_says_what_to_do(version: str) -> None:
    (error,) = play(version, "bad_start.root_bypass_mode").facts(EventType.ERROR)
    assert error.data.code == "bypass_refused_as_root"
    assert "IS_SANDBOX=1" in error.data.details["hint"]


@pytest.mark.parametrize("version", BOTH)
def test_retries(version: str) -> None:
    replay = play(version, "overload")
    retries = replay.statuses("retry")
    assert [r.metadata["attempt"] for r in retries] == [1, 2]
    assert all(isinstance(r.metadata["delay_ms"], int) and r.metadata["delay_ms"] > 0 for r in retries)
    assert retries[0].metadata["message"].startswith("API error 529 (overloaded). Trying again in ")
    assert replay.turns() == COMPLETED


@pytest.mark.parametrize("version", BOTH)
def test_a_killed_process(version: str) -> None:
    replay = play(version, "kill9.1")
    assert replay.turns() == [("user", "agent_exited")]
    (result,) = replay.items(ItemKind.TOOL_RESULT)
    assert (result.status, result.metadata) == (ItemStatus.FAILED, {"interrupted": True})
    assert play(version, "kill9.2").turns() == COMPLETED


@pytest.mark.parametrize("version", BOTH)
def test_a_turn_goes_on_after_the_end_of_input(version: str) -> None:
    assert play(version, "eof_midturn").turns() == COMPLETED


# --- settings, slash commands, sessions ---------------------------------------------------------------------


@pytest.mark.parametrize("version", BOTH)
def test_settings_are_sent_before_the_prompt(version: str) -> None:
    replay = play(version, "controls")
    kinds = [line["request"]["subtype"] if line["type"] == "control_request" else line["type"] for line in replay.written_lines()]
    again = ["set_permission_mode"] if version == OLD else []  # it took the mode "nonsense", which is taken back each time
    first = ["set_model", "apply_flag_settings", "user"]  # the recording has changed the mode before
    assert kinds == ["initialize", *first, *again, "set_model", "user", *again, "set_model", "user"]
    models = [m.metadata["model"] for m in replay.items(ItemKind.MESSAGE)]
    assert {m["variant"] for m in models} == {"low"}
    assert [m["model_id"] for m in models[1:]] == ["no-such-model", "default"]


@pytest.mark.parametrize("version", BOTH)
def test_slash_commands(version: str) -> None:
    replay = play(version, "slash")
    assert replay.turns() == COMPLETED * 7
    answers = replay.texts()
    assert answers[0] == "You said: hello"
    assert answers[1].startswith("## Context Usage")
    assert answers[-1] == "You said: after the clear"
    assert "(no content)" not in answers
    local = [m for m in replay.items(ItemKind.MESSAGE) if (m.metadata or {}).get("synthetic_text")]
    assert answers[1] in [m.content[0].text for m in local]
    assert all("usage" not in m.metadata and "model" not in m.metadata for m in local)
    (compaction,) = replay.statuses("compaction")
    assert compaction.metadata["phase"] == ("completed" if version == NEW else "failed")
    assert compaction.metadata.get("auto") is (False if version == NEW else None)
    costs = [s.metadata["cost"] for s in replay.signals() if s.input is Input.DONE]
    assert costs == pytest.approx(
        [0.0011, 0, 0, 0, 0, 0, 0.0011] if version == OLD else [0.00088, 0, 0, 0.00088, 0.00176, 0, 0.00088]
    )
    ids = list(dict.fromkeys(fact.native_session_id for fact in replay.facts() if fact.native_session_id))
    assert len(ids) == 2  # /clear begins another conversation


@pytest.mark.parametrize("version", BOTH)
def test_offers_of_claude(version: str) -> None:
    catalogue = play(version, "text").codec.catalogue
    assert catalogue.default_model == "default"
    models = {model.id: model for model in catalogue.models}
    assert {"default", "sonnet", "haiku"} <= set(models)
    assert models["sonnet"].variants == ("low", "medium", "high", "xhigh", "max")
    assert models["default"].context == 1_000_000
    assert models["default"].output == {OLD: 64000, NEW: 128000}[version]
    assert "compact" in {command.name for command in catalogue.commands}


@pytest.mark.parametrize("version", BOTH)
def test_the_conversations_id(version: str) -> None:
    own = play(version, "resume.5_own_id")
    argv = load("claude", version, "resume.5_own_id").argv
    assert f"--session-id={own.codec.native_session_id}" in argv
    assert {fact.native_session_id for fact in own.facts()} == {own.codec.native_session_id}
    first, again = (play(version, f"resume.{name}").codec.native_session_id for name in ("1", "2"))
    assert first == again
    assert play(version, "resume.3_fork").codec.native_session_id != first


@pytest.mark.parametrize("version", BOTH)
def test_a_resumed_turn_costs_what_it_costs(version: str) -> None:
    """2.1.330 goes on from the conversation's total after --resume."""
    (done,) = [s for s in play(version, "resume.2").signals() if s.input is Input.DONE]
    assert done.metadata["cost"] == pytest.approx({OLD: 0.0011, NEW: 0.00088}[version])


@pytest.mark.parametrize("version", BOTH)
def test_images_are_sent_as_blocks(version: str) -> None:
    (line,) = [line for line in play(version, "image").written_lines() if line["type"] == "user"]
    image, text = line["message"]["content"]
    assert (image["source"]["media_type"], text["type"]) == ("image/png", "text")
