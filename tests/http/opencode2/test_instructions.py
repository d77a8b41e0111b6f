"""Instructions of a session over OpenCode 2."""

from __future__ import annotations

from typing import Any

from shim.sessions.prompts.instructions import HEAD, MAX_ENTRIES, MAX_VALUE_BYTES
from tests.http.opencode2.client import Tui


def base(client: Tui) -> str:
    return f"/api/experimental/session/{client.session}/instructions/entries"


async def entries(client: Tui) -> list[dict[str, Any]]:
    return (await client.call("GET", base(client))).body["data"]


async def test_instructions_are_set_listed_sent_and_removed(client: Tui) -> None:
    await client.new()
    assert await entries(client) == []
    await client.call("PUT", f"{base(client)}/style", {"value": "Be brief."}, status=204)
    await client.call("PUT", f"{base(client)}/team.facts", {"value": {"tabs": 4, "by": None}}, status=204)
    assert await entries(client) == [
        {"key": "style", "value": "Be brief."},
        {"key": "team.facts", "value": {"tabs": 4, "by": None}},
    ]
    seen: list[dict[str, Any]] = []

    async def act(_: Tui, event: dict[str, Any]) -> None:
        if event["type"] == "session.instructions.updated":
            seen.append(event["data"])

    await client.prompt("echo hello")
    await client.end(act)
    [first] = seen
    assert set(first["delta"]) == {"style", "team.facts"}
    assert "text" not in first
    at = client.types.index("session.instructions.updated")
    assert client.types.index("session.execution.started") < at < client.types.index(client.name("session.inbox.delivered"))
    await client.turn("echo again", act)
    assert len(seen) == 1, "what has not changed is not told again"
    await client.call("DELETE", f"{base(client)}/team.facts", status=204)
    await client.call("DELETE", f"{base(client)}/team.facts", status=204)
    await client.turn("echo once more", act)
    assert seen[-1]["delta"] == {"team.facts": "removed"}
    messages = (await client.call("GET", f"/api/session/{client.session}/message", order="asc")).body["data"]
    [system] = [one for one in messages if one["type"] == "system"]
    assert system["text"] == seen[-1]["text"]
    assert system["text"].startswith(HEAD)
    kinds = [one["type"] for one in messages if one["type"] in ("system", "user")]
    assert kinds == ["user", "user", "system", "user"], "before the prompt that it goes along with"


async def test_malformed_instructions_are_refused(client: Tui) -> None:
    await client.new()
    assert (await client.call("PUT", f"{base(client)}/Not.A.Key", {"value": 1}, status=400)).body["_tag"] == "InvalidRequestError"
    large = await client.call("PUT", f"{base(client)}/large", {"value": "x" * MAX_VALUE_BYTES}, status=413)
    assert large.body["_tag"] == "InstructionEntryValueTooLargeError"
    assert (large.body["actualBytes"], large.body["maxBytes"]) == (MAX_VALUE_BYTES + 2, MAX_VALUE_BYTES)
    assert await entries(client) == []
    missing = await client.call("GET", "/api/experimental/session/ses_none/instructions/entries", status=404)
    assert missing.body["_tag"] == "SessionNotFoundError"


async def test_instructions_are_limited(client: Tui) -> None:
    await client.new()
    for number in range(MAX_ENTRIES):
        await client.call("PUT", f"{base(client)}/entry{number}", {"value": number}, status=204)
    async with client.live.api.raw.put(f"{base(client)}/more", json={"value": 1}) as answer:
        assert answer.status == 429
    await client.call("PUT", f"{base(client)}/entry0", {"value": "another"}, status=204)
    assert len(await entries(client)) == MAX_ENTRIES


async def test_a_fork_has_them(client: Tui) -> None:
    await client.new()
    await client.call("PUT", f"{base(client)}/style", {"value": "Be brief."}, status=204)
    await client.prompt("echo hello")
    await client.end()
    client.session = (await client.call("POST", f"/api/session/{client.session}/fork", {})).body["data"]["id"]
    assert await entries(client) == [{"key": "style", "value": "Be brief."}]
