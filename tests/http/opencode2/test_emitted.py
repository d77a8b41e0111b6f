"""Events of OpenCode 2 for changes outside of sessions; each is held against its schema."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.http.conftest import repository
from tests.support.live import Live, live


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Live]:
    repository(tmp_path / "project", {"README.md": "Hello\n"})
    async with live(tmp_path) as made:
        yield made


@pytest.mark.parametrize(
    ("method", "path", "body", "types"),
    [
        ("POST", "/api/integration/openai/connect/key", {"key": "k"}, ["credential.updated", "integration.updated"]),
        ("DELETE", "/api/credential/openai", None, ["credential.updated", "model.updated"]),
        ("PATCH", "/api/experimental/config", {"shell": "/bin/sh"}, ["config.updated"]),
        ("POST", "/api/location/reload", None, ["location.shutdown"]),
    ],
)
async def test_changes_of_the_host_become_events(server: Live, method: str, path: str, body: Any, types: list[str]) -> None:
    async with server.api.stream("/api/event") as events:
        await events.until("server.connected")
        await server.api.request(method, path, status=204, **({} if body is None else {"json": body}))
        for type_ in types:
            assert (await events.until(type_))[-1]["data"] == {}


async def test_commands_terminals_and_worktrees(server: Live) -> None:
    async with server.api.stream("/api/event") as events:
        await events.until("server.connected")
        made = (await server.api.post("/api/shell", {"command": "exit 3"}, status=200)).body["data"]
        seen = await events.until("shell.exited")
        assert [one["type"] for one in seen if one["type"].startswith("shell.")] == ["shell.created", "shell.exited"]
        assert seen[-1]["data"] == {"id": made["id"], "status": "exited", "exit": 3}
        assert seen[-1]["location"] == {"directory": str(server.directory)}
        await server.api.delete(f"/api/shell/{made['id']}", status=204)
        assert (await events.until("shell.deleted"))[-1]["data"] == {"id": made["id"]}
        terminal = (await server.api.post("/api/pty", {"command": "cat"}, status=200)).body["data"]
        assert (await events.until("pty.created"))[-1]["data"] == {"info": terminal}
        await server.api.delete(f"/api/pty/{terminal['id']}", status=204)
        assert (await events.until("pty.deleted"))[-1]["data"] == {"id": terminal["id"]}
        project = (await server.api.get("/api/location", status=200)).body["project"]["id"]
        await server.api.post("/api/worktree", {"projectID": project}, status=200)
        assert (await events.until("worktree.updated"))[-1]["data"] == {"projectID": project}
        await server.api.patch(f"/api/project/{project}", {"name": "mine"}, status=200)
        assert (await events.until("project.updated"))[-1]["data"]["id"] == project
