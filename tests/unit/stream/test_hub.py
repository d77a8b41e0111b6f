"""The hub: who gets what, in which order; replay without gap or double; nobody is waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from structlog.testing import capture_logs

from shim.faces.opencode1.events import EventEncoder
from shim.faces.opencode1.wire_event import OpenCodeEvent
from shim.lib.clock import ManualClock
from shim.lib.ids import Ids
from shim.stream.frame import Frame, normal_scope
from shim.stream.hub import APART_S, Face, Hub, HubBounds
from shim.stream.subscription import Bounds, Subscription
from tests.unit.stream.reading import (
    ASK,
    ASK_2,
    ReceivedFrame,
    drain,
    make_hub,
    numbered_event,
    numbers,
    parse_batches,
    subscribe,
)


def types(found: list[ReceivedFrame]) -> list[str]:
    return [got.type for got in found]


async def test_connected_is_first_then_all_in_order() -> None:
    hub = make_hub()
    reader = subscribe(hub, scope=None)
    for number in range(200):
        hub.publish(numbered_event(number))
    found = await drain(reader)
    assert found[0].data == {"id": found[0].event["id"], "type": "server.connected", "properties": {}}
    assert numbers(found) == list(range(200))
    ids = [got.event["id"] for got in found]
    assert ids == sorted(set(ids))
    assert all(got.id == got.event["id"] for got in found[1:])
    reader.close()


@pytest.mark.parametrize(
    ("scope", "directory", "gets"),
    [
        (None, "/p", True),
        (None, None, True),
        (None, "global", True),
        ("/p", "/p", True),
        ("/p/", "/p", True),
        ("/p", "/p/", True),
        ("/p", None, True),
        ("/p", "/pp", False),
        ("/p", "/p/sub", False),
        ("/p", "/P", False),
        ("/p", "global", False),
        ("/", "/", True),
        ("/", "/p", False),
    ],
)
async def test_directories(scope: str | None, directory: str | None, gets: bool) -> None:
    hub = make_hub()
    reader = subscribe(hub, scope=scope, wrapped=True)
    hub.publish(numbered_event(1, directory))
    found = await drain(reader)
    assert numbers(found) == ([1] if gets else [])
    if gets:
        assert found[-1].data.get("directory") == (normal_scope(directory) if directory else None)
    reader.close()


async def test_earlier_events_are_sent_only_on_request() -> None:
    hub = make_hub()
    hub.publish(numbered_event(1))
    reader = subscribe(hub, scope=None)
    hub.publish(numbered_event(2))
    assert numbers(await drain(reader)) == [2]
    reader.close()


# Greeting.


async def test_open_requests_come_after_connected_and_before_live_events() -> None:
    hub = make_hub()
    reader = subscribe(hub, scope="/p", greeting=[ASK, ASK_2])
    hub.publish(numbered_event(1))
    found = await drain(reader)
    assert types(found) == ["server.connected", "permission.asked", "test.said"]
    assert found[1].event["properties"] == ASK.properties
    reader.close()


async def test_replayed_events_are_not_sent_again() -> None:
    hub = make_hub()
    first = subscribe(hub, scope=None)
    hub.publish(numbered_event(1))
    at = (await drain(first))[-1].id
    hub.publish(ASK)
    again = subscribe(hub, scope=None, last_event_id=at, greeting=[ASK, ASK_2])
    assert types(await drain(again)) == ["server.connected", "permission.asked", "question.asked"]
    other = subscribe(hub, scope=None, last_event_id=hub_last(hub), greeting=[ASK])
    assert types(await drain(other)) == ["server.connected", "permission.asked"]
    for reader in (first, again, other):
        reader.close()


def hub_last(hub: Hub) -> str:
    """The place of a reader that has seen everything."""
    reader = subscribe(hub, scope=None)
    reader.send_heartbeat()
    frames = [frame for batch in (*reader._opening, *reader._live) for frame in batch.frames]
    reader.close()
    return frames[-1].position


# Replay.


async def test_replay_goes_on_where_the_reader_was() -> None:
    hub = make_hub()
    reader = subscribe(hub, scope="/p")
    for number in range(10):
        hub.publish(numbered_event(number, "/p" if number % 2 else "/q"))
    at = next(got.id for got in await drain(reader) if numbers([got]) == [5])
    again = subscribe(hub, scope="/p", wrapped=True, last_event_id=at)
    hub.publish(numbered_event(11))
    found = await drain(again)
    assert types(found)[0] == "server.connected"
    assert numbers(found) == [7, 9, 11]
    assert hub.stats().replayed == 2
    reader.close()
    again.close()


@pytest.mark.parametrize("legacy", [False, True])
async def test_a_reader_that_only_saw_connected_or_a_heartbeat_misses_nothing(legacy: bool) -> None:
    hub = make_hub()
    reader = subscribe(hub, scope=None, legacy=legacy)
    (connected,) = await drain(reader)
    reader.close()
    hub.publish(numbered_event(1))
    again = subscribe(hub, scope=None, legacy=legacy, last_event_id=connected.id)
    assert numbers(await drain(again)) == [1]
    again.send_heartbeat()
    (beat,) = await drain(again)
    assert beat.type == "server.heartbeat"
    hub.publish(numbered_event(2))
    third = subscribe(hub, scope=None, legacy=legacy, last_event_id=beat.id)
    assert numbers(await drain(third)) == [2]
    again.close()
    third.close()


async def test_a_reader_cut_off_before_its_replay_can_ask_again() -> None:
    hub = make_hub()
    first = subscribe(hub, scope=None)
    hub.publish(numbered_event(1))
    at = (await drain(first))[-1].id
    hub.publish(numbered_event(2))
    second = subscribe(hub, scope=None, last_event_id=at)
    connected = parse_batches(second, await second.take())[0]
    second.close()
    third = subscribe(hub, scope=None, last_event_id=connected.id)
    assert numbers(await drain(third)) == [2]
    first.close()
    third.close()


async def test_changes_are_rendered_only_for_readers_that_are_there_or_may_come_back() -> None:
    made: list[int] = []

    def render(change: int) -> list[OpenCodeEvent]:
        made.append(change)
        return [numbered_event(change)]

    clock = ManualClock()
    hub = Hub(clock, Ids(clock), faces=(Face("opencode1", render),), bounds=HubBounds(ring_frames=3))
    hub.emit(1)
    assert made == []
    reader = subscribe(hub)
    hub.emit(2)
    at = (await drain(reader))[-1].id
    reader.close()
    hub.emit(3)
    again = subscribe(hub, last_event_id=at)
    assert numbers(await drain(again)) == [3]
    again.close()
    for number in range(4, 9):
        hub.emit(number)
    assert made == [2, 3, 4, 5, 6]  # as many as the ring keeps


async def test_a_reader_that_comes_back_after_changes_without_events_must_read_everything() -> None:
    clock, face = ManualClock(), Face("opencode1", lambda change: [numbered_event(change)])
    hub = Hub(clock, Ids(clock), faces=(face,), bounds=HubBounds(ring_frames=2))
    reader = subscribe(hub)
    at = (await drain(reader))[0].id
    reader.close()
    for number in range(5):
        hub.emit(number)
    with capture_logs() as logs:
        again = subscribe(hub, last_event_id=at)
    assert types(await drain(again)) == ["server.connected"]
    assert [entry["event"] for entry in logs] == ["replay.missed"]
    again.close()


async def test_an_unknown_id_is_counted_and_the_reader_goes_on() -> None:
    hub = make_hub()
    hub.publish(numbered_event(1))
    with capture_logs() as logs:
        reader = subscribe(hub, scope=None, last_event_id="evt_of_another_life")
    hub.publish(numbered_event(2))
    assert numbers(await drain(reader)) == [2]
    assert hub.stats().replay_missed == 1
    assert [entry["event"] for entry in logs] == ["replay.missed"]
    reader.close()


async def test_a_replay_may_be_longer_than_a_reader_may_be_behind() -> None:
    hub = make_hub(HubBounds(reader=Bounds(frames=10, bytes=1000), ring_frames=500))
    first = subscribe(hub, scope=None)
    at = (await drain(first))[0].id
    first.close()
    for number in range(400):
        hub.publish(numbered_event(number))
    again = subscribe(hub, scope=None, last_event_id=at)
    for number in range(400, 405):
        hub.publish(numbered_event(number))
    await asyncio.sleep(0)
    assert numbers(await drain(again)) == list(range(405))
    again.close()


# 1.1.


@dataclass
class Old:
    """An event with a form of its own for 1.1, and how often that was made."""

    made: list[int] = field(default_factory=list)

    def event(self, number: int, directory: str = "/p", *, nothing: bool = False) -> OpenCodeEvent:
        def make() -> OpenCodeEvent | None:
            self.made.append(number)
            return None if nothing else numbered_event(-number, directory)

        return numbered_event(number, directory, legacy=make)


async def test_clients_of_1_1_get_their_own_event() -> None:
    hub, old = make_hub(), Old()
    modern = subscribe(hub, scope=None, wrapped=True)
    legacy = [subscribe(hub, scope="/p", legacy=True) for _ in range(3)]
    hub.publish(old.event(1))
    hub.publish(old.event(2, nothing=True))
    hub.publish(old.event(3, "/q"))
    hub.publish(numbered_event(4))
    assert numbers(await drain(modern)) == [1, 2, 3, 4]
    for reader in legacy:
        found = await drain(reader)
        assert numbers(found) == [-1, 4]
        assert found[0].data == {"type": "server.connected", "properties": {}}
        assert all("id" not in got.data for got in found)
    assert old.made == [1, 2]
    for reader in (modern, *legacy):
        reader.close()


async def test_without_such_a_client_their_event_is_not_made() -> None:
    hub, old = make_hub(), Old()
    modern = subscribe(hub, scope=None)
    elsewhere = subscribe(hub, scope="/q", legacy=True)
    hub.publish(old.event(1))
    assert old.made == []
    modern.close()
    elsewhere.close()


async def test_a_client_of_1_1_that_was_cut_off_gets_what_it_missed() -> None:
    hub, old = make_hub(HubBounds(ring_frames=8)), Old()
    reader = subscribe(hub, scope="/p", legacy=True)
    hub.publish(old.event(1))
    at = (await drain(reader))[-1].id
    reader.close()
    hub.publish(old.event(2))
    hub.publish(old.event(3, "/q"))
    hub.publish(old.event(4, nothing=True))
    again = subscribe(hub, scope="/p", legacy=True, last_event_id=at)
    assert numbers(await drain(again)) == [-2]
    assert old.made == [1, 2, 4]
    again.close()
    for number in range(10, 30):
        hub.publish(old.event(number))
    assert old.made == [1, 2, 4, *range(10, 18)]


async def test_events_never_encoded_for_1_1_cannot_be_replayed() -> None:
    hub, old = make_hub(), Old()
    modern = subscribe(hub, scope=None)
    at = (await drain(modern))[0].id
    hub.publish(old.event(1))
    reader = subscribe(hub, scope=None, legacy=True, last_event_id=at)
    assert types(await drain(reader)) == ["server.connected"]
    assert hub.stats().replay_missed == 1
    modern.close()
    reader.close()


async def test_greeting_of_1_1() -> None:
    hub, old = make_hub(), Old()
    reader = subscribe(hub, scope=None, wrapped=True, legacy=True, greeting=[old.event(1), old.event(2, nothing=True), ASK])
    found = await drain(reader)
    assert types(found) == ["server.connected", "test.said", "permission.asked"]
    assert numbers(found) == [-1]
    assert found[2].data == {"directory": "/p", "payload": {"type": "permission.asked", "properties": ASK.properties}}
    reader.close()


# Encoding.


async def test_an_event_is_encoded_once_for_all_that_read_its_generation(monkeypatch: pytest.MonkeyPatch) -> None:
    hub, encoded = make_hub(HubBounds(ring_frames=2)), list[int]()

    encode = EventEncoder.encode

    def count_encoding(encoder: EventEncoder, event: OpenCodeEvent, event_id: str, position: str) -> Frame | None:
        encoded.extend([event.properties["n"]] if "n" in event.properties else [])
        return encode(encoder, event, event_id, position)

    monkeypatch.setattr(EventEncoder, "encode", count_encoding)
    hub.publish(numbered_event(1))
    here = [subscribe(hub, scope="/p", wrapped=wrapped) for wrapped in (False, False, True)]
    everywhere = [subscribe(hub, wrapped=True) for _ in range(2)]
    hub.publish(numbered_event(2, "/p"))
    hub.publish(numbered_event(3, "/q"))
    assert encoded == [2, 3], "nobody read the first"
    for reader in everywhere:
        reader.close()
    for number in range(4, 8):
        hub.publish(numbered_event(number, "/q"))
    assert encoded == [2, 3, 4, 5], "as long as a reader could come back and ask for it"
    hub.publish(numbered_event(8, "/p"))
    assert encoded == [2, 3, 4, 5, 8]
    for reader in here:
        reader.close()
    subscribe(hub, scope="/q").close()
    assert [scope for scope, group in hub._audiences.items() if group] == ["/p", "/q"], "the others are forgotten"


# Being settled.


async def test_settled_waits_for_what_readers_of_a_directory_have_not_sent() -> None:
    hub = make_hub()
    here, there = subscribe(hub, scope="/p"), subscribe(hub, scope="/q", wrapped=False)
    await drain(here)
    hub.publish(numbered_event(1, "/p"))
    async with asyncio.timeout(1):
        taken = await here.take(0.0)
        settling = asyncio.ensure_future(hub.settle("/p", 1000.0))
        await asyncio.sleep(0)
        assert not settling.done()  # taken, but who knows whether it is sent
        hub.publish(numbered_event(2, "/p"))
        again = await here.take(0.0)
        assert numbers(parse_batches(here, taken)) + numbers(parse_batches(here, again)) == [1, 2]
        waiting = asyncio.ensure_future(here.take(0.0))
        await settling
        await hub.settle("/p", 1000.0)
    waiting.cancel()
    here.close()
    there.close()


async def test_settled_does_not_wait_for_company_nor_for_ever_nor_for_the_gone() -> None:
    hub = make_hub()
    reader, gone = subscribe(hub, scope=None), subscribe(hub, scope=None, wrapped=False)
    await drain(reader)
    taking = asyncio.ensure_future(reader.take(1000.0))
    await asyncio.sleep(0)
    hub.publish(numbered_event(1))
    await asyncio.sleep(0)
    assert not taking.done()
    async with asyncio.timeout(1):
        await hub.settle(timeout_s=0.001)
        assert numbers(parse_batches(reader, await taking)) == [1]
        settling = asyncio.ensure_future(hub.settle(timeout_s=1000.0))
        await asyncio.sleep(0)
        reader.close()
        gone.close()
        await settling
        await hub.settle(timeout_s=1000.0)


# The end.


async def test_close_ends_all_after_what_waits() -> None:
    hub = make_hub()
    readers = [subscribe(hub, scope=None) for _ in range(3)]
    waiting = subscribe(hub, scope=None)
    await drain(waiting)
    taking = asyncio.ensure_future(waiting.take(1000.0))
    await asyncio.sleep(0)
    hub.publish(numbered_event(1))
    hub.close()
    hub.publish(numbered_event(2))
    hub.close()
    for reader in readers:
        assert not reader.over
        assert numbers(await drain(reader)) == [1]
        assert reader.over
    async with asyncio.timeout(1):
        assert numbers(parse_batches(waiting, await taking)) == [1]
    assert hub.stats().readers == 0
    late = subscribe(hub, scope=None)
    assert types(await drain(late)) == ["server.connected"]
    assert late.over


async def test_end_of_one_directory() -> None:
    hub = make_hub()
    here, there, everywhere = (subscribe(hub, scope=scope) for scope in ("/p", "/q", None))
    hub.end("/p/")
    hub.publish(numbered_event(1, None))
    assert [numbers(await drain(reader)) for reader in (here, there, everywhere)] == [[], [1], [1]]
    assert [reader.over for reader in (here, there, everywhere)] == [True, False, False]
    there.close()
    everywhere.close()


async def test_readers_of_void_events_come_again_and_get_no_replay_of_them() -> None:
    hub = make_hub()
    here, there, everywhere = (subscribe(hub, scope=scope) for scope in ("/p", "/q", None))
    hub.publish(numbered_event(1, "/p"))
    last = hub_last(hub)
    hub.end_void("/p/")
    hub.publish(numbered_event(2, "/p"))
    assert [numbers(await drain(reader)) for reader in (here, there, everywhere)] == [[1], [], [1]]
    assert [reader.over for reader in (here, there, everywhere)] == [True, False, True]
    again = subscribe(hub, scope="/p", last_event_id=last)
    assert numbers(await drain(again)) == []
    assert hub.stats().replay_missed == 1
    there.close()
    again.close()


async def test_a_closed_reader_gets_nothing() -> None:
    hub = make_hub()
    reader = subscribe(hub, scope=None)
    reader.close()
    reader.close()
    hub.publish(numbered_event(1))
    reader.send_heartbeat()
    assert await reader.take() == []
    assert reader.over
    assert hub.stats().readers == 0


# Any interleaving: each reader has each event of its directory once and in order, however often it was cut off.

SCOPES = st.sampled_from([None, "/p", "/q"])


@dataclass
class Client:
    """A reader that reconnects, and what it has seen in all its connections."""

    scope: str | None
    legacy: bool
    due: list[int] = field(default_factory=list)
    seen: list[int] = field(default_factory=list)
    at: str | None = None
    subscription: Subscription | None = None
    received: list[ReceivedFrame] = field(default_factory=list)
    """Of the chunk that is being read."""

    def read(self, frames: int) -> None:
        """Takes up to so many frames, as a connection does that breaks in the middle of a chunk."""
        assert self.subscription is not None
        queues = (self.subscription._opening, self.subscription._live)
        for _ in range(frames):
            if not self.received:
                queue = queues[0] or queues[1]
                self.received = parse_batches(self.subscription, [queue.popleft()]) if queue else []
            if not self.received:
                break
            got = self.received.pop(0)
            self.at = got.id
            self.seen += map(abs, numbers([got]))


class ReconnectMachine(RuleBasedStateMachine):
    @initialize(clients=st.lists(st.tuples(SCOPES, st.booleans()), min_size=1, max_size=4))
    def start(self, clients: list[tuple[str | None, bool]]) -> None:
        self.due: list[Callable[[], None]] = []
        self.at = 0.0
        self.hub = make_hub(soon=self.due.append, now=lambda: self.at)
        self.count = 0
        self.clients = [Client(scope, legacy) for scope, legacy in clients]
        for client in self.clients:
            self.connect(client)

    def connect(self, client: Client) -> None:
        client.subscription = subscribe(self.hub, scope=client.scope, legacy=client.legacy, last_event_id=client.at)
        if client.at is None:
            client.due, client.seen = [], []

    @rule(directories=st.lists(st.sampled_from(["/p", "/q", None]), max_size=4), own_form=st.booleans())
    def publish_together(self, directories: list[str | None], own_form: bool) -> None:
        with self.hub.bursts:
            for directory in directories:
                self.publish(directory, own_form)

    @rule()
    def time_passes(self) -> None:
        self.at += APART_S

    @rule()
    def turn(self) -> None:
        """The loop's next turn."""
        due, self.due[:] = [*self.due], []
        for call in due:
            call()

    @rule(directory=st.sampled_from(["/p", "/q", None]), own_form=st.booleans())
    def publish(self, directory: str | None, own_form: bool) -> None:
        self.count += 1
        made = numbered_event(-self.count, directory)
        legacy: Any = (lambda: made) if own_form else None
        self.hub.publish(numbered_event(self.count, directory, legacy=legacy))
        for client in self.clients:
            known = client.at is not None or client.subscription is not None
            if known and (client.scope is None or directory is None or client.scope == directory):
                client.due.append(self.count)

    @rule(which=st.integers(0, 3), frames=st.integers(0, 4))
    def read(self, which: int, frames: int) -> None:
        client = self.clients[which % len(self.clients)]
        if client.subscription is not None:
            client.read(frames)

    @rule(which=st.integers(0, 3))
    def cut_off(self, which: int) -> None:
        client = self.clients[which % len(self.clients)]
        if client.subscription is not None:
            client.subscription.close()
            client.subscription, client.received = None, []

    @rule(which=st.integers(0, 3))
    def come_back(self, which: int) -> None:
        client = self.clients[which % len(self.clients)]
        if client.subscription is None:
            self.connect(client)

    @invariant()
    def readers_see_a_prefix_of_the_events(self) -> None:
        for client in getattr(self, "clients", []):
            assert client.seen == client.due[: len(client.seen)]

    def teardown(self) -> None:
        if hasattr(self, "due"):
            self.turn()
        for client in getattr(self, "clients", []):
            if client.subscription is None:
                self.connect(client)
            client.read(10_000)
            assert client.seen == client.due
        if hasattr(self, "hub"):
            assert self.hub.stats().replay_missed == 0


TestReconnecting = ReconnectMachine.TestCase
TestReconnecting.settings = settings(stateful_step_count=40)


async def test_a_plugin_is_no_reader_who_could_answer() -> None:
    hub = make_hub()
    reader = subscribe(hub, scope="/p")
    assert hub.has_reader("/p")
    reader.is_plugin = True
    assert not hub.has_reader("/p")
    reader.close()
