"""When a prompt is given to its agent, and what waits for the snapshot before it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

import pytest

from shim.host.git.snapshot import Snapshots
from shim.lib.errors import SessionElsewhere, StoreUnavailable
from shim.sessions.prompts import prompt_dispatch
from shim.sessions.session import actor
from shim.sessions.undo import step_snapshots
from tests.support.opencode1_views import view
from tests.support.scripted_model import World, ask
from universal.agent_spec import AgentSpec, HeldCalls

WAIT_S = 5


@dataclass
class SlowFiles:
    """Snapshots of a project without files. Each waits until it is released."""

    release: asyncio.Event = field(default_factory=asyncio.Event)
    begun: int = 0
    taken: bool = False

    def has_taken(self, directory: str) -> bool:
        return self.taken

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
    w.manager.deps = replace(w.manager.deps, snapshots=lambda _directory: cast(Snapshots, files))
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


@dataclass(frozen=True)
class Home:
    """A person's home, whose settings may name programs."""

    folder: Path

    def write(self, text: str) -> None:
        (self.folder / "settings.json").write_text(text)


@pytest.fixture
def home(w: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """An agent whose calls all wait for the server."""
    w.agents.hold_calls("one", HeldCalls((), ("~/settings.json",), ('"hooks"',)))
    monkeypatch.setattr(w.agents, "environment", lambda: {"HOME": str(tmp_path)})
    return Home(tmp_path)


async def until(condition: Callable[[], bool]) -> None:
    """Let tasks and threads run until this holds; bounded."""
    async with asyncio.timeout(WAIT_S):
        while not condition():
            await asyncio.sleep(0)


async def read_on(w: World) -> None:
    """Wait until the session has read all that the agent said."""
    assert w.agent.reading is not None
    await asyncio.wait_for(w.agent.reading, WAIT_S)


async def test_an_agent_whose_calls_are_held_gets_the_prompt_beside_the_snapshot(w: World, files: SlowFiles, home: Home) -> None:
    await second_prompt(w, files)
    await until(lambda: w.agent.prompts == ["first", "again"])
    assert files.begun == 2
    assert not files.release.is_set()
    files.release.set()
    w.agent.end_turn()


async def test_a_call_is_answered_after_the_snapshot_before_its_prompt(w: World, files: SlowFiles, home: Home) -> None:
    session = await second_prompt(w, files)
    await until(lambda: len(w.agent.prompts) == 2)
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


async def test_lines_wait_at_most_the_head_start(w: World, files: SlowFiles, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_snapshots, "HEAD_START_S", 0.05)
    await second_prompt(w, files)
    await until(lambda: len(w.agent.prompts) == 2)
    w.agent.text("done")
    await read_on(w)
    assert not files.release.is_set()
    files.release.set()
    w.agent.end_turn()


async def test_the_first_snapshot_of_a_directory_is_waited_for(w: World, files: SlowFiles, home: Home) -> None:
    """It tells whether the directory has any."""
    session = w.session()
    await ask(w, session, "first")
    assert w.agents.spawned == [] or w.agent.prompts == []
    files.release.set()
    await until(lambda: bool(w.agents.spawned) and w.agent.prompts == ["first"])
    w.agent.end_turn()


async def test_the_first_prompt_of_a_session_goes_beside_its_snapshot_where_another_session_had_one(
    w: World, files: SlowFiles, home: Home
) -> None:
    files.taken = True
    session = w.session()
    await ask(w, session, "first")
    await until(lambda: bool(w.agents.spawned) and w.agent.prompts == ["first"])
    assert not files.release.is_set()
    files.release.set()
    w.agent.end_turn()


@pytest.mark.parametrize("text", ["/fix the bug", "  /fix", "!ls", "# note"])
async def test_a_command_waits_for_the_snapshot(w: World, files: SlowFiles, home: Home, text: str) -> None:
    """It may be a shell line, which no call announces."""
    await second_prompt(w, files, text)
    await w.settle()
    assert w.agent.prompts == ["first"]
    files.release.set()
    await until(lambda: w.agent.prompts == ["first", text])


async def test_a_prompt_waits_for_the_snapshot_where_a_hook_may_run(w: World, files: SlowFiles, home: Home) -> None:
    looked: list[bool] = []
    may_run = prompt_dispatch.may_run

    def look(calls: HeldCalls, directory: str, environ: Mapping[str, str]) -> bool:
        looked.append(may_run(calls, directory, environ))
        return looked[-1]

    home.write('{"hooks": {}}')
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prompt_dispatch, "may_run", look)
        await second_prompt(w, files)
        await until(lambda: looked == [True])
    await w.settle()
    assert w.agent.prompts == ["first"]
    files.release.set()
    await until(lambda: w.agent.prompts == ["first", "again"])


@dataclass
class Trust:
    """A gate that asks a person for the first prompt."""

    asked: int = 0
    is_on: bool = True

    async def may_use(self, spec: AgentSpec) -> bool:
        if not self.asked:
            await asyncio.sleep(0)
            self.asked += 1
        return True

    def cancel(self) -> None:
        """No question is open."""


async def test_settings_are_read_again_after_a_question_about_trust(
    w: World, files: SlowFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A person may have changed them meanwhile."""
    looks: list[str] = []

    async def refresh(directory: str) -> None:
        looks.append(directory)

    monkeypatch.setattr(actor, "TrustGate", lambda *_: Trust())
    w.manager.deps = replace(w.manager.deps, config_refresh=refresh)
    files.release.set()
    session = w.session()
    await ask(w, session, "first")
    assert looks == ["/p"] * 2, "when the prompt was accepted, and after the question"
    w.agent.end_turn()
    await w.settle()
    await ask(w, session, "second")
    assert looks == ["/p"] * 3
    await ask(w, session, "third")
    assert looks == ["/p"] * 4, "it waits"
    w.agent.end_turn()
    await w.settle()
    assert looks == ["/p"] * 5, "a prompt that has waited"
    w.agent.end_turn()


def join_cluster(w: World, monkeypatch: pytest.MonkeyPatch, flush: Callable[[str | None], Awaitable[None]]) -> None:
    monkeypatch.setattr(w.store.ownership, "sessions_move", True)
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
        with pytest.raises(SessionElsewhere):
            await w.manager.abort(session)
    assert w.hub.folds[session].idles == 2
