"""OpenCode 2's events are made of a session's changes while somebody reads, and a session is read from its model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from shim.faces.opencode2 import services as module
from shim.faces.opencode2.dialects import V2_0
from shim.faces.opencode2.stream import ENCODERS
from shim.http.services import Services
from shim.main.app import SERVICES
from tests.support.live import Live, live


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Live]:
    async with live(tmp_path) as made:
        yield made


def services(server: Live) -> Services:
    return server.api.raw.server.app[SERVICES]  # type: ignore[union-attr]


async def types(reader: Any) -> list[str]:
    found: list[str] = []
    while batches := await reader.take(0.0, asyncio.get_running_loop().time() + 0.01):
        frames = [frame for batch in batches for frame in batch.frames]
        found += [frame.body.split(b'"type":"')[1].split(b'"')[0].decode() for frame in frames if b'"type":"' in frame.body]
    return found


async def test_no_event_is_made_without_readers(server: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    rendered: list[object] = []
    monkeypatch.setattr(module, "render", lambda *given: rendered.append(given) or [])
    session = await server.session()
    await server.ask(session, "tool")
    assert rendered == []
    reader = services(server).hub.subscribe(ENCODERS[V2_0.name])
    await server.ask(session, "echo hello")
    assert rendered != []
    reader.close()


async def test_a_reader_is_sent_a_turn_whole_and_once(server: Live) -> None:
    session = await server.session()
    await server.ask(session, "tool")
    reader = services(server).hub.subscribe(ENCODERS[V2_0.name])
    await server.ask(session, "echo second")
    sent = await types(reader)
    assert sent[:3] == ["server.connected", "session.inbox.enqueued", "session.execution.started"]
    assert sent[-1] == "session.idle"
    assert sent.count("session.execution.started") == sent.count("session.execution.succeeded") == 1
    reader.close()


async def test_a_loaded_session_is_read_without_its_journal(server: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    session = await server.session()
    await server.ask(session, "tool")

    async def fail(*_: object) -> None:
        raise AssertionError("the journal was read")

    for reading in ("events", "brief"):
        monkeypatch.setattr(services(server).store, reading, fail)
    for path in ("", "/message", "/inbox", "/permission", "/form", "/context"):
        await server.api.get(f"/api/session/{session}{path}", status=200)
