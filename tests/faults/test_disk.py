"""A disk that is full, or slower than an agent: rows of the second table of `docs/faults.md`."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from shim.lib.errors import StoreError
from shim.main.app import DATABASE
from shim.store.memory import MemoryStore
from shim.store.sqlite import SqliteStore
from shim.store.writer import Limits
from tests.support.live import Live, live, prompt_body
from tests.unit.store.test_sqlite_disk_faults import no_file_may_grow_beyond
from universal.events import UniversalEvent

WAIT_S = 60.0


async def turn(server: Live, session: str, text: str, act: Callable[[dict[str, Any]], Any] | None = None) -> list[dict[str, Any]]:
    """A turn's events, up to what a further request causes after its idle; exactly one idle."""
    seen: list[dict[str, Any]] = []
    async with server.api.stream("/event") as events, asyncio.timeout(WAIT_S):
        await server.api.raw.post(f"/session/{session}/prompt_async", json=prompt_body(text))
        while not any(e["type"] == "session.idle" and e["properties"]["sessionID"] == session for e in seen):
            seen.append(await events.next(WAIT_S))
            if act is not None:
                act(seen[-1])
        async with server.api.raw.patch(f"/session/{session}", json={"title": "over"}):
            pass
        seen += await events.until(
            lambda e: e["type"] == "session.updated" and e["properties"]["info"].get("title") == "over", WAIT_S
        )
    mine = [event for event in seen if event["properties"].get("sessionID") == session]
    assert [event["type"] for event in mine].count("session.idle") == 1
    return mine


def texts(messages: Sequence[dict[str, Any]], role: str) -> list[str]:
    """What the messages of a role say."""
    return [
        part["text"]
        for message in messages
        if message["info"]["role"] == role
        for part in message["parts"]
        if part["type"] == "text"
    ]


async def fill_disk(server: Live, session: str, store: SqliteStore) -> None:
    """Rename a session until the store knows that the disk is full. A turn may write less: its rows go in groups."""
    async with asyncio.timeout(WAIT_S):
        for number in count():
            if store.failure is not None:
                return
            await server.api.raw.patch(f"/session/{session}", json={"title": f"{number} " * 1000})
            with suppress(StoreError):
                await store.flush()


async def test_disk_full(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It fills in a turn and has room again later; the queue is too small for all of that. `capsys`: the log needs no file."""
    path = tmp_path / "data" / DATABASE
    path.parent.mkdir()
    store = SqliteStore(path, limits=Limits(queue_rows=20, retry_s=1000.0))
    async with live(tmp_path, store=store) as server:
        session, other = await server.session(), await server.session()
        await server.ask(session, "echo before")
        with no_file_may_grow_beyond(path.with_name(path.name + "-wal").stat().st_size + 80_000):
            events = await turn(server, session, "burst 500")
            assert not [event for event in events if event["type"] == "session.error"]
            await fill_disk(server, other, store)
            for who in (session, other):
                answer = await server.api.post(f"/session/{who}/prompt_async", prompt_body("refused"), status=500)
                assert re.search(r"(disk|I/O).*kept and tried again", answer.body["data"]["message"])
            assert (await server.api.get("/session/status", status=200)).body == {}
        await server.messages(other)  # written again now, since a read wants all of it
        await server.ask(session, "echo after")
        await server.ask(other, "echo after")
        said = await server.messages(session)
        assert "refused" not in texts(said, "user")
    async with live(tmp_path, store=SqliteStore(path)) as server:
        assert await server.messages(session) == said
        assert texts(said, "user") == ["echo before", "burst 500", "echo after"]


class FullStore(MemoryStore):
    """Takes nothing while it is `full`, as one whose queue has no room."""

    full = False

    def append(self, events: Sequence[UniversalEvent]) -> None:
        if self.full:
            raise StoreError("the queue is full, since the disk is")
        super().append(events)


async def test_disk_full_for_long(tmp_path: Path) -> None:
    store = FullStore()
    async with live(tmp_path, store=store) as server:
        session, other = await server.session(), await server.session()

        def fill(event: dict[str, Any]) -> None:
            store.full = True

        events = await turn(server, session, "burst 20000", fill)
        errors = [str(event["properties"]["error"]) for event in events if event["type"] == "session.error"]
        assert any("The turn was stopped: the server cannot write it down. the queue is full" in error for error in errors)
        store.full = False
        await server.ask(session, "echo after")
        await server.ask(other, "echo other")
        said = await server.messages(session)
    async with live(tmp_path, store=store) as server:
        assert await server.messages(session) == said


async def test_an_agent_waits_for_the_disk(tmp_path: Path) -> None:
    """It says 5,000 pieces at once; 600 may wait to be written, and nothing is written before somebody asks for it."""
    path = tmp_path / "data" / DATABASE
    path.parent.mkdir()
    limits = Limits(group_rows=10_000, group_s=1000.0, queue_rows=600)
    with capture_logs() as logs:
        async with live(tmp_path, store=SqliteStore(path, limits=limits)) as server:
            session = await server.session()
            await turn(server, session, "burst 5000")
            said = await server.messages(session)
    assert "store.append_failed" not in [log["event"] for log in logs]
    async with live(tmp_path, store=SqliteStore(path)) as server:
        assert await server.messages(session) == said
