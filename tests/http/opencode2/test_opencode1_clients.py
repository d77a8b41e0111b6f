"""Requests of OpenCode 1 clients to `/api`: answers are held against the document of 1.18."""

from __future__ import annotations

import pytest

from tests.http.conftest import Place
from tests.support.oracle import oracle

FIRST = {"User-Agent": "opencode/1.18.33"}
ASKED = [
    "/api/health",
    "/api/location",
    "/api/agent",
    "/api/model",
    "/api/provider",
    "/api/provider/claude",
    "/api/integration",
    "/api/integration/claude",
    "/api/command",
    "/api/skill",
    "/api/reference",
    "/api/fs/list",
    "/api/fs/find?query=READ",
    "/api/pty",
]


@pytest.mark.parametrize("path", ASKED)
async def test_answers_to_1_x_are_as_its_document_says(place: Place, path: str) -> None:
    folder = place.project / ".claude" / "skills" / "review"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text("---\nname: Review\ndescription: d\n---\nLook.\n")
    assert oracle().operation_of("GET", path.partition("?")[0]) is not None
    body = (await place.api.get(path, headers=FIRST, status=200)).body
    if "location" in body:
        assert body["location"]["project"]["directory"] == place.directory


async def test_a_terminal(place: Place) -> None:
    made = (await place.api.post("/api/pty", {"command": "cat"}, headers=FIRST, status=200)).body["data"]
    path = f"/api/pty/{made['id']}"
    await place.api.get(path, headers=FIRST, status=200)
    await place.api.request("PUT", path, json={"title": "x"}, headers=FIRST, status=200)
    await place.api.post(f"{path}/connect-token", headers={**FIRST, "x-opencode-ticket": "1"}, status=200)
    await place.api.delete(path, headers=FIRST, status=204)
