"""The TUI of OpenCode 2 of July over a restart of the server on the same data directory and port.

It asks `/api/health` when it starts, and never again: after the restart it comes back with its stream, reads the sessions on its
screen, and goes on. A call in the form of another build ends it at once (`undefined is not an object`). Played by `support.july`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from opencode import Opencode
from opencode.types import ServerConnectedEvent, SessionIdleEvent, SessionMessageAssistant

from .support.bench import CLAUDE, MOCK, Bench, bench, nightly
from .support.july import July
from .support.wire import Json

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]
TURN_S = 60.0


@pytest.fixture(params=[*nightly(MOCK), CLAUDE])
def server(request: pytest.FixtureRequest) -> Iterator[Bench]:
    with bench(request.param) as made:
        yield made


def calls_of(messages: list[Json]) -> list[Json]:
    """What that TUI draws of each call: its fields in its own build's names."""
    found = [part for one in messages if one["type"] == "assistant" for part in one["content"] if part["type"] == "tool"]
    for call in found:
        state = call["state"]
        assert isinstance(state["structured"], dict), call
        assert isinstance(state["content"], list), call
        assert "metadata" not in state, call
    return [{"name": call["name"], "status": call["state"]["status"]} for call in found]


@pytest.mark.parametrize("kill", [pytest.param(False, id="stopped", marks=pytest.mark.nightly), pytest.param(True, id="killed")])
def test_the_tui_goes_on_with_its_sessions_after_a_restart(server: Bench, kill: bool) -> None:
    july = July(server.api)
    session = july.begin(server.say("[scene:read_edit] edit", "edit README.md"))
    before = july.idle(session)
    assert before.tools()
    server.restart(kill=kill)
    messages = july.reconnect()[session]
    assert [call["status"] for call in calls_of(messages)] == [tool["status"] for tool in before.tools()]
    assert [one["type"] for one in messages].count("idle") == 0, "that build knows no such message"
    july.say(session, server.say("[scene:read_edit] once more", "edit README.md"))
    after = july.idle(session)
    assert after.ends == ["succeeded"]
    assert [tool["status"] for tool in after.tools()] == ["completed"] * len(after.tools())
    info = july.api.ask("GET", f"/api/session/{session}")["data"]
    assert info["model"]["variant"] == "default", "it selects the model anew before each prompt otherwise"
    july.close()


def test_an_undo_after_the_restart_puts_its_file_back(server: Bench) -> None:
    july = July(server.api)
    readme = server.place.project / "README.md"
    written = readme.read_text()
    session = july.begin(server.say("[scene:read_edit] edit", "edit README.md"))
    july.idle(session)
    changed = readme.read_text()
    assert changed != written
    server.restart()
    [prompt] = [one for one in july.reconnect()[session] if one["type"] == "user"]
    staged = july.api.ask("POST", f"/api/session/{session}/revert/stage", {"messageID": prompt["id"]})["data"]
    assert [one["file"] for one in staged["files"]] == ["README.md"]
    assert readme.read_text() == written
    july.api.ask("POST", f"/api/session/{session}/revert/clear", status=204)
    assert readme.read_text() == changed
    july.close()


def test_the_typed_client_goes_on_with_its_session(server: Bench) -> None:
    """`opencode-python-sdk` 0.2.3: the same session is read back, and the next turn is waited for by its idle."""
    with Opencode(server.url, directory=str(server.place.project), timeout=TURN_S) as client:
        session = str(client.session.create().id)
        for run in ("before", "after"):
            connections, ends = client.events.of_type(ServerConnectedEvent), client.events.of_type(SessionIdleEvent)
            with connections as connected, ends.for_session(session) as idle:
                connected.get(timeout=TURN_S)  # it connects in a thread: a quick turn would be over before it
                client.session.prompt(session, text=server.say(f"[scene:text] {run}", f"echo You said: {run}"))
                assert idle.get(timeout=TURN_S).data.session_id == session
            steps = [one for one in client.message.list(session) if isinstance(one, SessionMessageAssistant)]
            texts = [getattr(part, "text", "") for step in steps for part in step.content]
            assert f"You said: {run}" in texts
            if run == "before":
                server.restart(kill=True)
        assert "You said: before" in texts
        assert client.session.get(session).outcome == "succeeded"
