"""Sessions of the agents' own programs in the clients' lists: when they are shown, and what opens them."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from shim.sessions.transfer import conversations
from tests.http.test_conversations import IDS, write
from tests.http.test_conversations_acp import FAKE, MODEL, follows
from tests.http.test_people import OWNER, PASSWORD, as_
from tests.support.live import Live, live

ACP, CLAUDE = "Archive · Its own", "Claude Code · is it?"
READS = ("", "/message", "/todo", "/diff", "/children")


@asynccontextmanager
async def server(tmp_path: Path, **settings: Any) -> AsyncIterator[Live]:
    """A server with two agents that have a conversation of the project each: in a file, and in the list of a program."""
    directory, program = (tmp_path / "project").resolve(), tmp_path / "bin" / "claude"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\nexit 1\n")
    program.chmod(0o700)
    hour_ago = time.time() - 3600
    os.utime(write(tmp_path / "home", IDS[0], directory), (hour_ago, hour_ago))
    write(tmp_path / "home", IDS[1], tmp_path / "elsewhere")
    words = [str(tmp_path / "asked"), str(directory), datetime.now(UTC).isoformat()]
    agents: Any = {"archive": {"command": [sys.executable, "-IS", str(FAKE), *words], "title": "Archive"}}
    environ = {"PATH": f"{program.parent}:/usr/bin:/bin", "HOME": str(tmp_path / "home")}
    async with live(tmp_path, agents=agents, environ=environ, **settings) as found:
        yield found


async def titles(server: Live, path: str = "/session", **query: Any) -> list[str]:
    body: Any = await (await server.api.raw.get(path, params=query)).json()
    rows = body.get("data") or body.get("sessions", []) if "v1" in path or "api" in path else body
    return [row["title"] for row in rows]


async def find(server: Live, search: str) -> str:
    (row,) = (await server.api.get("/session", params={"search": search}, status=200)).body
    return str(row["id"])


async def test_a_search_shows_them_after_the_servers_own(tmp_path: Path) -> None:
    async with server(tmp_path) as live_server:
        await live_server.session(title="Archive, or is it?")
        assert await titles(live_server) == ["Archive, or is it?"], "never unasked"
        assert await titles(live_server, search="nothing") == []
        assert await titles(live_server, search="IS IT") == ["Archive, or is it?", CLAUDE]
        assert await titles(live_server, search="archive") == ["Archive, or is it?", ACP]
        assert await titles(live_server, search="i", limit=2) == ["Archive, or is it?", ACP]
        for path in ("/experimental/session", "/api/session", "/v1/sessions"):
            assert await titles(live_server, path) == ["Archive, or is it?"]
            assert sorted(await titles(live_server, path, search="i")) == [ACP, "Archive, or is it?", CLAUDE]


async def test_the_setting_shows_them_in_all_lists_or_in_none(tmp_path: Path) -> None:
    async with server(tmp_path, native_sessions="list") as live_server:
        for path in ("/session", "/experimental/session", "/api/session", "/v1/sessions"):
            assert await titles(live_server, path) == [ACP, CLAUDE]
    (tmp_path / "bin" / "claude").unlink()
    (tmp_path / "bin").rmdir()
    async with server(tmp_path, native_sessions="off") as live_server:
        assert await titles(live_server, search="i") == []


async def test_an_older_session_is_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with server(tmp_path) as live_server:
        write(tmp_path / "home", IDS[0], live_server.directory)
        monkeypatch.setattr(conversations, "DAY_MS", -10_000)
        assert await titles(live_server, search="i") == []


async def test_readers_at_once_open_a_session_once_and_see_its_history(tmp_path: Path) -> None:
    async with server(tmp_path) as live_server:
        id_ = await find(live_server, "archive")
        assert await find(live_server, "its own") == id_
        answers = await asyncio.gather(*(live_server.api.get(f"/session/{id_}{end}", status=200) for end in READS))
        assert answers[0].body["title"] == ACP
        assert [part["text"] for message in answers[1].body for part in message["parts"] if "text" in part] == [
            "what is it?",
            "It is this.",
        ]
        assert await titles(live_server) == [ACP]
        assert await titles(live_server, search="archive") == [ACP], "it is shown once"
        answer = await live_server.ask(id_, "and then?", model=MODEL)
        assert [part["text"] for part in answer["parts"] if part["type"] == "text"] == ["And so on."]
        await follows(tmp_path, "session/resume begun-elsewhere")


@pytest.mark.parametrize("path", ["/api/session/{}", "/api/session/{}/message", "/v1/sessions/{}/events"])
async def test_the_other_faces_open_one_too(tmp_path: Path, path: str) -> None:
    async with server(tmp_path) as live_server:
        id_ = await find(live_server, "claude")
        body = await (await live_server.api.raw.get(path.format(id_))).text()
        assert "is it?" in body
        assert await titles(live_server) == [CLAUDE]


async def test_a_session_that_may_be_open_in_a_terminal_says_so(tmp_path: Path) -> None:
    async with server(tmp_path) as live_server:
        for search, is_told in (("archive", True), ("claude", False)):  # now, and an hour ago
            async with live_server.api.stream("/event") as events:
                id_ = await find(live_server, search)
                journal = await (await live_server.api.raw.get(f"/v1/sessions/{id_}/events")).text()
                assert ("it may still be open in a terminal" in journal) is is_told
                while is_told and (event := await events.next())["type"] != "tui.toast.show":
                    assert event["type"] != "session.idle"


async def test_a_prompt_opens_one_and_an_unknown_id_opens_none(tmp_path: Path) -> None:
    async with server(tmp_path) as live_server:
        id_ = await find(live_server, "archive")
        await live_server.ask(id_, "and then?", model=MODEL)
        assert (tmp_path / "asked.text").read_text() == "and then?", "it remembers the rest itself"
        assert len(await live_server.messages(id_)) == 4
        await live_server.api.get(f"/session/{id_[:-4]}0000", status=404)


async def test_roles_below_admin_see_and_open_none(tmp_path: Path) -> None:
    async with server(tmp_path, password=SecretStr(PASSWORD)) as live_server:
        told = await live_server.api.post("/api/people", {"name": "bo", "role": "work"}, headers=OWNER, status=200)
        worker = as_(told.body["token"])

        async def ids(headers: dict[str, str]) -> list[str]:
            answer = await live_server.api.get("/session", params={"search": "i"}, headers=headers, status=200)
            return [row["id"] for row in answer.body]

        listed = await ids(OWNER)
        assert len(listed) == 2
        assert await ids(worker) == []
        await live_server.api.get(f"/session/{listed[0]}", headers=worker, status=404)
        await live_server.api.get(f"/session/{listed[0]}", headers=OWNER, status=200)
        assert await ids(worker) == listed[:1], "it is a session now"


async def test_an_agent_that_does_not_answer_is_left_out_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversations, "LIST_WAIT_S", 0.3)
    wait = tmp_path / "asked.wait"
    wait.touch()
    async with server(tmp_path) as live_server:
        assert await titles(live_server, search="i") == [CLAUDE]
        text = (await live_server.api.raw.get("/metrics")).text
        assert 'native_lists_late_total{agent="archive"} 1.0' in await text()
        wait.unlink()
        async with asyncio.timeout(10):
            while await titles(live_server, search="archive") != [ACP]:
                await asyncio.sleep(0.05)
