"""All servers of a cluster are replaced one after the other while clients prompt. Nothing that was accepted is lost.

Clients that go from server to server meanwhile, with `Last-Event-ID`, get each event once.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import signal
import urllib.error
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Any

import aiohttp
import pytest

from tests.process.test_cluster_commands import events_of, of_type
from tests.process.test_cluster_placement import node_settings
from tests.process.test_serve import SLACK_S, STOP_S
from tests.process.test_two_servers import Server, server, until
from tests.support.nats_server import NatsServer
from tools.chaos import checks
from tools.chaos.evidence import Evidence, SessionReading
from tools.chaos.readings import read_events
from tools.chaos.streams import Hopper

pytestmark = [pytest.mark.timeout(400), pytest.mark.slow]

DRAIN_S = 20
"""`drain_seconds` of the servers; turns take less."""
TEXTS = ("echo short", "slow 20", "echo other", "fail", "slow 10")
"""What the clients prompt. With DELAY_FACTOR, `slow 20` takes a second."""
DELAY_FACTOR = "0.05"
TRIES = 200
"""So often a client sends a prompt before it gives up."""
RETRY_S = 0.1
STAY_S, AGAIN_S = (0.3, 1.0), 0.05
"""Seconds that a watcher reads at a server, and until it is at the next one."""


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

    def journal(self, node: Server) -> list[str]:
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
        turns = [type_ for type_ in self.journal(front) if type_ in ("turn.started", "turn.ended")]
        assert turns == ["turn.started", "turn.ended"] * (len(turns) // 2)
        until(lambda: len(of_type(events, "session.idle", self.session)) >= len(turns) // 2)
        assert len(of_type(events, "session.idle", self.session)) == len(turns) // 2


@dataclass(frozen=True)
class Place:
    """A server that lives, and how watchers call it."""

    url: str

    @property
    def name(self) -> str:
        return self.url


class Watchers:
    """Clients that read all sessions, now at one living server and then at another. They have a thread of their own."""

    def __init__(self, nodes: list[Server], count: int) -> None:
        self._nodes = nodes
        self._names = [f"watcher{number}" for number in range(1, count + 1)]
        self._is_over = Event()
        self.hoppers: list[Hopper] = []

    async def _read(self) -> None:
        async with aiohttp.ClientSession(read_bufsize=2**22) as http:
            for name in self._names:
                chance = random.Random(name)
                self.hoppers.append(Hopper(http, name, lambda: Place(random.choice(self._nodes).url), chance, STAY_S, AGAIN_S))
            tasks = [asyncio.create_task(hopper.run()) for hopper in self.hoppers]
            await asyncio.to_thread(self._is_over.wait)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for hopper in self.hoppers:
            hopper.finish()

    @contextmanager
    def reading(self) -> Generator[None]:
        """They read within the block."""
        with ThreadPoolExecutor(1) as pool:
            reading = pool.submit(asyncio.run, self._read())
            try:
                until(lambda: len(self.hoppers) == len(self._names) and all(hopper.position for hopper in self.hoppers))
                yield
            finally:
                self._is_over.set()
                reading.result()

    async def violations(self, front: Server, sessions: Sequence[str]) -> list[str]:
        """Idles that came not once to a watcher, although it was not told to read everything anew; events that came twice."""
        evidence = Evidence(streams=[record for hopper in self.hoppers for record in hopper.records])
        async with aiohttp.ClientSession() as http:
            for session in sessions:
                events = await read_events(http, front.url, session)
                evidence.sessions[session] = SessionReading(session, events=events)
        return [str(found) for check in (checks.check_idles, checks.check_hoppers) for found in check(evidence)]


def replace_all(
    tmp_path: Path, nats: NatsServer, *, servers: int, clients: int, rounds: int, watchers: int = 1
) -> tuple[list[Client], Watchers]:
    """Replace each server, `rounds` times, while the clients prompt. Out: the clients and the watchers, after all checks."""
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
        watch = Watchers(nodes, watchers)
        with events_of(front) as events:
            with watch.reading():
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
                last = {person.session: person.accepted[-1] for person in people}
                until(lambda: all(hopper.records[-1].has_ended(last) for hopper in watch.hoppers))
            violations = asyncio.run(watch.violations(front, list(last)))
            assert not violations, "\n".join(violations)
    return people, watch


def test_a_rolling_restart_loses_nothing(tmp_path: Path, nats: NatsServer) -> None:
    people, _ = replace_all(tmp_path, nats, servers=2, clients=3, rounds=1)
    assert all(person.accepted for person in people)


@pytest.mark.slow
@pytest.mark.nightly
def test_rolling_restarts_under_load_lose_nothing(tmp_path: Path, nats: NatsServer) -> None:
    people, watch = replace_all(tmp_path, nats, servers=3, clients=12, rounds=3, watchers=4)
    assert sum(len(person.accepted) for person in people) > 100
    hops = [sum(record.hops for record in hopper.records) for hopper in watch.hoppers]
    assert min(hops) > 10
