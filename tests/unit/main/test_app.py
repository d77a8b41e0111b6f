"""What a start loads. Each module and each dataclass costs every start, and memory at rest, a little."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

START_S = 30
LISTED = Path(__file__).with_name("start_modules.txt")
"""The modules of a start as they were when somebody last looked at them all, one a line."""
MODULES = 162
"""Our modules that a start may load. What only requests need belongs below `shim.main.backend` (docs/adr/0021)."""
DATACLASSES = 130
"""Dataclasses in them. Python compiles each at every start, which takes 0.35 ms."""

PROGRAM = """
import asyncio, dataclasses, json, sys
from pathlib import Path
from aiohttp import ClientSession, web
from shim.cli.imports import quick_imports
with quick_imports():
    from shim.main.app import build_app, find_agents
    from shim.cli import commands, serve_command
from shim.lib.settings import Settings

async def main(folder):
    app = build_app(Settings(directory=folder, data_dir=folder / "data"), environ={"PATH": "", "HOME": str(folder)})
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        async with ClientSession() as client:
            answer = await client.get("http://127.0.0.1:%d/global/health" % runner.addresses[0][1])
            assert answer.status == 200
        await (await find_agents(app)).settle()
        ours = {name: module for name, module in sys.modules.items() if name.split(".")[0] in ("shim", "universal")}
        made = {name: sum(dataclasses.is_dataclass(value) and value.__module__ == name for value in vars(module).values())
                for name, module in ours.items()}
    finally:
        await runner.cleanup()
    print(json.dumps({"ours": made, "all": sorted(sys.modules)}))

asyncio.run(main(Path(sys.argv[1])))
"""


@pytest.fixture(scope="module")
def start_modules(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Our modules that a server has loaded that is healthy and has asked its built-in agent, with their dataclasses."""
    command = [sys.executable, "-c", PROGRAM, str(tmp_path_factory.mktemp("start"))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=START_S, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def newcomers(modules: dict[str, int]) -> str:
    """What is new since the list was written, to be named when a limit breaks."""
    new = sorted(modules.keys() - LISTED.read_text().split())
    return "new in a start: " + ", ".join(f"{name} ({modules[name]} dataclasses)" for name in new)


def test_a_start_loads_few_modules(start_modules: dict[str, Any]) -> None:
    assert len(start_modules["ours"]) <= MODULES, newcomers(start_modules["ours"])


def test_a_start_makes_few_dataclasses(start_modules: dict[str, Any]) -> None:
    assert sum(start_modules["ours"].values()) <= DATACLASSES, newcomers(start_modules["ours"])


def test_a_start_loads_no_sessions_and_no_faces(start_modules: dict[str, Any]) -> None:
    needed_late = ("shim.main.backend", "shim.sessions", "shim.stream", "shim.inspector", "universal.session")
    assert [name for name in start_modules["ours"] if name.startswith(needed_late)] == []
    assert [name for name in start_modules["ours"] if ".faces." in name and name.endswith((".render", ".read", ".routes"))] == []


@pytest.mark.parametrize("library", ["rich", "nats", "prometheus_client", "opentelemetry", "zeroconf"])
def test_a_start_loads_no_library_of_an_option(start_modules: dict[str, Any], library: str) -> None:
    assert library not in start_modules["all"]


def test_the_list_of_a_start_names_what_is_loaded(start_modules: dict[str, Any]) -> None:
    """One that is far from the truth would name no newcomers. The failure shows what to write into it."""
    current = start_modules["ours"].keys()
    assert len(current ^ set(LISTED.read_text().split())) < MODULES // 10, "\n".join(sorted(current))
