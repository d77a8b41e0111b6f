"""Views: built from the journal and fed live, whatever comes in between; none that nobody needs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from shim.app import SERVICES
from shim.faces.opencode2 import views as module
from shim.faces.opencode2.dialects import R
from shim.faces.opencode2.stream import ENCODERS
from shim.faces.opencode2.views import Views
from shim.services import Services
from shim.store.memory import MemoryStore
from tests.support.live import Live, live
from universal.events import UniversalEvent


class SlowStore(MemoryStore):
    """A journal whose pages come when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.gate.set()

    async def events(self, session_id: str, after: int = 0, limit: int | None = None) -> list[UniversalEvent]:
        await self.gate.wait()
        return await super().events(session_id, after, limit)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Live]:
    async with live(tmp_path, store=SlowStore()) as made:
        yield made


def services(server: Live) -> Services:
    return server.api.raw.server.app[SERVICES]  # type: ignore[union-attr]


def views(server: Live) -> Views:
    found = services(server).second
    assert found is not None
    return found


def store(server: Live) -> SlowStore:
    found = services(server).store
    assert isinstance(found, SlowStore)
    return found


async def told(reader: Any) -> list[str]:
    found: list[str] = []
    while batches := await reader.take(0.0, asyncio.get_running_loop().time() + 0.01):
        frames = [frame for batch in batches for frame in batch.frames]
        found += [frame.body.split(b'"type":"')[1].split(b'"')[0].decode() for frame in frames if b'"type":"' in frame.body]
    return found


@pytest.mark.parametrize(("page", "waiting"), [(200, 2048), (3, 2048), (3, 4)])
async def test_live_events_wait_while_the_journal_is_read(
    server: Live, monkeypatch: pytest.MonkeyPatch, page: int, waiting: int
) -> None:
    """The second turn happens while the view of the first is still being read; with few places, most of it is read too."""
    monkeypatch.setattr(module, "PAGE", page)
    monkeypatch.setattr(module, "WAITING", waiting)
    session = await server.session()
    await server.ask(session, "tool")
    reader = views(server).hub.subscribe(ENCODERS[R.name])
    store(server).gate.clear()
    state = await services(server).sessions.state(session)
    await server.prompt(session, "echo second")
    await state.idle()
    store(server).gate.set()
    conversation = await views(server).of(session)
    assert [m["outcome"] for m in conversation.messages.values() if m["type"] == "idle"] == ["succeeded", "succeeded"]
    types = await told(reader)
    assert types[0] == "server.connected"
    assert types.index("session.inbox.enqueued") < types.index("session.execution.started"), types
    assert types.count("session.execution.started") == types.count("session.execution.succeeded") == 1
    reader.close()


async def test_one_reading_for_many_who_ask(server: Live) -> None:
    session = await server.session()
    await server.ask(session, "tool")
    found: Sequence[Any] = await asyncio.gather(*(views(server).of(session) for _ in range(20)))
    assert all(one is found[0] for one in found)


async def test_a_journal_that_cannot_be_read_is_an_error_now_and_tried_again_later(
    server: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await server.session()
    await server.ask(session, "tool")

    async def broken(*_: object) -> list[UniversalEvent]:
        raise OSError("the disk is gone")

    with monkeypatch.context() as patched:
        patched.setattr(store(server), "events", broken)
        with pytest.raises(OSError, match="the disk is gone"):
            await views(server).of(session)
    assert (await views(server).of(session)).outcome == "succeeded"


async def test_views_that_nobody_needs_are_dropped(server: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    session = await server.session()
    await server.ask(session, "echo x")
    reader = views(server).hub.subscribe(ENCODERS[R.name])
    await views(server).of(session)
    monkeypatch.setattr(module, "IDLE_S", -1.0)
    views(server)._sweep()
    assert len(views(server)) == 1  # somebody reads the stream
    reader.close()
    monkeypatch.setattr(views(server).hub, "_wanted_until_ms", 0)
    views(server)._sweep()
    assert len(views(server)) == 0
    feed = services(server).sessions.deps.feed
    assert views(server)._observe not in feed._observers
    assert services(server).hub._observers == []
    await views(server).of(session)
    assert views(server)._observe in feed._observers


async def test_there_are_not_too_many(server: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_VIEWS", 3)
    sessions = [await server.session() for _ in range(6)]
    for session in sessions:
        await views(server).of(session)
    assert list(views(server)._views) == sessions[3:]
    assert (await views(server).of(sessions[0])).id == sessions[0]
