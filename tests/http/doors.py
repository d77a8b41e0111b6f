"""Fixtures for the tests of access: a server with a password, and the credentials for it."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from aiohttp import web
from pydantic import SecretStr

from shim.faces.opencode1 import routes as opencode1
from shim.http.access import ACCESS, Throttle
from shim.http.services import Services
from shim.lib.settings import Settings
from shim.routes import application
from tests.fakes.agents_directory import FakeAgents, claude
from tests.support.api import ApiClient

PASSWORD = "pä:ss wörd"
USER = "opencode"
TOKEN = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
GOOD = f"Basic {TOKEN}"
OWN_PAGE = "http://localhost:5173"

Start = Callable[..., Any]


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Start]:
    """Starts a server with these settings; a client that shows nothing by itself."""
    opened: list[ApiClient] = []
    started: list[Services] = []

    async def start_server(
        *,
        extend: Callable[[web.Application], None] | None = None,
        modules: Sequence[ModuleType] = opencode1.MODULES,
        **more: Any,
    ) -> ApiClient:
        from tests.http.conftest import services_for  # late: that module imports this one

        services, _ = services_for(tmp_path, tmp_path, FakeAgents(claude()), tmp_path / "data")
        services.settings = Settings(directory=tmp_path, data_dir=tmp_path / "data", **more)
        await services.store.open()
        started.append(services)
        app = application(services, modules)
        if extend is not None:
            extend(app)
        client = await ApiClient(app).__aenter__()
        opened.append(client)
        return client

    yield start_server
    for services in started:
        services.hub.close()
        await services.terminals.close()
    for client in opened:
        await client.__aexit__()


@pytest.fixture
async def client_with_password(start: Start) -> ApiClient:
    return await start(password=SecretStr(PASSWORD))


async def status(client: ApiClient, method: str, path: str, **headers: str) -> int:
    async with client.raw.request(
        method, path, headers={name.replace("_", "-"): value for name, value in headers.items()}
    ) as answer:
        return answer.status


def base64_text(text: str, encoding: str = "utf-8") -> str:
    return base64.b64encode(text.encode(encoding)).decode()


def with_throttle(throttle: Throttle) -> Callable[[web.Application], None]:
    def change(app: web.Application) -> None:
        app[ACCESS] = replace(app[ACCESS], throttle=throttle)

    return change
