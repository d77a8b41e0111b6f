"""Reloads the settings of a running server at SIGHUP and when one of their files has changed.

It applies the settings in `LIVE` and logs the names of those that need a restart. Invalid settings change nothing.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import structlog
from aiohttp import web

from shim.cli.server import RunningServer
from shim.cli.supervisor import Notifier
from shim.lib.errors import ShimError
from shim.lib.settings import LIVE, Settings, config_files

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


class Reloader:
    """Keeps the settings of one server current.

    `load` reads the settings as at the start, and `settings` are those in force. `apply` applies the live ones, and `relog`
    configures the log again.
    """

    def __init__(
        self,
        load: Callable[[], Settings],
        settings: Settings,
        *,
        apply: Callable[[web.Application, Settings], None],
        relog: Callable[[Settings], None],
        notifier: Notifier | None = None,
        check_s: float = CHECK_S,
    ) -> None:
        self.settings = settings
        self._load = load
        self._apply = apply
        self._relog = relog
        self._notifier = notifier or Notifier()
        self._check_s = check_s
        self._request = asyncio.Event()

    def ask(self) -> None:
        """Request a reload. Call it in the event loop."""
        self._request.set()

    async def work(self, running: RunningServer) -> None:
        """Reload after each request and after each change of a file, until cancelled."""
        stamps = await asyncio.to_thread(self._stamps)
        while True:
            is_requested = False
            try:
                async with asyncio.timeout(self._check_s):
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
        self._notifier.notify_reloading()
        try:
            latest = await asyncio.to_thread(self._load)
            changes = compare(self.settings, latest)
            merged = self.settings.model_copy(update={name: getattr(latest, name) for name in changes.live})
            _reload_certificate(running.tls, merged)
            self._apply(running.app, merged)
        except (ShimError, OSError, ssl.SSLError) as error:
            log.error("settings.not_reloaded", why=str(error))
            return None
        finally:
            self._notifier.ready(f"listening on {running.url}")
        self.settings = merged
        self._relog(merged)
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
