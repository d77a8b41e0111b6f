"""Runs `serve`, `web` and `tui` after their flags are parsed. It imports no rich without a terminal."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any, TextIO

import structlog
from aiohttp import web

from shim.cli import clients, env_file, mdns, screen
from shim.cli.local_server import usable
from shim.cli.registration import registration
from shim.cli.server import (
    DRAIN_EXTRA_S,
    RENEW,
    STOP_S,
    ListenError,
    RunningServer,
    listen,
    need_directory_inside,
    notice_the_gone,
    run,
    tls_of,
)
from shim.cli.transfer import Job
from shim.http.access import is_loopback
from shim.lib.bounded_output import bounded_output
from shim.lib.errors import ShimError
from shim.lib.logging import configure
from shim.lib.redaction import secrets_of
from shim.lib.settings import LIVE, Settings, config_files
from shim.processes import child_process
from shim.processes.child_environment import child_environment

# --- settings of a running server -------------------------------------------------------------------------------

log = structlog.get_logger(__name__)

CHECK_S = 2.0
"""Seconds between two checks of the files."""

Stamp = tuple[int, int] | None
"""Modification time (ns) and size (bytes) of a file, or None if it does not exist."""


@dataclass(frozen=True, slots=True)
class Changes:
    """Names of the changed settings: those that a running server applies, and those that need a restart."""

    live: tuple[str, ...]
    restart: tuple[str, ...]


def compare(current: Settings, latest: Settings) -> Changes:
    """Return the names of the settings that differ."""
    names = [name for name in Settings.model_fields if getattr(current, name) != getattr(latest, name)]
    return Changes(tuple(n for n in names if n in LIVE), tuple(n for n in names if n not in LIVE))


@dataclass(eq=False)
class Reloader:
    """Keeps the settings of one server current.

    `load` reads the settings as at the start, and `settings` are those in force. `apply` applies the live ones, and `relog`
    configures the log again.
    """

    load: Callable[[], Settings]
    settings: Settings
    _: KW_ONLY
    apply: Callable[[web.Application, Settings], None]
    relog: Callable[[Settings], None]
    notifier: Notifier = field(default_factory=lambda: Notifier())
    _request: asyncio.Event = field(default_factory=asyncio.Event)

    def ask(self) -> None:
        """Request a reload. Call it in the event loop."""
        self._request.set()

    async def work(self, running: RunningServer) -> None:
        """Reload after each request and after each change of a file, until cancelled."""
        stamps = await asyncio.to_thread(self._stamps)
        while True:
            is_requested = False
            try:
                async with asyncio.timeout(CHECK_S):
                    is_requested = await self._request.wait()
            except TimeoutError:
                pass
            self._request.clear()
            latest = await asyncio.to_thread(self._stamps)
            if is_requested or latest != stamps:
                await self.reload(running)
                stamps = await asyncio.to_thread(self._stamps)

    async def reload(self, running: RunningServer) -> Changes | None:
        """Read the settings again and apply the live ones. Returns None, and logs why, if they are invalid."""
        self.notifier.notify_reloading()
        try:
            latest = await asyncio.to_thread(self.load)
            changes = compare(self.settings, latest)
            merged = self.settings.model_copy(update={name: getattr(latest, name) for name in changes.live})
            _reload_certificate(running.tls, merged)
            self.apply(running.app, merged)
        except (ShimError, OSError, ssl.SSLError) as error:
            log.error("settings.not_reloaded", why=str(error))
            return None
        finally:
            self.notifier.ready(f"listening on {running.url}")
        self.settings = merged
        self.relog(merged)
        log.info("settings.reloaded", live=list(changes.live))
        if changes.restart:
            log.warning("settings.restart_needed", names=list(changes.restart))
        return changes

    def _stamps(self) -> dict[Path, Stamp]:
        files = [*config_files(), self.settings.tls_cert, self.settings.tls_key]
        return {path: _stamp(path) for path in files if path is not None}


def _reload_certificate(tls: ssl.SSLContext | None, settings: Settings) -> None:
    """Load the current certificate files. New connections get them."""
    if tls is not None and settings.tls_cert is not None:
        tls.load_cert_chain(settings.tls_cert, settings.tls_key)


def _stamp(path: Path) -> Stamp:
    try:
        status = os.stat(path)  # noqa: PTH116 - follows links, as renewed certificates are
    except OSError:
        return None
    return (status.st_mtime_ns, status.st_size)


# --- the command ------------------------------------------------------------------------------------------------

LOG_FILE = "opencode-shim.log"
LOG_KEEP_BYTES = 10 * 2**20
"""Size in bytes above which a log file is renamed to `.1` when it is opened."""


def serve(flags: Mapping[str, Any], *, page: bool = False, browser: bool = False, register: bool = False) -> int:
    """Serve until a signal and return the exit code. Raises ShimError if the server cannot start.

    `page` adds the web UI, `register` names the server to clients of OpenCode 2 (`shim.cli.registration`).
    """
    with bounded_output():
        code = _serve(flags, page=page, browser=browser, register=register)
    if code == RENEW:  # the same command in the same process, perhaps of a new version
        sys.stdout.flush()
        environment = child_environment({}, os.environ)  # with our passwords
        child_process.replace([sys.executable, *sys.orig_argv[1:]], environment=environment)
    return code


def _serve(flags: Mapping[str, Any], *, page: bool, browser: bool, register: bool) -> int:
    notifier = Notifier.take(os.environ)

    def load() -> Settings:
        settings = Settings.load(flags)
        return Settings.load({**flags, "web_ui": True}) if page and settings.web_ui is False else settings

    def relog(current: Settings) -> None:
        configure(current.log_level, current.log_format, sys.stderr, secrets(current))

    settings = load()
    if settings.mdns:
        mdns.require_zeroconf()
    if settings.has_cluster:
        from shim.main.choose_store import require_cluster_extra  # late: it loads the stores

        require_cluster_extra(settings)
    need_directory_inside(settings)
    tls_of(settings)
    protected = settings.password is not None
    sock = inherited_socket(os.environ, protected=protected) or listen(
        settings.hostname, settings.port, protected=protected, data_dir=settings.data_dir
    )
    address: tuple[str, int] = sock.getsockname()[:2]
    relog(settings)
    reloader = Reloader(load, settings, apply=_apply, relog=relog, notifier=notifier)

    async def announce(running: RunningServer) -> int:
        from shim.cli.agents import of  # late: it loads the whole server

        out = screen.console(sys.stdout)
        url = running.url + (settings.base_path or "").rstrip("/")
        # Before the first line: who waits for a line finds the server named.
        with registration(settings, url, os.environ) if register else contextlib.nullcontext():
            screen.print_listening_line(out, running)
            notifier.ready(f"listening on {running.url}")
            try:
                rows = await of(running.app)
                screen.print_start(out, running, rows, screen.notes(settings, rows))
                if page:
                    await asyncio.to_thread(show_page, clients.page_url(running.url, settings.directory), browser=browser)
                async with mdns.announce(settings, *address):
                    await reloader.work(running)
            finally:
                notifier.notify_stopping(settings.drain_s and settings.drain_s + DRAIN_EXTRA_S + STOP_S)
        return 0

    return run(settings, sock, announce, on_hangup=reloader.ask, renews=True)


def _apply(app: web.Application, settings: Settings) -> None:
    from shim.main.app import apply_settings  # late: it loads the whole server

    apply_settings(app, settings)


def add_environment(files: Sequence[Path]) -> None:
    """Set the variables of these files. They override the environment, and later files override earlier ones.

    Raises EnvFileError.
    """
    for file in files:
        os.environ.update(env_file.read(file))


def tui(flags: Mapping[str, Any], url: str | None, *, session: str | None, last: bool) -> int:
    """Open OpenCode's TUI here and return its exit code. Without a `url`, it starts a server that ends with the TUI."""
    binary = clients.find_opencode()
    settings = Settings.load(flags if url else {**flags, "hostname": "127.0.0.1", "port": 0})
    secret = clients.credentials(settings)
    more = [*(["--session", session] if session else []), *(["--continue"] if last else [])]
    second = clients.generation(binary) == clients.SECOND

    async def open_on(server_url: str) -> int:
        argv = clients.attach_argv(server_url, settings.directory, binary, more, second=second)
        return await clients.run_tui(argv, secret, settings.directory)

    async def attach(running: RunningServer) -> int:
        return await open_on(running.url)

    if url is not None:
        return asyncio.run(open_on(url))
    # Only the TUI in this terminal uses this server, and it could not check a certificate for 127.0.0.1.
    settings = settings.model_copy(update={"tls_cert": None, "tls_key": None})
    sock = listen(settings.hostname, settings.port)
    with open_log(settings) as log:
        configure(settings.log_level, settings.log_format, log, secrets(settings))
        return run(settings, sock, attach)


def tui_as_opencode(options: argparse.Namespace) -> int:
    """Open OpenCode's TUI on a server of its own, as `opencode [PROJECT]` does."""
    return tui({"directory": options.project}, None, session=options.session, last=options.last)


def show_page_of(url: str, settings: Settings, *, browser: bool) -> None:
    """Show the web UI's page of the server at `url`. Raises ShimError if it serves none."""
    asyncio.run(clients.require_web_ui(url, settings))
    show_page(clients.page_url(url, settings.directory), browser=browser)


def show_page(page: str, *, browser: bool) -> None:
    """Print the page's address, and with `browser` open the page."""
    screen.line(screen.console(sys.stdout), f"web UI   {page}", "bold")
    if browser:
        clients.open_browser(page)


def secrets(settings: Settings) -> frozenset[str]:
    """Return the texts that no log may hold."""
    passwords = {secret.get_secret_value() for secret in (settings.password, settings.cluster_password) if secret is not None}
    return secrets_of(os.environ) | passwords


def open_log(settings: Settings) -> TextIO:
    """Open the log file of a server that must not write to stderr. Only the person may read it. Raises ShimError."""
    path = settings.data_dir / LOG_FILE
    try:
        settings.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        if path.exists() and path.stat().st_size > LOG_KEEP_BYTES:
            path.replace(path.with_suffix(".log.1"))
        return os.fdopen(os.open(path, os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o600), "a", encoding="utf-8")
    except OSError as error:
        raise ShimError(f"Cannot write the log {path}: {error.strerror}. Choose another --data-dir.") from error


def with_server(settings: Settings, url: str | None, job: Job) -> int:
    """Run a job on the server at `url`, on the one that runs on this data directory, or on one that starts for the job."""
    server_url = url.rstrip("/") if url else usable(settings)

    async def work(at: str) -> int:
        return await job(at)

    if server_url is not None:
        return asyncio.run(work(server_url))

    async def run_job(running: RunningServer) -> int:
        return await job(running.url + (settings.base_path or "").rstrip("/"))

    sock = listen("127.0.0.1", 0)
    configure("error", "console", sys.stderr)
    return run(settings, sock, run_job)


# --- the manager of services -----------------------------------------------------------------------------

# Talks to the service manager: takes the socket that it opened and reports that the server is ready.
#
# It speaks systemd's protocols (sd_listen_fds(3), sd_notify(3)) without its library. It removes their variables from the
# environment, so that no agent uses them.

FIRST_FD = 3
"""File descriptor of the first socket that systemd opened."""
LISTEN_NAMES = ("LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES")
NOTIFY_NAME = "NOTIFY_SOCKET"


@dataclass(frozen=True, slots=True)
class Notifier:
    """Reports the server's state to the service manager, or does nothing if `address` is empty. Never raises."""

    address: str = ""

    @classmethod
    def take(cls, environ: MutableMapping[str, str]) -> Notifier:
        """Return the notifier for the manager that the environment names, and remove its variable."""
        return cls(environ.pop(NOTIFY_NAME, ""))

    def ready(self, status: str) -> None:
        """Report that the server answers requests. Also ends a reload."""
        self._send("READY=1", f"STATUS={status}")

    def notify_reloading(self) -> None:
        """Report that a reload has begun. `ready` ends it."""
        self._send("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def notify_stopping(self, within_s: float = 0.0) -> None:
        """Report that the stop has begun, and takes `within_s` seconds if that is more than the manager waits by itself."""
        extension = [f"EXTEND_TIMEOUT_USEC={int(within_s * 1_000_000)}"] if within_s else []
        self._send("STOPPING=1", "STATUS=stopping", *extension)

    def _send(self, *lines: str) -> None:
        if not self.address:
            return
        address = f"\0{self.address[1:]}" if self.address.startswith("@") else self.address
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.setblocking(False)
            sock.sendto("\n".join(lines).encode(), address)


def inherited_socket(environ: MutableMapping[str, str], *, protected: bool) -> socket.socket | None:
    """Return the listening socket that the service manager opened for this process, or None.

    `protected` says whether a password is set. Raises ListenError for several sockets, for one that is no TCP socket, and,
    without a password, for one that other machines reach.
    """
    fds, pid, _ = (environ.pop(name, "") for name in LISTEN_NAMES)
    if not fds.isdigit() or pid != str(os.getpid()) or fds == "0":
        return None
    if fds != "1":
        raise ListenError(
            f"The service manager has opened {fds} sockets; the server needs one. Write one ListenStream= into its socket unit."
        )
    sock = socket.socket(fileno=FIRST_FD)
    os.set_inheritable(FIRST_FD, False)
    if sock.family not in (socket.AF_INET, socket.AF_INET6) or sock.type != socket.SOCK_STREAM:
        sock.close()
        raise ListenError(
            "The service manager's socket is no TCP socket: write ListenStream=127.0.0.1:4096 into its socket unit."
        )
    host = str(sock.getsockname()[0])
    if not protected and not is_loopback(host):
        sock.close()
        raise ListenError(
            f"Refused to listen on {host} without a password: every machine that reaches this address could run commands as you."
            " Set OPENCODE_SERVER_PASSWORD in the service's keys file, or ListenStream=127.0.0.1:4096 in its socket unit."
        )
    sock.setblocking(False)
    return notice_the_gone(sock)


# --- opencode serve and opencode web ---------------------------------------------------------------------

# `opencode serve` and `opencode web`: the server with the output that programs expect from OpenCode.
#
# opencode server listening on URL    first line on stdout
# {"url": URL}                        first line with `--stdio`; the end of stdin then stops the server

READ_BYTES = 65_536
"""Bytes per read from stdin. The content is dropped; only its end matters."""


def serve_as_opencode(options: argparse.Namespace, *, page: bool = False) -> int:
    """Serve until a signal, or with `--stdio` until the end of stdin. Raises ShimError if it cannot start."""
    flags = {
        "hostname": options.hostname,
        "port": options.port,
        "cors": options.cors,
        "log_level": options.log_level,
        "mdns": options.mdns,
        "mdns_domain": options.mdns_domain,
        "web_ui": True if page else None,
    }
    with bounded_output(), contextlib.ExitStack() as ends:
        settings = Settings.load(flags)
        if settings.mdns:
            mdns.require_zeroconf()
        sock = _listen_as_opencode(settings)
        address: tuple[str, int] = sock.getsockname()[:2]
        log: TextIO = sys.stderr if options.print_logs else ends.enter_context(open_log(settings))
        configure(settings.log_level, settings.log_format, log, secrets(settings))

        async def announce(running: RunningServer) -> int:
            ended = asyncio.Event()
            if options.stdio:
                sys.stdout.write(json.dumps({"url": running.url}) + "\n")
                _set_at_end_of_input(asyncio.get_running_loop(), ended)
            else:
                screen.print_listening_line(screen.console(sys.stdout), running)
            if page:
                await asyncio.to_thread(show_page, clients.page_url(running.url, settings.directory), browser=True)
            async with mdns.announce(settings, *address):
                await ended.wait()
            return 0

        return run(settings, sock, announce)


def _listen_as_opencode(settings: Settings) -> socket.socket:
    """Listen as OpenCode does: without a configured port on 4096, or on a free port if 4096 is taken."""
    protected = settings.password is not None
    try:
        return listen(settings.hostname, settings.port, protected=protected)
    except ListenError:
        if settings.sources()["port"] != "default":
            raise
        return listen(settings.hostname, 0, protected=protected)


def _set_at_end_of_input(loop: asyncio.AbstractEventLoop, ended: asyncio.Event) -> None:
    """Set the event when stdin ends. It reads in a thread, since stdin may be a file and loops cannot wait for files."""

    def read() -> None:
        with contextlib.suppress(OSError):
            while os.read(0, READ_BYTES):
                pass
        with contextlib.suppress(RuntimeError):  # the loop is closed: the server stops already
            loop.call_soon_threadsafe(ended.set)

    threading.Thread(target=read, name="end of stdin", daemon=True).start()
