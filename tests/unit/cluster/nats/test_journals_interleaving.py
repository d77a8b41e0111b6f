"""Nothing is lost whatever comes while a store waits for NATS.

Each call of the store is tried with a second one at each of its waits: before each answer of NATS reaches it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from unittest.mock import patch

import pytest

from shim.cluster.nats import connection as connections
from shim.cluster.nats.layout import ClusterOptions
from shim.cluster.nats.store import JetStreamStore
from shim.lib.errors import SessionElsewhere, SessionNotFound, StoreError
from shim.store.base import Checkpoint
from tests.support.cluster.simulated_nats import ARRIVES, LATENCY_S, Direction, Fate, Packet, SimulatedNats
from tests.support.cluster.virtual_time import ClusterLoop, elapse
from tests.unit.store.store_contract import event, row

POINTS = 24
"""Waits that are tried; no call has more."""

Call = Callable[[JetStreamStore], Awaitable[object]]


async def save(store: JetStreamStore) -> None:
    store.save_session(row(updated_ms=1))
    await store.flush("ses_a")


async def save_checkpoint(store: JetStreamStore) -> None:
    store.save_checkpoint("ses_a", Checkpoint(1, b"head", frozenset({1})), {1: b"page"})
    await store.flush("ses_a")


CALLS: dict[str, Call] = {
    "flush": lambda store: store.flush(),
    "save": save,
    "save_checkpoint": save_checkpoint,
    "claim": lambda store: store.claim("ses_a"),
    "sessions": lambda store: store.sessions(),
    "events": lambda store: store.events("ses_a"),
    "checkpoint": lambda store: store.checkpoint("ses_a"),
    "refresh": lambda store: store.refresh("ses_a"),
    "owners": lambda store: store.owners(),
    "look": lambda store: store.look(),
}


class Setting:
    """Two servers on a simulated NATS. `interrupt` calls a function before the n-th message to the first one, and the next."""

    def __init__(self, nats: SimulatedNats) -> None:
        options = ClusterOptions(("nats://simulated",))
        self.nats = nats
        self.store, self.other = JetStreamStore(options), JetStreamStore(options)
        self.last = 0
        """The last event that was appended."""

    async def open(self) -> None:
        self.nats.commit_s = 0.001
        await self.store.open()
        await self.other.open()

    def append(self) -> None:
        """Append the session's next event at the first server."""
        self.last += 1
        self.store.append([event(self.last)])

    def interrupt(self, point: int, calls: Callable[[], None]) -> list[int]:
        """Returns the numbers of the messages before which it was called, as they come."""
        seen, called = 0, list[int]()

        def fate(direction: Direction, packet: Packet) -> Fate:
            nonlocal seen
            if direction == "to_client":
                seen += 1
                if seen in (point, point + 1):
                    called.append(seen)
                    calls()
            return ARRIVES

        self.nats.links[0].fate = fate
        return called

    async def check(self) -> None:
        """All that was appended is stored, at both servers, and the session goes on."""
        await elapse(5)
        self.append()
        await self.store.flush("ses_a")
        expected = list(range(1, self.last + 1))
        assert [one.sequence for one in await self.store.events("ses_a")] == expected
        assert self.store.last_sequence("ses_a") == self.last
        assert [one.sequence for one in await self.other.events("ses_a")] == expected
        assert self.store.pending == 0
        assert (await self.store.look()).lost == ()

    async def close(self) -> None:
        await self.store.close()
        await self.other.close()


def run(test: Callable[[Setting], Awaitable[None]]) -> None:
    """Run a test in virtual time."""
    nats = SimulatedNats()

    async def main() -> None:
        with patch.object(connections, "Client", nats.client):
            setting = Setting(nats)
            await setting.open()
            try:
                await test(setting)
            finally:
                await setting.close()

    ClusterLoop().run(main())


def at_each_wait(test: Callable[[Setting, int], Awaitable[bool]]) -> None:
    """Run a test for each wait, until it says that there are no more."""
    for point in range(1, POINTS):
        has_more = False

        async def once(setting: Setting, point: int = point) -> None:
            nonlocal has_more
            try:
                has_more = await test(setting, point)
                await setting.check()
            except Exception as error:
                error.add_note(f"at wait {point}")
                raise

        run(once)
        if not has_more:
            return
    raise AssertionError(f"more than {POINTS} waits")


@pytest.mark.parametrize("name", CALLS)
def test_events_that_come_while_a_session_is_new(name: str) -> None:
    async def test(setting: Setting, point: int) -> bool:
        setting.append()
        called = setting.interrupt(point, setting.append)
        await CALLS[name](setting.store)
        return bool(called)

    at_each_wait(test)


@pytest.mark.parametrize("name", CALLS)
def test_events_that_come_while_a_session_of_this_server_is_used(name: str) -> None:
    async def test(setting: Setting, point: int) -> bool:
        setting.store.save_session(row())
        setting.append()
        await setting.store.flush()
        called = setting.interrupt(point, setting.append)
        await CALLS[name](setting.store)
        return bool(called)

    at_each_wait(test)


@pytest.mark.parametrize("name", CALLS)
def test_the_first_events_of_a_session_come_while_others_are_read(name: str) -> None:
    async def test(setting: Setting, point: int) -> bool:
        called = setting.interrupt(point, setting.append)
        with suppress(SessionElsewhere, SessionNotFound):
            await CALLS[name](setting.store)
        return bool(called)

    at_each_wait(test)


@pytest.mark.parametrize("name", [name for name in CALLS if not name.startswith("save")])
def test_a_session_is_claimed_while_it_is_read(name: str) -> None:
    async def test(setting: Setting, point: int) -> bool:
        setting.other.save_session(row())
        setting.other.append([event(1), event(2), event(3)])
        await setting.other.flush()
        await setting.other.release("ses_a")
        await setting.store.sessions()
        setting.last = 3
        claims: list[asyncio.Task[None]] = []

        async def claim() -> None:
            await setting.store.claim("ses_a")
            setting.append()

        called = setting.interrupt(point, lambda: claims.append(asyncio.create_task(claim())))
        await CALLS[name](setting.store)
        if not called:
            await claim()
        await asyncio.gather(*claims)
        assert "ses_a" not in await setting.store.owners()
        return bool(called)

    at_each_wait(test)


@pytest.mark.parametrize("name", ["look", "sessions", "refresh", "events", "flush", "claim"])
def test_a_session_is_created_again_while_a_look_finds_its_deletion(name: str) -> None:
    async def test(setting: Setting, point: int) -> bool:
        setting.other.save_session(row())
        setting.other.append([event(1), event(2), event(3)])
        await setting.other.flush()
        await setting.store.sessions()
        await setting.store.refresh("ses_a")
        setting.other.delete_session("ses_a")
        await setting.other.flush()
        is_created = False

        async def create() -> None:
            nonlocal is_created
            if not is_created:
                is_created = True
                with suppress(SessionNotFound):
                    await setting.store.claim("ses_a")
                setting.append()

        tasks: list[asyncio.Task[None]] = []
        called = setting.interrupt(point, lambda: tasks.append(asyncio.create_task(create())))
        with suppress(StoreError, SessionNotFound):  # of `events`: those of the deleted session are gone
            await CALLS[name](setting.store)
        await create()
        await asyncio.gather(*tasks)
        return bool(called)

    at_each_wait(test)


def test_a_page_that_is_copied_does_not_replace_a_newer_one() -> None:
    async def test(setting: Setting, point: int) -> bool:
        store = setting.store

        def save(text: bytes) -> None:
            store.save_checkpoint("ses_a", Checkpoint(setting.last, text, frozenset({1})), {1: text})

        setting.append()
        save(b"old")
        await store.flush()
        store._use().pages.remove("ses_a")  # pyright: ignore[reportPrivateUsage] - as on a machine that has no copy yet
        called = setting.interrupt(point, lambda: save(b"new"))
        await store.checkpoint("ses_a")
        await store.flush()
        found = await store.checkpoint("ses_a")
        assert found is not None
        assert store.checkpoint_page("ses_a", 1) == found.head
        return bool(called)

    at_each_wait(test)


async def delete(store: JetStreamStore) -> None:
    store.delete_session("ses_a")
    await store.flush("ses_a")


async def append(store: JetStreamStore) -> None:
    store.append([event(store.last_sequence("ses_a") + 1)])
    await store.flush("ses_a")


WRITES: dict[str, Call] = {
    "append": append,
    "save": save,
    "save_checkpoint": save_checkpoint,
    "release": lambda store: store.release("ses_a"),
    "delete": delete,
}


@pytest.mark.parametrize("name", WRITES)
def test_a_write_that_was_sent_twice_is_stored_at_any_moment_while_its_refusal_is_explained(name: str) -> None:
    """NATS has accepted it when the connection is lost. It is sent again, refused, and what NATS has is read."""

    async def test(setting: Setting, moment: int) -> None:
        store, (link, _) = setting.store, setting.nats.links
        store.save_session(row())
        await append(store)
        setting.nats.commit_s = 0.04 + moment * LATENCY_S
        write = asyncio.ensure_future(WRITES[name](store))
        await elapse(0.04)
        link.cut()
        await elapse(2 * LATENCY_S)
        link.heal()
        await write
        setting.nats.commit_s = 0.0
        assert (await store.look()).lost == ()
        if name == "delete":
            assert await setting.other.sessions() == []
        else:
            await store.claim("ses_a")
            await append(store)

    for moment in range(POINTS):
        run(lambda setting, moment=moment: test(setting, moment))


@pytest.mark.parametrize("name", ["delete", "release"])
def test_a_look_at_a_replica_that_is_behind_shows_no_entry_from_before_this_servers_last_one(name: str) -> None:
    """The session of another server is given up, taken and deleted here, and the replica has only the first of it."""

    async def test(setting: Setting) -> None:
        setting.other.save_session(row())
        setting.other.append([event(1)])
        await setting.other.flush()
        await elapse(3)
        await setting.other.release("ses_a")
        await setting.store.claim("ses_a")
        await WRITES[name](setting.store)
        setting.nats.lag_s = 2.0
        assert (await setting.store.look()).changes == ()
        setting.nats.lag_s = 0.0
        assert (await setting.other.look()).lost == ()

    run(test)


def test_events_that_waited_while_another_server_deleted_their_session_do_not_bring_it_back() -> None:
    """A look shows the loss and the deletion at once, and is dealt with before the queue tries again."""

    async def test(setting: Setting) -> None:
        store, other, (link, _) = setting.store, setting.other, setting.nats.links
        store.save_session(row())
        setting.append()
        await store.flush()
        link.cut()
        setting.append()
        with pytest.raises(StoreError):
            await store.flush("ses_a")
        await other._use().leases.end(store.server_id)  # pyright: ignore[reportPrivateUsage] - as if it had expired
        await other.look()
        await other.claim("ses_a")
        other.delete_session("ses_a")
        await other.flush()
        link.heal()
        await elapse(2 * LATENCY_S)
        assert [lost.session_id for lost in (await store.look()).lost] == ["ses_a"]
        store.confirm_loss("ses_a")
        await elapse(5)
        assert store.pending == 0
        with pytest.raises(SessionNotFound):
            await other.claim("ses_a")

    run(test)
