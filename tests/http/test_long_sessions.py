"""Sessions whose old messages lie in the store: clients see what they saw, and only pages that are needed are read."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shim.faces.opencode1.routes import message as message_routes
from shim.sessions.history import checkpoints
from shim.store.memory import MemoryStore
from tests.support.live import Live, live
from universal.session.entries import Entries
from universal.session.messages import Messages

TURNS = 8
SAVED_S = 10.0
"""The longest that a checkpoint may take to be written."""


class PagesStore(MemoryStore):
    """A store that notes which pages are read, and in which thread."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[tuple[int, str]] = []
        self.saved = asyncio.Event()

    def save_checkpoint(self, *args: Any, **more: Any) -> None:
        super().save_checkpoint(*args, **more)
        self.saved.set()

    def checkpoint_page(self, session_id: str, number: int) -> bytes | None:
        self.reads.append((number, threading.current_thread().name))
        return super().checkpoint_page(session_id, number)

    def damage(self, session_id: str) -> None:
        """Each page has another last byte."""
        pages = self._pages[session_id]
        for number, body in pages.items():
            pages[number] = body[:-1] + bytes([body[-1] ^ 1])


@pytest.fixture(autouse=True)
def small_pages() -> Iterator[None]:
    """Checkpoints are due at once, and pages have few messages."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoints, "EVERY", 1)
        patch.setattr(checkpoints, "QUIET_S", 0)
        for kind in (Messages, Entries):
            patch.setattr(kind, "LOOSE", 2)
            patch.setattr(kind, "PAGE_SIZE", 3)
        yield


@pytest.fixture
async def long_session(tmp_path: Path) -> tuple[PagesStore, str, list[Any], list[Any]]:
    """A session of some turns that a server has left: its store, its id, and its messages on both faces."""
    store = PagesStore()
    async with live(tmp_path, store=store) as server:
        session = await server.session()
        for number in range(TURNS):
            store.saved.clear()
            await server.ask(session, f"echo {number}")
        async with asyncio.timeout(SAVED_S):
            await store.saved.wait()
        both = await opencode1_messages(server, session, 100), await opencode2_messages(server, session, 100)
    return store, session, *both


async def opencode1_messages(server: Live, session: str, limit: int) -> list[Any]:
    """All messages, page by page, oldest first."""
    found: list[Any] = []
    params: dict[str, str] = {"limit": str(limit)}
    while True:
        answer = await server.api.get(f"/session/{session}/message", params=params, status=200)
        found = answer.body + found
        if (cursor := answer.headers.get("x-next-cursor")) is None:
            return found
        params["before"] = cursor


async def opencode2_messages(server: Live, session: str, limit: int, **first: str) -> list[Any]:
    """All messages, page by page, in the order of the list."""
    found: list[Any] = []
    params: dict[str, str] = {"limit": str(limit), **first}
    while True:
        body = (await server.api.get(f"/api/session/{session}/message", params=params, status=200)).body
        if not body["data"]:
            return found
        found += body["data"]
        params = {"limit": str(limit), "cursor": body["cursor"]["next"]}


LongSession = tuple[PagesStore, str, list[Any], list[Any]]


@pytest.mark.parametrize("limit", [1, 2, 5, 100])
async def test_clients_page_through_a_session_that_was_opened_from_its_checkpoint(
    long_session: LongSession, limit: int, tmp_path: Path
) -> None:
    store, session, opencode1, opencode2 = long_session
    async with live(tmp_path, store=store) as server:
        assert await opencode1_messages(server, session, limit) == opencode1
        assert await opencode2_messages(server, session, limit) == opencode2
        assert await opencode2_messages(server, session, limit, order="asc") == opencode2[::-1]
        whole = (await server.api.get(f"/api/experimental/session/{session}/export", status=200)).body["data"]
        assert whole["messages"] == opencode2[::-1]


async def test_opencode2_pages_back_to_where_they_came_from(long_session: LongSession, tmp_path: Path) -> None:
    store, session, _, opencode2 = long_session
    async with live(tmp_path, store=store) as server:
        path = f"/api/session/{session}/message"
        pages = [(await server.api.get(path, params={"limit": "4"}, status=200)).body]
        for _ in range(2):
            params = {"limit": "4", "cursor": pages[-1]["cursor"]["next"]}
            pages.append((await server.api.get(path, params=params, status=200)).body)
        back = (await server.api.get(path, params={"limit": "4", "cursor": pages[-1]["cursor"]["previous"]}, status=200)).body
        assert back["data"] == pages[1]["data"] == opencode2[4:8]
        prompts = (await server.api.get(path, params={"limit": "100", "type": "user"}, status=200)).body["data"]
        assert prompts == [message for message in opencode2 if message["type"] == "user"]


async def test_the_last_page_reads_no_page_of_the_store(long_session: LongSession, tmp_path: Path) -> None:
    store, session, opencode1, _ = long_session
    store.reads.clear()
    async with live(tmp_path, store=store) as server:
        page = (await server.api.get(f"/session/{session}/message", params={"limit": "1"}, status=200)).body
    assert page == opencode1[-1:]
    assert store.reads == []


async def test_lists_read_pages_in_threads_and_only_those_that_they_need(long_session: LongSession, tmp_path: Path) -> None:
    store, session, opencode1, _ = long_session
    loop_thread = threading.current_thread().name
    async with live(tmp_path, store=store) as server:
        await opencode1_messages(server, session, 100)
        store.reads.clear()
    async with live(tmp_path, store=store) as server:
        path, first = f"/session/{session}/message", {"limit": "3"}
        cursor = (await server.api.get(path, params=first, status=200)).headers["x-next-cursor"]
        found = (await server.api.get(path, params={**first, "before": cursor}, status=200)).body
        assert found == opencode1[-6:-3]
        in_threads = [number for number, thread in store.reads if thread != loop_thread]
        assert 1 <= len(set(in_threads)) <= 3


async def test_a_list_of_all_messages_reads_pages_in_threads(
    long_session: LongSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_routes, "LONG", 1)
    monkeypatch.setattr(message_routes, "LIST_PIECE", 4)
    store, session, opencode1, _ = long_session
    store.reads.clear()
    async with live(tmp_path, store=store) as server:
        assert await server.messages(session) == opencode1
    assert store.reads
    assert {thread for _, thread in store.reads} & {threading.current_thread().name} == set()


async def test_damaged_pages_are_rebuilt_while_a_client_waits(long_session: LongSession, tmp_path: Path) -> None:
    store, session, opencode1, opencode2 = long_session
    store.damage(session)
    async with live(tmp_path, store=store) as server:
        assert await opencode1_messages(server, session, 4) == opencode1
        assert await opencode2_messages(server, session, 4) == opencode2
    store.damage(session)
    async with live(tmp_path, store=store) as server:
        assert await opencode2_messages(server, session, 4) == opencode2


async def test_a_look_at_a_damaged_page_is_answered_the_second_time(long_session: LongSession, tmp_path: Path) -> None:
    store, session, opencode1, _ = long_session
    store.damage(session)
    async with live(tmp_path, store=store) as server:
        path = f"/session/{session}/message/{opencode1[0]['info']['id']}"
        refused = await server.api.get(path)
        assert refused.status >= 500
        assert (await server.api.get(path, status=200)).body == opencode1[0]


async def test_statistics_count_a_session_from_its_checkpoint(long_session: LongSession, tmp_path: Path) -> None:
    store, session, _, _ = long_session
    path, span = "/api/experimental/session/stats", {"to": "9999999999999", "tools": "summary"}
    store.reads.clear()
    async with live(tmp_path, store=store) as server:
        unloaded = (await server.api.get(path, params=span, status=200)).body
        assert store.reads
    async with live(tmp_path, store=store) as server:
        await server.messages(session)
        assert (await server.api.get(path, params=span, status=200)).body == unloaded
