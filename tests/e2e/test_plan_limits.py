"""Limits of a person's plan with real agents: what is told of them, and a turn that hits one."""

from __future__ import annotations

import time
import urllib.request
from contextlib import closing
from typing import Any

import pytest

from shim.dev.record.homes import CLAUDE_PLAN, DEAD_PROXY

from .support.bench import CLAUDE, Bench, Watch, bench, nightly, other_wires
from .support.children import wait_for
from .support.wire import Json, Stream, texts

CODEX = "codex"
PLAN: dict[str, dict[str, Any]] = {
    CLAUDE: {**CLAUDE_PLAN, "HTTPS_PROXY": DEAD_PROXY},
    CODEX: {},
}
"""What an agent inherits to believe that it has a plan. Nothing leaves the machine: HTTPS goes to a dead port."""
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]


def usage_of(server: Bench) -> Json:
    return server.api.get(f"/v1/agents/{server.shim.provider}/x-usage")


@pytest.mark.parametrize("agent", [CLAUDE, CODEX])
def test_an_agent_tells_the_limits_and_the_turn_that_hits_one_says_when_it_resets(agent: str) -> None:
    with bench(agent, **PLAN[agent]) as server, closing(Stream(server.api)) as stream:
        assert usage_of(server) == {"windows": []}
        watch = Watch.on(server.api, stream)
        watch.wait_for_end(watch.prompt("[scene:used:92] one"))
        windows = {row["id"]: row for row in usage_of(server)["windows"]}
        assert (windows["five_hour"]["used"], windows["seven_day"]["used"]) == (0.92, 0.31)
        toasts = [e["properties"] for _, e in stream.events if e["type"] == "tui.toast.show"]
        assert [toast["message"].partition(".")[0] for toast in toasts] == ["92% of the five-hour limit is used"]
        with urllib.request.urlopen(f"{server.url}/metrics") as answer:
            assert f'opencode_shim_plan_used_ratio{{agent="{agent}",window="five_hour"}} 0.92' in answer.read().decode()
        at = watch.prompt("[scene:limit:3600] two")
        failure = watch.wait("session.error", at)["error"]
        watch.wait_for_end(at)
        (error,) = [e["data"] for e in server.api.get(f"/v1/sessions/{watch.session}/events")["events"] if e["type"] == "error"]
        assert abs(error["details"]["resets_at"] - time.time() - 3600) < 60, (error, failure)


@pytest.mark.parametrize("agent", [CLAUDE, *nightly(CODEX)])
def test_a_turn_goes_on_when_the_limit_resets(agent: str) -> None:
    """One turn and one idle for the whole of it; clients count down to the reset."""
    with bench(agent, SHIM_CONTINUE_AT_RESET="1", **PLAN[agent]) as server, closing(Stream(server.api)) as stream:
        watch = Watch.on(server.api, stream)
        at = watch.prompt("[scene:limit:4] one")
        retry = watch.wait("session.status", at, lambda p: p["status"]["type"] == "retry")["status"]
        assert 0 < retry["next"] / 1000 - time.time() < 10, retry
        messages = watch.wait_for_end(at)
        assert texts(messages) == ["Back again."]
        assert [m["info"].get("error") for m in messages] == [None] * len(messages)
        assert not [e for e in watch.events(at) if e["type"] == "session.error"]
        at = watch.prompt("[scene:limit:3600] two")
        watch.wait("session.status", at, lambda p: p["status"]["type"] == "retry")
        assert server.api.post(f"/session/{watch.session}/abort") is True
        watch.wait_for_end(at)
        again = watch.prompt("[scene:text] three")
        assert texts(watch.wait_for_end(again))[-1] == "You said: three"


@pytest.mark.parametrize("agent", [CLAUDE, *nightly(CODEX)])
def test_a_wait_outlives_its_server(agent: str) -> None:
    with bench(agent, SHIM_CONTINUE_AT_RESET="1", **PLAN[agent]) as server:
        with closing(Stream(server.api)) as stream:
            watch = Watch.on(server.api, stream)
            at = watch.prompt("[scene:limit:12] one")
            watch.wait("session.status", at, lambda p: p["status"]["type"] == "retry")
        server.restart(kill=True)

        def status() -> str:
            return server.api.status()[watch.session]["type"]

        wait_for(lambda: status() == "retry", 5, status)  # what was shown and not stored is read from the tape
        wait_for(lambda: watch.session not in server.api.status(), 60, "it does not go on")
        messages = server.api.messages(watch.session)
        assert (texts(messages), [m["info"].get("error") for m in messages]) == (["Back again."], [None, None])


@other_wires
def test_a_wait_by_the_other_wires(wire: str) -> None:
    with bench(CLAUDE, SHIM_CONTINUE_AT_RESET="1", **PLAN[CLAUDE]) as server, closing(Stream(server.api)) as stream:
        watch = Watch.on(server.api, stream)
        at = watch.prompt_on(wire, "[scene:limit:3600] one")
        watch.wait("session.status", at, lambda p: p["status"]["type"] == "retry")
        if wire == "/api":
            said = server.api.get(f"/api/session/{watch.session}/message")["data"]
            (retry,) = [entry["retry"] for entry in said if "retry" in entry]
            assert abs(retry["at"] / 1000 - time.time() - 3600) < 60, retry
            assert "It goes on by itself at" in retry["error"]["message"]
        else:
            events = server.api.get(f"/v1/sessions/{watch.session}/events")["events"]
            items: list[Json] = [event["data"].get("item") or {} for event in events]
            (waits,) = [item["metadata"] for item in items if (item.get("metadata") or {}).get("delay_ms", 0) > 3_000_000]
            assert "It goes on by itself at" in waits["message"]
        server.api.post(f"/session/{watch.session}/abort")
        watch.wait_for_end(at)
