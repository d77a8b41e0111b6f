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
    [skill, answer] = [one for one in await messages(server, session) if one["type"] in ("skill", "assistant", "user")]
    assert (skill["type"], skill["skill"], skill["name"]) == ("skill", "review", "Review")
    assert skill["text"].strip() == "Look at every line."
    assert "Look at every line." in answer["content"][0]["text"], "the agent did not get it"


async def test_put_there_for_the_next_prompt(server: Live) -> None:
    """It is shown at once, and the agent gets it with the prompt."""
    session = await server.session()
    body = {"id": "review", "resume": False}
    await server.api.post(f"/api/experimental/session/{session}/skill", body, status=204)
    assert [one["type"] for one in await messages(server, session)] == ["skill"]
    assert (await server.api.get(f"/api/session/{session}/inbox", status=200)).body["data"] == []
    await server.api.post(f"/api/session/{session}/prompt", {"text": "remember"}, status=200)
    await server.api.post(f"/api/experimental/session/{session}/wait", status=204)
    assert [one["type"] for one in await messages(server, session)][:3] == ["skill", "user", "assistant"]


async def test_an_unknown_skill_is_refused(server: Live) -> None:
    session = await server.session()
    refused = await server.api.post(f"/api/experimental/session/{session}/skill", {"id": "none"}, status=404)
    assert (refused.body["_tag"], refused.body["skill"]) == ("SkillNotFoundError", "none")
    body = {"text": "echo hello", "skills": [{"id": "none"}]}
    refused = await server.api.post(f"/api/session/{session}/prompt", body, status=400)
    assert refused.body["field"] == "skills"
    assert await messages(server, session) == []
