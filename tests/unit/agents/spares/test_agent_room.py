"""How many agents run at once: who makes room, who waits, and for how long."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest

from shim.agents.spares import agent_room
from shim.agents.spares.agent_room import AgentRoom, RunningAgent
from shim.lib.errors import AgentStartFailed

BOUND_S = 10


@dataclass
class House:
    """Agents of a server: session -> whether it has a turn."""

    limit: int | None = 2
    agents: dict[str, bool] = field(default_factory=dict[str, bool])
    sentences: list[str] = field(default_factory=list[str])

    def __post_init__(self) -> None:
        self.room = AgentRoom(self.limit, self._list)

    def _list(self) -> list[RunningAgent]:
        return [RunningAgent(id_, busy, at, lambda id_=id_: self.end(id_)) for at, (id_, busy) in enumerate(self.agents.items())]

    def end(self, session_id: str) -> None:
        del self.agents[session_id]
        self.room.note_change()

    async def start(self, session_id: str) -> bool:
        async with asyncio.timeout(BOUND_S):
            entered = await self.room.enter(session_id, is_wanted=lambda: True, on_wait=self.sentences.append)
        self.agents[session_id] = True
        self.room.leave(session_id)
        return entered


async def wait_tasks(house: House, *names: str) -> list[asyncio.Task[bool]]:
    """Tasks of sessions that wait for room."""
    tasks = [asyncio.create_task(house.start(name)) for name in names]
    while len(house.sentences) < len(tasks):
        await asyncio.sleep(0)
    return tasks


async def test_agents_start_as_long_as_there_is_room() -> None:
    house = House()
    assert [await house.start(name) for name in ("a", "b")] == [True, True]
    assert (house.room.free, house.sentences) == (0, [])


async def test_an_agent_without_a_turn_makes_room_the_oldest_first() -> None:
    house = House(agents={"old": False, "new": False})
    assert house.room.free == 2
    assert await house.start("a")
    assert house.agents == {"new": False, "a": True}
    assert house.sentences == []


async def test_the_agent_of_the_session_itself_does_not_count() -> None:
    """It is replaced by another one."""
    house = House(agents={"a": True, "b": True})
    assert await house.start("a")
    assert house.sentences == []


async def test_sessions_wait_in_order_until_a_turn_ends() -> None:
    house = House(agents={"a": True, "b": True})
    first, second = await wait_tasks(house, "c", "d")
    assert house.sentences[0].startswith("Waits for room: this server runs 2 agents at once (max_agents)")
    assert house.room.free == 0
    house.agents["b"] = False
    house.room.note_change()
    assert await first
    assert (set(house.agents), second.done()) == ({"a", "c"}, False)
    house.end("a")
    assert await second
    assert set(house.agents) == {"c", "d"}


async def test_two_agents_that_start_at_once_take_two_places() -> None:
    house = House(agents={"a": True})
    first = await house.room.enter("b", is_wanted=lambda: True, on_wait=house.sentences.append)
    (second,) = await wait_tasks(house, "c")
    house.room.leave("b")  # it could not be started
    assert first
    assert await second


async def test_an_aborted_turn_waits_no_longer() -> None:
    house, wanted = House(limit=1, agents={"a": True}), [True]
    task = asyncio.create_task(house.room.enter("b", is_wanted=lambda: wanted[0], on_wait=house.sentences.append))
    while not house.sentences:
        await asyncio.sleep(0)
    wanted[0] = False
    house.room.note_change()
    async with asyncio.timeout(BOUND_S):
        assert await task is False


async def test_the_wait_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_room, "WAIT_S", 0.01)
    house = House(limit=1, agents={"a": True})
    with pytest.raises(AgentStartFailed, match=r"no room for this turn.*max_agents.*raise max_agents"):
        await house.start("b")
    house.end("a")
    assert await house.start("b"), "the place in the order is free again"


async def test_without_a_limit_no_session_waits() -> None:
    house = House(limit=None)
    assert all([await house.start(str(number)) for number in range(100)])
