"""Caps with real agents: a question at the limit, which goes on or stops, and a stop with the reason where nobody can answer."""

from __future__ import annotations

from contextlib import closing

import pytest

from .support.bench import CLAUDE, Bench, Watch, bench, nightly, other_wires
from .support.wire import Stream, texts

CODEX = "codex"
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]


def answer(server: Bench, watch: Watch, at: int, label: str) -> str:
    """Answer the question of a cap. Out: its text."""
    asked = watch.wait("question.asked", at)
    server.api.post(f"/question/{asked['id']}/reply", {"answers": [[label]]})
    return asked["questions"][0]["question"]


def test_a_session_that_costs_too_much_asks() -> None:
    with bench(CLAUDE, SHIM_MAX_COST="0.0001") as server, closing(Stream(server.api)) as stream:
        watch = Watch.on(server.api, stream)
        watch.wait_for_end(watch.prompt("[scene:text] one"))
        at = watch.prompt("[scene:text] two")
        assert "max_cost" in answer(server, watch, at, "Go on")
        assert texts(watch.wait_for_end(at))[-1] == "You said: two"
        at = watch.prompt("[scene:text] three")
        answer(server, watch, at, "Stop")
        assert texts(watch.wait_for_end(at))[-1] == "You said: two", "the model was not asked"


@pytest.mark.parametrize("agent", [CODEX, *nightly(CLAUDE)])
def test_a_turn_that_takes_too_long_asks(agent: str) -> None:
    with bench(agent, SHIM_MAX_TURN_SECONDS="2") as server, closing(Stream(server.api)) as stream:
        watch = Watch.on(server.api, stream)
        at = watch.prompt("[scene:slow_bash:20] one")
        assert "max_turn_seconds" in answer(server, watch, at, "Stop")
        messages = watch.wait_for_end(at)
        assert messages[-1]["info"]["error"]["name"] == "MessageAbortedError"
        at = watch.prompt("[scene:text] two")
        assert texts(watch.wait_for_end(at))[-1] == "You said: two", "the next turn has its own seconds"


def test_work_in_the_background_counts() -> None:
    """Claude's subagent works on after the answer, and the turn with it."""
    with bench(CLAUDE, SHIM_MAX_TURN_SECONDS="10") as server, closing(Stream(server.api)) as stream:
        watch = Watch.on(server.api, stream)
        at = watch.prompt("[scene:task:slow_bash:20] one")
        watch.wait_text("Done!", at)
        assert "max_turn_seconds" in answer(server, watch, at, "Stop")
        watch.wait_for_end(at)


def test_a_session_by_rules_stops_with_the_reason() -> None:
    with bench(CLAUDE, SHIM_MAX_TURN_SECONDS="2") as server, closing(Stream(server.api)) as stream:
        watch = Watch.on(server.api, stream, metadata={"unattended": "rules"})
        at = watch.prompt("[scene:slow_bash:20] one")
        failure = watch.wait("session.error", at)["error"]
        assert "Stopped: This turn has worked for" in failure["data"]["message"]
        watch.wait_for_end(at)


@other_wires
def test_the_other_wires_answer_a_cap(wire: str) -> None:
    with bench(CLAUDE, SHIM_MAX_TURN_SECONDS="2") as server, closing(Stream(server.api)) as stream:
        watch = Watch.on(server.api, stream)
        at = watch.prompt_on(wire, "[scene:slow_bash:20] one")
        watch.answer_on(wire, "Stop", at)
        assert watch.wait_for_end(at)[-1]["info"]["error"]["name"] == "MessageAbortedError"
