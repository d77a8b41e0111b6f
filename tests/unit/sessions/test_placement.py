"""Which server of a cluster takes a session."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from shim.errors import NoServer, PlacedElsewhere
from shim.sessions.placement import Placement
from shim.store.peers import Node, Offer
from shim.store.servers import ServerRef


class FakePeers:
    def __init__(self, *nodes: Node) -> None:
        self._nodes = nodes

    def nodes(self) -> Sequence[Node]:
        return self._nodes


class FakeOwnership:
    def __init__(self, peers: FakePeers | None) -> None:
        self.peers = peers


class FakeAgent:
    usable = True

    def __init__(self, name: str) -> None:
        self.spec = type("Spec", (), {"name": name})


class FakeAgents:
    def list_agents(self) -> list[FakeAgent]:
        return [FakeAgent("mock")]


def node(name: str, *, agents: tuple[str, ...] = ("mock",), roots: tuple[str, ...] = (), room: int = 5) -> Node:
    return Node(ServerRef(name, 1, name=name), Offer(agents, roots, room))


def placement(
    *nodes: Node, runs_agents: bool = True, room: int = 5, roots: tuple[str, ...] = (), is_alone: bool = False
) -> Placement:
    ownership: Any = FakeOwnership(None if is_alone else FakePeers(*nodes))
    agents: Any = FakeAgents()
    return Placement(ownership, agents, runs_agents=runs_agents, max_agents=room, running=lambda: 0, roots=roots)


async def place(
    here: Placement, directory: Path | str, agent: str | None = None, *, is_new: bool = True, is_final: bool = False
) -> list[str]:
    """The servers to ask in turn; empty for this one."""
    try:
        if is_new:
            await here.need_new_here(str(directory), agent, is_final=is_final)
        else:
            await here.need_here(str(directory), agent)
    except PlacedElsewhere as error:
        return [server.name for server in error.servers if isinstance(server, ServerRef)]
    return []


async def test_a_server_keeps_what_it_can_run(tmp_path: Path) -> None:
    here = placement(node("large", room=99))
    assert await place(here, tmp_path) == []
    assert await place(here, tmp_path, "mock") == []


async def test_other_servers_are_asked_for_a_directory_or_agent_that_is_missing_here(tmp_path: Path) -> None:
    here = placement(node("small", room=1), node("large", room=9), node("full", room=0), node("codex", agents=("codex",), room=3))
    assert await place(here, tmp_path / "missing", "mock") == ["large", "small"]
    assert await place(here, tmp_path, "codex") == ["codex"]
    assert await place(placement(node("one"), room=0), tmp_path) == ["one"]
    assert await place(here, tmp_path / "missing", "mock", is_new=False) == ["large", "small"]


async def test_servers_whose_roots_have_the_directory_come_first(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    here = placement(node("anywhere", room=9), node("root", roots=(str(tmp_path),)), node("beside", roots=(f"{missing}x",)))
    assert await place(here, missing) == ["root", "anywhere"]


async def test_servers_with_the_same_roots_share_new_sessions_by_room(tmp_path: Path) -> None:
    roots = (str(tmp_path),)
    here = placement(node("large", roots=roots, room=9), node("anywhere", room=99), roots=roots)
    assert await place(here, tmp_path) == ["large"]
    assert await place(here, tmp_path, is_final=True) == [], "a server that was chosen does not pass it on"
    assert await place(here, tmp_path, is_new=False) == []
    assert await place(placement(node("equal", roots=roots), roots=roots), tmp_path) == []


async def test_a_front_takes_nothing(tmp_path: Path) -> None:
    assert await place(placement(node("one"), runs_agents=False), tmp_path) == ["one"]
    with pytest.raises(NoServer, match=r"no other server of the cluster has the directory .* and the agent codex"):
        await place(placement(node("one"), runs_agents=False), tmp_path, "codex")
    assert placement(runs_agents=False).offer() == Offer()


async def test_the_last_server_tries_what_it_cannot(tmp_path: Path) -> None:
    """As without a cluster: a session of a removed directory can be deleted."""
    assert await place(placement(), tmp_path / "missing") == []
    assert await place(placement(is_alone=True, runs_agents=False), tmp_path) == []


def test_sessions_of_a_dead_server_are_left_to_those_that_go_on_with_them() -> None:
    root = node("root", roots=("/srv",))
    assert placement(root).leaves_to_others("/srv/a")
    assert not placement(root, roots=("/srv",)).leaves_to_others("/srv/a")
    assert not placement(node("anywhere")).leaves_to_others("/srv/a")
    assert placement(node("anywhere"), runs_agents=False).leaves_to_others("/srv/a")
    assert not placement(runs_agents=False).leaves_to_others("/srv/a"), "somebody must end the turn"
