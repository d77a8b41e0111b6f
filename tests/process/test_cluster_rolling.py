"""All servers of a cluster are replaced one after the other while clients prompt. Nothing that was accepted is lost."""

from __future__ import annotations

import itertools
import json
import signal
import urllib.error
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from tests.process.test_cluster import nats
from tests.process.test_cluster_commands import events_of, of_type
from tests.process.test_cluster_placement import node_settings
from tests.process.test_serve import SLACK_S, STOP_S
from tests.process.test_two_servers import Server, server, until
from tests.support.nats_server import NatsServer

__all__ = ["nats"]
pytestmark = pytest.mark.timeout(400)

DRAIN_S = 20
"""`drain_seconds` of the servers; turns take less."""
TEXTS = ("echo short", "slow 20", "echo other", "fail", "slow 10")
"""What the clients prompt. With DELAY_FACTOR, `slow 20` takes a second."""
DELAY_FACTOR = "0.05"
TRIES = 200
"""So often a client sends a prompt before it gives up."""
RETRY_S = 0.1


@dataclass
class Client:
    """A person who works in one session, through a balancer over `nodes`. `accepted`: ids of acknowledged prompts."""

    nodes: list[Server]
    session: str
    numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    accepted: list[str] = field(default_factory=list[str])
    refused: list[str] = field(default_factory=list[str])

    def work(self, is_over: Event) -> None:
        """Prompt until it is over, one after the other."""
        while not is_over.is_set():
            number = next(self.numbers)
            message_id = f"msg_{self.session[4:]}{number:06}"
            self._prompt(message_id, TEXTS[number % len(TEXTS)])
            self.accepted.append(message_id)

    def _prompt(self, message_id: str, text: str) -> None:
        """Send a prompt until it is acknowledged. One that was stored already is refused by its id."""
        body = {"messageID": message_id, "parts": [{"type": "text", "text": text}]}
        pause = Event()
        for number in range(TRIES):
            node = self.nodes[number % len(self.nodes)]
            try:
                status, answer = node.ask("POST", f"/session/{self.session}/message", body)
            except (urllib.error.URLError, ConnectionError):
                status, answer = 0, "no connection"
            if status == 200 or (status == 409 and "exists already" in str(answer)):
                return
            assert status in (0, 409, 503), answer
            self.refused.append(f"{status} {answer}")
            pause.wait(RETRY_S)
        raise AssertionError(f"{message_id} was never acknowledged: {self.refused[-3:]}")

    def _journal(self, node: Server) -> list[str]:
        """The types of all events of the session."""
        types: list[str] = []
        has_more = True
        while has_more:
            page = node.get(f"/v1/sessions/{self.session}/events?offset={len(types)}")
            types += [event["type"] for event in page["events"]]
            has_more = page["hasMore"]
        return types

    def check(self, front: Server, events: Sequence[dict[str, Any]]) -> None:
        """Each acknowledged prompt is there once, and was answered or has failed. Each turn ended once, for all clients."""
        messages = [message["info"] for message in front.get(f"/session/{self.session}/message")]
        prompts = [info["id"] for info in messages if info["role"] == "user"]
        assert prompts == self.accepted
        answers = {
            info["parentID"]
            for info in messages
            if info["role"] == "assistant" and (info.get("error") or info["time"].get("completed"))
        }
        assert set(self.accepted) <= answers
        turns = [type_ for type_ in self._journal(front) if type_ in ("turn.started", "turn.ended")]
        assert turns == ["turn.started", "turn.ended"] * (len(turns) // 2)
        until(lambda: len(of_type(events, "session.idle", self.session)) >= len(turns) // 2)
        assert len(of_type(events, "session.idle", self.session)) == len(turns) // 2


def replace_all(tmp_path: Path, nats: NatsServer, *, servers: int, clients: int, rounds: int) -> list[Client]:
    """Replace each server, `rounds` times, while the clients prompt. Out: the clients, after all checks."""
    names = (f"node{number}" for number in itertools.count(1))

    def start(stack: ExitStack, **more: str) -> Server:
        settings = node_settings(
            tmp_path, nats, next(names), SHIM_DRAIN_SECONDS=str(DRAIN_S), SHIM_MOCK_DELAY_FACTOR=DELAY_FACTOR
        )
        return stack.enter_context(server(tmp_path, **settings, **more))

    with ExitStack() as stack, ThreadPoolExecutor(clients) as pool:
        nodes = [start(stack) for _ in range(servers)]
        front = start(stack, SHIM_NO_AGENTS="true")
        until(lambda: front.ask("POST", "/session", {})[0] == 200)
        with events_of(front) as events:
            people = [Client(nodes, nodes[number % servers].session()) for number in range(clients)]
            is_over = Event()
            working = [pool.submit(person.work, is_over) for person in people]
            try:
                for at in [at for _ in range(rounds) for at in range(servers)]:
                    accepted = sum(len(person.accepted) for person in people)
                    until(lambda: sum(len(person.accepted) for person in people) > accepted + clients)  # noqa: B023 - awaited at once
                    before = nodes[at]
                    nodes[at] = start(stack)
                    before.process.send_signal(signal.SIGTERM)
                    assert before.process.wait(DRAIN_S + STOP_S + SLACK_S) == 0
            finally:
                is_over.set()
                for future in working:
                    future.result()
            for person in people:
                person.check(front, events)
                failed = [
                    error for error in of_type(events, "session.error", person.session) if "was stopped" in json.dumps(error)
                ]
                assert failed == [], "each turn had the time to end"
    return people


def test_a_rolling_restart_loses_nothing(tmp_path: Path, nats: NatsServer) -> None:
    people = replace_all(tmp_path, nats, servers=2, clients=3, rounds=1)
    assert all(person.accepted for person in people)


@pytest.mark.slow
@pytest.mark.nightly
def test_rolling_restarts_under_load_lose_nothing(tmp_path: Path, nats: NatsServer) -> None:
    people = replace_all(tmp_path, nats, servers=3, clients=12, rounds=3)
    assert sum(len(person.accepted) for person in people) > 100
