"""The size of a run."""

from __future__ import annotations

import pytest

from tools.chaos.run import Parameters


@pytest.mark.parametrize("sessions", [2, 6, 20, 21, 200])
def test_at_least_half_of_the_sessions_have_the_mock_agent_that_asks_and_has_subagents(sessions: int) -> None:
    parameters = Parameters(sessions=sessions)
    assert 0 < parameters.directories <= (sessions + 1) // 2
