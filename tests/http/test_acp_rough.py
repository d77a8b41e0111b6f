"""ACP agents that keep to little of the protocol, through the whole server."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.live import Live, live
from universal.agents.acp import spec

FAKE = Path(__file__).resolve().parent.parent / "fakes" / "acp_rough.py"
MODEL = {"providerID": "rough", "modelID": "default"}
TURN_S = 20.0


@asynccontextmanager
async def server(tmp_path: Path, manner: str, name: str = "rough") -> AsyncIterator[Live]:
    agents: Any = {name: {"command": [sys.executable, "-IS", str(FAKE), manner, str(tmp_path)], "title": "Rough"}}
    async with live(tmp_path, agents=agents, abort_timeout_s=2.0) as found:
        yield found


def texts(messages: list[Any]) -> list[tuple[str, str]]:
    """(role, text) of each message."""
    return [(m["info"]["role"], "".join(part.get("text", "") for part in m["parts"])) for m in messages]


async def test_idle_fires_after_text_that_comes_after_the_answer(tmp_path: Path) -> None:
    async with server(tmp_path, "late") as live_server:
        session, _ = await live_server.turn("The answer is forty-two.", model=MODEL)
        assert texts(await live_server.messages(session))[1] == ("assistant", "The answer is forty-two.")


async def test_text_without_a_prompt_has_a_turn_and_an_idle_of_its_own(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    async with server(tmp_path, "own") as live_server:
        session, fold = await live_server.turn("Built.", model=MODEL)
        async with live_server.api.stream("/event") as events:
            await asyncio.to_thread((tmp_path / "pipe").write_text, "The build has failed.")
            seen = await events.until("session.idle", TURN_S)
        assert [event["type"] for event in seen].count("session.idle") == 1
        assert texts(await live_server.messages(session))[1:] == [
            ("assistant", "Built."),
            ("assistant", "The build has failed."),
        ]
        assert fold.idles == 1


async def test_an_agent_that_does_not_answer_fails_the_prompt_with_its_own_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spec, "HANDSHAKE_S", 2.0)
    async with server(tmp_path, "silent") as live_server:
        session, _ = await live_server.turn("hello", model=MODEL)
        error = (await live_server.messages(session))[1]["info"]["error"]["data"]
        assert "Rough did not answer `initialize` within 2 seconds" in error["message"]
        assert "waiting for the sandbox" in error["message"]


async def test_an_agent_that_wants_a_login_uses_the_stored_key(tmp_path: Path) -> None:
    model = {"providerID": "gemini", "modelID": "default"}
    async with server(tmp_path, "login", "gemini") as live_server:
        session = await live_server.session()
        refused = await live_server.ask(session, "hello", model=model)
        assert "Authentication required" in refused["info"]["error"]["data"]["message"]
        await live_server.api.put("/auth/gemini", {"type": "api", "key": "k"}, status=200)
        answer = await live_server.ask(session, "hello", model=model)
        [text] = [part["text"] for part in answer["parts"] if part["type"] == "text"]
        assert text.endswith("\n\nhello")  # before it is what the agent has missed
