"""A client that goes on at another server of a cluster, with `Last-Event-ID`, gets each event once."""

from __future__ import annotations

import json
import random
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.process.test_serve import START_S
from tests.process.test_two_servers import Server, server, until
from tests.support.nats_server import NatsServer

pytestmark = [pytest.mark.timeout(180), pytest.mark.slow]

FACES = ("/event", "/global/event", "/api/event")
TURN_S = 40.0
"""Maximum seconds of a test's turn."""
SEED = 20261124
TRAVELLERS, SESSIONS_OF_EACH, TICKS = 3, 3, 40
PIECES = ("message.part.delta", "session.text.delta")
ENDS = {"/event": "session.idle", "/global/event": "session.idle", "/api/event": "session.execution.succeeded"}


@pytest.fixture
def two_nodes(tmp_path: Path, nats: NatsServer) -> Iterator[tuple[Server, Server]]:
    """Two servers whose agents take a tenth of their time."""
    more = {"SHIM_CLUSTER": nats.url, "SHIM_MOCK_DELAY_FACTOR": "0.1"}
    with (
        server(tmp_path, SHIM_DATA_DIR=str(tmp_path / "one"), **more) as one,
        server(tmp_path, SHIM_DATA_DIR=str(tmp_path / "two"), **more) as two,
    ):
        yield one, two


@dataclass
class Traveller:
    """A client that reads an event stream, now from one server and then from another. It notes all events that it gets."""

    path: str
    last_id: str = ""
    ids: list[str] = field(default_factory=list)
    pieces: list[str] = field(default_factory=list)
    ends: int = 0

    def read(self, node: Server, count: int | None = None) -> None:
        """Read so many events of the session's turn, None: until its end. Then leave without a word."""
        headers = {"Last-Event-ID": self.last_id} if self.last_id else {}
        with urllib.request.urlopen(urllib.request.Request(node.url + self.path, headers=headers), timeout=START_S) as stream:
            for position, event in frames(stream):
                self.last_id = position or self.last_id
                if not self._note(event):
                    continue
                if event["type"] == ENDS[self.path]:
                    return
                count = None if count is None else count - 1
                if count == 0:
                    return

    def connect(self, node: Server) -> bool:
        """Come, read the greeting, and leave. Out: whether it can go on where it was."""
        before, headers = self.last_id, {"Last-Event-ID": self.last_id} if self.last_id else {}
        with urllib.request.urlopen(urllib.request.Request(node.url + self.path, headers=headers), timeout=START_S) as stream:
            for position, event in frames(stream):
                self.last_id = position or self.last_id
                if event["type"] == "server.connected":
                    return self.last_id == before
        return False

    def _note(self, event: dict[str, Any]) -> bool:
        """Note an event. Whether it is one of a turn."""
        type_ = event["type"]
        data = event.get("properties") or event.get("data") or {}
        if type_ in PIECES:
            self.pieces.append(data["delta"])
        elif type_ == ENDS[self.path]:
            self.ends += 1
        else:
            return False
        self.ids.append(event["id"])
        return True


def frames(stream: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Position and event of each frame."""
    deadline, position = time.monotonic() + TURN_S, ""
    for line in stream:
        assert time.monotonic() < deadline
        if line.startswith(b"id:"):
            position = line[3:].strip().decode()
        elif line.startswith(b"data:"):
            event = json.loads(line[5:])
            yield position, event.get("payload", event)


def test_a_client_that_hops_between_servers_gets_each_event_once(two_nodes: tuple[Server, Server]) -> None:
    owner, other = two_nodes
    for path in FACES:
        traveller = Traveller(path)
        traveller.connect(other)
        session = owner.session()
        owner.begin(session, "slow 6")
        for hop in range(5):
            traveller.read((owner, other)[hop % 2], 1)
        traveller.read(other)
        assert "".join(traveller.pieces) == owner.texts(session)[-1]
        assert traveller.ends == 1
        assert len(set(traveller.ids)) == len(traveller.ids)


def test_a_client_gets_what_happened_while_it_was_away(two_nodes: tuple[Server, Server]) -> None:
    """In sessions of both servers."""
    owner, other = two_nodes
    travellers = [Traveller(path) for path in FACES]
    for traveller in travellers:
        traveller.connect(owner)
    sessions = [owner.session(), other.session()]
    for prompt, places in (("echo first", (other, other)), ("burst 200", (owner, other))):
        for node, session in zip(two_nodes, sessions, strict=True):
            node.prompt(session, prompt)
        until(lambda: all(len(node.texts(session)) % 2 == 0 for session in sessions for node in two_nodes))
        for traveller in travellers:
            for node in places:
                traveller.read(node)
    text = "first" + "".join(f"{number} " for number in range(1, 201))
    for traveller in travellers:
        assert sorted("".join(traveller.pieces)) == sorted(text * 2)
        assert traveller.ends == 4
        assert len(set(traveller.ids)) == len(traveller.ids)


def test_a_client_of_a_killed_server_gets_the_end_of_the_turn_once(two_nodes: tuple[Server, Server]) -> None:
    """Also if it has seen events that were not stored before the death, in whose place are others now."""
    owner, other = two_nodes
    traveller = Traveller("/event")
    traveller.connect(owner)
    session = owner.session()
    owner.begin(session, "slow 30")
    traveller.read(owner, 2)
    owner.kill()
    traveller.read(other)
    if not traveller.ends:  # its stream has ended, because it has seen what was lost
        assert not traveller.connect(other), "it reads everything again"
        until(lambda: session not in other.get("/session/status"))
    assert traveller.ends <= 1
    assert len(set(traveller.ids)) == len(traveller.ids)
    assert "".join(traveller.pieces).startswith(other.texts(session)[-1])


@pytest.mark.nightly
def test_clients_that_hop_at_random_get_each_event_of_many_sessions_once(two_nodes: tuple[Server, Server]) -> None:
    dice = random.Random(SEED)
    for path in FACES:
        travellers = [Traveller(path) for _ in range(TRAVELLERS)]
        hops = [[(dice.choice(two_nodes), dice.randint(1, 12)) for _ in range(1_000)] for _ in travellers]
        for traveller in travellers:
            traveller.connect(two_nodes[0])
        sessions = [(node, node.session()) for node in two_nodes * SESSIONS_OF_EACH]
        for node, session in sessions:
            node.begin(session, f"slow {TICKS}")

        def travel(traveller: Traveller, way: list[tuple[Server, int]]) -> None:
            for node, count in way:
                traveller.read(node, count)
                if traveller.ends == len(sessions):  # noqa: B023 - awaited below
                    return

        with ThreadPoolExecutor() as pool:
            list(pool.map(travel, travellers, hops))
        ticks = [f"tick {number} of {TICKS}" for number in range(1, TICKS + 1)] * len(sessions)
        for traveller in travellers:
            assert sorted("".join(traveller.pieces).splitlines()) == sorted(ticks)
            assert traveller.ends == len(sessions)
