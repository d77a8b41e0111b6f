"""Runs the application of `shim.main.app` in this process: the socket, the signals, a clean stop and its exit code.

    first Ctrl-C, SIGTERM           stop taking requests, end streams and agents, close the store: exit code 0
    SIGTERM with `drain_seconds`    let running turns end first (`shim.sessions.index.drain`), at most that long, or to the next
    SIGHUP                          stop if our terminal is gone; else reload the settings (`shim.cli.serve_command`)
    SIGUSR2                         stop as at SIGTERM, and let the command begin again in this process: RENEW
    second Ctrl-C                   end at once: 130
    not stopped after STOP_S        end at once: 1, also if the event loop hangs

Before it ends at once, the process kills its children and their children. No agent stays, but its last output may be lost.
"""

from __future__ import annotations

import asyncio
import errno
import gc
import importlib.util
import os
import resource
import select
import signal
import socket
import ssl
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

from aiohttp import web

from shim.host.files.roots import within
from shim.http.access import is_loopback
from shim.lib.bounded_output import last_words
from shim.lib.errors import ShimError
from shim.lib.settings import Settings
from shim.processes import process_family
from shim.processes.child_environment import blank_passwords
from shim.store.servers import present

STOP_S = 5.0
"""Seconds from the first signal to the end of the process, whatever hangs."""
DRAIN_EXTRA_S = 10.0
"""Seconds after `drain_seconds` for turns that have not ended to fail, and for their agents to end."""
DRAIN_S = 1.0
"""Seconds for requests in flight to finish. Streams close at once, so only prompts that wait for a turn need it."""
ACCEPT_STEPS = 3
"""Steps of the event loop after which it serves every connection that it has accepted."""
BACKLOG = 128
"""Connections that may wait to be accepted, also while the application starts."""
HEADER_LIMIT_BYTES = 16 * 2**10
"""Maximum size of one header and of the request line. A percent-encoded directory of 4096 bytes fits."""
HEADER_LIMIT = 128
KILL_S = 1.0
"""Seconds for children to be gone after SIGKILL, when the process ends at once."""
OPEN_FILES = 65_536
"""Open files that the server asks for: a subscriber takes one, an agent five. The usual limit is 1,024."""
GONE_S = 60
"""Seconds without an acknowledgement after which a connection is closed. A machine that lost its network never says goodbye."""
GC_THRESHOLDS = (50_000, 20, 100)
"""As `gc.set_threshold`. With Python's defaults, a streamed answer cost about a tenth more CPU."""
LARGE_BYTES = 2**20
"""Memory blocks of this size or more go back to the system as soon as they are free."""
FORCED_EXIT = 130
STUCK_EXIT = 1
RENEW = -1
"""Exit code of a server that is to begin again."""
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR2)

MakeApp = Callable[[Settings], web.Application]


class ListenError(ShimError):
    """The server cannot listen on the address. The text says why and what to do."""


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A server that answers requests. `url` has no trailing slash."""

    url: str
    app: web.Application
    settings: Settings
    tls: ssl.SSLContext | None = None


def listen(hostname: str, port: int, *, protected: bool = False, data_dir: Path | None = None) -> socket.socket:
    """Return a listening socket. It is opened before anything else starts, so that a taken port leaves no trace.

    `protected` says whether a password is set. Raises ListenError for an unknown name, for a port that is taken or forbidden,
    and, without a password, for every address that other machines reach: whoever reaches the server can run commands here.
    `data_dir` lets the error name our own server on that port.
    """
    try:
        addresses = socket.getaddrinfo(hostname, port, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        raise ListenError(f"Cannot listen on {hostname}: {error.strerror or error}. Try --hostname 127.0.0.1.") from error
    # `localhost` is both 127.0.0.1 and ::1. Clients that use 127.0.0.1 must find us.
    family, _, _, _, address = min(addresses, key=lambda entry: entry[0] != socket.AF_INET)
    host = str(address[0])
    if not protected and not is_loopback(host):
        raise ListenError(
            f"Refused to listen on {hostname} without a password: every machine that reaches this address could run commands as"
            " you. Set one in OPENCODE_SERVER_PASSWORD (and better --tls-cert too), or use --hostname 127.0.0.1 and from"
            f" another machine: ssh -L {port or 4096}:127.0.0.1:{port or 4096} {socket.gethostname()}"
        )
    try:
        return notice_the_gone(socket.create_server((host, port), family=family, backlog=BACKLOG))
    except OSError as error:
        raise ListenError(_why_not(hostname, port, error, data_dir)) from error


def need_directory_inside(settings: Settings) -> None:
    """Raise ListenError for a directory outside of `roots`. The server would refuse every request, and no client would start."""
    if not within(str(settings.directory), settings.roots):
        allowed = ", ".join(map(str, settings.roots))
        raise ListenError(
            f"The server's directory {settings.directory} lies outside of the directories that it may use ({allowed}). Start it"
            f" in one of them, or with --directory {settings.roots[0]}, or add --roots {settings.directory}."
        )


def notice_the_gone(sock: socket.socket) -> socket.socket:
    """Make the kernel close half-open connections of this listening socket. Accepted sockets inherit the options."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    # TCP_USER_TIMEOUT limits unanswered data. After GONE_S / 2 of silence the kernel probes three times in the other half.
    options = {"TCP_USER_TIMEOUT": GONE_S * 1000, "TCP_KEEPIDLE": GONE_S // 2, "TCP_KEEPINTVL": GONE_S // 6, "TCP_KEEPCNT": 3}
    for name, value in options.items():
        if (option := getattr(socket, name, None)) is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
    return sock


def allow_open_files(target: int = OPEN_FILES) -> int:
    """Raise this process's soft limit of open files up to `target` or the hard limit, and return the new limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = target if hard == resource.RLIM_INFINITY else min(target, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        except (OSError, ValueError):  # macOS has another, lower limit
            return soft
        return most
    return soft


def give_back_large_memory() -> None:
    """Make glibc map blocks of LARGE_BYTES or more separately, so that it returns them to the system when they are freed.

    By default glibc raises this threshold to the size of the largest freed block (a line of an agent, an answer), up to 32 MiB.
    It then cuts such blocks out of the heap, small blocks settle between them, and the heap grows by a MiB a minute under mixed
    work although nothing is kept (docs/SOAK.md).
    """
    import ctypes  # imported here: it takes 4 ms, and only a server needs it

    mmap_threshold = -3  # M_MMAP_THRESHOLD of malloc.h
    with suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).mallopt(mmap_threshold, LARGE_BYTES)


def _why_not(hostname: str, port: int, error: OSError, data_dir: Path | None) -> str:
    if error.errno == errno.EADDRINUSE:
        living = present(data_dir).living.values() if data_dir else ()
        ours = (f" by opencode-shim (pid {server.pid})" for server in living if server.url.endswith(f":{port}"))
        return (
            f"Port {port} of {hostname} is taken{next(ours, ', perhaps by another OpenCode server')}."
            " Choose another one with --port, or --port 0 for one that is free."
        )
    if error.errno == errno.EACCES:
        return f"You may not use port {port}. Choose one from 1024 on with --port."
    return f"Cannot listen on {hostname}, port {port}: {error.strerror}."


def url_of(sock: socket.socket, *, tls: bool = False) -> str:
    """Return the socket's URL, such as `http://127.0.0.1:4096`, with brackets around an IPv6 address."""
    host, port = sock.getsockname()[:2]
    return f"http{'s' if tls else ''}://{f'[{host}]' if ':' in host else host}:{port}"


def tls_of(settings: Settings) -> ssl.SSLContext | None:
    """Return the TLS context for HTTPS, or None for HTTP. Raises ListenError that says which file is wrong."""
    if settings.tls_cert is None:
        if settings.tls_key is not None:
            raise ListenError("tls_key is set, but tls_cert is not. Give the certificate too: --tls-cert FILE.")
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(settings.tls_cert, settings.tls_key)
    except (OSError, ssl.SSLError) as error:
        key = settings.tls_key or settings.tls_cert
        raise ListenError(
            f"Cannot serve HTTPS with the certificate {settings.tls_cert} and the key {key}: {error.strerror or error}."
            " Both must be PEM and belong together."
        ) from error
    return context


def run(
    settings: Settings,
    sock: socket.socket,
    during: Callable[[RunningServer], Awaitable[int]],
    *,
    make_app: MakeApp | None = None,
    stop_s: float = STOP_S,
    on_hangup: Callable[[], None] | None = None,
    renews: bool = False,
) -> int:
    """Serve on `sock` until `during` returns or a signal comes. Returns the exit code of `during`, or 0 for a signal.

    In: `renews`, whether SIGUSR2 stops it with RENEW as its exit code; else that signal does nothing.

    `on_hangup` is called in the event loop at a SIGHUP that does not come from the loss of our terminal. Without it such a
    SIGHUP stops the server. Raises ShimError if the application cannot start, and whatever `during` raises.
    """
    need_directory_inside(settings)
    tls = tls_of(settings)
    blank_passwords()
    allow_open_files()
    give_back_large_memory()
    watchdog = _Watchdog(stop_s, settings.drain_s + DRAIN_EXTRA_S)
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            return runner.run(_serve(settings, sock, tls, during, make_app, watchdog, on_hangup, renews=renews))
    finally:
        watchdog.close()
        sock.close()


async def _serve(
    settings: Settings,
    sock: socket.socket,
    tls: ssl.SSLContext | None,
    during: Callable[[RunningServer], Awaitable[int]],
    make_app: MakeApp | None,
    watchdog: _Watchdog,
    on_hangup: Callable[[], None] | None,
    *,
    renews: bool,
) -> int:
    task = asyncio.current_task()
    assert task is not None
    with _signals(task, watchdog, on_hangup, drains=settings.drain_s > 0, renews=renews) as stop:
        gc.disable()
        from shim.main import app as main  # imported here, so that `opencode-shim config` and `--help` do not load the server

        app = (make_app or main.build_app)(settings)
        # No handler_cancellation: a client that hangs up must not leave its request half done.
        runner = web.AppRunner(
            app,
            handler_cancellation=False,
            shutdown_timeout=DRAIN_S,
            access_log=None,
            auto_decompress=False,  # a small body could become gigabytes before anybody looks at it
            max_line_size=HEADER_LIMIT_BYTES,
            max_field_size=HEADER_LIMIT_BYTES,
            max_headers=HEADER_LIMIT,
        )
        site: web.SockSite | None = None
        try:
            await runner.setup()
            site = web.SockSite(runner, sock, backlog=BACKLOG, ssl_context=tls)
            await site.start()
            url = url_of(sock, tls=tls is not None)
            if main.AGENTS in app:
                await main.find_agents(app)
            # All objects of the start live until the end. The collector then looks only at later ones.
            gc.freeze()
            gc.set_threshold(*GC_THRESHOLDS)
            gc.enable()
            if (announce := app.get(main.ANNOUNCE)) is not None:
                announce(url + (settings.base_path or "").rstrip("/"))
            return await during(RunningServer(url, app, settings, tls))
        except asyncio.CancelledError:
            if not stop.names:
                raise
            if site is not None and stop.is_draining:
                with suppress(asyncio.CancelledError):  # a second signal, and the turns fail at once
                    await main.drain(app, settings.drain_s, partial(_stop_listening, site, sock))
            if stop.names[0] in ("SIGTERM", "SIGUSR2"):  # of a service manager, which starts it again, or of `restart`
                main.leave_agents(app)
            return RENEW if stop.names[0] == "SIGUSR2" else 0
        finally:
            stop.is_draining = False
            stop.names.append("stopping")
            gc.enable()  # also after a start that failed
            watchdog.arm()
            await runner.cleanup()


async def _stop_listening(site: web.SockSite, sock: socket.socket) -> None:
    """Take no more connections.

    asyncio forgets to close a connection that it has accepted but not begun to serve when its server closes. So it accepts none
    for a moment before.
    """
    asyncio.get_running_loop().remove_reader(sock.fileno())
    for _ in range(ACCEPT_STEPS):
        await asyncio.sleep(0)  # what was accepted begins to be served
    await site.stop()


@dataclass(slots=True)
class _StopState:
    """The names of the signals that came. `is_draining`: the first one lets running turns end, and a second one does not."""

    names: list[str] = field(default_factory=list[str])
    is_draining: bool = False


class _Watchdog:
    """A thread that ends the process if a stop takes longer than `stop_s` seconds after the first `arm`.

    `arm` writes to a pipe: a signal handler may interrupt any code of its thread, so it must take no lock.
    In: `drain_s`, seconds that a stop takes longer after `arm_for_drain`, unless `arm` follows.
    """

    def __init__(self, stop_s: float, drain_s: float) -> None:
        self._stop_s = stop_s
        self._drain_s = drain_s
        self._inner, self._outer = os.pipe()
        os.set_blocking(self._outer, False)
        self._thread = threading.Thread(target=self._watch, name="stop watchdog", daemon=True)
        self._thread.start()

    def arm(self) -> None:
        """Start the countdown. Further calls change nothing."""
        with suppress(OSError):
            os.write(self._outer, b"a")

    def arm_for_drain(self) -> None:
        """Start the countdown of a stop that lets running turns end."""
        with suppress(OSError):
            os.write(self._outer, b"d")

    def close(self) -> None:
        """End the countdown: the server stopped in time."""
        with suppress(OSError):
            os.write(self._outer, b"c")
        self._thread.join(KILL_S)
        os.close(self._inner)
        os.close(self._outer)

    def _watch(self) -> None:
        until: float | None = None
        while (rest := None if until is None else until - time.monotonic()) is None or rest > 0:
            ready, _, _ = select.select([self._inner], [], [], rest)
            read = os.read(self._inner, 64) if ready else b""
            if b"c" in read:
                return
            for word in read:
                end = time.monotonic() + self._stop_s + (self._drain_s if word == ord("d") else 0)
                until = end if until is None else min(until, end)
        _end_at_once(STUCK_EXIT, f"Not stopped within {self._stop_s:g} s: ended at once.")


@contextmanager
def _signals(
    task: asyncio.Task[int],
    watchdog: _Watchdog,
    on_hangup: Callable[[], None] | None = None,
    *,
    drains: bool = False,
    renews: bool = False,
) -> Generator[_StopState]:
    """Handle stop signals: the first cancels `task`, a further Ctrl-C ends the process. In: `drains`, whether SIGTERM drains.

    `renews`: whether SIGUSR2 is one. Else it does nothing.

    The handlers are Python's, not the loop's: a second Ctrl-C must work also if the loop hangs.
    """
    stop = _StopState()
    loop = task.get_loop()

    had_terminal = has_terminal()

    def on_signal(number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGHUP and on_hangup is not None and not (had_terminal and not has_terminal()):
            loop.call_soon_threadsafe(on_hangup)
            return
        if number == signal.SIGUSR2 and not renews:
            return
        is_first, was_draining = not stop.names, stop.is_draining
        stop.is_draining = is_first and drains and number == signal.SIGTERM
        # The watchdog starts here and not when the task is cancelled: the loop may hang.
        (watchdog.arm_for_drain if stop.is_draining else watchdog.arm)()
        if is_first or was_draining:
            loop.call_soon_threadsafe(task.cancel)
        elif number == signal.SIGINT:
            _end_at_once(FORCED_EXIT, "Ended at once.")
        stop.names.append(signal.Signals(number).name)

    # nohup makes the process ignore SIGHUP. That must stay.
    ignored = {signal.SIGHUP} if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else set[signal.Signals]()
    before = {number: signal.signal(number, on_signal) for number in STOP_SIGNALS if number not in ignored}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def has_terminal() -> bool:
    """Return True if this process can open its terminal. The kernel takes a lost terminal away before it sends SIGHUP."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return the loop factory of uvloop if it is installed (the extra `speed`), else None for asyncio's own loop."""
    if importlib.util.find_spec("uvloop") is None:
        _watch_children_without_threads()
        return None
    uvloop: Any = importlib.import_module("uvloop")
    return uvloop.new_event_loop


def _watch_children_without_threads() -> None:
    """Let a pidfd report the end of a child (Linux 5.3), as asyncio does since 3.12. By default 3.11 has a thread per child."""
    if sys.version_info >= (3, 12) or not hasattr(os, "pidfd_open"):
        return
    with suppress(OSError):
        os.close(os.pidfd_open(os.getpid()))
        asyncio.set_child_watcher(asyncio.PidfdChildWatcher())  # pyright: ignore[reportDeprecated] - deprecated only in versions that return above


def _end_at_once(code: int, why: str) -> None:
    """End the process without a clean stop, but kill all processes that it started."""
    try:
        last_words(f"opencode-shim: {why}\n")
        kin = process_family.members(os.getpid(), token="")
        # Sweep each process's session too: one that forks while its parent is killed has no parent afterwards.
        any(process_family.sweep(process.pid, "", 0, kin, KILL_S) for process in kin)
    finally:
        os._exit(code)
