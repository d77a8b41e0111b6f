"""A skill that a person names: the agent gets its text, clients see that it was named."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.live import Live, live

MENTION = {"start": 0, "end": 7, "text": "@review"}


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Live]:
    async with live(tmp_path) as made:
        folder = made.directory / ".claude" / "skills" / "review"
        folder.mkdir(parents=True)
        (folder / "SKILL.md").write_text("---\nname: Review\ndescription: d\n---\nLook at every line.\n")
        yield made


async def messages(server: Live, session: str) -> list[Any]:
    return (await server.api.get(f"/api/session/{session}/message", params={"order": "asc"}, status=200)).body["data"]


async def test_named_in_a_prompt(server: Live) -> None:
    session = await server.session()
    body = {"text": "echo hello", "skills": [{"id": "review", "mention": MENTION}]}
    accepted = (await server.api.post(f"/api/session/{session}/prompt", body, status=200)).body["data"]
    await server.api.post(f"/api/experimental/session/{session}/wait", status=204)
    named = [{"id": "review", "name": "Review", "text": "Look at every line.", "mention": MENTION}]
    assert accepted["payload"] == {"text": "echo hello", "skills": named}
    user = next(one for one in await messages(server, session) if one["type"] == "user")
    assert (user["text"], user["skills"]) == ("echo hello", named)
    first = (await server.messages(session))[0]
    told = [part["text"] for part in first["parts"] if part.get("synthetic")]
    assert len(told) == 1 and "Look at every line." in told[0] and 'name="Review"' in told[0]


async def test_put_into_the_conversation(server: Live) -> None:
    session = await server.session()
    await server.api.post(f"/api/experimental/session/{session}/skill", {"id": "review"}, status=204)
    await server.api.post(f"/api/experimental/session/{session}/wait", status=204)
    first = next(one for one in await messages(server, session) if one["type"] == "synthetic")
    assert first["description"] == "Skill Review"
    assert "Look at every line." in first["text"]


async def test_one_that_is_not_there(server: Live) -> None:
    session = await server.session()
    refused = await server.api.post(f"/api/experimental/session/{session}/skill", {"id": "none"}, status=404)
    assert (refused.body["_tag"], refused.body["skill"]) == ("SkillNotFoundError", "none")
    body = {"text": "echo hello", "skills": [{"id": "none"}]}
    refused = await server.api.post(f"/api/session/{session}/prompt", body, status=400)
    assert refused.body["field"] == "skills"
    assert await messages(server, session) == []
