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


async def test_commands_have_them(r: Tui) -> None:
    await r.new()
    await put(r, {"GREETING": "hello there", "OPENCODE_SERVER_PASSWORD": "of another server"})
    assert await shell_output(r, 'echo "$GREETING" "$OPENCODE_SERVER_PASSWORD" "${PATH:+path}"') == "hello there  path"
    await put(r, {"OTHER": "1"})
    assert await shell_output(r, 'echo "<$GREETING>" $OTHER') == "<> 1"


async def test_the_agent_is_restarted_with_the_next_prompt(r: Tui) -> None:
    services: Services = r.live.api.raw.server.app[SERVICES]  # type: ignore[union-attr]
    await r.turn("echo one")
    actor = await services.sessions.actor(r.session)
    assert actor.alive
    await put(r, {"GREETING": "hello"})
    assert not actor.alive
    await r.turn("echo two")
    assert actor.alive
    await put(r, {"GREETING": "hello"})
    assert actor.alive, "nothing has changed"
    await r.prompt("hang")
    while not r.running:
        await r.take_next()
    await put(r, {})
    assert actor.alive, "what runs is not disturbed"
    await r.interrupt()
    await r.end()
    assert not actor.alive


@pytest.mark.parametrize("variables", [{"A=B": "x"}, {"": "x"}, {"A": "a\0b"}, {"A": 1}])
async def test_malformed_variables_are_refused(r: Tui, variables: dict[str, Any]) -> None:
    await r.new()
    assert (await put(r, variables, status=400)).body["_tag"] == "InvalidRequestError"
