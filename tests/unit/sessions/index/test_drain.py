"""A server that is about to stop gives its sessions up: idle ones at once, others when their turn has ended or failed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from shim.cluster.peers import Node
from shim.lib.errors import PlacedElsewhere, ServerStopping
from shim.sessions.index import drain as drains
from shim.sessions.index.drain import Drain
from shim.sessions.index.session_entry import SessionEntry
from shim.sessions.placement import Need, Placement
from shim.sessions.prompts.submit import submit
from tests.support.opencode1_views import view
from tests.support.scripted_model import World, ask, body, world
from tests.unit.cluster.test_placement import node, placement

BOUND_S = 10.0
LONG_S = 3600.0
"""A time limit that no turn of these tests outlives."""


class FakePeers:
    """The other servers of a cluster. `released`: the sessions that this server has given up."""

    def __init__(self, *nodes: Node) -> None:
        self._nodes = nodes
        self.released: list[str] = []

    def nodes(self) -> tuple[Node, ...]:
        return self._nodes

    async def release(self, session_id: str) -> None:
        self.released.append(session_id)


class Stop:
    """A server that can be drained, and in which order the parts of its end happened."""

    def __init__(self, w: World, monkeypatch: pytest.MonkeyPatch, *nodes: Node, is_alone: bool = False) -> None:
        self.w = w
        self.steps: list[str] = []
        self.peers = FakePeers(*nodes)
        self.placement = Placement() if is_alone else placement(*nodes)
        if not is_alone:
            monkeypatch.setattr(w.store.ownership, "sessions_move", True)
            monkeypatch.setattr(w.store.ownership, "release", self.peers.release)
        monkeypatch.setattr(w.manager.deps, "placement", self.placement)
        self.drain = Drain(
            w.manager,
            self.placement,
            w.store.ownership,
            name="mine",
            end_streams=lambda: self.steps.append("streams ended"),
        )

    async def stop_listening(self) -> None:
        assert self.placement.is_draining, "clients that come now are sent to another server"
        self.steps.append("stopped listening")

    def begin(self, seconds: float = LONG_S) -> asyncio.Task[None]:
        return asyncio.create_task(self.drain.run(seconds, self.stop_listening))

    async def run(self, seconds: float = LONG_S) -> None:
        async with asyncio.timeout(BOUND_S):
            await self.drain.run(seconds, self.stop_listening)

    def is_loaded(self, session_id: str) -> bool:
        return self.w.manager.index.get(session_id).state is not None


@pytest.fixture
async def w() -> AsyncIterator[World]:
    made = world()
    await made.store.open()
    await made.manager.start()
    yield made
    await made.manager.close()


async def finish(task: asyncio.Task[None]) -> None:
    async with asyncio.timeout(BOUND_S):
        await task


async def errors_of(w: World, session_id: str) -> list[str]:
    messages = view(await w.manager.session(session_id)).messages.values()
    return [message.info["error"]["data"]["message"] for message in messages if message.info.get("error")]


# --- a cluster -----------------------------------------------------------------------------------------------------------


async def test_a_server_without_turns_gives_its_sessions_to_others_at_once(w: World, monkeypatch: pytest.MonkeyPatch) -> None:
    sessions = [w.session() for _ in range(3)]
    stop = Stop(w, monkeypatch, node("other"))
    await stop.run()
    assert stop.drain.is_active
    assert stop.placement.offer().is_draining
    assert stop.steps == ["stopped listening", "streams ended"]
    assert sorted(stop.peers.released) == sorted(sessions)
    assert not any(map(stop.is_loaded, sessions))


async def test_the_last_server_keeps_its_clients_until_the_end(w: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """They have no other server to go to."""
    session = w.session()
    stop = Stop(w, monkeypatch)
    await stop.run()
    assert stop.steps == []
    assert stop.peers.released == [session]


async def test_a_turn_ends_in_time_while_idle_sessions_go_at_once(w: World, monkeypatch: pytest.MonkeyPatch) -> None:
    idle, busy = w.session(), w.session()
    await ask(w, busy)
    stop = Stop(w, monkeypatch, node("other"))
    draining = stop.begin()
    await w.settle()
    assert stop.peers.released == [idle]
    assert stop.is_loaded(busy)
    w.agent.text("done")
    w.agent.end_turn()
    await finish(draining)
    assert stop.peers.released == [idle, busy]
    assert not stop.is_loaded(busy)
    assert w.hub.folds[busy].idles == 1
    assert await errors_of(w, busy) == []


async def test_a_turn_that_outlives_the_limit_fails_once_and_its_session_is_released(
    w: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = w.session()
    await ask(w, session)
    w.agent.text("half")
    stop = Stop(w, monkeypatch, node("other"))
    await stop.run(seconds=0.0)
    assert stop.peers.released == [session]
    assert w.hub.folds[session].idles == 1
    [error] = await errors_of(w, session)
    assert "The server mine was stopped while this turn ran" in error
    assert not w.manager.index.running_agents()


async def test_a_cancelled_drain_gives_the_rest_up_at_once(w: World, monkeypatch: pytest.MonkeyPatch) -> None:
    session = w.session()
    await ask(w, session)
    stop = Stop(w, monkeypatch, node("other"))
    draining = stop.begin()
    await w.settle()
    draining.cancel()
    with pytest.raises(asyncio.CancelledError):
        await finish(draining)
    assert stop.peers.released == [session]
    assert w.hub.folds[session].idles == 1


async def test_a_session_that_cannot_be_released_delays_the_stop_for_a_bounded_time(
    w: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drains, "GIVE_UP_S", 0.01)
    session, is_free = w.session(), asyncio.Event()
    await ask(w, session)
    stop = Stop(w, monkeypatch, node("other"))

    async def release(entry: SessionEntry, error: object = None) -> None:
        await is_free.wait()

    monkeypatch.setattr(w.manager.others, "release", release)
    await stop.run(seconds=0.0)
    is_free.set()
    await w.settle()


async def test_an_emptied_server_goes_on_and_gives_up_a_turn_at_its_end(w: World, monkeypatch: pytest.MonkeyPatch) -> None:
    idle, busy = w.session(), w.session()
    await ask(w, busy)
    stop = Stop(w, monkeypatch, node("other"))
    stop.drain.empty(is_wanted=True)
    await w.settle()
    assert (stop.peers.released, stop.steps, stop.drain.is_active) == ([idle], [], False)
    w.agent.text("done")
    w.agent.end_turn()
    await w.settle()
    await finish(asyncio.ensure_future(stop.drain.close()))
    assert stop.peers.released == [idle, busy]
    assert (w.hub.folds[busy].idles, await errors_of(w, busy)) == (1, [])


async def test_a_server_that_is_wanted_again_keeps_the_sessions_with_a_turn(w: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drains, "CHECK_S", 0.01)
    session = w.session()
    await ask(w, session)
    stop = Stop(w, monkeypatch, node("other"))
    stop.drain.empty(is_wanted=True)
    await w.settle()
    stop.drain.empty(is_wanted=False)
    await finish(asyncio.ensure_future(stop.drain.close()))
    w.agent.text("done")
    w.agent.end_turn()
    await w.settle()
    assert (stop.peers.released, stop.is_loaded(session)) == ([], True)


async def test_at_most_so_many_sessions_are_released_at_the_same_time(w: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each waits for its agent's end. All at once would be as many processes that end at the same moment."""
    monkeypatch.setattr(drains, "AT_ONCE", 2)
    sessions, running, most = [w.session() for _ in range(5)], 0, 0
    stop = Stop(w, monkeypatch, node("other"))
    release: Callable[..., Awaitable[None]] = w.manager.others.release

    async def count_release(entry: SessionEntry) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        await release(entry)
        running -= 1

    monkeypatch.setattr(w.manager.others, "release", count_release)
    await stop.run()
    assert most == 2
    assert sorted(stop.peers.released) == sorted(sessions)


# --- what comes while a server drains ------------------------------------------------------------------------------------


async def test_a_prompt_for_an_idle_session_goes_to_another_server(w: World, monkeypatch: pytest.MonkeyPatch) -> None:
    idle, busy = w.session(), w.session()
    await ask(w, busy)
    stop = Stop(w, monkeypatch, node("other", agents=("one",)))
    draining = stop.begin()
    await w.settle()
    with pytest.raises(PlacedElsewhere) as caught:
        await submit(w.manager, idle, body("too late"))
    assert [server.label for server in caught.value.servers] == ["other"]  # type: ignore[attr-defined]
    with pytest.raises(PlacedElsewhere):
        await stop.placement.need_new_here(Need("/p"), is_final=False)
    w.agent.end_turn()
    await finish(draining)


async def test_a_prompt_for_a_running_turn_stays_with_it_and_is_answered(w: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was accepted before its client could know: the next turn follows at once, and the drain waits for that too."""
    session = w.session()
    await ask(w, session, "first")
    stop = Stop(w, monkeypatch, node("other"))
    draining = stop.begin()
    await w.settle()
    await ask(w, session, "second")
    w.agent.end_turn()
    await w.settle()
    assert w.agent.prompts == ["first", "second"]
    assert stop.is_loaded(session)
    w.agent.end_turn()
    await finish(draining)
    assert stop.peers.released == [session]


async def test_no_spare_agent_is_started_any_more(w: World, monkeypatch: pytest.MonkeyPatch) -> None:
    dropped: list[str | None] = []
    spares: Any = SimpleNamespace(limit=2, drop=dropped.append)
    stop = Stop(w, monkeypatch, node("other"))
    with monkeypatch.context() as patch:
        patch.setattr(w.manager.deps, "spares", spares)
        await stop.run()
    assert (spares.limit, dropped) == (0, [None])


# --- a server that is alone ----------------------------------------------------------------------------------------------


async def test_without_a_cluster_idle_sessions_stay_and_turns_end_in_time(w: World, monkeypatch: pytest.MonkeyPatch) -> None:
    idle, busy = w.session(), w.session()
    await ask(w, busy)
    stop = Stop(w, monkeypatch, is_alone=True)
    draining = stop.begin()
    await w.settle()
    with pytest.raises(ServerStopping):
        await submit(w.manager, idle, body("too late"))
    w.agent.text("done")
    w.agent.end_turn()
    await finish(draining)
    assert stop.steps == []
    assert stop.is_loaded(idle)
    assert await errors_of(w, busy) == []


async def test_without_a_cluster_a_turn_that_outlives_the_limit_fails_once(w: World, monkeypatch: pytest.MonkeyPatch) -> None:
    session = w.session()
    await ask(w, session)
    await Stop(w, monkeypatch, is_alone=True).run(seconds=0.0)
    assert w.hub.folds[session].idles == 1
    [error] = await errors_of(w, session)
    assert "The server mine was stopped while this turn ran" in error
