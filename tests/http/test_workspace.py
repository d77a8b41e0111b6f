"""Workspaces of the control plane, and what is told of tools."""

from __future__ import annotations

from pathlib import Path

from tests.http.conftest import Place

PATH = "/experimental/workspace"


async def test_life(place: Place) -> None:
    project = (await place.api.get("/project/current", status=200)).body["id"]
    assert (await place.api.get(f"{PATH}/adapter", status=200)).body == [
        {"type": "worktree", "name": "Worktree", "description": "Create a git worktree"}
    ]
    async with place.api.stream("/event") as events:
        made = (await place.api.post(PATH, {"type": "worktree", "branch": "my work", "extra": {"a": 1}}, status=200)).body
        assert (await events.until("workspace.status"))[-1]["properties"] == {"workspaceID": made["id"], "status": "connected"}
    await place.services.worktrees.settle()
    assert (made["name"], made["branch"], made["projectID"], made["extra"]) == ("my-work", "opencode/my-work", project, {"a": 1})
    assert (Path(made["directory"]) / "README.md").read_text() == "Hello\n"
    assert (await place.api.get(PATH, status=200)).body == [made]
    assert (await place.api.get(PATH, params={"directory": made["directory"]}, status=200)).body == [made]
    assert (await place.api.get(f"{PATH}/status", status=200)).body == [{"workspaceID": made["id"], "status": "connected"}]
    await place.api.post(f"{PATH}/sync-list", status=204)
    assert (await place.api.delete(f"{PATH}/{made['id']}", status=200)).body == made
    assert place.sessions.disposed == [made["directory"]]
    assert not Path(made["directory"]).exists()
    assert (await place.api.get(PATH, status=200)).body == []
    await place.api.delete(f"{PATH}/{made['id']}", status=404)


async def test_refused(place: Place) -> None:
    for body, options in (({"type": "nope"}, {}), ({"type": "worktree"}, {"params": {"directory": str(place.home)}})):
        assert (await place.api.post(PATH, body, status=400, **options)).body["name"] == "WorkspaceCreateError"
    one = await place.api.post(PATH, {"type": "worktree", "id": "wrk_mine"}, status=200)
    assert one.body["id"] == "wrk_mine"
    assert "already" in (await place.api.post(PATH, {"type": "worktree", "id": "wrk_mine"}, status=400)).body["data"]["message"]
    await place.api.post(PATH, {"type": "worktree", "id": "nope"}, status=400)


async def test_tools_as_their_calls_are_shown(place: Place) -> None:
    ids = (await place.api.get("/experimental/tool/ids", status=200)).body
    assert {"bash", "read", "edit", "todowrite"} <= set(ids) and len(ids) == len(set(ids))
    listed = (await place.api.get("/experimental/tool", params={"provider": "claude", "model": "any"}, status=200)).body
    tools = {one["id"]: one for one in listed}
    assert set(tools) == set(ids)
    assert tools["edit"]["parameters"]["properties"]["filePath"] == {"type": "string"}
    assert tools["bash"]["parameters"]["required"] == ["command"]
    assert "Bash" in tools["bash"]["description"]
    unknown = await place.api.get("/experimental/tool", params={"provider": "nope", "model": "x"}, status=400)
    assert "claude" in unknown.body["data"]["message"]


async def test_nothing_is_sent_to_the_background(place: Place) -> None:
    assert (await place.api.post("/experimental/session/ses_x/background", status=200)).body is False
