"""What a client of OpenCode 2 can do with a session beside prompts, with the real Claude CLI behind it and a scripted model."""

from __future__ import annotations

from typing import Any

import pytest

from .support.bench import CLAUDE, Bench
from .support.children import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180), pytest.mark.server(CLAUDE)]

TURN_S = 60


class Client:
    """Calls in the dialect `v2_0`, each of which must have exactly this status."""

    def __init__(self, server: Bench) -> None:
        self._api = server.api
        self._server = server

    def call(self, method: str, path: str, body: Any = None, status: int = 200) -> Any:
        separator = "&" if "?" in path else "?"
        got, said = self._api.call(method, f"{path}{separator}dialect=v2_0", body)
        assert got == status, (path, got, said)
        return said

    def session(self) -> str:
        model = {"providerID": "claude", "id": self._server.models("claude")[0]}
        body = {"location": {"directory": str(self._server.place.project)}, "model": model}
        return str(self.call("POST", "/api/session", body)["data"]["id"])

    def prompt(self, session: str, text: str, **more: Any) -> str:
        return str(self.call("POST", f"/api/session/{session}/prompt", {"text": text, **more})["data"]["id"])

    def messages(self, session: str) -> list[Any]:
        return list(self.call("GET", f"/api/session/{session}/message?order=asc&limit=200")["data"])

    def wait(self, session: str) -> str:
        """Until nothing runs; how it ended."""
        self.call("POST", f"/api/experimental/session/{session}/wait", status=204)
        return str(self.call("GET", f"/api/session/{session}")["data"]["outcome"])

    def tools(self, session: str) -> list[Any]:
        answers = [one["content"] for one in self.messages(session) if one["type"] == "assistant"]
        return [part for content in answers for part in content if part["type"] == "tool"]

    def assistant_texts(self, session: str) -> list[str]:
        answers = [one["content"] for one in self.messages(session) if one["type"] == "assistant"]
        return [part["text"] for content in answers for part in content if part["type"] == "text"]


@pytest.fixture
def client(server: Bench) -> Client:
    server.place.reset()
    return Client(server)


def test_a_command_that_takes_long_goes_to_the_background(client: Client) -> None:
    session = client.session()
    client.prompt(session, "[scene:slow_bash:30] run")
    wait_for(lambda: [one for one in client.tools(session) if one["state"]["status"] == "running"], TURN_S, "no tool runs")
    client.call("POST", f"/api/session/{session}/background", status=204)
    [tool] = wait_for(lambda: [one for one in client.tools(session) if one["state"]["status"] == "completed"], 15, "it waits on")
    assert "background" in tool["state"]["content"][0]["text"]
    client.call("POST", f"/api/session/{session}/interrupt")
    client.wait(session)
    client.call("POST", f"/api/session/{session}/background", status=204)


def test_a_text_beside_the_conversation(client: Client) -> None:
    session = client.session()
    client.prompt(session, "[scene:text] hello")
    assert client.wait(session) == "succeeded"
    before = client.messages(session)
    made = client.call("POST", f"/api/session/{session}/generate", {"prompt": "[scene:text] a title"})["data"]["text"]
    assert "a title" in made
    again = client.call("POST", "/api/experimental/generate", {"prompt": "[scene:text] another"})["data"]["text"]
    assert "another" in again
    assert client.messages(session) == before
    refused = client.call("POST", "/api/experimental/generate", {"prompt": "[scene:bash:touch made.txt] make it"}, status=503)
    assert "Bash" in refused["message"]


def test_instructions_reach_the_model(client: Client, server: Bench) -> None:
    session = client.session()
    path = f"/api/experimental/session/{session}/instructions/entries"
    client.call("PUT", f"{path}/style", {"value": "Speak like a sailor."}, status=204)
    client.prompt(session, "[scene:text] hello")
    assert client.wait(session) == "succeeded"
    assert client.call("GET", path)["data"] == [{"key": "style", "value": "Speak like a sailor."}]


def test_a_model_that_is_not_there(client: Client) -> None:
    session = client.session()
    model = {"providerID": "claude", "id": "no-such-model"}
    client.call("POST", f"/api/session/{session}/model", {"model": model}, status=204)
    waiting = client.prompt(session, "[scene:text] hello")
    assert client.wait(session) == "failed"
    [end] = [one for one in client.messages(session) if one["type"] == "idle"]
    assert 'Model not found: "claude/no-such-model"' in end["error"]["message"]
    assert client.call("GET", f"/api/session/{session}/inbox")["data"] == []
    kept = [one for one in client.messages(session) if one["type"] in ("user", "idle")]
    assert [(one["type"], one["id"] == waiting) for one in kept] == [("user", True), ("idle", False)]


def test_queued_prompts_outlive_the_server(client: Client, server: Bench) -> None:
    session = client.session()
    client.prompt(session, "[scene:text] remember me")
    client.wait(session)
    client.prompt(session, "[scene:slow_bash:14] run")
    wait_for(lambda: [one for one in client.tools(session) if one["state"]["status"] == "running"], TURN_S, "no tool runs")
    client.prompt(session, "[scene:text] queued", delivery="queue")
    client.prompt(session, "[scene:text] steered")
    server.restart(kill=True)
    client = Client(server)
    waiting = client.call("GET", f"/api/session/{session}/inbox")["data"]
    assert [one["payload"]["text"] for one in waiting] == ["[scene:text] queued", "[scene:text] steered"]
    client.call("POST", f"/api/session/{session}/resume", status=204)
    assert client.call("GET", f"/api/session/{session}/inbox")["data"] == []
    assert [text for text in client.assistant_texts(session) if text.endswith(("queued", "steered"))][-2:] == [
        "You said: steered",
        "You said: queued",
    ]


def test_shell_commands_have_the_sessions_variables(client: Client) -> None:
    session = client.session()
    client.prompt(session, "[scene:text] hello")
    client.wait(session)
    client.call("PUT", f"/api/session/{session}/environment", {"variables": {"GREETING": "good day"}}, status=204)
    client.prompt(session, "[scene:bash:printenv GREETING] say it")
    wait_for(lambda: client.call("GET", f"/api/session/{session}/permission")["data"] or client.tools(session), TURN_S, "nothing")
    answer(client, session, "once")
    assert client.wait(session) == "succeeded"
    [tool] = client.tools(session)
    assert tool["state"]["content"][0]["text"].strip() == "good day"
    assert "You said: hello" in client.assistant_texts(session), "its conversation goes on"


def test_a_session_moves_to_another_directory(client: Client, server: Bench) -> None:
    session = client.session()
    client.prompt(session, "[scene:text] remember me")
    client.wait(session)
    other = server.place.project / "other"
    other.mkdir()
    client.call("POST", f"/api/session/{session}/move", {"directory": str(other)}, status=204)
    client.prompt(session, "[scene:bash:pwd] where")
    wait_for(lambda: client.call("GET", f"/api/session/{session}/permission")["data"] or client.tools(session), TURN_S, "nothing")
    answer(client, session, "once")
    assert client.wait(session) == "succeeded"
    [tool] = client.tools(session)
    assert tool["state"]["content"][0]["text"].strip() == str(other)
    assert [one["type"] for one in client.messages(session)].count("location-switched") == 1


@pytest.mark.parametrize(("decision", "status"), [("once", "completed"), ("reject", "error")])
def test_a_refusal_is_reported_and_the_turn_goes_on(client: Client, decision: str, status: str) -> None:
    """Claude says something to a refusal: the execution succeeds, as docs/wire2.md says."""
    session = client.session()
    client.prompt(session, "[scene:bash:touch made.txt] make it")
    wait_for(lambda: client.call("GET", f"/api/session/{session}/permission")["data"], TURN_S, "nothing is asked")
    assert session in client.call("GET", "/api/session/active")["data"]
    answer(client, session, decision)
    assert client.wait(session) == "succeeded"
    [tool] = client.tools(session)
    assert tool["state"]["status"] == status
    if decision == "reject":
        assert tool["state"]["error"]["type"] == "aborted"
    assert client.messages(session)[-1]["type"] == "idle"


def answer(client: Client, session: str, decision: str) -> None:
    """Each open request of the session."""
    for asked in client.call("GET", f"/api/session/{session}/permission")["data"]:
        client.call("POST", f"/api/session/{session}/permission/{asked['id']}/reply", {"decision": decision}, status=204)
