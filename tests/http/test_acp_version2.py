"""An agent that speaks only version 2 of the Agent Client Protocol, through the whole server."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.live import Live, live

FAKE = Path(__file__).resolve().parent.parent / "fakes" / "acp_version2.py"
MODEL = {"providerID": "two", "modelID": "default"}
TURN_S = 20.0


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Live]:
    agents: Any = {"two": {"command": [sys.executable, "-IS", str(FAKE)], "title": "Two"}}
    async with live(tmp_path, agents=agents, abort_timeout_s=2.0) as found:
        yield found


async def answer_text(server: Live, text: str, session: str) -> str:
    """What the agent says to it."""
    answer = await server.ask(session, text, model=MODEL)
    return "".join(part["text"] for part in answer["parts"] if part["type"] == "text")


def card(messages: list[Any]) -> dict[str, Any]:
    """State of the only tool card."""
    [state] = [part["state"] for message in messages for part in message["parts"] if part["type"] == "tool"]
    return dict(state)


async def test_a_turn_is_over_with_the_agents_idle_and_not_with_its_answer(server: Live) -> None:
    session, _ = await server.turn("say Hello there", model=MODEL)
    [_, answer] = await server.messages(session)
    assert [part["text"] for part in answer["parts"] if part["type"] == "text"] == ["Hello there"]


async def test_a_command_is_asked_about_and_shown_with_its_terminal(server: Live) -> None:
    async def act(_events: Any, event: dict[str, Any]) -> None:
        if event["type"] == "permission.asked":
            await server.api.post(f"/permission/{event['properties']['id']}/reply", {"reply": "once"}, status=200)

    session, _ = await server.turn("run make test", act, model=MODEL)
    state = card(await server.messages(session))
    assert (state["status"], state["input"]["command"]) == ("completed", "make test")
    assert (state["metadata"]["exit"], state["metadata"]["output"]) == (0, "ran make test")


async def test_a_rule_that_denies_holds(server: Live) -> None:
    rules = [{"permission": "*", "pattern": "*", "action": "allow"}, {"permission": "bash", "pattern": "rm *", "action": "deny"}]
    session = await server.session(permission=rules)
    await answer_text(server, "run rm -rf build", session)
    assert card(await server.messages(session))["status"] == "error"
    other = await server.session(permission=rules)
    assert await answer_text(server, "run ls", other) == "It ran."


@pytest.mark.parametrize("word", ["fail", "refuse"])
async def test_an_error_before_or_after_the_acceptance_ends_the_turn(server: Live, word: str) -> None:
    session, _ = await server.turn(f"{word} The model is away.", model=MODEL)
    [_, answer] = await server.messages(session)
    assert "The model is away." in answer["info"]["error"]["data"]["message"]
    assert await answer_text(server, "say Back again", session) == "Back again"


async def test_an_abort_ends_the_turn_and_the_next_prompt_is_answered(server: Live) -> None:
    session = await server.session()
    async with server.api.stream("/event") as events:
        await server.prompt(session, "hang", model=MODEL)
        await events.until(lambda event: event["type"] == "message.part.delta")
        await server.api.post(f"/session/{session}/abort", status=200)
        await events.until(lambda event: event["type"] == "session.idle")
    assert await answer_text(server, "say Back again", session) == "Back again"


async def test_work_that_the_agent_begins_is_a_turn_with_an_idle_of_its_own(server: Live) -> None:
    session = await server.session()
    async with server.api.stream("/event") as events, asyncio.timeout(TURN_S):
        await server.prompt(session, "begin Your build is ready.", model=MODEL)
        for _ in range(2):
            await events.until(lambda event: event["type"] == "session.idle")
    messages = await server.messages(session)
    texts = [part["text"] for message in messages for part in message["parts"] if part["type"] == "text"]
    assert texts == ["begin Your build is ready.", "Later.", "Your build is ready."]
