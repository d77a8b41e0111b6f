"""When a prompt is given to its agent, and what waits for the snapshot before it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import cast

import pytest

from shim.sessions.undo import step_snapshots
from shim.sessions.undo.trees import Trees
from tests.support.opencode1_views import view
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
    """An agent whose calls wait for the server, and slow snapshots."""
    w.manager.deps = replace(w.manager.deps, snapshots=lambda _directory: cast(Trees, files))
    w.agents.hold_calls("one")
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
    assert w.agent.prompts == ["first", "again"]
    assert flushes == []


async def test_an_agent_that_holds_its_calls_gets_the_prompt_beside_the_snapshot(w: World, files: SlowFiles) -> None:
    await second_prompt(w, files)
    assert files.begun == 2
    assert w.agent.prompts == ["first", "again"]


async def test_a_call_is_answered_after_the_snapshot_before_its_prompt(w: World, files: SlowFiles) -> None:
    session = await second_prompt(w, files)
    agent = w.agent
    message = agent.begin()
    agent.call(message, "c1")
    check = agent.check("c1")
    await w.settle()
    assert not agent.replies() + agent.proceeded
    files.release.set()
    await read_on(w)
    assert [*(id_ for id_, _ in agent.replies()), *agent.proceeded] == [check]
    messages = view(await w.manager.session(session)).messages.values()
    starts = [part["snapshot"] for message in messages for part in message.wire()["parts"] if part["type"] == "step-start"]
    assert starts == ["tree1", "tree2"]


async def read_on(w: World) -> None:
    """Wait until the session has read all that the agent said."""
    assert w.agent.reading is not None
    await asyncio.wait_for(w.agent.reading, WAIT_S)


async def test_a_call_waits_at_most_the_head_start(w: World, files: SlowFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_snapshots, "HEAD_START_S", 0.01)
    await second_prompt(w, files)
    w.agent.text("done")
    await read_on(w)
    assert not files.release.is_set()
    files.release.set()
    w.agent.end_turn()


@pytest.mark.parametrize("text", ["/fix the bug", "  /fix"])
async def test_a_slash_command_waits_for_the_snapshot(w: World, files: SlowFiles, text: str) -> None:
    """It may be a shell line, which no call announces."""
    await second_prompt(w, files, text)
    assert w.agent.prompts == ["first"]
    files.release.set()
    await w.settle()
    assert w.agent.prompts == ["first", text]


async def test_an_agent_that_does_not_hold_its_calls_gets_the_prompt_after_the_snapshot(w: World, files: SlowFiles) -> None:
    w.agents.hold_calls("one", holds=False)
    await second_prompt(w, files)
    assert w.agent.prompts == ["first"]
    files.release.set()
    await w.settle()
    assert w.agent.prompts == ["first", "again"]
