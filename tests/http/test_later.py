"""Routes are loaded by the first request that needs them, once, and are then as if they had always been there."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from shim.faces.opencode1 import routes as opencode1
from shim.routes import EARLY, application, modules
from shim.settings import Settings
from tests.fakes.agents_directory import FakeAgents, claude
from tests.http.conftest import services_for
from tests.support.api import ApiClient

START_S = 30

Loads = list[tuple[ModuleType, ...]]


@pytest.fixture
async def later(tmp_path: Path) -> AsyncIterator[tuple[ApiClient, Loads]]:
    """A server below `/below` too, and what it has loaded."""
    services, _ = services_for(tmp_path, tmp_path, FakeAgents(claude()), tmp_path / "data")
    services = replace(services, settings=Settings(directory=tmp_path, data_dir=tmp_path / "data", base_path="/below"))
    loads: Loads = []

    def load() -> tuple[ModuleType, ...]:
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


def test_a_start_imports_no_other_handler() -> None:
    """In a process of its own: here others have imported them."""
    code = "import sys, shim.app; print(*sorted(name for name in sys.modules if name.startswith('shim.') and '.routes.' in name))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=START_S, check=True)
    assert done.stdout.split() == ["shim.routes.web_ui"]
