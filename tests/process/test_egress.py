"""What a process without a network reaches: its model, and hosts that rules allow. The starter runs here without a sandbox."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from shim.processes import egress, sandbox_start
from shim.processes.egress import Egress, McpDoor, Reach
from shim.processes.handle import JudgeHost, refuse_host
from universal.permissions import Action, Rule, rules_from_config

WAIT_S = 20


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(autouse=True)
def port(monkeypatch: pytest.MonkeyPatch) -> int:
    """The port of the proxy. Here it is in the network of all tests."""
    found = free_port()
    monkeypatch.setattr(egress, "PROXY_PORT", found)
    return found


@pytest.fixture
async def model() -> AsyncIterator[int]:
    """A server of this machine that answers with what it was sent."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"echo:" + await reader.read(1000))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1]
    server.close()


async def exchange(
    reach: Reach, *requests: bytes, environ: Mapping[str, str] | None = None, judge_host: JudgeHost = refuse_host
) -> list[bytes]:
    """Start a process by the starter, and make these requests to the proxy, each on a connection."""
    open_egress = Egress.open(reach, environ or {}, "test", judge_host)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-S", str(Path(sandbox_start.__file__)), str(open_egress.descriptor)),
        *(",".join(map(str, reach.listeners)), "sleep", "60"),
        pass_fds=(open_egress.descriptor,),
    )
    open_egress.hand_over()
    try:
        async with asyncio.timeout(WAIT_S):
            return [await ask(reach.proxy_port, request) for request in requests]
    finally:
        process.kill()
        await process.wait()
        open_egress.close()
        await asyncio.sleep(0)


async def ask(port: int, request: bytes) -> bytes:
    async with asyncio.timeout(WAIT_S):
        while True:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                break
            except ConnectionRefusedError:
                await asyncio.sleep(0.01)
    try:
        writer.write(request)
        if b" 200 " in (answer := await reader.readuntil(b"\r\n\r\n") if request.startswith(b"CONNECT") else b""):
            writer.write(b"through")
            writer.write_eof()
        return answer + await reader.read()
    finally:
        writer.close()


def connect(host: str, port: int) -> bytes:
    return f"CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()


async def test_a_host_of_the_model_is_reached_by_a_tunnel_and_plainly(model: int) -> None:
    plain = f"GET http://localhost:{model}/v1 HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    tunnelled, direct = await exchange(Reach(frozenset({"localhost"})), connect("localhost", model), plain)
    assert tunnelled.startswith(b"HTTP/1.1 200 ") and tunnelled.endswith(b"echo:through")
    assert direct == b"echo:" + plain


async def test_a_host_that_no_rule_allows_is_refused_with_a_sentence() -> None:
    reach = Reach(frozenset({"model.invalid"}), rules=(Rule("webfetch", "*", "deny"),))
    tunnelled, plain = await exchange(
        reach, connect("evil.invalid", 443), b"GET http://evil.invalid/ HTTP/1.1\r\nHost: evil.invalid\r\n\r\n"
    )
    for answer in (tunnelled, plain):
        assert answer.startswith(b"HTTP/1.1 403 ")
        assert b"does not reach evil.invalid: no rule allows it" in answer and b"`webfetch`" in answer


@pytest.mark.parametrize(("why", "answered"), [("", b"echo:"), ("a person has refused it", b"HTTP/1.1 403 ")])
async def test_a_connection_waits_until_its_host_is_decided(model: int, why: str, answered: bytes) -> None:
    asked: list[str] = []

    async def judge_host(address: str, reason: str) -> str:
        assert not reason, "a person must be asked"
        asked.append(address)
        await asyncio.sleep(0)
        return why

    reach = Reach(rules=(Rule("webfetch", "*", "ask"),))
    lines = b"GET http://Docs.invalid:80/page HTTP/1.1\r\n\r\n", b"GET http://user@docs.invalid/page HTTP/1.1\r\n\r\n"
    answers = await exchange(reach, *lines, environ={"HTTPS_PROXY": f"http://127.0.0.1:{model}"}, judge_host=judge_host)
    assert asked == ["http://docs.invalid/"] * 2, "nothing but the host, as rules write it"
    assert all(answer.startswith(answered) and why.encode() in answer for answer in answers)


@pytest.mark.parametrize("target", ["http://*/", "http://a*b/", "http://a\xe9/", "http:///"])
async def test_a_name_that_is_no_hosts_is_never_asked_for(target: str) -> None:
    request = f"GET {target} HTTP/1.1\r\n\r\n".encode("latin-1")
    [answer] = await exchange(Reach(rules=(Rule("webfetch", "*", "allow"),)), request)
    assert b"that is no name of a host" in answer


async def test_a_process_without_a_session_reaches_no_host_that_must_be_asked_for() -> None:
    [answer] = await exchange(Reach(rules=(Rule("webfetch", "*", "ask"),)), connect("docs.invalid", 443))
    assert answer.startswith(b"HTTP/1.1 403 ") and b"there is no session" in answer


async def test_a_rule_for_any_host_does_not_lead_to_this_machine(model: int) -> None:
    reach = Reach(rules=(Rule("webfetch", "*", "allow"),))
    [answer] = await exchange(reach, connect("localhost", model))
    assert answer.startswith(b"HTTP/1.1 403 ") and b"it leads to this machine" in answer


async def test_an_error_names_a_host_that_does_not_answer() -> None:
    [answer] = await exchange(Reach(frozenset({"localhost"})), connect("localhost", free_port()))
    assert answer.startswith(b"HTTP/1.1 502 ")


async def test_a_proxy_of_the_person_is_used(model: int) -> None:
    request = connect("model.invalid", 443)
    environ = {"HTTPS_PROXY": f"http://127.0.0.1:{model}"}
    reader_answer = await asyncio.wait_for(exchange(Reach(frozenset({"model.invalid"})), request + b"x", environ=environ), WAIT_S)
    assert b"echo:" + request in reader_answer[0]


@pytest.mark.parametrize("head", [b"\r\n\r\n", b"CONNECT\r\n\r\n", b"CONNECT [::1 HTTP/1.1\r\n\r\n", b"x" * 40_000])
async def test_a_spoiled_head_closes_its_connection_alone(model: int, head: bytes) -> None:
    reach = Reach(frozenset({"localhost"}))
    _, answer = await exchange(reach, head.replace(b"CONNECT", b"Connect"), connect("localhost", model))
    assert answer.endswith(b"echo:through")


DOOR = McpDoor(4096, "/mcp", "Bearer token")
ASK = b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:4096\r\n"


def test_a_request_for_our_tools_has_the_token_of_its_process_whatever_it_shows() -> None:
    """And it is the only one of its connection."""
    kept = b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:4096\r\nContent-Length: 2\r\n"
    shown = b"Content-Length: 2\r\nauthorization: Basic x\r\nConnection: keep-alive\r\nX-Forwarded-For: 1\r\nUpgrade: h2c\r\n\r\n"
    assert DOOR.head(ASK + shown) == kept + b"Authorization: Bearer token\r\nConnection: close\r\n\r\n"


@pytest.mark.parametrize(
    "head",
    [
        b"GET /session HTTP/1.1\r\n\r\n",
        b"POST /mcp/x HTTP/1.1\r\n\r\n",
        b"POST /mcp?directory=/ HTTP/1.1\r\n\r\n",
        b"POST /mcp/../session HTTP/1.1\r\n\r\n",
        b"POST http://127.0.0.1/mcp HTTP/1.1\r\n\r\n",
        b"PUT /mcp HTTP/1.1\r\n\r\n",
        b"POST /mcp HTTP/1.0\r\n\r\n",
        b"POST /mcp HTTP/1.1\nConnection: keep-alive\r\n\r\n",
        ASK + b"X: y\nConnection: keep-alive\r\n\r\n",
        ASK + b"X: y\rConnection: keep-alive\r\n\r\n",
        ASK + b" folded\r\n\r\n",
        ASK + b"Authorization : Basic x\r\n\r\n",
        ASK + b"no field\r\n\r\n",
    ],
)
def test_a_request_for_anything_else_of_this_server_is_refused(head: bytes) -> None:
    assert DOOR.head(head) is None


def test_ports_of_the_model_are_listened_on_and_the_proxy_takes_another(port: int) -> None:
    assert Reach(ports=(port, 9)).listeners == (port + 1, port, 9)
    assert Reach(ports=(9, 4096), door=DOOR).listeners == (port, 9, 4096)
    assert Reach(door=McpDoor(port, "/mcp", "")).listeners == (port + 1, port)
    assert Reach().variables["HTTPS_PROXY"] == f"http://127.0.0.1:{port}"


@pytest.mark.parametrize(
    ("address", "action"),
    [
        ("https://model.example/", "allow"),
        ("https://docs.example/", "allow"),
        ("https://asked.example/", "ask"),
        ("https://docs.example.evil.example/", "deny"),
        ("https://model.example.evil.example/", "deny"),
        ("https://other.example/", "deny"),
        ("https:///", "deny"),
    ],
)
def test_a_rule_allows_a_host_if_it_allows_its_front_page(address: str, action: Action) -> None:
    rules = rules_from_config({"webfetch": {"*": "deny", "https://docs.example/*": "allow", "*asked.example/*": "ask"}})
    assert Reach(frozenset({"model.example"}), rules=rules).action(address) == action
