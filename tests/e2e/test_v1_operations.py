"""Each operation of the universal API on the real command with a real agent, held against our document and the peers'."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiohttp import ClientSession

from tests.support.live import Live
from tests.support.universal import Face, peers_document

from .support.bench import CLAUDE, Bench, nightly

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120), pytest.mark.server(CLAUDE, *nightly("codex"), config={})]


class OperationRecorder(Face):
    """Knows which operations were called."""

    called: set[str]

    def _url(self, operation: str, names: dict[str, Any]) -> tuple[str, str, dict[str, Any]]:
        self.called.add(operation)
        return super()._url(operation, names)


@pytest.fixture
async def v1(server: Bench) -> AsyncIterator[OperationRecorder]:
    async with ClientSession(server.url) as client:
        face = OperationRecorder(cast(Live, SimpleNamespace(api=SimpleNamespace(raw=client), directory=server.place.project)))
        face.called = set()
        yield face


async def test_every_operation(server: Bench, v1: OperationRecorder) -> None:
    agent, home = server.shim.provider, server.place.project
    assert (await v1.call("get_health"))["status"] == "ok"
    told = {one["id"]: one for one in (await v1.call("list_agents"))["agents"]}
    assert (told[agent]["installed"], told[agent]["capabilities"]["permissions"]) == (True, True)
    assert (await v1.call("get_agent_models", agent=agent))["models"]
    assert "plan" in {mode["id"] for mode in (await v1.call("get_agent_modes", agent=agent))["modes"]}
    await v1.call("install_agent", agent=agent, json={"reinstall": False})

    await v1.call("create_session", session_id="s", json={"agent": agent, "directory": str(home)})
    await v1.call("create_session", session_id="s", json={"agent": agent}, status=409)
    [session] = (await v1.call("list_sessions"))["sessions"]
    assert (session["sessionId"], session["agent"], session["ended"]) == ("s", agent, False)

    await v1.call("post_message", session_id="s", json={"message": "[scene:text] hello"})
    async with v1.stream("get_events_sse", session_id="s", include_raw=True) as stream:
        first = await stream.until("turn.ended")
    assert [event["sequence"] for event in first] == list(range(1, len(first) + 1))
    assert all(event["raw"] is not None for event in first if event["source"] == "agent")

    command = {"message": "[scene:ask_bash:touch made.txt] do it"}
    async with v1.stream("post_message_stream", session_id="s", json=command) as stream:
        asked = (await stream.until("permission.requested"))[-1]["data"]["permission_id"]
        await v1.call("reply_permission", session_id="s", permission_id=asked, json={"reply": "once"})
        assert (await stream.rest())[-1]["data"]["metadata"]["reason"] == "completed"
    assert (home / "made.txt").exists()
    for reply in ("reply_question", "reject_question"):
        async with v1.stream("post_message_stream", session_id="s", json={"message": "[scene:question] ask"}) as stream:
            asked = (await stream.until("question.requested"))[-1]["data"]["question_id"]
            more = {"json": {"answers": [["Red"]]}} if reply == "reply_question" else {}
            await v1.call(reply, session_id="s", question_id=asked, **more)
            assert (await stream.rest())[-1]["type"] == "turn.ended"
    events = (await v1.call("get_events", session_id="s"))["events"]
    assert {event["raw"] for event in events} == {None}
    resolved = [event["data"]["status"] for event in events if event["type"] == "question.resolved"]
    assert resolved == ["answered", "rejected"]

    await v1.call("fs_mkdir", session_id="s", path="d")
    await v1.call("fs_write_file", session_id="s", path="d/a", data=b"\x00")
    await v1.call("fs_move", session_id="s", json={"from": "d/a", "to": "d/b"})
    assert (await v1.call("fs_stat", session_id="s", path="d/b"))["size"] == 1
    assert await v1.call("fs_read_file", session_id="s", path="d/b") == b"\x00"
    await v1.call("fs_upload_batch", session_id="s", path="d", data=bytes(1024))
    assert [entry["name"] for entry in await v1.call("fs_entries", session_id="s", path="d")] == ["b"]
    await v1.call("fs_delete_entry", session_id="s", path="d", recursive=True)
    assert not (home / "d").exists()

    assert server.agents()
    await v1.call("terminate_session", session_id="s")
    last = (await v1.call("get_events", session_id="s", offset=len(events)))["events"][-1]
    assert (last["type"], last["data"]["terminated_by"]) == ("session.ended", "daemon")
    assert peers_document().operations().keys() <= v1.called
    assert server.unparsed_messages() == []
