"""Routes are loaded by the first request that needs them, once, and are then as if they had always been there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from aiohttp import web

from shim.faces.opencode1 import routes as opencode1
from shim.lib.errors import StoreError
from shim.lib.settings import Settings
from shim.main.app import AGENTS, BACKEND, SERVICES, apply_settings, build_app, drain, find_agents
from shim.routes import EARLY, application, modules
from shim.store.memory import MemoryStore
from shim.store.ownership import ClaimedSession, Look
from shim.store.rows import SessionRow
from shim.store.servers import ServerRef
from tests.fakes.agents_directory import FakeAgents, claude
from tests.http.conftest import services_for
from tests.support.api import ApiClient
from tests.support.live import live

START_S = 30

Loads = list[tuple[ModuleType, ...]]


@pytest.fixture
async def later(tmp_path: Path) -> AsyncIterator[tuple[ApiClient, Loads]]:
    """A server below `/below` too, and what it has loaded."""
    services, _ = services_for(tmp_path, tmp_path, FakeAgents(claude()), tmp_path / "data")
    services.settings = Settings(directory=tmp_path, data_dir=tmp_path / "data", base_path="/below")
    loads: Loads = []

    async def load() -> tuple[ModuleType, ...]:
        loads.append(opencode1.MODULES)
        return opencode1.MODULES

    await services.store.open()
    async with ApiClient(application(services, load, early=EARLY)) as client:
        yield client, loads
        services.hub.close()
    await services.store.close()


async def test_health_loads_nothing(later: tuple[ApiClient, Loads]) -> None:
    client, loads = later
    assert (await client.get("/global/health", status=200)).body["healthy"] is True
    assert not loads


async def test_the_first_other_request_loads_all_once(later: tuple[ApiClient, Loads]) -> None:
    client, loads = later
    for path in ("/path", "/project", "/below/path", "/below/global/health", "/agent"):
        async with client.raw.get(path) as answer:
            assert answer.status == 200, path
    assert len(loads) == 1


async def test_a_wrong_method_and_an_unknown_path(later: tuple[ApiClient, Loads]) -> None:
    client, _ = later
    for path in ("/global/health", "/path", "/below/path"):
        async with client.raw.delete(path) as answer:
            assert (answer.status, answer.headers["Allow"]) == (405, "GET, HEAD"), path
    for path in ("/nosuch", "/below/nosuch"):
        async with client.raw.get(path) as answer:
            assert answer.status == 404, path


def test_early_modules_are_among_all() -> None:
    assert set(EARLY) <= set(modules())


# --- the whole server ---------------------------------------------------------------------------------


class SharedStore(MemoryStore):
    """A store on which another server is seen at the second look."""

    def __init__(self) -> None:
        super().__init__()
        self.looks = 0
        self.joined = asyncio.Event()

    @property
    def ownership(self) -> Any:
        return self

    server_id = ""
    peers = None
    sessions_move = False

    def is_shared(self) -> bool:
        return self.looks > 1

    async def look(self) -> Look:
        self.looks += 1
        return Look()

    async def owners(self) -> dict[str, ServerRef]:
        self.joined.set()
        return {}

    async def claim(self, session_id: str) -> ClaimedSession:
        return ClaimedSession(None)

    def dead(self) -> tuple[str, ...]:
        return ()


@asynccontextmanager
async def whole_server(
    tmp_path: Path, store: MemoryStore | None = None, **settings: Any
) -> AsyncIterator[tuple[ApiClient, web.Application]]:
    """The whole server, of which nothing was asked."""
    chosen = Settings(directory=tmp_path, data_dir=tmp_path / "data", **settings)
    app = build_app(chosen, store=store or MemoryStore(), environ={"PATH": "", "HOME": str(tmp_path)})
    async with ApiClient(app) as client:
        yield client, app


async def test_health_starts_no_backend_and_the_next_request_does(tmp_path: Path) -> None:
    async with whole_server(tmp_path) as (client, app):
        for path in ("/health", "/global/health"):
            assert (await client.get(path, status=200)).body["healthy"] is True
        assert (app[AGENTS].value, app[BACKEND].value) == (None, None)
        assert (await client.get("/session", status=200)).body == []
        assert app[AGENTS].value is await find_agents(app)
        assert app[BACKEND].value is not None


async def test_requests_that_come_together_start_the_backend_once(tmp_path: Path) -> None:
    async with whole_server(tmp_path) as (client, app):
        answers = await asyncio.gather(*(client.get("/session", status=200) for _ in range(5)))
        assert [answer.body for answer in answers] == [[]] * 5
        backend = app[BACKEND].value
        assert backend is not None
        assert backend.services is app[SERVICES]


async def test_a_turn_that_was_left_running_is_ended_before_the_server_is_healthy(tmp_path: Path) -> None:
    """Its row says so: as a server leaves it that is killed."""
    store = MemoryStore()
    async with live(tmp_path, store=store) as server:
        session = await server.session()
    await store.open()
    [row] = await store.sessions()
    store.save_session(row._replace(data={**row.data, "busy": True}))
    await store.close()
    async with whole_server(tmp_path, store) as (_, app):
        assert app[BACKEND].value is not None
        assert [row.data["busy"] for row in await store.sessions()] == [False], session


async def test_a_server_without_a_backend_joins_another_one_that_comes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends the turns that the other one leaves, also if nobody asks it for anything."""
    monkeypatch.setattr("shim.main.app.LOOK_S", 0)
    store = SharedStore()
    async with whole_server(tmp_path, store) as (_, app), asyncio.timeout(START_S):
        await store.joined.wait()
        assert await app[BACKEND].get() is app[BACKEND].value


async def test_settings_that_are_reloaded_before_the_first_request_hold(tmp_path: Path) -> None:
    async with whole_server(tmp_path) as (client, app):
        apply_settings(app, app[SERVICES].settings.model_copy(update={"max_sessions": 1}))
        await client.get("/session", status=200)
        assert app[SERVICES].sessions.deps.settings.max_sessions == 1


async def test_a_drain_before_the_first_request_has_nothing_to_do(tmp_path: Path) -> None:
    async def stop_listening() -> None:
        raise AssertionError("nothing is to be waited for")

    async with whole_server(tmp_path) as (_, app):
        await drain(app, 10, stop_listening)
        assert app[BACKEND].value is None


async def test_a_backend_that_does_not_start_fails_the_request_and_the_next_one_tries_again(tmp_path: Path) -> None:
    class FailingStore(MemoryStore):
        reads = 0

        async def sessions(self) -> list[SessionRow]:
            self.reads += 1
            if self.reads == 2:  # the first one is that of the start
                raise StoreError("The disk is gone.")
            return await super().sessions()

    async with whole_server(tmp_path, FailingStore()) as (client, _):
        async with client.raw.get("/session") as answer:
            assert answer.status == 500
            assert "The disk is gone." in await answer.text()
        assert (await client.get("/session", status=200)).body == []
