"""The wheel, installed where nothing of this repository is: what it serves and does is complete."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import urllib.request
import zipfile
from pathlib import Path
from typing import Any

import pytest

from shim.cli.commands import NO_RECORDER
from tests.process.test_serve import START_S, environment, rest, run_server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]
ROOT = Path(__file__).resolve().parents[2]
STEP_S = 60
"""For one command of uv; all of them take seconds, unless packages have to come over the network."""
PAGE = "shim/inspector/"
SERVED = (".js", ".css", ".svg")


def uv(*arguments: object) -> str:
    """The uv that `scripts/setup` uses."""
    program = shutil.which("uv") or str(ROOT / ".uv" / "bin" / "uv")
    settings = {"UV_NO_PROGRESS": "1", "UV_PYTHON_DOWNLOADS": "never", "UV_SYSTEM_CERTS": "true", "UV_NATIVE_TLS": "true"}
    given = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
    argv = [program, *map(str, arguments)]
    done = subprocess.run(argv, cwd=ROOT, env=given | settings, capture_output=True, text=True, timeout=STEP_S, check=False)
    assert done.returncode == 0, f"{argv}\n{done.stdout}{done.stderr}"
    return done.stdout


def get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=START_S) as answer:
        return bytes(answer.read())


def post(url: str, body: Any) -> bytes:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=START_S) as answer:
        return bytes(answer.read())


def run_program(program: str, home: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    argv = [program, *map(str, arguments)]
    return subprocess.run(argv, cwd=home, env=environment(home), capture_output=True, text=True, timeout=START_S, check=False)


def test_the_wheel_is_all_that_is_needed(tmp_path: Path) -> None:
    uv("build", "--quiet", "--wheel", "--out-dir", tmp_path / "dist")
    [wheel] = (tmp_path / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        packed = {name: archive.read(name) for name in archive.namelist()}
    kept = subprocess.run(["git", "ls-files", "shim", "universal"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    recorder = {name for name in kept.split() if name.startswith("shim/dev/")}
    assert set(kept.split()) - recorder <= set(packed)
    assert not recorder & set(packed)
    assert {name.partition("/")[0].partition("-")[0] for name in packed} == {"shim", "universal", "opencode_shim"}

    uv("venv", "--quiet", "--python", sys.executable, tmp_path / "venv")
    uv("export", "--quiet", "--frozen", "--no-dev", "--no-emit-project", "--output-file", tmp_path / "pins.txt")
    python = tmp_path / "venv" / "bin" / "python"
    uv("pip", "install", "--quiet", "--python", python, "--requirement", tmp_path / "pins.txt")
    uv("pip", "install", "--quiet", "--python", python, "--no-deps", wheel)
    uv("pip", "check", "--quiet", "--python", python)
    home = tmp_path / "home"
    home.mkdir()
    program = str(tmp_path / "venv" / "bin" / "opencode-shim")
    found = run_program(program, home, "agents", "--json")
    assert found.returncode == 0, found.stderr
    assert "mock" in {agent["name"] for agent in json.loads(found.stdout)}

    refused = run_program(program, home, "record", "mock", "--out", tmp_path / "recordings")
    assert (refused.returncode, refused.stderr) == (1, f"opencode-shim: {NO_RECORDER}\n")
    uv("build", "--quiet", "--wheel", "--package", "opencode-shim-record", "--out-dir", tmp_path / "recorder")
    [wheel] = (tmp_path / "recorder").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert {name for name in archive.namelist() if name.startswith("shim/")} == recorder - {"shim/dev/pyproject.toml"}
    uv("pip", "install", "--quiet", "--python", python, "--no-deps", wheel)
    written = run_program(program, home, "record", "nobody")
    assert "There is no agent nobody" in written.stderr

    with run_server(home, command=(program,), PYTHONPATH="", SHIM_MOCK_DELAY_FACTOR="0") as (process, url):
        rest(process)
        page = {name.removeprefix(PAGE): data for name, data in packed.items() if name.startswith(PAGE) and name.endswith(SERVED)}
        assert "vendor/marked/marked.esm.js" in page
        for name, data in page.items():
            assert get(f"{url}/inspector/files/{name}") == data, name
        assert b'id="app"' in get(f"{url}/inspector/")
        assert json.loads(get(f"{url}/doc"))["openapi"].startswith("3.1")
        assert json.loads(get(f"{url}/v1/openapi.json")) == json.loads(packed["shim/faces/v1/openapi.json"])
        assert b"opencode_shim_sessions" in get(f"{url}/metrics")
        post(f"{url}/v1/sessions/s", {"agent": "mock"})
        for message, want in (("echo Hello", b'"Hello'), ("tool", b"tool_result"), ("edit made.txt", b"made.txt")):
            said = post(f"{url}/v1/sessions/s/messages/stream", {"message": message})
            assert want in said
            assert b'"completed"' in said
        loaded = Path(f"/proc/{process.pid}/maps").read_text()
        assert str(tmp_path / "venv") in loaded
        assert str(ROOT) not in loaded
    assert "Traceback" not in (home / "stderr").read_text()
