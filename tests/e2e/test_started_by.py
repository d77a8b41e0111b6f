"""Programs that start `opencode` themselves find our alias on PATH: the real packages where npm or PyPI has them.

T3 Code, CodeNomad and kimaki are on neither registry: what they call and read is played here as their source has it.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shim.cli import alias, screen

from .support.bench import nightly
from .support.children import processes_with, wait_for
from .support.places import MODULES, Place, tool

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

PACKAGES = MODULES.parent / "python"
RUN_S = 120
HELLO = "hello from Python"
PROMPT = f"echo {HELLO}"
LISTENING = re.compile(r"opencode server listening on http://.+:(\d+)", re.IGNORECASE)
LEAST = (1, 14, 19)
"""The oldest version that T3 Code takes."""
KILL_S = 2.0
"""After so long CodeNomad kills a server that was told to stop."""


@pytest.fixture
def place() -> Iterator[Place]:
    """A home whose `~/bin` has the aliases; nothing that was started may stay."""
    made = Place.make()
    with made.log("alias").open("w") as out:
        alias.install(made.home / "bin", ("opencode", "opencode2"), screen.console(out))
    try:
        yield made
        wait_for(lambda: not processes_with(str(made.root)), 10, lambda: f"left: {processes_with(str(made.root))}")
    finally:
        for pid in processes_with(str(made.root)):
            os.kill(pid, signal.SIGKILL)
        made.remove()


def environment(place: Place, **more: str) -> dict[str, str]:
    env = place.env(SHIM_DEFAULT_AGENT="mock", **more)
    return {**env, "PATH": f"{place.home / 'bin'}{os.pathsep}{env['PATH']}"}


def run_command(place: Place, *argv: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        argv,
        cwd=place.project,
        env=environment(place, **more),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=False,
    )


def starter(place: Place, name: str, packages: str | None = None) -> dict[str, Any]:
    """What a program of `starters.py` has seen."""
    more = {"PYTHONPATH": str(PACKAGES / packages)} if packages else {}
    done = run_command(place, sys.executable, str(Path(__file__).with_name("starters.py")), name, str(place.project), **more)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("version", ["v1", *nightly("v2")])
def test_the_js_sdk_starts_it_within_its_five_seconds(place: Place, version: str) -> None:
    done = run_command(place, tool("node"), str(Path(__file__).with_name("starters.mjs")), str(MODULES), version, "0")
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert (seen["username"], seen["text"]) == ("sdk", "hello from the SDK")


def test_opencode_py(place: Place) -> None:
    seen = starter(place, "opencode-py", "opencode-py")
    assert seen == {"username": "embedder", "text": HELLO, "streamed": HELLO}


@pytest.mark.nightly
def test_opencode_runtime(place: Place) -> None:
    seen = starter(place, "opencode-runtime", "opencode-runtime")
    assert seen == {"told": True, "stored": HELLO, "idle": "session.idle", "username": "embedder"}


def test_the_typed_python_sdk_starts_it_by_stdio(place: Place) -> None:
    seen = starter(place, "opencode-python-sdk")
    assert seen == {"version": "2.1.2", "outcome": "succeeded", "text": HELLO, "exit": 0}


@pytest.mark.nightly
def test_workspace_bridge_starts_it_and_says_that_its_plugin_is_missing(place: Place) -> None:
    """It lets no conversation begin without a JavaScript plugin of its own in OpenCode; this server loads none."""
    seen = starter(place, "workspace-bridge", "workspace-bridge")
    assert (seen["version"], seen["exit"]) == ("2.1.2", 0)
    assert "mock/mock" in seen["models"]
    assert "plugin is unavailable" in seen["refusal"]


@pytest.mark.nightly
def test_opencode_fleet_works_by_the_command_api(place: Place) -> None:
    def fleet(*arguments: str) -> subprocess.CompletedProcess[str]:
        argv = (sys.executable, "-m", "fleet.cli", *arguments)
        done = run_command(place, *argv, PYTHONPATH=str(PACKAGES / "opencode-fleet"))
        assert done.returncode == 0, done.stderr + done.stdout
        return done

    done = run_command(place, str(place.home / "bin" / "opencode"), "api", "get", "/api/info")
    pid = int(done.stderr.split()[-1])
    try:
        assert "[ok  ] opencode service: reachable" in fleet("doctor").stdout
        assert fleet("spawn", "auditor", "--headless").stdout.startswith("auditor\theadless\tses_")
        assert fleet("ask", "auditor", PROMPT, "--poll", "0.2").stdout == f"{HELLO}\n"
        listed = json.loads(fleet("list", "--json").stdout)
        assert "idle" in str(listed)
        fleet("kill", "auditor")
    finally:
        os.kill(pid, signal.SIGTERM)


@pytest.mark.nightly
def test_the_contract_of_t3_code(place: Place) -> None:
    """Its lists come from the command line, its sessions from `serve` and the SDK (its `opencodeRuntime.ts`)."""
    program = str(place.home / "bin" / "opencode")
    version = run_command(place, program, "--version").stdout.strip()
    assert tuple(map(int, version.split("."))) >= LEAST
    models = run_command(place, program, "models", "--verbose").stdout.split("\n")
    assert re.fullmatch(r"(\S+/\S+)\s*", models[0])
    assert json.loads("\n".join(models[1:]))["id"]
    agents = run_command(place, program, "agent", "list").stdout.split("\n")
    heads = [line for line in agents if re.fullmatch(r"(.+)\s+\((\S+)\)\s*", line)]
    assert heads[0] == "build (primary)"
    block = agents[1 : agents.index(heads[1])]
    assert isinstance(json.loads("\n".join(block).strip()), list)
    with subprocess.Popen(
        [program, "serve", "--hostname=127.0.0.1", "--port=0"],
        cwd=place.project,
        env=environment(place, OPENCODE_CONFIG_CONTENT="{}"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("opencode server listening on http://127.0.0.1:")
        os.killpg(process.pid, signal.SIGTERM)
        assert process.wait(RUN_S) == 0


@pytest.mark.parametrize("health", [*nightly("/api/health"), "/global/health"])
def test_the_contract_of_codenomad_and_kimaki(place: Place, health: str) -> None:
    """CodeNomad reads the port from stdout and ends the group, which it kills after 2 s; kimaki asks for the health."""
    with subprocess.Popen(
        [str(place.home / "bin" / "opencode"), "serve", "--port", "0", "--print-logs", "--log-level", "DEBUG"],
        cwd=place.project,
        env=environment(place),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        found = LISTENING.search(process.stdout.readline())
        assert found is not None
        with urllib.request.urlopen(f"http://127.0.0.1:{found[1]}{health}", timeout=RUN_S) as answer:
            assert json.load(answer)["healthy"] is True
        os.killpg(process.pid, signal.SIGTERM)
        assert process.wait(KILL_S) == 0
