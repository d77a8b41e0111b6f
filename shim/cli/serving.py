"""`serve` and `web` once their flags are read. Imports no rich where there is no terminal."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from typing import Any

from shim.bounded_output import bounded_output
from shim.cli import clients, screen
from shim.cli.server import Running, listen, need_directory_inside, run, tls_of
from shim.logging import configure
from shim.redaction import secrets_of
from shim.settings import Settings


def serve(flags: Mapping[str, Any], *, page: bool = False, browser: bool = False) -> int:
    """Serve until a signal; `page`: with the web UI. The exit code. Raises ShimError if it cannot start."""
    with bounded_output():
        return _serve(flags, page=page, browser=browser)


def _serve(flags: Mapping[str, Any], *, page: bool, browser: bool) -> int:
    settings = Settings.load(flags)
    if page and settings.web_ui is False:
        settings = Settings.load({**flags, "web_ui": True})
    need_directory_inside(settings)
    tls_of(settings)
    sock = listen(settings.hostname, settings.port, protected=settings.password is not None)
    configure(settings.log_level, settings.log_format, sys.stderr, secrets(settings))

    async def announce(running: Running) -> int:
        from shim.cli.agents import of  # late: it loads the whole server

        out = screen.console(sys.stdout)
        screen.listening(out, running)
        rows = await of(running.app)
        screen.started(out, running, rows, screen.notes(settings, rows))
        if page:
            await asyncio.to_thread(show_page, clients.page_url(running.url, settings.directory), browser=browser)
        await asyncio.Event().wait()
        return 0

    return run(settings, sock, announce)


def show_page(page: str, *, browser: bool) -> None:
    """The page's address, and the page itself if there is to be a browser."""
    screen.line(screen.console(sys.stdout), f"web UI   {page}", "bold")
    if browser:
        clients.open_browser(page)


def secrets(settings: Settings) -> frozenset[str]:
    """What no log may hold."""
    own = {settings.password.get_secret_value()} if settings.password is not None else set[str]()
    return secrets_of(os.environ) | own
