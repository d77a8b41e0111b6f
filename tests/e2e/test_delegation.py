"""Sessions that others drive by `/mcp`: the official SDK's client over HTTP and stdio, and real agents that drive each other."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from shim.processes.sandbox import find_tool
from tests.process.test_serve import run_server

from .support.bench import CLAUDE, Bench, Watch, bench, open_watch, turn
from .support.children import wait_for
from .support.mcp_sdk import CALL_S, over_http, over_stdio
from .support.tui import leader, tui
from .support.wire import Json, tools

pytestmark = pytest.mark.e2e
TOOL = find_tool(os.environ.get("PATH", os.defpath))
SWIFT = {"SHIM_MOCK_DELAY_FACTOR": "0"}


async def test_the_sdk_drives_a_session_over_http(tmp_path: Path) -> None:
    with run_server(tmp_path, "--mcp", **SWIFT) as (_, url):
        async with over_http(url) as mcp:
            tools = (await mcp.client.list_tools()).tools
            assert {tool.name for tool in tools} >= {"start_session", "wait", "read"}
            session = (await mcp.use("start_session", agent="mock", prompt="echo by the SDK"))["session"]
            assert (await mcp.use("wait", session=session))["state"] == "idle"
            assert (await mcp.use("read", session=session))["text"] == "by the SDK"


async def test_the_sdk_shows_progress_and_cancels(tmp_path: Path) -> None:
    with run_server(tmp_path, "--mcp", **SWIFT) as (_, url):
        async with over_http(url) as mcp:
            session = (await mcp.use("start_session", agent="mock", prompt="hang"))["session"]
            told: list[float] = []
            are_two = asyncio.Event()

            async def note(progress: float, _total: float | None, _message: str | None) -> None:
                told.append(progress)
                if len(told) == 2:
                    are_two.set()

            arguments = {"session": session, "timeout_s": 600}
            waiting = asyncio.create_task(mcp.client.call_tool("wait", arguments, progress_callback=note))
            async with asyncio.timeout(CALL_S):
                await are_two.wait()
            assert told[0] < told[1]
            assert not waiting.done()
            waiting.cancel()
            await asyncio.wait({waiting})
            assert (await mcp.use("abort", session=session))["state"] == "idle"


async def test_the_sdk_drives_a_session_over_stdio(tmp_path: Path) -> None:
    with run_server(tmp_path, "--mcp", **SWIFT) as (_, url):
        async with over_stdio(tmp_path, "--url", url) as mcp:
            session = (await mcp.use("start_session", agent="mock", prompt="echo through a pipe"))["session"]
            assert (await mcp.use("wait", session=session))["state"] == "idle"
            assert (await mcp.use("read", session=session))["text"] == "through a pipe"


async def test_a_server_starts_for_the_program_without_one(tmp_path: Path) -> None:
    async with over_stdio(tmp_path, **SWIFT) as mcp:
        session = (await mcp.use("start_session", agent="mock", prompt="echo alone"))["session"]
        assert (await mcp.use("wait", session=session))["state"] == "idle"
        assert (await mcp.use("read", session=session))["text"] == "alone"


# --- real agents ------------------------------------------------------------------------------------------------------


def child_of(server: Bench, parent: str) -> Json | None:
    """The session that the agent of another one has started."""
    return next((row for row in server.api.get("/session") if row.get("parentID") == parent), None)


DRIVERS = [(CLAUDE, "codex"), pytest.param("codex", CLAUDE, marks=pytest.mark.nightly)]
"""Agent -> the one that it drives."""


def nightly_pairs(*agents: str) -> list[Any]:
    """Agents that drive Claude Code, which only `make e2e-all` plays."""
    return [pytest.param(agent, CLAUDE, marks=pytest.mark.nightly) for agent in agents]


MORE_DRIVERS = nightly_pairs("pi", "opencode", "claude-agent-acp", "opencode-acp")


@pytest.mark.parametrize(("agent", "other"), [*DRIVERS, *MORE_DRIVERS])
@pytest.mark.timeout(240)
def test_an_agent_drives_another_one_and_waits(agent: str, other: str) -> None:
    with bench(agent, also=(other,), SHIM_MCP="true") as server:
        drive(server, other)


@pytest.mark.skipif(
    TOOL.kind != "bubblewrap" or bool(TOOL.why), reason="/mcp is reached with bubblewrap alone (docs/delegation.md)"
)
@pytest.mark.parametrize(("agent", "other"), [(CLAUDE, "codex"), *nightly_pairs("codex", "pi", "claude-agent-acp")])
@pytest.mark.timeout(240)
def test_an_agent_without_a_network_reaches_nothing_of_this_server_but_its_tools(agent: str, other: str) -> None:
    rules: Json = {"permission": {"*": "allow", "bash": "allow"}}
    with bench(agent, also=(other,), config=rules, SHIM_MCP="true", SHIM_SANDBOX="strict", IS_SANDBOX="1") as server:
        watch = drive(server, other)
        for path in ("/session", "/mcp/../session"):
            parts = turn(server, watch, f"[scene:bash:curl -s --path-as-is {server.url}{path}] go")
            state = parts[-1]["state"]
            words = state.get("output", state.get("error"))
            is_unheard = words == "(no output)"  # what Codex runs has no network by its own sandbox
            assert is_unheard or "does not reach this server: nothing of it but /mcp" in words, state


def drive(server: Bench, other: str) -> Watch:
    """Let the agent start a session of another one, wait for it, and read its answer."""
    server.models()
    server.models(other)
    watch = open_watch(server)
    asked: set[str] = set()
    parts = turn(server, watch, f"[scene:delegate:{other}:text] go", asked=asked)
    assert asked <= {"opencode-shim_start_session"}, asked
    child = child_of(server, watch.session)
    assert child is not None, parts
    assert server.api.messages(child["id"])[-1]["info"]["providerID"] == other
    outputs = [part["state"].get("output", part["state"].get("error", "")) for part in parts]
    assert '"idle"' in "".join(outputs), outputs
    assert "You said: say what you see" in outputs[-1], outputs
    return watch


@pytest.mark.parametrize(("agent", "other"), DRIVERS)
@pytest.mark.timeout(240)
def test_an_abort_reaches_the_other_agent(agent: str, other: str) -> None:
    with bench(agent, also=(other,), SHIM_MCP="true") as server:
        server.models()
        server.models(other)
        watch = open_watch(server)
        watch.prompt(f"[scene:delegate:{other}:hang] go")

        def is_waiting() -> object:
            for ask in server.api.get("/permission"):
                server.api.post(f"/permission/{ask['id']}/reply", {"reply": "once"})
            child = child_of(server, watch.session)
            calls = [part for part in tools(server.api.messages(watch.session)) if "wait" in part["tool"]]
            return child is not None and calls and calls[-1]["state"]["status"] == "running"

        wait_for(is_waiting, 90, "the agent does not wait for the other one")
        child = child_of(server, watch.session)
        assert child is not None
        assert {watch.session, child["id"]} <= server.api.status().keys()
        server.api.post(f"/session/{watch.session}/abort")
        assert server.api.status() == {}
        for session in (watch.session, child["id"]):
            assert server.api.messages(session)[-1]["info"]["error"]["name"] == "MessageAbortedError"


@pytest.mark.timeout(240)
def test_a_permission_of_the_other_agent_reaches_the_person() -> None:
    """Claude drives Codex, which asks for a command: the person sees and answers it, in every client, and Claude goes on."""
    with bench(CLAUDE, also=("codex",), SHIM_MCP="true") as server:
        server.models()
        server.models("codex")
        watch = open_watch(server)
        at = watch.prompt("[scene:delegate:codex:ask_bash:touch made.txt] go")
        answered: list[Json] = []

        def answer_asks() -> object:
            for ask in server.api.get("/permission"):
                answered.append(ask)
                server.api.post(f"/permission/{ask['id']}/reply", {"reply": "once"})
            return watch.at_rest(at)

        wait_for(answer_asks, 120, "the turn does not end")
        child = child_of(server, watch.session)
        assert child is not None
        asked = [ask for ask in answered if ask["sessionID"] == child["id"]]
        assert [ask["permission"] for ask in asked] == ["bash"], answered
        assert (server.place.project / "made.txt").exists()
        parts = tools(watch.wait_for_answer(at))
        assert '"permission"' in "".join(part["state"].get("output", "") for part in parts), parts
        assert "Done!" in parts[-1]["state"]["output"], parts


@pytest.mark.timeout(240)
def test_a_person_answers_for_the_other_agent_in_the_tui() -> None:
    """The other one's permission stands in the session of the agent that waits, and its session below that."""
    with bench(CLAUDE, also=("codex",), SHIM_MCP="true") as server:
        server.models()
        server.models("codex")
        watch = open_watch(server)
        screen = tui(server.place, server.url, session=watch.session)
        server.later(screen.close)
        at = watch.prompt("[scene:delegate:codex:ask_bash:touch made.txt] go")
        for word in ("Tool: opencode-shim_start_session", "# Shell command"):
            screen.wait(("Permission required", word), 60)
            screen.key("Enter")
        watch.wait_for_end(at)
        assert (server.place.project / "made.txt").exists()
        screen.wait("Done!", 30)
        leader(screen, "Down", ("Subagent", "say what you see"))
