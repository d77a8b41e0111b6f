"""`opencode serve` and `opencode web`: the server with the output that programs expect from OpenCode.

opencode server listening on URL    first line on stdout
{"url": URL}                        first line with `--stdio`; the end of stdin then stops the server
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import socket
import sys
import threading
from typing import TextIO

from shim.cli import clients, mdns, screen, serve_command
from shim.cli.server import ListenError, RunningServer, listen, run
from shim.lib.bounded_output import bounded_output
from shim.lib.logging import configure
from shim.lib.settings import Settings

READ_BYTES = 65_536
"""Bytes per read from stdin. The content is dropped; only its end matters."""


def serve(options: argparse.Namespace, *, page: bool = False) -> int:
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
        sock = _listen(settings)
        address: tuple[str, int] = sock.getsockname()[:2]
        log: TextIO = sys.stderr if options.print_logs else ends.enter_context(serve_command.open_log(settings))
        configure(settings.log_level, settings.log_format, log, serve_command.secrets(settings))

        async def announce(running: RunningServer) -> int:
            ended = asyncio.Event()
            if options.stdio:
                sys.stdout.write(json.dumps({"url": running.url}) + "\n")
                _set_at_end_of_input(asyncio.get_running_loop(), ended)
            else:
                screen.print_listening_line(screen.console(sys.stdout), running)
            if page:
                await asyncio.to_thread(serve_command.show_page, clients.page_url(running.url, settings.directory), browser=True)
            async with mdns.announce(settings, *address):
                await ended.wait()
            return 0

        return run(settings, sock, announce)


def _listen(settings: Settings) -> socket.socket:
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
