"""Texts that are asked beside all conversations: by a process of their own, of which no client sees anything."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from shim.sessions.prompts import generate as module
from shim.store.sqlite import SqliteStore
from tests.http.opencode2.client import Tui
from tests.support.live import live, with_claude

TEXT = "/api/experimental/generate"


async def test_a_text_of_no_session(client: Tui) -> None:
    sessions = (await client.call("GET", "/api/session")).body["data"]
    path = TEXT
    model = {"providerID": "mock", "id": "mock"}
    assert (await client.call("POST", path, {"prompt": "echo a title"})).body == {"data": {"text": "a title"}}
    assert (await client.call("POST", path, {"prompt": "echo another", "model": model})).body == {"data": {"text": "another"}}
    assert (await client.call("GET", "/api/session")).body["data"] == sessions
    await client.turn("echo hello")
    assert {type_ for type_ in client.types if type_.startswith("session.execution")} == {
        "session.execution.started",
        "session.execution.succeeded",
    }
    assert client.starts == 1, "no event was told of the others"


async def test_a_text_of_a_program(tmp_path: Path) -> None:
    """Its hidden session is not in the store, so that no agent of it is on a holder."""
    async with live(tmp_path, environ=with_claude(tmp_path), store=SqliteStore(tmp_path / "journal.db"), outlive=True) as running:
        body = {"prompt": "[deltas:3]", "model": {"providerID": "claude", "id": "default"}}
        answer: Any = (await running.api.post(TEXT, body, status=200)).body
    assert answer["data"]["text"]


async def test_a_text_of_a_session_that_works(client: Tui) -> None:
    await client.turn("echo hello")
    await client.prompt("hang")
    while client.types[-1:] != ["session.text.delta"]:  # interrupted before it is handed over, it would wait
        await client.take_next()
    path = f"/api/session/{client.session}/generate"
    said = (await client.call("POST", path, {"prompt": "help"})).body["data"]["text"]
    assert "echo" in said, "the mock lists its words"
    await client.interrupt()
    await client.end()
    messages = (await client.call("GET", f"/api/session/{client.session}/message")).body["data"]
    assert [one["text"] for one in messages if one["type"] == "user"] == ["hang", "echo hello"]


@pytest.mark.parametrize("word", ["tool", "edit", "permission", "question", "crash", "error"])
async def test_an_answer_without_text_is_an_error(client: Tui, word: str) -> None:
    answer = await client.call("POST", TEXT, {"prompt": word}, status=503)
    assert answer.body["_tag"] == "ServiceUnavailableError"
    assert answer.body["service"] == "mock"
    assert answer.body["message"]
    assert not list(client.live.directory.iterdir()), "nothing was done"


async def test_an_unknown_model_and_session(client: Tui) -> None:
    model = {"providerID": "nosuch", "id": "x"}
    assert "nosuch" in (await client.call("POST", TEXT, {"prompt": "echo", "model": model}, status=400)).body["message"]
    missing = await client.call("POST", "/api/session/ses_none/generate", {"prompt": "echo"}, status=404)
    assert missing.body["sessionID"] == "ses_none"


async def test_generating_text_is_bounded_in_time_and_number(client: Tui, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GENERATE_S", 1.0)
    answers = await asyncio.gather(*(client.live.api.raw.post(TEXT, json={"prompt": "hang"}) for _ in range(module.AT_ONCE + 1)))
    said = [(await one.json())["message"] for one in answers]
    assert [one.status for one in answers] == [503] * (module.AT_ONCE + 1)
    assert sum("at the same time" in one for one in said) == 1
    assert sum("did not answer within 1 s" in one for one in said) == module.AT_ONCE
    assert (await client.call("POST", TEXT, {"prompt": "echo again"})).body["data"]["text"] == "again"
