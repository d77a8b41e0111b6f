"""The application: the only place that wires things together.

    store -> agents -> sessions     started in this order
    hub (streams end at once), then sessions -> agents -> store    stopped in this one

`app[SERVICES]` holds everything that routes use.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from aiohttp import web

from shim.agents.directory import AgentDirectory
from shim.clock import SystemClock
from shim.host.opencode_config import ConfigFiles
from shim.host.projects import Projects
from shim.http.application import application
from shim.http.operation import SERVICES
from shim.ids import Ids
from shim.routes import opencode1
from shim.routes.web_ui import WebUI
from shim.services import Services
from shim.sessions.deps import SessionDeps
from shim.sessions.manager import SessionManager
from shim.sessions.rules import Rule, from_config
from shim.settings import Settings
from shim.sse.hub import Hub
from shim.store.base import Store
from shim.store.sqlite import SqliteStore
from universal.agents.acp_specs import own_spec
from universal.codec import AgentSpec
from universal.registry import agents as known_agents

__all__ = ["DATABASE", "SERVICES", "build_app"]

DATABASE = "opencode-shim.db"


def owner_of(data_dir: Path) -> str:
    """The name under which agents of the server on this data directory can be found, should it be killed."""
    return "data-" + hashlib.blake2b(str(data_dir.resolve()).encode(), digest_size=8).hexdigest()


def agents_of(settings: Settings) -> dict[str, AgentSpec]:
    """The registry and the person's own agents, which stand before the last, the mock. A known name is replaced in its place."""
    own = {
        name: own_spec(name, agent.command, agent.title, {key: value.get_secret_value() for key, value in agent.env.items()})
        for name, agent in settings.agents.items()
    }
    known = known_agents()
    last = dict([known.popitem()]) if known else {}
    return {**known, **own, **{name: spec for name, spec in last.items() if name not in own}}


def build_app(settings: Settings, *, store: Store | None = None, environ: Mapping[str, str] | None = None) -> web.Application:
    """An application that is ready to run; nothing is opened or started before aiohttp starts it up.

    In: `store` replaces the SQLite one of the data directory, `environ` this process's environment (tests).
    """
    environment = os.environ if environ is None else environ
    clock = SystemClock()
    ids = Ids(clock)
    hub = Hub(clock, ids)
    kept = store if store is not None else SqliteStore(settings.data_dir / DATABASE)
    config = ConfigFiles(Path(environment.get("HOME") or Path.home()), environment)
    agents = AgentDirectory(
        agents_of(settings),
        clock=clock,
        ids=ids,
        store=kept,
        default_agent=settings.default_agent,
        environ=environment,
        delay_factor=settings.mock_delay_factor,
        record_dir=settings.record_dir,
        owner=owner_of(settings.data_dir) if store is None else "",
    )

    def config_rules(directory: str) -> list[Rule]:
        return from_config(config.load(directory).permission)

    sessions = SessionManager(
        SessionDeps(clock, ids, kept, hub, agents, config_rules, settings.abort_timeout_s, settings.idle_reap_s)
    )
    services = Services(
        settings=settings,
        clock=clock,
        ids=ids,
        hub=hub,
        store=kept,
        sessions=sessions,
        agents=agents,
        projects=Projects(kept, clock),
        config=config,
    )
    web_ui = (
        WebUI(settings.web_ui if isinstance(settings.web_ui, str) else None, environ=environment) if settings.web_ui else None
    )
    app = application(services, opencode1.MODULES, unknown=web_ui.handle if web_ui is not None else None)

    async def life(_app: web.Application) -> AsyncIterator[None]:
        await kept.open()
        try:
            await agents.start()
            await sessions.start()
            if web_ui is not None:
                await web_ui.start()
            yield
        finally:
            if web_ui is not None:
                await web_ui.close()
            await sessions.close()
            await agents.close()
            await kept.close()

    async def end_streams(_app: web.Application) -> None:
        hub.close()

    app.cleanup_ctx.append(life)
    app.on_shutdown.append(end_streams)
    return app
