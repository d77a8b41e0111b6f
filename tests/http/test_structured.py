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


FORMAT = {"type": "json_schema", "schema": SCHEMA, "retryCount": 0}


async def call(server: Live, path: str, body: Any, status: int) -> Any:
    """A POST on OpenCode 2's wire or `/v1`; the body of the answer."""
    async with server.api.raw.post(path, json=body, params={"directory": str(server.directory)}) as answered:
        assert answered.status == status, await answered.text()
        return await answered.json() if status != 204 else None


@pytest.mark.parametrize("words", ['{"age": 36}', '{"age": "old"}'])
async def test_opencode_2_has_the_value_in_the_metadata_of_the_message(tmp_path: Path, puppet: Puppet, words: str) -> None:
    async with live(tmp_path) as server, asyncio.timeout(20):
        session = await server.session()
        model = {"model": {"id": MODELS[0], "providerID": NAME}}
        await call(server, f"/api/session/{session}/model", model, 204)
        async with server.api.stream("/event") as events:
            await call(server, f"/api/session/{session}/prompt", {"text": "how old?", "metadata": {"format": FORMAT}}, 200)
            await answer(puppet, words)
            await events.until("session.idle", 10)
        async with server.api.raw.get(f"/api/session/{session}/message") as answered:
            rows = (await answered.json())["data"]
        (said,) = [row for row in rows if row["type"] == "assistant"]
    if "36" in words:
        assert said["metadata"] == {"structured": {"age": 36}}
    else:
        assert "does not match the schema" in said["error"]["message"]


async def test_v1_has_the_value_in_an_item(tmp_path: Path, puppet: Puppet) -> None:
    async with live(tmp_path) as server, asyncio.timeout(20):
        await call(server, "/v1/sessions/s", {"agent": NAME}, 200)
        await call(server, "/v1/sessions/s/messages", {"message": "how old?", "format": FORMAT}, 204)
        await answer(puppet, '{"age": 36}')
        values: list[Any] = []
        while not values:
            await asyncio.sleep(0)
            async with server.api.raw.get("/v1/sessions/s/events") as answered:
                items = [event["data"].get("item", {}) for event in (await answered.json())["events"]]
            values = [item["metadata"]["value"] for item in items if str(item.get("content", "")).find("'structured'") > 0]
    assert values == [{"age": 36}]


async def test_a_refused_format_has_its_place_on_each_wire(tmp_path: Path) -> None:
    wrong = {"type": "json_schema", "schema": {"properties": {"a": {"type": "text"}}}}
    place = '["format"]["schema"]["properties"]["a"]["type"]'
    async with live(tmp_path) as server:
        session = await server.session()
        body = {"text": "hi", "metadata": {"format": wrong}}
        assert f'["metadata"]{place}' in str(await call(server, f"/api/session/{session}/prompt", body, 400))
        await call(server, "/v1/sessions/s", {"agent": "mock"}, 200)
        assert place in str(await call(server, "/v1/sessions/s/messages", {"message": "hi", "format": wrong}, 400))


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
