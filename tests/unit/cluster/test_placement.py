"""Which server of a cluster takes a session."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from shim.agents.spares.agent_room import AgentRoom
from shim.cluster.peers import Node, Offer
from shim.cluster.placement import ClusterPlacement
from shim.lib.errors import NoRoom, NoServer, PlacedElsewhere, ServerStopping
from shim.processes.locate import ProgramLocation
from shim.sessions.placement import Need
from shim.store.servers import ServerRef


class FakePeers:
    def __init__(self, *nodes: Node) -> None:
        self._nodes = nodes

    def nodes(self) -> Sequence[Node]:
        return self._nodes

    def announce_offer(self, offer: Callable[[], Offer]) -> None:
        """Nobody listens."""


class FakeAgent:
    usable = True

    def __init__(self, name: str) -> None:
        self.spec = type("Spec", (), {"name": name})
        self.located = ProgramLocation("/bin/mock", "1.2.3")


class FakeAgents:
    def list_agents(self) -> list[FakeAgent]:
        return [FakeAgent("mock")]


def node(
    name: str, *, agents: tuple[str, ...] = ("mock",), roots: tuple[str, ...] = (), room: int = 5, labels: tuple[str, ...] = ()
) -> Node:
    return Node(ServerRef(name, 1, name=name), Offer(dict.fromkeys(agents, ""), roots, room, labels))


def placement(
    *nodes: Node,
    runs_agents: bool = True,
    room: int = 5,
    roots: tuple[str, ...] = (),
    server_id: str = "here",
    in_use: tuple[str, ...] = (),
    labels: tuple[str, ...] = (),
) -> ClusterPlacement:
    peers: Any = FakePeers(*nodes)
    agents: Any = FakeAgents()
    room_for_agents = AgentRoom(room, list)
    return ClusterPlacement(
        server_id,
        peers,
        agents,
        runs_agents=runs_agents,
        room=room_for_agents,
        roots=roots,
        in_use=lambda: in_use,
        labels=labels,
    )


async def place(
    here: ClusterPlacement,
    directory: Path | str,
    agent: str | None = None,
    *,
    is_new: bool = True,
    is_final: bool = False,
    labels: tuple[str, ...] = (),
) -> list[str]:
    """The servers to ask in turn; empty for this one."""
    try:
        if is_new:
            await here.need_new_here(Need(str(directory), agent, labels), is_final=is_final)
        else:
            await here.need_here(Need(str(directory), agent, labels))
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


def test_an_offer_names_the_versions_of_its_agents() -> None:
    assert placement(room=3, roots=("/srv",)).offer() == Offer({"mock": "1.2.3"}, ("/srv",), 3)


async def test_a_cordoned_server_keeps_its_sessions_and_takes_no_others(tmp_path: Path) -> None:
    here = placement(node("one"))
    here.set_duty("cordoned")
    assert await place(here, tmp_path) == ["one"]
    assert await place(here, tmp_path, is_new=False) == ["one"], "one that nobody has"
    await here.need_here(Need(str(tmp_path)), is_ours=True)
    assert (here.may_take_sessions, here.offer().takes_sessions, here.offer().is_draining) == (False, False, False)
    assert here.offer().may_have(str(tmp_path)), "clients still ask it for files"
    alone = placement()
    alone.set_duty("cordoned")
    with pytest.raises(NoServer, match=r"takes no sessions \(`opencode-shim cluster uncordon` changes that\), and no other"):
        await place(alone, tmp_path)
    here.set_duty("open")
    assert (await place(here, tmp_path), here.offer()) == ([], placement(node("one")).offer())


async def test_a_drained_server_lets_its_sessions_go_and_others_know_it(tmp_path: Path) -> None:
    here, cordoned = placement(node("one")), Node(ServerRef("shut", 1), Offer({"mock": ""}, room=9, is_cordoned=True))
    here.set_duty("drained")
    with pytest.raises(PlacedElsewhere):
        await here.need_here(Need(str(tmp_path)), is_ours=True)
    assert (here.offer().is_draining, here.offer().is_cordoned) == (True, True)
    assert not placement(cordoned).has_successors()
    assert await place(placement(cordoned, room=0), tmp_path) == [], "no session is sent to a cordoned server"


async def test_the_last_server_tries_what_it_cannot(tmp_path: Path) -> None:
    """As without a cluster: a session of a removed directory can be deleted."""
    assert await place(placement(), tmp_path / "missing") == []


def test_sessions_of_a_dead_server_are_left_to_those_that_go_on_with_them() -> None:
    root = node("root", roots=("/srv",))
    assert placement(root).leaves_to_others("/srv/a")
    assert not placement(root, roots=("/srv",)).leaves_to_others("/srv/a")
    assert not placement(node("anywhere")).leaves_to_others("/srv/a")
    assert placement(node("anywhere"), runs_agents=False).leaves_to_others("/srv/a")
    assert not placement(runs_agents=False).leaves_to_others("/srv/a"), "somebody must end the turn"


async def test_a_server_that_is_about_to_stop_takes_nothing(tmp_path: Path) -> None:
    here = placement(node("one"))
    here.stop_taking()
    assert await place(here, tmp_path) == ["one"]
    assert await place(here, tmp_path, is_new=False) == ["one"]
    assert here.offer() == Offer(is_draining=True)
    assert here.leaves_to_others("/srv/a")
    last = placement()
    last.stop_taking()
    with pytest.raises(ServerStopping, match="about to stop"):
        await place(last, tmp_path)


async def test_a_server_that_is_about_to_stop_is_not_asked(tmp_path: Path) -> None:
    stopping = Node(ServerRef("stopping", 1, name="stopping"), Offer({"mock": ""}, (), 9, is_draining=True))
    here = placement(stopping, node("one", room=1))
    assert await place(here, tmp_path / "missing") == ["one"]
    assert here.has_successors()
    assert not placement(stopping).has_successors()


def test_all_servers_agree_on_the_order_of_the_hosts_of_a_directory() -> None:
    names = ["a", "b", "c", "d"]
    nodes = [node(name, room=number) for number, name in enumerate(names)]
    front = placement(*nodes, runs_agents=False)
    for number in range(50):
        directory = f"/src/{number}"
        order = [host.id for host in front.hosts(directory)]
        assert sorted(order) == names, "also those without room"
        assert [host.id for host in placement(*reversed(nodes), runs_agents=False).hosts(directory)] == order
        for place, name in enumerate(order):
            here = placement(*(node for node in nodes if node.ref.id != name), server_id=name)
            assert [host.id for host in here.hosts_before_this(directory)] == order[:place]
        fewer = placement(*nodes[1:], runs_agents=False)
        assert [host.id for host in fewer.hosts(directory)] == [name for name in order if name != "a"]
    assert {front.hosts(f"/src/{number}")[0].id for number in range(50)} == set(names)


def test_hosts_with_a_root_of_the_directory_come_first_and_fronts_are_none() -> None:
    nodes = [node("any"), node("root", roots=("/src",)), node("else", roots=("/home",)), node("front", agents=())]
    for number in range(20):
        assert [host.id for host in placement(*nodes).hosts(f"/src/{number}")] == ["root", "any"]
        assert placement(*nodes, roots=("/src",), server_id="here").hosts_before_this(f"/src/{number}") in (
            [],
            [ServerRef("root", 1, name="root")],
        )


def test_the_server_with_terminals_of_a_directory_stays_its_first_host() -> None:
    """A server that joins the cluster must not hide them."""
    for number in range(20):
        directory = f"/src/{number}"
        using = Node(ServerRef("using", 1), Offer({"mock": ""}, in_use=("/else", directory)))
        nodes = [using, *(node(f"new{name}", roots=("/src",)) for name in range(5))]
        assert placement(*nodes).hosts(directory)[0].id == "using"
        assert [host.id for host in placement(*nodes).hosts_before_this(directory)][:1] == ["using"]
        assert placement(*nodes[1:], in_use=(directory,)).hosts_before_this(directory) == []


async def test_a_session_goes_only_to_servers_with_its_labels(tmp_path: Path) -> None:
    gpu = ("gpu=yes",)
    here = placement(node("plain"), node("gpu", labels=("gpu=yes", "zone=eu")), node("small", labels=("gpu=no",)))
    for is_new in (True, False):
        assert await place(here, tmp_path, labels=gpu, is_new=is_new) == ["gpu"]
        assert await place(placement(node("gpu", labels=gpu), labels=gpu), tmp_path, labels=gpu, is_new=is_new) == []


async def test_a_label_that_no_server_has_is_named(tmp_path: Path) -> None:
    """The last server does not run it nevertheless."""
    for here in (placement(node("plain")), placement()):
        with pytest.raises(NoServer, match=r"This server has no label gpu=yes"):
            await place(here, tmp_path, labels=("gpu=yes",))
    with pytest.raises(NoServer, match=r"the agent codex, with the labels gpu=yes\."):
        await place(placement(node("plain"), runs_agents=False), tmp_path, "codex", labels=("gpu=yes",))


async def test_the_error_names_the_servers_that_have_no_room(tmp_path: Path) -> None:
    here = placement(node("one", room=0), node("two", room=0), node("codex", agents=("codex",)), runs_agents=False)
    with pytest.raises(NoRoom, match=r"no room for another agent: one, two\. Try again .* raise their max_agents"):
        await place(here, tmp_path, "mock")


async def test_a_session_without_room_goes_to_a_server_that_surely_has_its_directory(tmp_path: Path) -> None:
    roots = (str(tmp_path),)
    anywhere, sharer = node("anywhere", room=9), node("sharer", roots=roots, room=1)
    assert await place(placement(anywhere, sharer, room=0), tmp_path, is_new=False) == ["sharer"]
    assert await place(placement(anywhere, room=0), tmp_path, is_new=False) == [], "it waits for room"
    await placement(anywhere, sharer, room=0).need_here(Need(str(tmp_path)), starts_agent=False)
