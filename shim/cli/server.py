"""Runs the application of `shim.app` in this process: the socket, the signals, a clean stop and its exit code.

    first Ctrl-C, SIGTERM           stop taking requests, end streams and agents, close the store: exit code 0
    SIGHUP                          the same when our terminal has gone; else the settings are read again (`shim.cli.reload`)
    second Ctrl-C                   end at once: 130
    not stopped after STOP_S        end at once: 1, also when the event loop hangs

When we end at once, our children and theirs are killed first: no agent stays, but its last words may be lost.
"""

from __future__ import annotations

import asyncio
import errno
import gc
import importlib.util
import ipaddress
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
from dataclasses import dataclass
from types import FrameType
from typing import Any

from aiohttp import web

from shim.bounded_output import last_words
from shim.collector import collector
from shim.errors import ShimError
from shim.host.roots import within
from shim.runtime import family
from shim.runtime.environment import blank_passwords
from shim.settings import Settings

STOP_S = 5.0
"""From the first signal to the end of the process, whatever hangs."""
DRAIN_S = 1.0
"""What requests in flight get to finish. Streams are closed at once, so only prompts that wait for a turn need it."""
BACKLOG = 128
"""Connections that may wait to be accepted, also while the application starts."""
HEADER_LIMIT_BYTES = 16 * 2**10
"""Of one header, and of the line with the path: a directory of 4096 bytes, percent-encoded, fits."""
HEADER_LIMIT = 128
"""Headers of one request."""
KILL_S = 1.0
"""For children to be gone after SIGKILL, when we end at once."""
OPEN_FILES = 65_536
"""So many we want to be allowed: a subscriber is one, an agent five. The usual limit is 1,024."""
GONE_S = 60
"""A connection whose other end acknowledges nothing for so long is closed: a machine that lost its network never says goodbye."""
LARGE_BYTES = 2**20
"""Memory of this size or more is given back to the system as soon as it is free."""
FORCED_EXIT = 130
STUCK_EXIT = 1
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

MakeApp = Callable[[Settings], web.Application]


class ListenError(ShimError):
    """The address cannot be listened on; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A server that answers requests. `url` has no trailing slash."""

    url: str
    app: web.Application
    settings: Settings
    tls: ssl.SSLContext | None = None


def listen(hostname: str, port: int, *, protected: bool = False) -> socket.socket:
    """A listening socket, before anything else is started: a taken port leaves no trace.

    In: `protected`, whether a password is set. Raises: ListenError for names that are not found, ports that are taken or not
    ours to use, and without a password for every address that other machines can reach: whoever reaches the server can run
    commands here.
    """
    try:
        found = socket.getaddrinfo(hostname, port, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        raise ListenError(f"Cannot listen on {hostname}: {error.strerror or error}. Try --hostname 127.0.0.1.") from error
    # `localhost` is both 127.0.0.1 and ::1; clients that are told 127.0.0.1 must find us.
    family, _, _, _, address = min(found, key=lambda entry: entry[0] != socket.AF_INET)
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
        raise ListenError(_why_not(hostname, port, error)) from error


def need_directory_inside(settings: Settings) -> None:
    """Raise ListenError for a directory outside of `roots`: every request would be refused, and no client would start."""
    if not within(str(settings.directory), settings.roots):
        allowed = ", ".join(map(str, settings.roots))
        raise ListenError(
            f"The server's directory {settings.directory} lies outside of the directories that it may use ({allowed}). Start it"
            f" in one of them, or with --directory {settings.roots[0]}, or add --roots {settings.directory}."
        )


def notice_the_gone(sock: socket.socket) -> socket.socket:
    """Ask the kernel to close connections whose other end has vanished (half-open ones). What it accepts inherits this."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    # Unanswered data: TCP_USER_TIMEOUT; silence: GONE_S / 2, and three questions in the rest. Where the system has them.
    wanted = {"TCP_USER_TIMEOUT": GONE_S * 1000, "TCP_KEEPIDLE": GONE_S // 2, "TCP_KEEPINTVL": GONE_S // 6, "TCP_KEEPCNT": 3}
    for name, value in wanted.items():
        if (option := getattr(socket, name, None)) is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
    return sock


def allow_open_files(wanted: int = OPEN_FILES) -> int:
    """Raise this process's own limit of open files as far as we may; what it is then. The hard limit stays."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        except (OSError, ValueError):  # macOS has a lower one beside it
            return soft
        return most
    return soft


def give_back_large_memory() -> None:
    """Ask glibc to take LARGE_BYTES and more from the system each time, and give it back at once.

    By itself it takes the largest block that was ever freed (a line of an agent, an answer) as the new bound, up to 32 MiB. Such
    blocks are cut out of the heap then, small ones settle between them, and the heap grows by a MiB a minute under mixed work
    though nothing is kept (docs/SOAK.md).
    """
    import ctypes  # here: an import of four milliseconds, which only a server needs

    mmap_threshold = -3  # M_MMAP_THRESHOLD of malloc.h
    with suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).mallopt(mmap_threshold, LARGE_BYTES)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an IP address."""
    address = ipaddress.ip_address(host.partition("%")[0])
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def _why_not(hostname: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"Port {port} of {hostname} is taken, perhaps by another OpenCode server."
            " Choose another one with --port, or --port 0 for one that is free."
        )
    if error.errno == errno.EACCES:
        return f"Port {port} may not be used by you; ports from 1024 on may."
    return f"Cannot listen on {hostname}, port {port}: {error.strerror}."


def url_of(sock: socket.socket, *, tls: bool = False) -> str:
    """`http://127.0.0.1:4096`, with brackets around IPv6 addresses."""
    host, port = sock.getsockname()[:2]
    return f"http{'s' if tls else ''}://{f'[{host}]' if ':' in host else host}:{port}"


def tls_of(settings: Settings) -> ssl.SSLContext | None:
    """What HTTPS is served with; None for HTTP. Raises: ListenError that says which file is wrong."""
    if settings.tls_cert is None:
        if settings.tls_key is not None:
            raise ListenError("tls_key is set, but not tls_cert: name the certificate too (--tls-cert FILE).")
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
) -> int:
    """Serve on `sock` until `during` returns or a signal comes; then stop. Gives `during`'s exit code, 0 for a signal.

    In: `on_hangup`, called in the event loop at a SIGHUP that does not come from the loss of our terminal; None: stop then too.
    Raises: ShimError if the application cannot start; whatever `during` raises.
    """
    need_directory_inside(settings)
    tls = tls_of(settings)
    blank_passwords()
    allow_open_files()
    give_back_large_memory()
    watchdog = _Watchdog(stop_s)
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            return runner.run(_serve(settings, sock, tls, during, make_app or _application, watchdog, on_hangup))
    finally:
        watchdog.close()
        sock.close()


async def _serve(
    settings: Settings,
    sock: socket.socket,
    tls: ssl.SSLContext | None,
    during: Callable[[RunningServer], Awaitable[int]],
    make_app: MakeApp,
    watchdog: _Watchdog,
    on_hangup: Callable[[], None] | None,
) -> int:
    task = asyncio.current_task()
    assert task is not None
    with _signals(task, watchdog, on_hangup) as stopping:
        gc.disable()
        app = make_app(settings)
        # handler_cancellation: a client that hangs up must not undo half of what its request began.
        runner = web.AppRunner(
            app,
            handler_cancellation=False,
            shutdown_timeout=DRAIN_S,
            access_log=None,
            max_line_size=HEADER_LIMIT_BYTES,
            max_field_size=HEADER_LIMIT_BYTES,
            max_headers=HEADER_LIMIT,
        )
        try:
            await runner.setup()
            await web.SockSite(runner, sock, backlog=BACKLOG, ssl_context=tls).start()
            url = url_of(sock, tls=tls is not None)
            # Whatever is here now stays until the end: from now on only what comes later is looked through.
            gc.freeze()
            gc.enable()
            _announce(app, url + (settings.base_path or "").rstrip("/"))
            with collector.watched():
                return await during(RunningServer(url, app, settings, tls))
        except asyncio.CancelledError:
            if not stopping:
                raise
            return 0
        finally:
            stopping.append("stopping")
            gc.enable()  # also after a start that failed
            watchdog.arm()
            await runner.cleanup()


class _Watchdog:
    """A thread that ends the process when a stop takes longer than `stop_s`, from the first `arm`.

    It is armed through a pipe: a signal handler may interrupt any code of its thread, and must take no lock.
    """

    def __init__(self, stop_s: float) -> None:
        self._stop_s = stop_s
        self._inner, self._outer = os.pipe()
        os.set_blocking(self._outer, False)
        self._thread = threading.Thread(target=self._watch, name="stop watchdog", daemon=True)
        self._thread.start()

    def arm(self) -> None:
        """The stop has begun. Again is fine."""
        with suppress(OSError):
            os.write(self._outer, b"a")

    def close(self) -> None:
        """The stop has ended in time."""
        with suppress(OSError):
            os.write(self._outer, b"c")
        self._thread.join(KILL_S)
        os.close(self._inner)
        os.close(self._outer)

    def _watch(self) -> None:
        if os.read(self._inner, 1) == b"c":
            return
        until = time.monotonic() + self._stop_s
        while (rest := until - time.monotonic()) > 0:
            ready, _, _ = select.select([self._inner], [], [], rest)
            if ready and b"c" in os.read(self._inner, 64):
                return
        _end_at_once(STUCK_EXIT, f"Not stopped within {self._stop_s:g} s: ended at once.")


@contextmanager
def _signals(task: asyncio.Task[int], watchdog: _Watchdog, on_hangup: Callable[[], None] | None = None) -> Generator[list[str]]:
    """The first stop signal cancels `task`, a further Ctrl-C ends the process. Out: a list, empty until we stop.

    Python-level handlers, not the loop's: a second Ctrl-C must work also when the loop hangs.
    """
    stopping: list[str] = []
    loop = task.get_loop()

    had_terminal = has_terminal()

    def on_signal(number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGHUP and on_hangup is not None and not (had_terminal and not has_terminal()):
            loop.call_soon_threadsafe(on_hangup)
            return
        watchdog.arm()  # here and not when the task is cancelled: the loop may hang
        if not stopping:
            loop.call_soon_threadsafe(task.cancel)
        elif number == signal.SIGINT:
            _end_at_once(FORCED_EXIT, "Ended at once.")
        stopping.append(signal.Signals(number).name)

    # Under nohup the hang-up is ignored, and stays so.
    ignored = {signal.SIGHUP} if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else set[signal.Signals]()
    before = {number: signal.signal(number, on_signal) for number in STOP_SIGNALS if number not in ignored}
    try:
        yield stopping
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def has_terminal() -> bool:
    """Whether this process has a terminal that it can open. The kernel takes it away before it sends SIGHUP for its loss."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True


def _application(settings: Settings) -> web.Application:
    # Here and not above: `opencode-shim config` and `--help` need not load the whole server.
    from shim.app import build_app

    return build_app(settings)


def _announce(app: web.Application, url: str) -> None:
    from shim.app import ANNOUNCE  # here: as above

    if (announce := app.get(ANNOUNCE)) is not None:
        announce(url)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's if it is installed (the extra `speed`), else asyncio's own."""
    if importlib.util.find_spec("uvloop") is None:
        _watch_children_without_threads()
        return None
    uvloop: Any = importlib.import_module("uvloop")
    return uvloop.new_event_loop


def _watch_children_without_threads() -> None:
    """As asyncio does by itself since 3.12, where the kernel can tell of a child's end (Linux 5.3): else each has a thread."""
    if sys.version_info >= (3, 12) or not hasattr(os, "pidfd_open"):
        return
    with suppress(OSError):
        os.close(os.pidfd_open(os.getpid()))
        asyncio.set_child_watcher(asyncio.PidfdChildWatcher())  # pyright: ignore[reportDeprecated] - in what we do not run it with


def _end_at_once(code: int, why: str) -> None:
    """The last resort: no goodbye to anyone, but nothing of ours stays behind."""
    try:
        last_words(f"opencode-shim: {why}\n")
        kin = family.members(os.getpid(), token="")
        # Each with its own session too: one that forks while its parent is killed is nobody's child afterwards.
        any(family.sweep(process.pid, "", 0, kin, KILL_S) for process in kin)
    finally:
        os._exit(code)
