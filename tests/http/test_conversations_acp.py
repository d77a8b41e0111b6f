"""Conversations of an agent that speaks ACP: listed, opened with their history, continued, and deleted with their session."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.support.live import Live, live

FAKE = Path(__file__).resolve().parent.parent / "fakes" / "acp_archive.py"
MODEL = {"providerID": "archive", "modelID": "default"}
ID = "begun-elsewhere"
FOLLOWS_S = 20.0


@asynccontextmanager
async def server(tmp_path: Path) -> AsyncIterator[Live]:
    directory = (tmp_path / "project").resolve()
    words = [str(tmp_path / "asked"), str(directory), datetime.now(UTC).isoformat()]
    agents: Any = {"archive": {"command": [sys.executable, "-IS", str(FAKE), *words], "title": "Archive"}}
    async with live(tmp_path, agents=agents) as found:
        yield found


async def v1(server: Live, method: str, id_: str = "") -> tuple[int, Any]:
    """A call of our own API: status and body."""
    path, params = f"/v1/agents/archive/x-sessions{id_ and '/' + id_}", {"directory": str(server.directory)}
    async with server.api.raw.request(method, path, params=params) as answer:
        return answer.status, await answer.json()


async def follows(tmp_path: Path, line: str) -> None:
    """Wait until the agent was asked this."""
    async with asyncio.timeout(FOLLOWS_S):
        while line not in (tmp_path / "asked").read_text().splitlines():
            await asyncio.sleep(0.05)


async def test_a_conversation_is_opened_continued_and_deleted(tmp_path: Path) -> None:
    async with server(tmp_path) as live_server:
        (row,) = (await v1(live_server, "GET"))[1]["sessions"]
        assert (row["id"], row["title"]) == (ID, "Its own")
        assert "command" not in row, "nobody knows how its own program goes on with one"
        session = (await v1(live_server, "POST", ID))[1]["sessionId"]
        history = await live_server.messages(session)
        assert ["".join(part.get("text", "") for part in m["parts"]) for m in history] == ["what is it?", "It is this."]
        answer = await live_server.ask(session, "and then?", model=MODEL)
        assert [part["text"] for part in answer["parts"] if part["type"] == "text"] == ["And so on."]
        await follows(tmp_path, f"session/resume {ID}")
        await live_server.api.delete(f"/session/{session}", status=200)
        await follows(tmp_path, f"session/delete {ID}")


async def test_a_discovery_leaves_no_session(tmp_path: Path) -> None:
    async with server(tmp_path) as live_server:
        await live_server.api.get("/provider", status=200)
        await follows(tmp_path, "session/delete begun-here")


async def test_untrusted_settings_keep_a_history_closed(tmp_path: Path) -> None:
    async with server(tmp_path) as live_server:
        hooks = {"hooks": {"SessionStart": [{"hooks": [{"type": "command", "command": "touch /tmp/owned"}]}]}}
        (live_server.directory / ".claude").mkdir()
        (live_server.directory / ".claude" / "settings.json").write_text(json.dumps(hooks))
        status, refusal = await v1(live_server, "POST", ID)
        assert status == 400
        assert "nobody has trusted" in json.dumps(refusal)
        asked = tmp_path / "asked"
        assert not asked.exists() or f"session/load {ID}" not in asked.read_text()
