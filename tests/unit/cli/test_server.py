"""Where the server listens and how it ends, on a small application of the tests' own.

`tests/process/test_serve.py` runs the real one.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import shutil
import signal
import ssl
import subprocess
import sys
import textwrap
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from shim.cli.server import (
    HEADER_LIMIT,
    HEADER_LIMIT_BYTES,
    ListenError,
    RunningServer,
    listen,
    need_directory_inside,
    run,
    tls_of,
    url_of,
)
from shim.http.access import is_loopback
from shim.lib.errors import ShimError
from shim.lib.settings import Settings
from shim.store.servers import Presence

WAIT_S = 20


# --- listening -------------------------------------------------------------------------------------------


def test_port_0_picks_one_and_the_url_tells_it() -> None:
    with listen("127.0.0.1", 0) as sock:
        port = sock.getsockname()[1]
        assert port > 0
        assert url_of(sock) == f"http://127.0.0.1:{port}"


def test_clients_get_localhost_as_the_address() -> None:
    with listen("localhost", 0) as sock:
        assert sock.getsockname()[0] == "127.0.0.1"


def test_ipv6_addresses_get_brackets() -> None:
    class Six:
        def getsockname(self) -> tuple[str, int, int, int]:
            return ("::1", 4096, 0, 0)

    assert url_of(Six()) == "http://[::1]:4096"  # pyright: ignore[reportArgumentType] - needs no socket


def test_a_taken_port_is_reported_in_a_sentence(tmp_path: Path) -> None:
    with listen("127.0.0.1", 0) as sock:
        port = sock.getsockname()[1]
        with pytest.raises(ListenError, match=rf"Port {port} of 127.0.0.1 is taken.*--port"):
            listen("127.0.0.1", port)
        ours = Presence(tmp_path, "ours")
        ours.enter()
        ours.announce(f"http://127.0.0.1:{port}")
        with pytest.raises(ListenError, match=rf"taken by opencode-shim \(pid {os.getpid()}\)\."):
            listen("127.0.0.1", port, data_dir=tmp_path)
        ours.leave()


@pytest.mark.parametrize("hostname", ["0.0.0.0", "::", "192.0.2.1"])
def test_addresses_that_others_reach_are_refused(hostname: str) -> None:
    with pytest.raises(
        ListenError, match=r"Refused .* without a password.*OPENCODE_SERVER_PASSWORD.*--hostname 127\.0\.0\.1.*ssh -L"
    ):
        listen(hostname, 0)


def test_with_a_password_every_address_will_do() -> None:
    with listen("0.0.0.0", 0, protected=True) as sock:
        assert sock.getsockname()[0] == "0.0.0.0"


@pytest.mark.parametrize(
    ("host", "own"),
    [
        *((own, True) for own in ("127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1")),
        *((other, False) for other in ("::ffff:10.0.0.1", "10.0.0.1", "0.0.0.0", "::", "fe80::1%eth0")),
    ],
)
def test_loopback_hosts(host: str, own: bool) -> None:
    assert is_loopback(host) is own


def test_a_directory_outside_of_the_roots_is_refused_at_the_start(tmp_path: Path) -> None:
    for name in ("allowed", "else"):
        (tmp_path / name).mkdir()
    settings = Settings(directory=tmp_path / "else", roots=(tmp_path / "allowed",))
    with pytest.raises(ListenError, match=r"else lies outside .*--directory .*allowed, or add --roots .*else"):
        need_directory_inside(settings)
    need_directory_inside(Settings(directory=tmp_path / "allowed", roots=(tmp_path / "allowed",)))


def test_an_unknown_name_is_reported() -> None:
    with pytest.raises(ListenError, match=r"Cannot listen on no\.such\.host\.invalid"):
        listen("no.such.host.invalid", 0)


# --- TLS -------------------------------------------------------------------------------------------------


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """A certificate for localhost that signs itself, and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl on this machine to make a certificate with")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subject = ("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1")
    kind = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")
    command = ["openssl", "req", "-x509", *kind, *subject, "-keyout", str(key), "-out", str(cert)]
    subprocess.run(command, check=True, capture_output=True)
    return cert, key


def test_https(certificate: tuple[Path, Path]) -> None:
    cert, key = certificate
    trusting = ssl.create_default_context(cafile=str(cert))

    async def work(running: RunningServer) -> int:
        assert running.url.startswith("https://127.0.0.1:")
        async with aiohttp.ClientSession() as session, session.get(running.url + "/", ssl=trusting) as answer:
            assert await answer.text() == "hello"
        return 5

    settings = Settings(port=0, tls_cert=cert, tls_key=key)
    assert run(settings, listen("127.0.0.1", 0), work, make_app=Trace().make) == 5


def test_unusable_certificates_are_reported(certificate: tuple[Path, Path], tmp_path: Path) -> None:
    cert, key = certificate
    assert tls_of(Settings()) is None
    with pytest.raises(ListenError, match="tls_cert"):
        tls_of(Settings(tls_key=key))
    with pytest.raises(ListenError, match=rf"Cannot serve HTTPS with the certificate {cert} and the key {cert}"):
        tls_of(Settings(tls_cert=cert))
    wrong = tmp_path / "wrong.pem"
    wrong.write_text("nothing")
    with pytest.raises(ListenError, match=r"wrong\.pem.*PEM"):
        tls_of(Settings(tls_cert=wrong, tls_key=key))


# --- running and stopping --------------------------------------------------------------------------------


class Trace:
    """An application that says what happens to it."""

    def __init__(self, fail: Exception | None = None) -> None:
        self.seen: list[str] = []
        self.fail = fail

    def make(self, settings: Settings) -> web.Application:
        app = web.Application()
        app.router.add_get("/", self._hello)
        app.router.add_get("/slow", self._slow)
        app.cleanup_ctx.append(self._life)
        return app

    async def _life(self, app: web.Application) -> Any:
        if self.fail:
            raise self.fail
        self.seen.append("started")
        yield
        self.seen.append("stopped")

    async def _hello(self, request: web.Request) -> web.Response:
        return web.Response(text="hello")

    async def _slow(self, request: web.Request) -> web.Response:
        self.seen.append("asked")
        for _ in range(100):
            await asyncio.sleep(0)
        self.seen.append("answered")
        return web.Response(text="slow")


def run_with(trace: Trace, work: Callable[[RunningServer], Awaitable[int]]) -> int:
    return run(Settings(port=0), listen("127.0.0.1", 0), work, make_app=trace.make)


async def get(url: str) -> str:
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        return await answer.text()


def test_the_server_runs_until_its_job_returns_and_gives_its_code() -> None:
    trace = Trace()

    async def work(running: RunningServer) -> int:
        assert await get(running.url + "/") == "hello"
        return 3

    assert run_with(trace, work) == 3
    assert trace.seen == ["started", "stopped"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_stops_it_cleanly_with_0(number: signal.Signals) -> None:
    trace = Trace()
    before = signal.getsignal(number)

    async def work(running: RunningServer) -> int:
        os.kill(os.getpid(), number)
        await asyncio.Event().wait()
        return 9

    assert run_with(trace, work) == 0
    assert trace.seen == ["started", "stopped"]
    assert signal.getsignal(number) == before


@pytest.mark.parametrize(
    ("headers", "path", "status"),
    [
        ({"X-Long": "x" * (HEADER_LIMIT_BYTES - 100)}, "/", 200),
        ({"X-Long": "x" * (HEADER_LIMIT_BYTES + 100)}, "/", 400),
        ({}, "/?" + "x" * (HEADER_LIMIT_BYTES + 100), 400),
        ({f"X-{number}": "x" for number in range(HEADER_LIMIT - 20)}, "/", 200),
        ({f"X-{number}": "x" for number in range(HEADER_LIMIT + 1)}, "/", 400),
    ],
)
def test_headers_have_a_limit(headers: dict[str, str], path: str, status: int) -> None:
    async def work(running: RunningServer) -> int:
        async with aiohttp.ClientSession() as session, session.get(running.url + path, headers=headers) as answer:
            assert answer.status == status
            assert answer.content_type != "text/html"
        return 0

    assert run_with(Trace(), work) == 0


def test_a_failed_start_says_why_and_frees_the_port() -> None:
    sock = listen("127.0.0.1", 0)
    port = sock.getsockname()[1]

    async def work(running: RunningServer) -> int:
        raise AssertionError("it did not start")

    with pytest.raises(ShimError, match="the store is locked"):
        run(Settings(), sock, work, make_app=Trace(ShimError("the store is locked")).make)
    listen("127.0.0.1", port).close()


def test_errors_in_during_stop_it_and_come_out() -> None:
    trace = Trace()

    async def work(running: RunningServer) -> int:
        raise LookupError("boom")

    with pytest.raises(LookupError, match="boom"):
        run_with(trace, work)
    assert trace.seen == ["started", "stopped"]


def test_a_request_is_carried_out_though_its_client_hangs_up() -> None:
    trace = Trace()

    async def work(running: RunningServer) -> int:
        port = int(running.url.rsplit(":", 1)[1])
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n")
        await writer.drain()
        while "asked" not in trace.seen:
            await asyncio.sleep(0)
        writer.transport.abort()
        while "answered" not in trace.seen:
            await asyncio.sleep(0)
        return 0

    assert run_with(trace, work) == 0


HANGING = """
    import asyncio, subprocess, sys
    from aiohttp import web
    from shim.cli.server import listen, run
    from shim.lib.settings import Settings

    async def hang(app):
        argv = ["/bin/sh", "-c", "trap '' TERM; while :; do sleep 60; done"]
        stubborn = subprocess.Popen(argv, stdin=subprocess.PIPE, start_new_session=True)
        yield
        print(stubborn.pid, flush=True)
        await asyncio.Event().wait()

    def make(settings):
        app = web.Application()
        app.cleanup_ctx.append(hang)
        return app

    async def during(running):
        print("ready", flush=True)
        await asyncio.Event().wait()

    sys.exit(run(Settings(), listen("127.0.0.1", 0), during, make_app=make, stop_s=float(sys.argv[1])))
"""


def start_hanging(stop_s: float) -> subprocess.Popen[str]:
    argv = [sys.executable, "-c", textwrap.dedent(HANGING), str(stop_s)]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_stop_that_hangs_is_cut_short_and_leaves_no_child() -> None:
    with start_hanging(0.1) as process:
        process.terminate()
        child, err = process.communicate(timeout=WAIT_S)
    assert process.returncode == 1
    assert "Not stopped within 0.1 s" in err
    assert not is_alive(int(child))


def test_a_second_ctrl_c_ends_it_at_once_and_leaves_no_child() -> None:
    with start_hanging(3600) as process:
        process.send_signal(signal.SIGINT)
        assert process.stdout is not None
        child = int(process.stdout.readline())
        assert is_alive(child)
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=WAIT_S)
    assert process.returncode == 130
    assert "Ended at once." in err
    assert not is_alive(child)


BLOCKED = """
    import sys, threading
    from aiohttp import web
    from shim.cli.server import listen, run
    from shim.lib.settings import Settings

    async def during(running):
        print("ready", flush=True)
        threading.Event().wait()

    sys.exit(run(Settings(), listen("127.0.0.1", 0), during, make_app=lambda settings: web.Application(), stop_s=0.1))
"""


def test_a_signal_ends_it_in_time_while_the_event_loop_hangs() -> None:
    argv = [sys.executable, "-c", textwrap.dedent(BLOCKED)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.terminate()
        try:
            _, err = process.communicate(timeout=WAIT_S)
        finally:
            process.kill()
    assert process.returncode == 1
    assert "Not stopped within 0.1 s" in err


def test_a_stop_is_cut_short_when_stderr_has_no_reader() -> None:
    """The last words must not be what it hangs at."""
    inner, outer = os.pipe()
    os.set_blocking(outer, False)
    with contextlib.suppress(BlockingIOError):
        while os.write(outer, b"x" * 4096):
            pass
    os.set_blocking(outer, True)
    argv = [sys.executable, "-c", textwrap.dedent(BLOCKED)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=outer, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.terminate()
        try:
            assert process.wait(WAIT_S) == 1
        finally:
            process.kill()
            os.close(inner)
            os.close(outer)


LARGE_BLOCKS = """
import ctypes, sys
from shim.cli.server import LARGE_BYTES, give_back_large_memory
names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()
info = ctypes.CDLL(None).mallinfo2
info.restype = type("Info", (ctypes.Structure,), {"_fields_": [(name, ctypes.c_size_t) for name in names]})
if sys.argv[1] == "ours":
    give_back_large_memory()
for _ in range(3):  # what glibc would learn from
    bytearray(20 * 2**20)
before = info().hblks
one = bytearray(2 * LARGE_BYTES)
print(info().hblks - before)
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="only glibc has a bound that moves")
@pytest.mark.parametrize(("whose", "mapped"), [("ours", "1"), ("glibc", "0")])
def test_large_memory_is_released(whose: str, mapped: str) -> None:
    argv = [sys.executable, "-c", LARGE_BLOCKS, whose]
    assert subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True).stdout.strip() == mapped
