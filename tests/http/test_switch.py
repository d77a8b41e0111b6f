"""Another model in the middle of a session: of the same agent without a new process, of another agent with the conversation."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from shim.sessions.prompts import context
from tests.support.live import Live, live

FAKE = Path(__file__).resolve().parent.parent / "fakes" / "acp_two_models.py"
TURN_S = 20.0
MOCK = {"providerID": "mock", "modelID": "mock"}
SMALL, LARGE = ({"providerID": "two", "modelID": name} for name in ("small", "large"))


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Live]:
    own: Any = {"two": {"command": [sys.executable, "-IS", str(FAKE)], "title": "Two Models"}}
    async with live(tmp_path, agents=own) as found:
        await found.api.get("/provider", status=200)
        yield found


async def answer(server: Live, session: str, text: str, model: dict[str, str]) -> str:
    """The last text of the answer."""
    said = await server.ask(session, text, model=model)
    return str(next(part["text"] for part in reversed(said["parts"]) if part["type"] == "text"))


async def test_another_model_of_the_same_agent_needs_no_new_process(server: Live) -> None:
    session = await server.session()
    answers = [(await answer(server, session, "hi", model)).split()[:2] for model in (SMALL, LARGE, LARGE, SMALL)]
    assert [model for _, model in answers] == ["small", "large", "large", "small"]
    assert len({pid for pid, _ in answers}) == 1


async def test_another_agent_gets_the_conversation_and_the_person_a_notice(server: Live) -> None:
    session = await server.session()
    await answer(server, session, "echo the word is magenta", MOCK)
    said = await answer(server, session, "hi", SMALL)
    assert "<earlier-in-this-conversation>" in said
    assert "User:\necho the word is magenta" in said
    [first] = handovers(await server.messages(session))
    assert first == "*Two Models takes over from Mock. It is told what was said so far (2 messages, as text).*"
    again = await answer(server, session, "again", LARGE)
    assert again.split()[0] == said.split()[0]
    assert "earlier-in-this" not in again
    await answer(server, session, "echo back", MOCK)
    [_, back] = handovers(await server.messages(session))
    assert back.startswith("*Mock takes over from Two Models. It is told what was said so far (4 messages")


async def test_a_fork_says_who_takes_over_from_whom(server: Live) -> None:
    """Its agent begins a new conversation and is told all; that it goes on with its own words is no take-over."""
    session = await server.session()
    await answer(server, session, "hi", SMALL)
    await answer(server, session, "echo the word is magenta", MOCK)
    copy = (await server.api.post(f"/session/{session}/fork", {}, status=200)).body["id"]
    copied = len(await server.messages(copy))
    await server.ask(copy, "echo on")
    assert (await server.messages(copy))[-1]["info"]["providerID"] == "mock", "the agent of the session that it is a copy of"
    assert handovers((await server.messages(copy))[copied:]) == []
    await answer(server, copy, "and you", LARGE)
    [sentence] = handovers((await server.messages(copy))[copied:])
    assert sentence.startswith("*Two Models takes over from Mock. ")


def handovers(messages: list[Any]) -> list[str]:
    """The sentences by which the person is told of another agent."""
    return [
        part["text"]
        for message in messages
        for part in message["parts"]
        if part.get("metadata") == {"handover": True} and part["synthetic"]
    ]


async def test_the_handover_text_is_bounded(server: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context, "CONTEXT_LIMIT_CHARS", 100)
    session = await server.session()
    for number in range(3):
        await answer(server, session, f"echo number {number} {'x' * 40}", MOCK)
    said = await answer(server, session, "hi", SMALL)
    assert "(older messages are left out)" in said
    assert "number 0" not in said
    [sentence] = handovers(await server.messages(session))
    assert "what is older did not fit and was left out" in sentence


async def test_a_process_that_dies_ends_only_its_own_session(server: Live) -> None:
    """Each session has its process (ADR 13): the crash of one is one idle of one session."""
    other = await server.session()
    pid = (await answer(server, other, "hi", SMALL)).split()[0]
    _, fold = await server.turn("die", model=SMALL)
    assert fold.idles == 1
    assert "exited in the middle of the turn (exit code 9)" in fold.errors[0]["data"]["message"]
    assert (await answer(server, other, "hi", SMALL)).split()[0] == pid
