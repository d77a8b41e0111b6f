"""Prompts whose answer is to be in a JSON schema, with an agent that takes none."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path
from typing import Any

import pytest

from tests.support.live import Live, live
from tests.support.puppet import MODELS, NAME, Puppet, PuppetPrompt

pytestmark = pytest.mark.asyncio
NUMBERS = itertools.count()
MODEL = {"providerID": NAME, "modelID": MODELS[0]}
SCHEMA = {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}


@pytest.fixture
def puppet(monkeypatch: pytest.MonkeyPatch) -> Puppet:
    made = Puppet()
    made.install(monkeypatch)
    return made


async def answer(puppet: Puppet, words: str) -> PuppetPrompt:
    to = await puppet.next_prompt()
    step = f"step{next(NUMBERS)}"
    await puppet.say(to, type="step_start", step=step)
    await puppet.say(to, type="text", step=step, part="t0", delta=words)
    await puppet.say(to, type="step_finish", step=step, finish="stop")
    await puppet.say(to, type="done", run=to.run, status="completed")
    return to


async def ask(server: Live, puppet: Puppet, *words: str, **format_: Any) -> tuple[Any, list[PuppetPrompt]]:
    """A prompt with the schema, answered with these words, one after the other: the answer's info, and what the agent got."""
    session = await server.session()
    fields = {"type": "json_schema", "schema": SCHEMA, **format_}

    async def answers() -> list[PuppetPrompt]:
        return [await answer(puppet, each) for each in words]

    async with asyncio.timeout(10):
        asked, given = await asyncio.gather(server.ask(session, "how old?", model=MODEL, format=fields), answers())
    return asked["info"], given


@pytest.mark.parametrize("words", ['{"age": 36}', 'It is:\n```json\n{"age": 36}\n```\nDone.'])
async def test_an_agent_gets_the_schema_and_its_answer_has_the_value(tmp_path: Path, puppet: Puppet, words: str) -> None:
    async with live(tmp_path) as server:
        info, (given,) = await ask(server, puppet, words)
    assert "age" in str(given.frame), "it is told the schema"
    assert info["structured"] == {"age": 36}


async def test_the_server_asks_again_as_often_as_the_prompt_says(tmp_path: Path, puppet: Puppet) -> None:
    async with live(tmp_path) as server:
        info, (_, again) = await ask(server, puppet, "I do not know", '{"age": "old"}', retryCount=1)
    assert "it is no JSON" in str(again.frame["text"])
    assert info["error"] == {
        "name": "StructuredOutputError",
        "data": {"message": 'The answer does not match the schema: /age: "old" is not of type "integer".', "retries": 1},
    }


@pytest.mark.parametrize(
    ("format_", "place"),
    [
        ({"type": "xml"}, '["format"]["type"]'),
        ({"type": "json_schema"}, '["format"]["schema"]'),
        (
            {"type": "json_schema", "schema": {"properties": {"a": {"type": "text"}}}},
            '["format"]["schema"]["properties"]["a"]["type"]',
        ),
        ({"type": "json_schema", "schema": SCHEMA, "retryCount": -1}, '["format"]["retryCount"]'),
    ],
)
async def test_a_refused_format_has_its_place(tmp_path: Path, format_: Any, place: str) -> None:
    async with live(tmp_path) as server:
        session = await server.session()
        body = {"parts": [{"type": "text", "text": "hi"}], "format": format_}
        refused = await server.api.post(f"/session/{session}/message", body, status=400)
        assert place in refused.body["data"]["message"]
