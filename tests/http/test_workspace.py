"""What is told of tools, and what the control plane of OpenCode has that this server has not."""

from __future__ import annotations

from tests.http.conftest import Place


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


async def test_workspaces_and_replication_are_refused_with_the_reason(place: Place) -> None:
    for path, body in (
        ("/experimental/workspace", {"type": "worktree"}),
        ("/sync/history", {}),
        ("/sync/steal", {"sessionID": "ses_x"}),
    ):
        refused = await place.api.post(path, body, status=501)
        assert "opencode-shim" in refused.body["data"]["message"]
    assert (await place.api.post("/sync/start", status=200)).body is True
