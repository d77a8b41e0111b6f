"""What a server of a cluster does for the others, and for nobody else on its machine."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager

import pytest
from aiohttp import ClientSession, UnixConnector, web
from pydantic import SecretStr

from shim.http.operation import SERVICES
from shim.http.relay import RELAY, Relay
from shim.store.peers import Answer, Command, Growth, Handle, Node, Offer
from shim.store.servers import ServerRef
from tests.http.doors import PASSWORD, Start


class FakePeers:
    """A cluster without other servers."""

    def ask(self, server: ServerRef, command: Command) -> AbstractAsyncContextManager[Answer]:
        raise AssertionError(f"{command} was forwarded to {server}")

    async def serve(self, handle: Handle) -> None:
        """No other server asks."""

    async def watch(self, on_growth: Callable[[Growth], None]) -> None:
        """No other server stores events."""

    def announce_offer(self, offer: Callable[[], Offer]) -> None:
        """Nobody listens."""

    def nodes(self) -> Sequence[Node]:
        return ()


@pytest.fixture
async def apps() -> list[web.Application]:
    return []


@pytest.fixture
async def relay(start: Start, apps: list[web.Application]) -> AsyncIterator[Relay]:
    """The relay of a server with a password."""
    await start(password=SecretStr(PASSWORD), extend=apps.append)
    relay = Relay(apps[0], FakePeers())
    await relay.start()
    apps[0][RELAY].append(relay)
    yield relay
    await relay.close()


async def test_another_server_needs_no_password_of_this_one(relay: Relay) -> None:
    async with relay.perform(Command("1", "GET", "/session")) as answer:
        assert answer.status == 200
        assert b"".join([chunk async for chunk in answer.chunks]) == b"[]"


@pytest.mark.parametrize("secret", [None, "", "wr\u00f6ng"])
async def test_a_program_that_finds_the_socket_is_refused(relay: Relay, secret: str | None) -> None:
    """An agent runs as the same user, and could answer its own permission requests there."""
    headers = {} if secret is None else {"X-Shim-Relay": secret}
    async with (
        ClientSession(connector=UnixConnector(str(relay.socket))) as client,
        client.get("http://relay/session", headers=headers) as response,
    ):
        assert response.status == 403
    assert relay.socket.parent.stat().st_mode & 0o077 == 0


async def test_a_change_is_stored_when_its_answer_ends(
    relay: Relay, apps: list[web.Application], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other server reads it from the store."""
    store, flushes = apps[0][SERVICES].store, list[str | None]()
    flush = store.flush

    async def note_flush(session_id: str | None = None) -> None:
        await flush(session_id)
        flushes.append(session_id)

    async with relay.perform(Command("1", "PATCH", "/global/config", body=b"{}")) as answer:
        async for _ in answer.chunks:
            monkeypatch.setattr(store, "flush", note_flush)
    assert flushes == [None]
    async with relay.perform(Command("2", "GET", "/session")) as answer:
        assert [chunk async for chunk in answer.chunks] == [b"[]"]
    assert flushes == [None], "a read stores nothing"
