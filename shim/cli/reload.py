"""The settings of a running server, read again: at SIGHUP, and when a file that they came from has changed.

What is in `LIVE` is taken over; what needs a restart is named in the log; settings that cannot be used change nothing.
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
from shim.errors import ShimError
from shim.settings import LIVE, Settings, config_files

log = structlog.get_logger(__name__)

CHECK_S = 2.0
"""Between two looks at the files."""

Stamp = tuple[int, int] | None
"""Time and size of a file; None if it is not there."""


@dataclass(frozen=True, slots=True)
class Changes:
    """Names of settings that differ: those that a running server takes over, and those that need a restart."""

    live: tuple[str, ...]
    restart: tuple[str, ...]


def compare(current: Settings, wanted: Settings) -> Changes:
    """What differs."""
    names = [name for name in Settings.model_fields if getattr(current, name) != getattr(wanted, name)]
    return Changes(tuple(n for n in names if n in LIVE), tuple(n for n in names if n not in LIVE))


class Reloader:
    """Keeps the settings of one server current. In: `load`, which reads them as at the start; `settings`, those in force.

    `apply` takes over the live ones, `relog` sets up the log anew.
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
        self._asked = asyncio.Event()

    def ask(self) -> None:
        """A reload is wanted; called in the event loop."""
        self._asked.set()

    async def work(self, running: RunningServer) -> None:
        """Reload whenever it is asked for or a file has changed, until cancelled."""
        stamps = await asyncio.to_thread(self._stamps)
        while True:
            asked = False
            try:
                async with asyncio.timeout(self._check_s):
                    asked = await self._asked.wait()
            except TimeoutError:
                pass
            self._asked.clear()
            latest = await asyncio.to_thread(self._stamps)
            if asked or latest != stamps:
                await self.reload(running)
                stamps = await asyncio.to_thread(self._stamps)

    async def reload(self, running: RunningServer) -> Changes | None:
        """Read the settings again and take over what is live. None if they cannot be used: the log says why."""
        self._notifier.notify_reloading()
        try:
            wanted = await asyncio.to_thread(self._load)
            changes = compare(self.settings, wanted)
            merged = self.settings.model_copy(update={name: getattr(wanted, name) for name in changes.live})
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
    """Connections from now on get the certificate that is in the files now."""
    if tls is not None and settings.tls_cert is not None:
        tls.load_cert_chain(settings.tls_cert, settings.tls_key)


def _stamp(path: Path) -> Stamp:
    try:
        found = os.stat(path)  # noqa: PTH116 - follows links, as renewed certificates are
    except OSError:
        return None
    return (found.st_mtime_ns, found.st_size)
