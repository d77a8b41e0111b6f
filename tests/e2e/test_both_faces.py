"""One session on both faces: made by `/v1`, watched, answered and prompted in OpenCode's TUI; and the other way round."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from .support.bench import CLAUDE, MOCK, Bench, nightly
from .support.children import wait_for
from .support.tmux import Terminal
from .support.tui import tui
from .support.wire import Json

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(150), pytest.mark.server(*nightly(MOCK), CLAUDE)]
NAME = "shared"
TURN_S = 40


@pytest.fixture(scope="module")
def terminal(server: Bench) -> Iterator[Terminal]:
    """The TUI on a session that `/v1` has made."""
    body = {"agent": server.shim.provider, "directory": str(server.place.project)}
    core = server.api.post(f"/v1/sessions/{NAME}", body)["openCodeSessionId"]
    made = tui(server.place, server.url, session=core)
    yield made
    made.close()


def events(server: Bench, type_: str) -> list[Json]:
    found = server.api.get(f"/v1/sessions/{NAME}/events?limit=10000")["events"]
    return [event for event in found if event["type"] == type_]


def ends(server: Bench) -> int:
    return len(events(server, "turn.ended"))


def say(server: Bench, text: str) -> None:
    server.api.post(f"/v1/sessions/{NAME}/messages", {"message": text})


def test_a_prompt_of_v1_is_seen_and_answered_in_the_tui(server: Bench, terminal: Terminal) -> None:
    before = ends(server)
    say(server, server.say("[scene:bash:touch made.txt] make", "permission"))
    terminal.wait(("Permission required", "Allow once"), TURN_S)
    [asked] = events(server, "permission.requested")
    terminal.key("Enter")
    wait_for(lambda: ends(server) > before, TURN_S, "the turn does not end")
    [resolved] = events(server, "permission.resolved")
    assert (resolved["data"]["permission_id"], resolved["data"]["status"]) == (asked["data"]["permission_id"], "accept")
    terminal.wait(r"esc\s+interrupt", TURN_S, gone=True)


def test_a_prompt_typed_in_the_tui_is_on_v1(server: Bench, terminal: Terminal) -> None:
    before = ends(server)
    terminal.submit(server.say("[scene:text] typedinthetui", "echo typedinthetui"))
    wait_for(lambda: ends(server) > before, TURN_S, "the turn does not end")
    has_answer = "".join(event["data"]["delta"] for event in events(server, "item.delta"))
    assert "typedinthetui" in has_answer
    assert len(re.findall("typedinthetui", terminal.wait(lambda screen: screen.count("typedinthetui") > 1, TURN_S))) > 1


def test_a_session_of_the_tui_is_watched_on_v1(server: Bench, terminal: Terminal) -> None:
    core = server.api.session()
    server.api.prompt(core, server.say("[scene:text] fromtheotherside", "echo fromtheotherside"))

    def has_answer() -> bool:
        found = server.api.get(f"/v1/sessions/{core}/events?limit=10000")["events"]
        return found[-1]["type"] == "turn.ended" and "fromtheotherside" in str(found)

    wait_for(has_answer, TURN_S, "it is not on /v1")
