"""What goes wrong around the server, and what the person sees: the second table of `docs/faults.md`, row by row.

In each: one idle per turn, nothing acknowledged is lost, other sessions go on. `SHIM_FAULT_CONNECTS=10000` makes the row of
clients that come and go a long one.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import re
import resource
import signal
import socket
import sqlite3
import struct
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest

from shim.cli.server import GONE_S, allow_open_files, listen
from shim.main.app import DATABASE, SERVICES
from shim.store.lock import DirectoryLock
from shim.store.memory import MemoryStore
from shim.store.sqlite import SqliteStore
from tests.faults import test_disk, test_network
from tests.faults.test_agent import FAKE, PROVIDER, left
from tests.faults.test_disk import texts, turn
from tests.process.test_serve import RUN, SLACK_S, START_S, STOP_S, environment, rest, run_server
from tests.support.live import Live, live, prompt_body

REPO = Path(__file__).resolve().parents[2]
WAIT_S = 60.0
CONNECTS = int(os.environ.get("SHIM_FAULT_CONNECTS", "300"))
DEAF = 20
HALF_REQUESTS = 50
HALF_EACH = 10
DAY_MS = 24 * 3600 * 1000


# --- the disk -----------------------------------------------------------------------------------------------


def without_rights() -> None:
    """In a child before its exec: root, if we are, is bound by permissions like everybody."""
    capability_bounding_set_drop, dac_override, dac_read_search = 24, 1, 2
    libc = ctypes.CDLL(None, use_errno=True)
    for right in (dac_override, dac_read_search):
        libc.prctl(capability_bounding_set_drop, right, 0, 0, 0)


def start_error(home: Path, *arguments: str, preexec: Callable[[], None] | None = None) -> str:
    """What a server that does not start says."""
    argv = [sys.executable, "-c", RUN, "serve", "--port", "0", "--directory", str(home), *arguments]
    done = subprocess.run(
        argv, env=environment(home), capture_output=True, text=True, timeout=START_S, preexec_fn=preexec, check=False
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


def test_data_directory_is_read_only(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    data.chmod(0o555)
    said = start_error(tmp_path, "--data-dir", str(data), preexec=without_rights)
    assert re.search(r"Cannot use the data directory .*Permission denied\. Make it writable for you", said)


async def test_database_locked(tmp_path: Path) -> None:
    """By a person who looks into it with another program."""
    path = tmp_path / "data" / DATABASE
    async with live(tmp_path, store=SqliteStore(path)) as server:
        session = await server.session()
        await server.ask(session, "echo before")
        await server.api.raw.app[SERVICES].store.flush()
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            async with server.api.raw.post(f"/session/{session}/prompt_async", json=prompt_body("echo meanwhile")) as answer:
                assert answer.status == 500
                assert "Another program holds it locked" in (await answer.json())["data"]["message"]
            async with server.api.raw.post(f"/session/{session}/prompt_async", json=prompt_body("refused")) as answer:
                assert answer.status == 500
            other.execute("ROLLBACK")
        await server.ask(session, "echo after")
        said = await server.messages(session)
    async with live(tmp_path, store=SqliteStore(path)) as server:
        assert await server.messages(session) == said
        assert texts(said, "user") == ["echo before", "echo meanwhile", "echo after"]


def test_database_damaged(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / DATABASE).write_bytes(b"SQLite format 3\0" + b"\xff" * 5000)
    said = start_error(tmp_path, "--data-dir", str(data))
    assert "Nothing was changed" in said
    assert "--move-aside-damaged" in said
    assert (data / DATABASE).stat().st_size == 5016
    with run_server(tmp_path, "--data-dir", str(data), "--move-aside-damaged") as (process, url):
        rest(process)
        assert json.load(urllib.request.urlopen(f"{url}/session", timeout=START_S)) == []
        assert "store.moved_aside" in (tmp_path / "stderr").read_text()
    assert (data / f"{DATABASE}.damaged-1").stat().st_size == 5016


async def test_sound_database_is_never_moved(tmp_path: Path) -> None:
    path = tmp_path / "data" / DATABASE
    async with live(tmp_path, store=SqliteStore(path)) as server:
        session = await server.session()
    async with live(tmp_path, store=SqliteStore(path, move_aside=True)) as server:
        await server.api.get(f"/session/{session}", status=200)
    assert list(path.parent.glob("*.damaged-*")) == []


async def test_session_damaged(tmp_path: Path) -> None:
    path = tmp_path / "data" / DATABASE
    async with live(tmp_path, store=SqliteStore(path)) as server:
        hurt, sound = await server.session(), await server.session()
        await server.ask(hurt, "echo one")
        await server.ask(sound, "echo two")
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("UPDATE event SET body = '{\"' WHERE session_id = ? AND sequence = 3", (hurt,))
    async with live(tmp_path, store=SqliteStore(path)) as server:
        answer = await server.api.get(f"/session/{hurt}/message", status=500)
        assert "event 3 of session" in answer.body["data"]["message"]
        assert "is damaged" in answer.body["data"]["message"]
        assert texts(await server.messages(sound), "user") == ["echo two"]
        await server.ask(sound, "echo three")


# --- the clock ----------------------------------------------------------------------------------------------


class JumpingClock:
    """A clock that goes on by a millisecond with each look, and jumps when told."""

    def __init__(self) -> None:
        self.value_ms = 1_795_293_784_083

    def now_ms(self) -> int:
        self.value_ms += 1
        return self.value_ms


@pytest.mark.parametrize("jump_ms", [-DAY_MS, DAY_MS, -3600_000])
async def test_clock_jumps(tmp_path: Path, jump_ms: int) -> None:
    store, clock = MemoryStore(), JumpingClock()
    async with live(tmp_path, store=store, clock=clock) as server:
        session = await server.session()
        await server.ask(session, "echo one")

        def jump(event: dict[str, Any]) -> None:
            if event["type"] == "message.part.updated":
                clock.value_ms += jump_ms

        await turn(server, session, "tool", jump)
        await server.ask(session, "echo three")
    async with live(tmp_path, store=store, clock=clock) as server:
        clock.value_ms += jump_ms
        await server.ask(session, "echo four")
        said = (await server.api.get(f"/session/{session}/message", status=200)).body
        ids = sorted(message["info"]["id"] for message in said)
        by_id = [message for id_ in ids for message in said if message["info"]["id"] == id_]
        assert texts(by_id, "user") == ["echo one", "tool", "echo three", "echo four"]
        parts = [part["id"] for message in by_id for part in message["parts"]]
        assert len(set(parts)) == len(parts)


# --- clients --------------------------------------------------------------------------------------------------


@asynccontextmanager
async def open_connections(server: Live, count: int, request: bytes) -> AsyncIterator[list[socket.socket]]:
    """Connections that have sent this and read nothing."""
    loop = asyncio.get_running_loop()
    found: list[socket.socket] = []
    try:
        for _ in range(count):
            one = socket.socket()
            one.setblocking(False)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            found.append(one)
            await loop.sock_connect(one, ("127.0.0.1", server.api.raw.port))
            await loop.sock_sendall(one, request)
        yield found
    finally:
        for one in found:
            one.close()


EVENTS = b"GET /event HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


async def test_clients_that_never_read(tmp_path: Path) -> None:
    async with live(tmp_path) as server:
        session = await server.session()
        async with open_connections(server, DEAF, EVENTS):
            await turn(server, session, "burst 3000")
            await server.ask(session, "echo again")
            # And the server stops within its time, though they are still there.
            async with asyncio.timeout(WAIT_S):
                await server.api.raw.close()


async def test_half_a_request(tmp_path: Path) -> None:
    async with live(tmp_path) as server:
        session = await server.session()
        half = b"POST /session HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n\r\n{"
        async with open_connections(server, HALF_REQUESTS, half), open_connections(server, HALF_REQUESTS, b"GET /sess"):
            await turn(server, session, "echo meanwhile")


def test_half_open_connections_are_noticed_by_the_kernel() -> None:
    """The other machine is gone without a goodbye: `test_network.py` plays that, where it may."""
    with listen("127.0.0.1", 0) as sock, socket.create_connection(sock.getsockname()[:2]), sock.accept()[0] as accepted:
        assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == GONE_S * 1000
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) < GONE_S


async def test_clients_that_come_and_go(tmp_path: Path) -> None:
    """Every second one without a goodbye (RST), some in the middle of a turn; nothing of them stays."""
    async with live(tmp_path) as server:
        session = await server.session()
        await turn(server, session, "echo first")
        hub = server.api.raw.app[SERVICES].hub
        tasks, files = len(asyncio.all_tasks()), len(os.listdir("/proc/self/fd"))
        working = asyncio.create_task(turn(server, session, "burst 3000"))
        for number in range(CONNECTS):
            async with open_connections(server, 1, EVENTS if number % 3 else b"GET /ev") as (one,):
                if number % 2:
                    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await working
        async with asyncio.timeout(WAIT_S):
            while hub.stats().readers or len(asyncio.all_tasks()) > tasks + 2 or len(os.listdir("/proc/self/fd")) > files + 2:
                await asyncio.sleep(0)
        await server.ask(session, "echo after")


# --- the process ----------------------------------------------------------------------------------------------


def post(url: str, path: str, body: Any) -> Any:
    request = urllib.request.Request(url + path, json.dumps(body).encode(), {"Content-Type": "application/json"}, method="POST")
    with urllib.request.urlopen(request, timeout=START_S) as answer:
        return json.loads(answer.read() or b"null")


def get(url: str, path: str) -> Any:
    with urllib.request.urlopen(url + path, timeout=START_S) as answer:
        return json.load(answer)


def agent(fault: str, folder: Path) -> dict[str, str]:
    """Settings with an agent of `tests/fakes/faulty_acp.py`."""
    return {"SHIM_AGENTS": json.dumps({PROVIDER: {"command": [sys.executable, str(FAKE), fault, str(folder)]}})}


FAULTY = {"parts": [{"type": "text", "text": "go"}], "model": {"providerID": PROVIDER, "modelID": "default"}}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_server_is_ended_in_a_turn(tmp_path: Path, number: signal.Signals) -> None:
    settings = agent("hangs", tmp_path)
    with run_server(tmp_path, **settings) as (process, url):
        rest(process)
        session = post(url, "/session", {})["id"]
        post(url, f"/session/{session}/prompt_async", FAULTY)
        bound = 2000
        while "first words" not in str(get(url, f"/session/{session}/message")) and (bound := bound - 1):
            pass
        assert get(url, "/session/status")[session]["type"] == "busy"
        post(url, "/session", {})  # what is answered is on disk, and what came before it
        agents = left(tmp_path)
        process.send_signal(number)
        assert process.wait(START_S) == (0 if number is signal.SIGTERM else -number)
        if number is signal.SIGTERM:
            assert not set(agents) & set(left(tmp_path))
    with run_server(tmp_path, **settings) as (process, url):
        rest(process)
        messages = get(url, f"/session/{session}/message")
        assert texts(messages, "user") == ["go"]
        assert "first words" in "".join(texts(messages, "assistant"))
        assert get(url, "/session/status") == {}
        # The one event of its end, told once.
        events = get(url, f"/v1/sessions/{session}/events")["events"]
        assert [event["type"] for event in events].count("turn.ended") == 1
        assert not set(agents) & set(left(tmp_path))
        mock = post(url, f"/session/{session}/message", prompt_body("echo go on"))
        assert "go on" in str(mock)


def test_server_stops_among_half_requests_and_half_read_answers(tmp_path: Path) -> None:
    """Half a head, half a body, half a frame; a stream of which nothing was read, a long answer of which the beginning was."""
    with run_server(tmp_path) as (process, url):
        rest(process)
        session = post(url, "/session", {})["id"]
        text = {"parts": [{"type": "text", "text": "word " * 1_000_000}], "noReply": True}
        for _ in range(4):
            post(url, f"/session/{session}/message", text)
        host, port = url.removeprefix("http://").split(":")
        upgrade = (
            "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " + "A" * 22 + "=="
        )
        terminal = post(url, "/pty", {"command": "/bin/sh"})["id"]
        said = (
            "GET /sess",
            f"POST /session HTTP/1.1\r\nHost: {host}\r\nContent-Length: 1000\r\n\r\n{{",
            f"POST /session HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{{",
            f"GET /event HTTP/1.1\r\nHost: {host}\r\n\r\n",
            f"GET /session/{session}/message HTTP/1.1\r\nHost: {host}\r\n\r\n",
            f"GET /pty/{terminal}/connect HTTP/1.1\r\nHost: {host}\r\n{upgrade}\r\n\r\n\x81",
        )
        with ExitStack() as all_:
            for text in said * HALF_EACH:
                one = all_.enter_context(socket.socket())
                one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                one.settimeout(START_S)
                one.connect((host, int(port)))
                one.sendall(text.encode("latin-1"))
                if text.startswith("GET /session/"):
                    assert one.recv(100).startswith(b"HTTP/1.1 200")
            assert get(url, "/session/status") == {}
            process.send_signal(signal.SIGTERM)
            assert process.wait(STOP_S + SLACK_S) == 0
        assert "Traceback" not in (tmp_path / "stderr").read_text()
        assert "ended at once" not in (tmp_path / "stderr").read_text()


def test_two_servers_on_one_data_directory(tmp_path: Path) -> None:
    """Both work (`tests/process/test_two_servers.py`); one of an earlier version has the directory for itself."""
    with run_server(tmp_path) as (_, first), run_server(tmp_path) as (_, second):
        assert get(first, "/global/health")["healthy"] is get(second, "/global/health")["healthy"] is True
    lock = DirectoryLock(tmp_path / ".local/share/opencode-shim")
    lock.acquire()
    said = start_error(tmp_path)
    lock.release()
    assert re.search(rf"Another opencode-shim \(pid {os.getpid()}\) is using .*Stop it, or give this one", said)


def test_too_many_open_files(tmp_path: Path) -> None:
    """The limit is reached by connections: an agent cannot be started, which is an error of that turn; later it can."""
    limit = 80
    argv = [sys.executable, "-c", RUN, "serve", "--port", "0", "--directory", str(tmp_path)]

    def few() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))

    with (tmp_path / "stderr").open("w") as err:
        process = subprocess.Popen(
            argv,
            env=environment(tmp_path, **agent("none", tmp_path)),
            stdout=subprocess.PIPE,
            stderr=err,
            text=True,
            preexec_fn=few,
        )
    try:
        assert process.stdout is not None
        url = process.stdout.readline().split()[-1]
        rest(process)
        host, port = url.removeprefix("http://").split(":")
        session = post(url, "/session", {})["id"]
        with closing(socket.create_connection((host, int(port)), START_S)) as kept:
            many = [socket.create_connection((host, int(port)), START_S) for _ in range(limit)]
            body = json.dumps(FAULTY).encode()
            head = f"POST /session/{session}/message HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(body)}\r\n\r\n"
            kept.sendall(head.encode() + body)
            answer = kept.recv(2**16)
            assert b" 200 " in answer.split(b"\r\n")[0] or b" 500 " in answer.split(b"\r\n")[0], answer
            for one in many:
                one.close()
        events = get(url, f"/v1/sessions/{session}/events")["events"]
        assert "Too many open files" in str(events)
        assert "last words" in str(post(url, f"/session/{session}/message", FAULTY))
        kinds = [event["type"] for event in get(url, f"/v1/sessions/{session}/events")["events"]]
        assert kinds.count("turn.ended") == 2
        process.send_signal(signal.SIGTERM)
        assert process.wait(START_S) == 0
    finally:
        process.kill()
        process.communicate()


def test_the_limit_of_open_files_is_raised() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
        assert allow_open_files(300) == 300
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (300, before[1])
        assert allow_open_files(100) == 300
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


# --- the document ---------------------------------------------------------------------------------------------


def test_the_document_has_these_rows() -> None:
    text = (
        (REPO / "docs" / "faults.md")
        .read_text("utf-8")
        .split("## What if the disk, the clock, the network or the server fails?")[1]
    )
    named = re.findall(r"`(test_\w+)`", text)
    here = {name for name, value in globals().items() if name.startswith("test_") and callable(value)}
    there = {name for module in (test_disk, test_network) for name in vars(module) if name.startswith("test_")}
    all_here = (here | there) - {"test_the_document_has_these_rows"}
    assert all_here <= set(named)
    others = [(REPO / path).read_text("utf-8") for path in sorted(set(re.findall(r"`(tests/unit/\S+\.py)`", text)))]
    missing = {name for name in set(named) - all_here if not any(f"def {name}(" in other for other in others)}
    assert missing == set()
