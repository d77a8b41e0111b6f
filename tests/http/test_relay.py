"""What a server of a cluster does for the others, and for nobody else on its machine."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import pytest
from aiohttp import ClientSession, UnixConnector, web
from aiohttp.test_utils import make_mocked_request
from pydantic import SecretStr
from yarl import URL

from shim.cluster import relay as relay_module
from shim.cluster.peers import Accept, Answer, Command, Growth, Handle, Headers, Node, Offer, Overview, Pipe
from shim.cluster.relay import NEEDED, PERSON_HEADER, TICKET_ONLY, Relay, command_for
from shim.http.access import PERSON
from shim.http.forward import forward
from shim.http.middleware import NOT_HERE
from shim.http.operation import SERVICES
from shim.http.people import Person
from shim.lib.errors import ServerLost, SessionElsewhere, SessionNotFound, StoreError, StoreUnavailable
from shim.store.servers import ServerRef
from tests.http.doors import PASSWORD, Start

UNUSED: Any = None
"""The placement: no request here is of a directory."""


class FakePeers:
    """A cluster without other servers."""

    def ask(self, server: ServerRef, command: Command) -> AbstractAsyncContextManager[Answer]:
        raise AssertionError(f"{command} was forwarded to {server}")

    async def serve(self, handle: Handle) -> None:
        """No other server asks."""

    def open(self, server: ServerRef, command: Command) -> AbstractAsyncContextManager[Pipe]:
        raise AssertionError(f"{command} was forwarded to {server}")

    async def accept(self, accept: Accept) -> None:
        """No other server opens streams."""

    async def watch(self, on_growth: Callable[[Growth], None], on_read: Callable[[Growth], None]) -> int:
        return 0  # no server stores events

    async def growths(self, after: int, until: int) -> Sequence[Growth]:
        return ()

    def is_orphan(self, session_id: str) -> bool:
        return False  # no server dies

    def has_writes(self, session_id: str) -> bool:
        return False  # all is stored at once

    async def need_session(self, session_id: str) -> None:
        raise SessionNotFound(session_id)

    def epoch_of(self, session_id: str) -> int:
        return 1

    async def broadcast(self, message: bytes) -> None:
        """Nobody hears it."""

    async def hear(self, receive: Callable[[str, bytes], None]) -> None:
        """No other server speaks."""

    def announce_offer(self, offer: Callable[[], Offer]) -> None:
        """Nobody listens."""

    async def release(self, session_id: str) -> None:
        """No other server claims it."""

    def nodes(self) -> Sequence[Node]:
        return ()

    def overview(self) -> Overview:
        raise AssertionError("nobody looks at this cluster")


class AnsweringPeers(FakePeers):
    """Other servers that give one answer to all commands, which are noted."""

    def __init__(self, status: int, body: bytes) -> None:
        self.commands: list[Command] = []
        self.headers: Headers = ()
        self._status = status
        self._body = body

    @asynccontextmanager
    async def ask(self, server: ServerRef, command: Command) -> AsyncGenerator[Answer]:
        self.commands.append(command)

        async def chunks() -> AsyncGenerator[bytes]:
            yield self._body

        yield Answer(self._status, self.headers, chunks())


@pytest.mark.parametrize(("status", "is_gone"), [(200, True), (404, True), (409, False), (503, False), (500, False)])
async def test_a_session_that_another_server_does_not_delete_is_an_error(status: int, is_gone: bool) -> None:
    """It is a 503, as all that passes, unless the other server has a fault."""
    error = StoreError if status == 500 else StoreUnavailable
    peers = AnsweringPeers(status, b"it is busy")
    relay = Relay(web.Application(), peers, UNUSED, lambda directory, server: None)
    with nullcontext() if is_gone else pytest.raises(error, match=f"ses_a .* other .* {status}: it is busy"):
        await relay.delete_session("ses_a", ServerRef("s", 1, name="other"))
    assert [(command.method, command.path) for command in peers.commands] == [("DELETE", "/session/ses_a")]


class DyingPeers(AnsweringPeers):
    """The first server that is asked has died. In: `was_heard`, whether it may have done the command."""

    def __init__(self, *, was_heard: bool) -> None:
        super().__init__(200, b"true")
        self._was_heard = was_heard
        self.asked: list[str] = []

    def ask(self, server: ServerRef, command: Command) -> AbstractAsyncContextManager[Answer]:
        self.asked.append(server.label)
        if server.label == "dead":
            raise ServerLost("The server dead cannot be reached.", was_heard=self._was_heard)
        return super().ask(server, command)


class MovingPeers(AnsweringPeers):
    """The server `first` has lost its session."""

    def ask(self, server: ServerRef, command: Command) -> AbstractAsyncContextManager[Answer]:
        self.headers = ((NOT_HERE, "1"),) if server.label == "first" else ()
        return super().ask(server, command)


@pytest.fixture
async def apps() -> list[web.Application]:
    return []


@pytest.fixture
async def relay(start: Start, apps: list[web.Application]) -> AsyncIterator[Relay]:
    """The relay of a server with a password."""
    await start(password=SecretStr(PASSWORD), extend=apps.append)
    relay = Relay(apps[0], FakePeers(), UNUSED, lambda directory, server: None)
    await relay.start()
    apps[0][SERVICES].relay = relay
    yield relay
    await relay.close()


async def test_another_server_needs_no_password_of_this_one(relay: Relay) -> None:
    async with relay.perform(Command("1", "GET", "/session")) as answer:
        assert answer.status == 200
        assert b"".join([chunk async for chunk in answer.chunks]) == b"[]"


@pytest.mark.parametrize(("was_heard", "wait_s", "asked"), [(False, 15, 3), (True, 15, 1), (False, -1, 1)])
async def test_a_request_that_a_dead_server_did_not_hear_waits_for_the_next_one(
    start: Start, monkeypatch: pytest.MonkeyPatch, was_heard: bool, wait_s: float, asked: int
) -> None:
    """Its session has another server when it is looked at for the third time."""
    peers = DyingPeers(was_heard=was_heard)
    monkeypatch.setattr("shim.cluster.relay.TAKE_OVER_S", wait_s)
    assert await abort_elsewhere(start, monkeypatch, peers, ["dead", "dead", "alive"]) == (200 if asked == 3 else 503)
    assert peers.asked == ["dead", "dead", "alive"][:asked]


async def abort_elsewhere(start: Start, monkeypatch: pytest.MonkeyPatch, peers: FakePeers, names: list[str]) -> int:
    """The status of an abort of a session, which belongs to these servers, as it is looked at again and again."""
    apps = list[web.Application]()
    client = await start(extend=apps.append)
    apps[0][SERVICES].relay = Relay(apps[0], peers, UNUSED, lambda directory, server: None)
    owners = iter(names)

    async def abort(session_id: str) -> None:
        raise SessionElsewhere(session_id, ServerRef("s", 1, name=next(owners)))

    async def look_now() -> None:
        """See what other servers have done."""

    sessions = apps[0][SERVICES].sessions
    monkeypatch.setattr(sessions, "abort", abort, raising=False)
    monkeypatch.setattr(sessions, "others", SimpleNamespace(look_now=look_now), raising=False)
    monkeypatch.setattr(sessions, "find_record", {}.get, raising=False)
    async with client.raw.post("/session/ses_a/abort") as answer:
        return answer.status


async def test_a_request_follows_a_session_that_moves_meanwhile(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    peers = MovingPeers(200, b"true")
    assert await abort_elsewhere(start, monkeypatch, peers, ["first", "second"]) == 200
    assert len(peers.commands) == 2


async def test_a_server_that_has_lost_a_session_says_that_it_is_not_there(
    relay: Relay, apps: list[web.Application], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def abort(session_id: str) -> None:
        raise SessionElsewhere(session_id, ServerRef("s", 1, name="other"))

    monkeypatch.setattr(apps[0][SERVICES].sessions, "abort", abort, raising=False)
    async with relay.perform(Command("1", "POST", "/session/ses_a/abort")) as answer:
        assert (answer.status, NOT_HERE in dict(answer.headers)) == (409, True)


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


async def test_a_change_of_a_session_that_is_not_stored_is_no_success(
    relay: Relay, apps: list[web.Application], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its answer comes behind the flush: also that of a handler which waits for nothing."""

    async def flush(session_id: str | None = None) -> None:
        if session_id == "ses_a":
            raise StoreUnavailable("NATS is away")

    async def abort(session_id: str) -> None:
        """Stop a turn."""

    monkeypatch.setattr(apps[0][SERVICES].store, "flush", flush)
    monkeypatch.setattr(apps[0][SERVICES].sessions, "abort", abort, raising=False)
    async with relay.perform(Command("1", "POST", "/session/ses_a/abort")) as answer:
        assert answer.status == 503
        assert b"NATS is away" in b"".join([chunk async for chunk in answer.chunks])
    async with relay.perform(Command("2", "POST", "/session/ses_b/abort")) as answer:
        assert answer.status == 200


async def test_a_server_refuses_what_needs_a_directory_that_it_does_not_have(relay: Relay, tmp_path: Path) -> None:
    for place, is_here in ((tmp_path, True), (tmp_path / "missing", False)):
        path = f"/file?path=.&directory={place}"
        async with relay.perform(Command("1", "GET", path, ((NEEDED, quote(str(place))),))) as answer:
            assert (answer.status, NOT_HERE in dict(answer.headers)) == ((200, False) if is_here else (503, True))
        async with relay.perform(Command("2", "GET", path)) as answer:
            assert NOT_HERE not in dict(answer.headers)


async def test_only_the_server_of_a_client_says_that_it_has_a_password(relay: Relay) -> None:
    """A terminal without a ticket is not for a client that has shown none."""
    path = "/pty/pty_1/connect?ticket=wrong"
    upgrade = (("Upgrade", "websocket"), ("Connection", "Upgrade"))
    socket = (("Sec-WebSocket-Version", "13"), ("Sec-WebSocket-Key", "MDEyMzQ1Njc4OWFiY2RlZg=="))
    async with relay.perform(Command("1", "GET", path, (*upgrade, *socket, (TICKET_ONLY, "1")))) as answer:
        assert answer.status == 403


async def test_a_person_keeps_to_their_roots_at_another_server(relay: Relay, apps: list[web.Application]) -> None:
    request = make_mocked_request("GET", "/path", {PERSON_HEADER: "a client's own"}, app=apps[0])
    request[PERSON] = Person("vera", "view", ("/srv/of-vera",))
    command = command_for(request, b"")
    async with relay.perform(command) as answer:
        assert answer.status == 403
        assert b"is outside of the directories that this server may use" in b"".join([chunk async for chunk in answer.chunks])


async def test_the_password_in_a_query_stays_here(relay: Relay, apps: list[web.Application]) -> None:
    query = "auth_token=b3BlbmNvZGU6cw%3D%3D&directory=%2Fsrc%2Fa%20b&cursor=0"
    command = command_for(make_mocked_request("GET", f"/pty/pty_1/connect?{query}", {"X-Shim-Relay": "x"}, app=apps[0]), b"")
    assert URL(command.path, encoded=True).path == "/pty/pty_1/connect"
    assert dict(URL(command.path, encoded=True).query) == {"directory": "/src/a b", "cursor": "0"}
    assert command.headers == ((TICKET_ONLY, "1"),), "a client cannot say what only a server may"


async def test_a_server_that_has_just_stopped_lets_another_one_be_asked(relay: Relay) -> None:
    await relay.close()
    async with relay.perform(Command("1", "GET", "/session")) as answer:
        assert (answer.status, dict(answer.headers)) == (503, {NOT_HERE: "1"})
        assert [chunk async for chunk in answer.chunks] == []


async def test_a_session_whose_new_owner_is_gone_too_is_to_be_asked_for_again(
    relay: Relay, apps: list[web.Application], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def handle(request: web.Request) -> web.StreamResponse:
        raise SessionElsewhere("ses_a", ServerRef("gone"))

    async def hosts_of(request: web.Request, placement: object) -> None:
        """The request is for no directory."""

    monkeypatch.setattr(relay_module, "is_authorized", lambda request: True)
    monkeypatch.setattr(relay_module, "hosts_of", hosts_of)
    monkeypatch.setattr(relay_module, "TAKE_OVER_S", -1)
    request = make_mocked_request("GET", "/session", app=apps[0])
    with pytest.raises(ServerLost, match="has taken session ses_a and is gone"):
        await forward(request, handle)


class ForgetfulPeers(FakePeers):
    """NATS is asked for a session that this server does not know. In: `error` of that; None: it is there."""

    def __init__(self, error: Exception | None) -> None:
        self._error = error

    async def need_session(self, session_id: str) -> None:
        if self._error is not None:
            raise self._error


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        (SessionNotFound("ses_new"), 404, "not found"),
        (StoreUnavailable("NATS is away"), 503, "NATS is away"),
        (None, 503, "not read here yet"),
    ],
)
async def test_a_session_is_unknown_only_if_nats_says_so(
    start: Start,
    apps: list[web.Application],
    monkeypatch: pytest.MonkeyPatch,
    error: Exception | None,
    status: int,
    words: str,
) -> None:
    """A client of a server that is cut off would take a 404 for the end of a session that others have."""
    api = await start(extend=apps.append)
    apps[0][SERVICES].relay = Relay(apps[0], ForgetfulPeers(error), UNUSED, lambda directory, server: None)

    async def abort(session_id: str) -> None:
        raise SessionNotFound(session_id)

    async def look_now() -> None:
        """See nothing."""

    sessions = apps[0][SERVICES].sessions
    monkeypatch.setattr(sessions, "abort", abort, raising=False)
    monkeypatch.setattr(sessions, "others", SimpleNamespace(look_now=look_now), raising=False)
    monkeypatch.setattr(sessions, "find", {}.get, raising=False)
    async with api.raw.post("/session/ses_new/abort") as answer:
        assert (answer.status, words in await answer.text()) == (status, True)
