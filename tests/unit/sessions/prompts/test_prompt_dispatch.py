"""When a prompt is given to its agent, and what waits for the snapshot before it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import cast

import pytest

from shim.errors import SessionElsewhere, StoreUnavailable
from shim.sessions.prompts import prompt_dispatch
from shim.sessions.undo.trees import Trees
from tests.support.scripted_model import World, ask

WAIT_S = 5


@dataclass
class SlowFiles:
    """Snapshots of a project without files. Each waits until it is released."""

    release: asyncio.Event = field(default_factory=asyncio.Event)
    begun: int = 0

    async def track(self, directory: str) -> str:
        self.begun += 1
        tree = f"tree{self.begun}"
        await self.release.wait()
        return tree

    async def changed_files(self, directory: str, before: str, after: str) -> list[str]:
        return []


@pytest.fixture
def files() -> SlowFiles:
    return SlowFiles()


@pytest.fixture
def w(w: World, files: SlowFiles) -> World:
    """Slow snapshots."""
    w.manager.deps = replace(w.manager.deps, snapshots=lambda _directory: cast(Trees, files))
    return w


async def second_prompt(w: World, files: SlowFiles, text: str = "again") -> str:
    """A session whose agent runs, and whose second prompt waits for its snapshot."""
    session = w.session()
    files.release.set()
    await ask(w, session, "first")
    w.agent.text("here")
    w.agent.end_turn()
    await w.settle()
    files.release.clear()
    await ask(w, session, text)
    return session


async def test_a_prompt_is_dispatched_without_a_flush_of_the_store(w: World, files: SlowFiles) -> None:
    """Its caller flushes once, before the acknowledgement."""
    flushes: list[str | None] = []
    flush = w.store.flush

    async def count_flush(session_id: str | None = None) -> None:
        flushes.append(session_id)
        await flush(session_id)

    w.store.flush = count_flush
    await second_prompt(w, files)
    files.release.set()
    await w.settle()
    assert w.agent.prompts == ["first", "again"]
    assert flushes == []


async def test_a_prompt_is_dispatched_after_the_snapshot_before_it(w: World, files: SlowFiles) -> None:
    await second_prompt(w, files)
    assert w.agent.prompts == ["first"]
    files.release.set()
    await w.settle()
    assert w.agent.prompts == ["first", "again"]


def join_cluster(w: World, monkeypatch: pytest.MonkeyPatch, flush: Callable[[str | None], Awaitable[None]]) -> None:
    monkeypatch.setattr(w.store.ownership, "peers", object(), raising=False)
    monkeypatch.setattr(w.store, "flush", flush)


async def test_in_a_cluster_an_agent_gets_a_prompt_only_after_it_is_stored(
    w: World, files: SlowFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that is cut off would do what its client, who was refused, asks of the next owner."""
    monkeypatch.setattr(prompt_dispatch, "STORE_AGAIN_S", 0.0)
    files.release.set()
    session, is_connected = w.session(), asyncio.Event()
    await ask(w, session, "first")
    w.agent.end_turn()

    async def flush(session_id: str | None = None) -> None:
        if not is_connected.is_set():
            raise StoreUnavailable("NATS is away")

    join_cluster(w, monkeypatch, flush)
    await ask(w, session, "second")
    assert w.agent.prompts == ["first"]
    assert w.hub.folds[session].status == {"type": "busy"}
    is_connected.set()
    await w.settle()
    assert w.agent.prompts == ["first", "second"]
    w.agent.end_turn()


async def test_a_prompt_of_a_session_that_was_lost_reaches_no_agent(
    w: World, files: SlowFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prompt_dispatch, "STORE_AGAIN_S", 0.0)
    files.release.set()
    session = w.session()
    await ask(w, session, "first")
    w.agent.end_turn()

    async def flush(session_id: str | None = None) -> None:
        raise SessionElsewhere(session, "another server")

    join_cluster(w, monkeypatch, flush)
    await ask(w, session, "second")
    assert w.agent.prompts == ["first"]
    async with asyncio.timeout(WAIT_S):
        await w.manager.abort(session)
    assert w.hub.folds[session].idles == 2
