"""A client's machine that vanishes, played with a network of its own: a row of the second table of `docs/faults.md`.

The server listens on one end of a pair of virtual cables; the client is in a network namespace at the other end. Then its
address is taken away, so that its kernel says nothing any more: no FIN, no RST, no ICMP. Needs root and `ip`.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import urllib.request
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from shim.cli.server import GONE_S
from shim.faces.opencode1.events import HEARTBEAT_S
from tests.process.test_serve import RUN, START_S, environment
from tests.support.live import prompt_body

SLACK_S = 8.0
TEST_S = 150
NUMBERS = count(os.getpid() * 10)
PASSWORD = "a network of its own"
CLIENT = """
import socket, sys
one = socket.create_connection((sys.argv[1], int(sys.argv[2])), 20)
head = "GET /event HTTP/1.1\\r\\nHost: " + sys.argv[1] + "\\r\\nAuthorization: Basic " + sys.argv[3]
one.sendall(head.encode() + b"\\r\\n\\r\\n")
while b"server.connected" not in one.recv(2**16):
    pass
print("connected", flush=True)
sys.stdin.read()
"""


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True, timeout=START_S)


@contextmanager
def cable() -> Iterator[tuple[str, str, str]]:
    """(namespace of the client, our address, its address). Skips the test where such a thing may not be made."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("needs root and the program `ip`, to make a network that can be cut")
    name, number = f"shim{next(NUMBERS)}", os.getpid() % 16_000 * 4
    ours, theirs = (f"198.18.{number // 256}.{number % 256 + host}" for host in (1, 2))  # a range for tests (RFC 2544)
    try:
        ip("netns", "add", name)
        ip("link", "add", f"{name}a", "type", "veth", "peer", "name", f"{name}b", "netns", name)
    except subprocess.CalledProcessError as error:
        with suppress(subprocess.CalledProcessError):
            ip("netns", "del", name)
        pytest.skip(f"no network of one's own can be made here: {error.stderr.strip()}")
    try:
        ip("addr", "add", f"{ours}/30", "dev", f"{name}a")
        ip("link", "set", f"{name}a", "up")
        ip("-n", name, "addr", "add", f"{theirs}/30", "dev", f"{name}b")
        ip("-n", name, "link", "set", f"{name}b", "up")
        yield name, ours, theirs
    finally:
        ip("link", "del", f"{name}a")
        ip("netns", "del", name)


def connection_count(theirs: str) -> int:
    """Connections from this address that our kernel believes in."""
    text = "".join(f"{int(byte):02X}" for byte in reversed(theirs.split(".")))
    rows = (line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:])
    return sum(row[2].startswith(text) and row[3] == "01" for row in rows)


async def until(is_so: Callable[[], bool], seconds: float) -> None:
    """Asks again and again: neither a kernel nor a server tells us such a thing. Raises TimeoutError."""
    async with asyncio.timeout(seconds):
        while not is_so():
            await asyncio.sleep(0.05)


@pytest.mark.timeout(TEST_S)
@pytest.mark.parametrize("work", [pytest.param("nothing is said", marks=pytest.mark.nightly), "a turn is told"])
def test_half_open_connection(tmp_path: Path, work: str) -> None:
    with cable() as (name, ours, theirs), (tmp_path / "stderr").open("w+") as err:
        argv = [sys.executable, "-c", RUN, "serve", "--hostname", ours, "--port", "0", "--directory", str(tmp_path)]
        env = environment(tmp_path, OPENCODE_SERVER_PASSWORD=PASSWORD)
        server = subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, stderr=err, text=True)
        try:
            assert server.stdout is not None
            found = re.search(r"http://\S+:(\d+)", server.stdout.readline())
            assert found is not None, (tmp_path / "stderr").read_text()
            url, token = found[0], b64encode(f"opencode:{PASSWORD}".encode()).decode()

            def ask(method: str, path: str, body: Any = None) -> bytes:
                headers = {"Authorization": f"Basic {token}", "Content-Type": "application/json"}
                data = None if body is None else json.dumps(body).encode()
                request = urllib.request.Request(url + path, data, headers, method=method)
                with urllib.request.urlopen(request, timeout=START_S) as answer:
                    return answer.read()

            def readers() -> int:
                found = re.search(rb'subscribers\{face="opencode"\} (\d+)', ask("GET", "/metrics"))
                assert found is not None
                return int(found[1])

            session = json.loads(ask("POST", "/session", {}))["id"]
            argv = ["ip", "netns", "exec", name, sys.executable, "-c", CLIENT, ours, found[1], token]
            with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as client:
                try:
                    assert client.stdout is not None
                    assert client.stdout.readline() == "connected\n"
                    assert (connection_count(theirs), readers()) == (1, 1)
                    ip("-n", name, "addr", "flush", "dev", f"{name}b")
                    if work == "a turn is told":
                        ask("POST", f"/session/{session}/message", prompt_body("burst 300"))
                    assert connection_count(theirs) == 1, "nobody has said goodbye: it is half open"
                    asyncio.run(until(lambda: connection_count(theirs) == 0, GONE_S + SLACK_S))
                    asyncio.run(until(lambda: readers() == 0, HEARTBEAT_S + SLACK_S))
                finally:
                    client.kill()
            # Nobody else has noticed.
            assert b"echoed" in ask("POST", f"/session/{session}/message", prompt_body("echo echoed"))
            assert json.loads(ask("GET", "/session/status")) == {}
        finally:
            server.kill()
            server.communicate()
