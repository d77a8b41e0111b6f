"""A session whose agent or model does not exist: the prompt is accepted and shown, and its execution fails with what to do, as in
2.1. (The build of July left the prompt in its inbox.)"""

from __future__ import annotations

from typing import Any

import pytest

from tests.http.opencode2.client import Tui

NONE = {"providerID": "nosuch", "id": "nosuch"}


async def inbox(client: Tui) -> list[str]:
    listed = (await client.call("GET", f"/api/session/{client.session}/{client.name('inbox')}")).body["data"]
    return [one["id"] for one in listed]


async def failure_message(client: Tui) -> str:
    """The message of the execution that fails next; no step was begun, and the prompt is shown before the error."""
    seen: list[dict[str, Any]] = []

    async def act(_: Tui, event: dict[str, Any]) -> None:
        if event["type"] == "session.execution.failed":
            seen.append(event["data"]["error"])

    assert await client.end(act) == "failed"
    assert "session.step.started" not in client.types
    execution = client.types.index("session.execution.failed")
    assert client.name("session.inbox.delivered") in client.types[:execution]
    [error] = seen
    assert error["type"] == "unknown"
    info = (await client.call("GET", f"/api/session/{client.session}")).body["data"]
    assert info["outcome"] == "failed"
    await client.assert_matches_server()
    assert await inbox(client) == []
    assert "send the next prompt" in error["message"], "it says what to do"
    return str(error["message"])


async def message_types(client: Tui) -> list[str]:
    """Types of the messages, without what was chosen meanwhile."""
    page = (await client.call("GET", f"/api/session/{client.session}/message", order="asc")).body["data"]
    return [one["type"] for one in page if not one["type"].endswith("-switched")]


@pytest.mark.parametrize(
    ("switch", "body", "names"),
    [
        ("model", {"model": NONE}, 'Provider not found: "nosuch"'),
        ("model", {"model": {"providerID": "mock", "id": "nosuch"}}, 'Model not found: "mock/nosuch"'),
        ("agent", {"agent": "nosuch"}, 'Agent not found: "nosuch"'),
    ],
)
async def test_an_unknown_choice_is_named_and_the_prompt_can_be_resumed(client: Tui, switch: str, body: Any, names: str) -> None:
    await client.new()
    base = f"/api/session/{client.session}"
    await client.call("POST", f"{base}/{switch}", body, status=204)
    waiting = await client.prompt("echo after all")
    assert names in await failure_message(client)
    assert await message_types(client) == ["user", "idle"]
    assert waiting["id"] in [one["id"] for one in (await client.call("GET", f"{base}/message")).body["data"]]
    back = {"model": {"providerID": "mock", "id": "mock"}} if switch == "model" else {"agent": "build"}
    await client.call("POST", f"{base}/{switch}", back, status=204)
    await client.call("POST", f"{base}/resume", status=204)
    assert await client.end() == "succeeded"
    await client.assert_matches_server()
    assert client.texts() == ["after all"]
    assert await inbox(client) == []
    assert (await message_types(client)).count("user") == 1, "it is the same prompt"


async def test_the_next_prompt_takes_along_the_one_that_failed(client: Tui) -> None:
    """Clients of 2.1 cannot resume: another model, and anything that is sent, is enough."""
    await client.new()
    base = f"/api/session/{client.session}"
    await client.call("POST", f"{base}/model", {"model": NONE}, status=204)
    await client.prompt("echo what was asked")
    await failure_message(client)
    await client.call("POST", f"{base}/model", {"model": {"providerID": "mock", "id": "mock"}}, status=204)
    await client.prompt("remember")
    assert await client.end() == "succeeded"
    await client.assert_matches_server()
    assert await message_types(client) == ["user", "idle", "user", "assistant", "idle"]
    [said] = client.texts()
    assert "I was also told what others said" in said


async def test_a_session_is_made_with_any_model(client: Tui) -> None:
    body = {"model": NONE, "location": {"directory": str(client.live.directory)}}
    made = (await client.call("POST", "/api/session", body)).body["data"]
    assert made["model"]["providerID"] == "nosuch"
    client.session = made["id"]
    await client.prompt("echo hello")
    assert 'Provider not found: "nosuch"' in await failure_message(client)
    assert "mock" in (await client.call("GET", "/api/model")).body["data"][0]["id"]


async def test_resumed_again_without_a_change_it_fails_again(client: Tui) -> None:
    await client.new()
    base = f"/api/session/{client.session}"
    await client.call("POST", f"{base}/agent", {"agent": "nosuch"}, status=204)
    await client.prompt("echo hello")
    await failure_message(client)
    await client.call("POST", f"{base}/resume", status=204)
    assert await client.end() == "failed"
    assert await message_types(client) == ["user", "idle", "idle"]


async def test_a_queued_prompt_goes_to_the_sessions_model_at_dispatch(client: Tui) -> None:
    await client.new()
    await client.prompt("echo hello", resume=False)
    await client.call("POST", f"/api/session/{client.session}/agent", {"agent": "plan"}, status=204)
    await client.call("POST", f"/api/session/{client.session}/resume", status=204)
    await client.end()
    [answer] = [
        one
        for one in (await client.call("GET", f"/api/session/{client.session}/message")).body["data"]
        if one["type"] == "assistant"
    ]
    assert answer["agent"] == "plan"
