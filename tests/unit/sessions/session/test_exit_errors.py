"""What is said of an agent's process that has ended."""

from __future__ import annotations

import pytest

from shim.sessions.session.exit_errors import agent_exit_data, termination_data
from universal.launch import Exit

LONG = "\n".join([*(f"line {n}" for n in range(20)), "... (30 lines left out) ...", *(f"line {n}" for n in range(50, 100))])


def test_a_crash_carries_code_and_stderr_in_parts() -> None:
    data = agent_exit_data("claude", Exit(code=3, stderr=LONG), in_turn=True)
    assert (data.reason, data.terminated_by, data.exit_code) == ("error", "agent", 3)
    assert data.message == "claude exited (exit code 3)."
    assert data.stderr is not None
    assert (data.stderr.truncated, data.stderr.total_lines) == (True, 100)
    assert (data.stderr.head or "").split("\n") == [f"line {n}" for n in range(20)]
    assert (data.stderr.tail or "").split("\n") == [f"line {n}" for n in range(50, 100)]


@pytest.mark.parametrize(
    ("exit_", "in_turn", "reason"),
    [
        (Exit(code=0), False, "completed"),
        (Exit(code=0), True, "error"),
        (Exit(code=1), False, "error"),
        (Exit(code=None, signal=9), False, "error"),
    ],
)
def test_reasons(exit_: Exit, in_turn: bool, reason: str) -> None:
    assert agent_exit_data("a", exit_, in_turn=in_turn).reason == reason


def test_our_own() -> None:
    assert (termination_data().reason, termination_data().terminated_by) == ("terminated", "daemon")
