"""Variables of a session: for its commands at once, and for its agent from its next start on."""

from __future__ import annotations

from typing import Any

import pytest

from shim.http.services import Services
from shim.main.app import SERVICES
from tests.http.opencode2.client import Tui


async def put(client: Tui, variables: dict[str, Any], status: int = 204) -> Any:
    path = f"/api/session/{client.session}/environment"
    return await client.call("PUT", path, {"variables": variables}, status=status)


async def shell_output(client: Tui, command: str) -> str:
    await client.call("POST", f"/api/session/{client.session}/shell", {"command": command}, status=204)
    messages = (await client.call("GET", f"/api/session/{client.session}/message")).body["data"]
    return str(next(one for one in messages if one["type"] == "shell")["output"]["output"]).strip()


async def test_commands_have_them(client: Tui) -> None:
    await client.new()
    await put(client, {"GREETING": "hello there", "OPENCODE_SERVER_PASSWORD": "of another server"})
    assert await shell_output(client, 'echo "$GREETING" "$OPENCODE_SERVER_PASSWORD" "${PATH:+path}"') == "hello there  path"
    await put(client, {"OTHER": "1"})
    assert await shell_output(client, 'echo "<$GREETING>" $OTHER') == "<> 1"


async def test_the_agent_is_restarted_with_the_next_prompt(client: Tui) -> None:
    services: Services = client.live.api.raw.server.app[SERVICES]  # type: ignore[union-attr]
    await client.turn("echo one")
    actor = await services.sessions.actor(client.session)
    assert actor.process.is_alive
    await put(client, {"GREETING": "hello"})
    assert not actor.process.is_alive
    await client.turn("echo two")
    assert actor.process.is_alive
    await put(client, {"GREETING": "hello"})
    assert actor.process.is_alive, "nothing has changed"
    await client.prompt("hang")
    while not client.running:
        await client.take_next()
    await put(client, {})
    assert actor.process.is_alive, "what runs is not disturbed"
    await client.interrupt()
    await client.end()
    assert not actor.process.is_alive


@pytest.mark.parametrize("variables", [{"A=B": "x"}, {"": "x"}, {"A": "a\0b"}, {"A": 1}])
async def test_malformed_variables_are_refused(client: Tui, variables: dict[str, Any]) -> None:
    await client.new()
    assert (await put(client, variables, status=400)).body["_tag"] == "InvalidRequestError"
