"""Connections to real NATS servers with TLS and credentials, and what a refused one says, in bounded time."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from time import time

import pytest

from shim.cluster.nats import connection as connections
from shim.cluster.nats.connection import Connection
from shim.cluster.nats.layout import ClusterOptions
from shim.lib.errors import StoreError
from tests.support.certificates import DAY, Authority
from tests.support.nats_accounts import Accounts
from tests.support.nats_server import NatsServer

BOUND_S = 8
"""Less than CONNECT_S: a refusal is not repeated until then."""
SECRET = "correct-horse-battery"

Start = Callable[..., NatsServer]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    running: list[NatsServer] = []

    def run(*options: object) -> NatsServer:
        running.append(NatsServer(tmp_path / f"nats{len(running)}", *map(str, options)))
        running[-1].start()
        return running[-1]

    yield run
    for server in running:
        server.stop()


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def options(server: NatsServer, scheme: str = "nats") -> ClusterOptions:
    return ClusterOptions((server.url.replace("nats:", f"{scheme}:"),))


async def connect(options: ClusterOptions) -> bool:
    connection = Connection(options, "test")
    async with asyncio.timeout(BOUND_S):
        await connection.open()
    connected = connection.is_connected
    await connection.close()
    return connected


async def refusal(options: ClusterOptions) -> str:
    with pytest.raises(StoreError) as caught:
        await connect(options)
    text = str(caught.value)
    assert SECRET not in text
    return text


async def test_tls_with_certificates_of_both_sides(start: Start, authority: Authority, tmp_path: Path) -> None:
    nats, ours = authority.issue("nats", "127.0.0.1"), authority.issue("shim")
    tls = ("--tls", "--tlscert", nats.cert, "--tlskey", nats.key)
    both = start(*tls, "--tlscacert", authority.file, "--tlsverify")
    right = replace(options(both, "tls"), tls_ca=authority.file, tls_cert=ours.cert, tls_key=ours.key)
    assert await connect(right)
    assert "no authority that this server knows" in await refusal(replace(right, tls_ca=Authority(tmp_path, "other").file))
    assert "cluster_tls_cert" in await refusal(replace(right, tls_cert=None, tls_key=None))
    damaged = tmp_path / "damaged"
    damaged.write_text("nothing")
    assert "must be PEM" in await refusal(replace(right, tls_ca=damaged))
    assert "must be PEM and belong together" in await refusal(replace(right, tls_key=nats.key))


@pytest.mark.parametrize(
    ("host", "age", "word"),
    [("127.0.0.1", 3, "has expired"), ("127.0.0.1", -1, "not valid yet"), ("nats.example", 0, "another name")],
)
async def test_a_certificate_that_does_not_hold_is_named(
    start: Start, authority: Authority, host: str, age: int, word: str
) -> None:
    nats = authority.issue("nats", host, age=age * DAY, lasts=2 * DAY)
    server = start("--tls", "--tlscert", nats.cert, "--tlskey", nats.key)
    assert word in await refusal(replace(options(server, "tls"), tls_ca=authority.file))


@pytest.mark.parametrize("scheme", ["tls", "nats"])
async def test_no_credentials_are_sent_to_a_server_without_tls(authority: Authority, scheme: str) -> None:
    heard: list[bytes] = []

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"server_id":"x","version":"2.15.0","max_payload":1048576,"auth_required":true}\r\n')
        heard.append(await reader.read())
        writer.close()

    async with await asyncio.start_server(listen, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        text = await refusal(ClusterOptions((f"{scheme}://127.0.0.1:{port}",), secret=SECRET, tls_ca=authority.file))
    assert "offers no TLS, and no credentials were sent" in text
    assert b"".join(heard) == b""


async def test_a_refusal_is_named_also_if_its_reason_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that refuses credentials closes at once, so that its last line may never be read."""
    monkeypatch.setattr(connections, "CONNECT_S", 2.0)

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"server_id":"x","version":"2.15.0","max_payload":1048576,"auth_required":true}\r\n')
        await reader.readline()
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        text = await refusal(ClusterOptions((f"nats://127.0.0.1:{port}",), secret=SECRET))
    assert "probably refuses the credentials. Look at cluster_password" in text


async def test_a_token(start: Start) -> None:
    server = start("--auth", SECRET)
    assert await connect(replace(options(server), secret=SECRET))
    assert "refuses the credentials. Look at cluster_password" in await refusal(replace(options(server), secret="x" + SECRET))
    assert "wants credentials. Set cluster_password" in await refusal(options(server))


async def test_a_user_and_a_password(start: Start) -> None:
    server = start("--user", "shim", "--pass", SECRET)
    assert await connect(replace(options(server), secret=f"shim:{SECRET}"))
    assert "refuses the credentials" in await refusal(replace(options(server), secret=f"shim:{SECRET}x"))


async def test_a_file_of_credentials(start: Start, tmp_path: Path) -> None:
    accounts = Accounts(tmp_path)
    server = start("-c", accounts.configuration())
    assert await connect(replace(options(server), credentials=accounts.credentials()))
    expired = accounts.credentials("expired", expires=int(time()) - 60)
    for file in (expired, accounts.credentials("stranger", is_known=False)):
        assert f"Look at the file {file} (cluster_credentials)" in await refusal(replace(options(server), credentials=file))
    damaged = tmp_path / "damaged.creds"
    damaged.write_text("nothing")
    assert "is no credentials file of NATS" in await refusal(replace(options(server), credentials=damaged))
    assert "Cannot read" in await refusal(replace(options(server), credentials=tmp_path / "missing"))
