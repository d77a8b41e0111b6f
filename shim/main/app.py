"""Builds the application. With `shim.main.backend`, this is the only place that wires the parts together.

    start           store; then health answers
    right after it  agents (`shim.agents.setup`)
    first request   `shim.main.backend`: sessions, host, faces; at the start, if a turn was left or other servers share the store
    stop            hub (all streams end at once) and terminals, then sessions -> agents -> store

`app[SERVICES]` holds everything that routes use.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import structlog
from aiohttp import web

from shim.http.access import ACCESS
from shim.http.audit import FILE, Audit
from shim.http.forward import close_sockets
from shim.http.operation import SERVICES
from shim.http.pairing import NAMESPACE as PAIRING
from shim.http.services import Services, Telemetry
from shim.lib.clock import Clock, SystemClock
from shim.lib.errors import StoreError
from shim.lib.ids import Ids
from shim.lib.settings import Settings
from shim.lib.tasks import Lazy
from shim.main.choose_store import DATABASE, store_of
from shim.processes.process_family import end_owned
from shim.routes import EARLY, application, modules
from shim.store.base import TERMINALS, Store
from shim.store.ownership import Ownership
from shim.store.rows import may_be_busy
from shim.telemetry.meters import Meters
from shim.telemetry.spans import spans

if TYPE_CHECKING:
    from shim.agents.directory import AgentDirectory
    from shim.main.backend import Backend, Start
    from shim.processes.inprocess import Program
    from shim.routes.web_ui import WebUI
    from universal.agent_spec import AgentSpec

__all__ = ["AGENTS", "ANNOUNCE", "BACKEND", "DATABASE", "SERVICES", "apply_settings", "build_app", "drain", "find_agents"]

LOOK_S = 1.0
"""Seconds between two looks for other servers, while there is no backend."""
ANNOUNCE: web.AppKey[Callable[[str], None]] = web.AppKey("announce")
"""Publishes the URL of this server to other servers on the same store, and to the user's programs."""
AGENTS: web.AppKey[Lazy[AgentDirectory]] = web.AppKey("agents", Lazy)
"""The agents. A server looks for them as soon as it answers health (`find_agents`)."""
BACKEND: web.AppKey[Lazy[Backend]] = web.AppKey("backend", Lazy)
"""The parts that the first request starts."""

log = structlog.get_logger()


def owner_of(data_dir: Path) -> str:
    """The name that marks agents of servers on this data directory, so that a later server finds them after a kill."""
    return "data-" + hashlib.blake2b(str(data_dir.resolve()).encode(), digest_size=8).hexdigest()


class _Leftovers:
    """Processes that dead servers on the same data may have left. In: `data`, their common name; empty without data."""

    def __init__(self, data: str, ownership: Ownership) -> None:
        self._data = data
        self._ownership = ownership

    @property
    def owner(self) -> str:
        """The name that marks the processes of this server."""
        return self._name(self._ownership.server_id) if self._data else ""

    def names(self) -> list[str]:
        """The names of processes that dead servers may have left. Servers of earlier versions all used the name `data`."""
        return [self._data, *map(self._name, self._ownership.dead())] if self._data else []

    async def forget(self) -> None:
        """Drop the records of dead servers, after the processes of `names` were ended."""
        for server_id in self._ownership.dead():
            await asyncio.to_thread(self._ownership.forget, server_id)

    async def clean_up(self, server_id: str) -> None:
        """End the processes of a server that just died."""
        if self._data and (count := await asyncio.to_thread(end_owned, self._name(server_id))):
            log.warning("agent.orphans_ended", count=count, server=server_id)
        await asyncio.to_thread(self._ownership.forget, server_id)

    def _name(self, server_id: str) -> str:
        return f"{self._data}-{server_id}"


async def _needs_backend(store: Store) -> bool:
    """Whether the backend must start before the first request: what was left running, or other servers."""
    ownership = store.ownership
    if ownership.sessions_move or ownership.is_shared():
        return True
    return any(map(may_be_busy, await store.sessions())) or bool(await store.values(TERMINALS))


async def _wait_for_servers(ownership: Ownership) -> None:
    """Return when another server shares the store: this one ends the turns that it leaves when it dies."""
    while not ownership.is_shared():
        await asyncio.sleep(LOOK_S)
        try:
            await ownership.look()
        except StoreError as error:
            log.error("other_servers.look_failed", error=str(error))


def _connection_closer(lazy: Lazy[Backend]) -> Callable[[web.Request, web.StreamResponse], Awaitable[None]]:
    """Close the connections of a server that is about to stop: a client that keeps one does not reach another server."""

    async def close_connection(_request: web.Request, response: web.StreamResponse) -> None:
        if (backend := lazy.value) is not None and backend.drain.is_active:
            response.force_close()

    return close_connection


def _web_ui(settings: Settings, environ: Mapping[str, str]) -> WebUI | None:
    """The web UI's files, or None if the settings do not ask for them."""
    if not settings.web_ui:
        return None
    from shim.routes.web_ui import WebUI  # imported here, because most servers have none

    return WebUI(settings.web_ui if isinstance(settings.web_ui, str) else None, environ=environ)


def build_app(
    settings: Settings,
    *,
    store: Store | None = None,
    environ: Mapping[str, str] | None = None,
    clock: Clock | None = None,
    specs: Mapping[str, AgentSpec] | None = None,
    programs: Mapping[str, Program] | None = None,
) -> web.Application:
    """Build an application that is ready to run. It opens and starts nothing before aiohttp's startup.

    In, all for tests: `store` replaces the store of the settings, `environ` this process's environment, `clock` the
    system clock, `specs` the registry of agents, and `programs` adds agents that run in this process.
    """
    environment = os.environ if environ is None else environ
    clock = clock or SystemClock()
    ids = Ids(clock)
    actual_store = store if store is not None else store_of(settings)
    leftovers = _Leftovers(owner_of(settings.data_dir) if store is None else "", actual_store.ownership)
    telemetry = Telemetry(Meters(clock), spans(on=settings.otel))
    services = Services(settings, clock, ids, actual_store, telemetry)
    waiting: asyncio.Task[None] | None = None

    async def start_agents() -> AgentDirectory:
        directory_of = await asyncio.to_thread(_import_agents)
        directory = directory_of(
            services.settings,
            clock=clock,
            ids=ids,
            store=actual_store,
            environ=environment,
            owner=leftovers.owner,
            orphans=leftovers.names,
            traceparent=lambda: telemetry.spans.traceparent(structlog.contextvars.get_contextvars().get("session_id", "")),
            specs=specs,
            programs=programs,
        )
        try:
            await directory.start()
        except BaseException:  # a cancelled start leaves nothing behind
            await directory.close()
            raise
        await leftovers.forget()
        services.agents = directory
        return directory

    async def start_backend() -> Backend:
        if waiting is not None:
            waiting.cancel()  # the sessions look for other servers themselves
        await agents.get()
        start = await asyncio.to_thread(_import_backend)
        return await start(app, services, environment, leftovers.owner, leftovers.clean_up)

    async def load_modules() -> tuple[ModuleType, ...]:
        await backend.get()
        return await asyncio.to_thread(modules)

    async def join_others() -> None:
        await _wait_for_servers(actual_store.ownership)
        await backend.get()

    agents, backend = Lazy(start_agents), Lazy(start_backend)
    web_ui = _web_ui(settings, environment)
    app = application(services, load_modules, early=EARLY, unknown=web_ui.handle if web_ui is not None else None)

    async def life(_app: web.Application) -> AsyncIterator[None]:
        nonlocal waiting
        # The stack closes the parts in reverse order, each of them even if another one fails.
        async with AsyncExitStack() as ends:
            ends.callback(telemetry.spans.close)
            await actual_store.open()
            ends.push_async_callback(actual_store.close)
            services.audit = Audit(settings.data_dir / FILE, services.clock)
            ends.push_async_callback(services.audit.close)
            app[ACCESS].pairing.restore(await actual_store.values(PAIRING), partial(actual_store.set_value, PAIRING))
            if web_ui is not None:
                ends.push_async_callback(web_ui.close)
            ends.push_async_callback(_close, agents)
            ends.push_async_callback(_close, backend)
            if await _needs_backend(actual_store):
                await backend.get()
            else:
                waiting = asyncio.create_task(join_others(), name="wait for other servers")
                ends.callback(waiting.cancel)
            if web_ui is not None:
                await web_ui.start()
            yield

    async def end_host(_app: web.Application) -> None:
        if backend.value is not None:
            await backend.value.end_host()

    def announce(url: str) -> None:
        services.url = url
        actual_store.announce(url)

    app[ANNOUNCE] = announce
    app[AGENTS], app[BACKEND] = agents, backend
    app.cleanup_ctx.append(life)
    app.on_shutdown.extend((end_host, close_sockets))
    app.on_response_prepare.append(_connection_closer(backend))
    return app


async def _close(part: Lazy[AgentDirectory] | Lazy[Backend]) -> None:
    await part.cancel()
    if part.value is not None:
        await part.value.close()


def _import_agents() -> Callable[..., AgentDirectory]:
    """Import what knows the agents. Blocking."""
    from shim.agents.setup import directory_of

    return directory_of


def _import_backend() -> Start:
    """Import the backend. Blocking: it takes longer than all that a start imports of ours."""
    from shim.main.backend import start

    return start


async def find_agents(app: web.Application) -> AgentDirectory:
    """Look for the agents of a running application, if nobody has. Raises AgentNotFound for an unknown `default_agent`."""
    return await app[AGENTS].get()


async def drain(app: web.Application, seconds: float, stop_listening: Callable[[], Awaitable[None]]) -> None:
    """End the work of this server before it stops, if it has any (`shim.sessions.index.drain`)."""
    if (lazy := app.get(BACKEND)) is not None and (backend := lazy.value) is not None:
        await backend.drain.run(seconds, stop_listening)


def leave_agents(app: web.Application) -> None:
    """Let agents at work and terminals go on when this server stops, as far as the next one can take them up."""
    backend = app[BACKEND].value if BACKEND in app else None
    if backend is not None and (tapes := backend.services.sessions.deps.tapes) is not None:
        tapes.leaves = backend.services.terminals.leaves = True


def apply_settings(app: web.Application, settings: Settings) -> None:
    """Apply the live settings (`shim.lib.settings.LIVE`) to a running application. Raises ShimError, and then changes nothing.

    In: the current settings, with new values of live settings only.
    """
    if (agents := app[AGENTS].value) is not None:
        agents.set_default(settings.default_agent)
    app[SERVICES].settings = settings
    if (backend := app[BACKEND].value) is not None:
        backend.apply(settings)
