"""A TUI of OpenCode 2 over a restart of the server on the same data directory and port.

It comes back with its stream, reads the sessions on its screen, and goes on. Played by `support.client2`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from opencode import Opencode
from opencode.types import ServerConnectedEvent, SessionIdleEvent, SessionMessageAssistant

from .support.bench import CLAUDE, MOCK, Bench, bench, nightly
from .support.client2 import Client2

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]
TURN_S = 60.0


@pytest.fixture(params=[*nightly(MOCK), CLAUDE])
def server(request: pytest.FixtureRequest) -> Iterator[Bench]:
    with bench(request.param) as made:
        yield made


@pytest.mark.parametrize("kill", [pytest.param(False, id="stopped", marks=pytest.mark.nightly), pytest.param(True, id="killed")])
def test_the_tui_goes_on_with_its_sessions_after_a_restart(server: Bench, kill: bool) -> None:
    client2 = Client2(server.api)
    session = client2.begin(server.say("[scene:read_edit] edit", "edit README.md"))
    before = client2.idle(session)
    assert before.tools()
    server.restart(kill=kill)
    messages = client2.reconnect()[session]
    parts = [part for one in messages if one["type"] == "assistant" for part in one["content"]]
    assert [part["state"]["status"] for part in parts if part["type"] == "tool"] == [tool["status"] for tool in before.tools()]
    client2.say(session, server.say("[scene:read_edit] once more", "edit README.md"))
    after = client2.idle(session)
    assert after.ends == ["succeeded"]
    assert [tool["status"] for tool in after.tools()] == ["completed"] * len(after.tools())
    client2.close()


def test_an_undo_after_the_restart_puts_its_file_back(server: Bench) -> None:
    client2 = Client2(server.api)
    readme = server.place.project / "README.md"
    written = readme.read_text()
    session = client2.begin(server.say("[scene:read_edit] edit", "edit README.md"))
    client2.idle(session)
    changed = readme.read_text()
    assert changed != written
    server.restart()
    [prompt] = [one for one in client2.reconnect()[session] if one["type"] == "user"]
    staged = client2.api.ask("POST", f"/api/session/{session}/revert/stage", {"messageID": prompt["id"]})["data"]
    assert [one["file"] for one in staged["files"]] == ["README.md"]
    assert readme.read_text() == written
    client2.api.ask("DELETE", f"/api/session/{session}/revert", status=204)
    assert readme.read_text() == changed
    client2.close()


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
