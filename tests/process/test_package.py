"""The package as people install it: from an index, on every Python that is here, and what a release consists of."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from dataclasses import dataclass
from email.parser import Parser
from pathlib import Path

import pytest

from tests.process.test_serve import SLACK_S, START_S, STOP_S, environment, rest, run_server
from tests.process.test_wheel import ROOT, get, post, uv

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.xdist_group("package")]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
VERSIONS = tuple(row.rpartition(" ")[2] for row in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", row))
WHEEL_LIMIT_BYTES = 2 * 2**20
"""The wheel has 1.1 MB; more than this wants a reason."""


@dataclass(frozen=True)
class Package:
    """Where a wheel and an sdist were built to."""

    wheel: Path
    sdist: Path


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Package:
    """`uv build` makes the sdist first, and the wheel from it."""
    folder = tmp_path_factory.mktemp("dist")
    uv("build", "--quiet", "--out-dir", folder)
    return Package(next(folder.glob("*.whl")), next(folder.glob("*.tar.gz")))


def interpreter(version: str) -> str | None:
    """A Python of this version that runs: one on PATH, of pyenv, or of uv."""
    candidates = [
        shutil.which(f"python{version}"),
        *map(str, Path.home().glob(f".pyenv/versions/{version}.*/bin/python")),
        *map(str, Path.home().glob(f".local/share/uv/python/cpython-{version}.*/bin/python")),
    ]
    for program in filter(None, candidates):
        try:
            done = subprocess.run(
                [program, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], capture_output=True, text=True, timeout=20
            )
        except OSError:
            continue
        if done.stdout.strip() == version:
            return program
    return None


def test_the_classifiers_name_what_is_tried() -> None:
    assert VERSIONS == ("3.11", "3.12", "3.13", "3.14")


@pytest.mark.parametrize("version", [VERSIONS[0], *(pytest.param(newer, marks=pytest.mark.nightly) for newer in VERSIONS[1:])])
def test_the_wheel_installs_from_an_index_and_answers_on_each_python(package: Package, version: str, tmp_path: Path) -> None:
    python = interpreter(version)
    if python is None:
        pytest.skip(f"Python {version} is not on this machine")
    uv("venv", "--quiet", "--python", python, tmp_path / "venv")
    inside = tmp_path / "venv" / "bin" / "python"
    uv("pip", "install", "--quiet", "--python", inside, "--find-links", package.wheel.parent, "opencode-shim[speed,otel,mdns]")
    uv("pip", "check", "--quiet", "--python", inside)
    program = str(tmp_path / "venv" / "bin" / "opencode-shim")
    home = tmp_path / "home"
    home.mkdir()
    told = subprocess.run(
        [program, "--version"], env=environment(home), capture_output=True, text=True, timeout=START_S, check=True
    )
    assert re.fullmatch(rf"{re.escape(PROJECT['version'])} \([0-9a-f]{{9}}(, modified)?\)", told.stdout.strip())
    with run_server(home, command=(program,), PYTHONPATH="", SHIM_MOCK_DELAY_FACTOR="0") as (process, url):
        rest(process)
        post(f"{url}/v1/sessions/s", {"agent": "mock"})
        said = post(f"{url}/v1/sessions/s/messages/stream", {"message": "echo Hello"})
        assert b'"Hello' in said
        assert b'"completed"' in said
        assert json.loads(get(f"{url}/v1/health"))["status"] == "ok"
    assert "Traceback" not in (home / "stderr").read_text()


def test_uvx_starts_it_in_a_clean_home(package: Package, tmp_path: Path) -> None:
    program = shutil.which("uvx") or str(ROOT / ".uv" / "bin" / "uvx")
    command = (program, "--quiet", "--python", sys.executable, "--find-links", str(package.wheel.parent), "opencode-shim")
    home = tmp_path / "home"
    home.mkdir()
    certificates = {"UV_SYSTEM_CERTS": "true", "UV_NATIVE_TLS": "true", "UV_CACHE_DIR": str(tmp_path / "cache")}
    with run_server(home, command=command, PYTHONPATH="", **certificates) as (process, url):
        rest(process)
        assert json.loads(get(f"{url}/global/health"))["healthy"] is True
        process.terminate()  # uvx passes it on and waits; killed, it would leave the server behind
        assert process.wait(STOP_S + SLACK_S) == 0


def test_the_wheel_is_small_typed_and_has_no_tests(package: Package) -> None:
    with zipfile.ZipFile(package.wheel) as archive:
        names = archive.namelist()
        [record] = [name for name in names if name.endswith(".dist-info/METADATA")]
        metadata = Parser().parsestr(archive.read(record).decode())
        info = json.loads(archive.read("shim/build.json"))
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"shim", "universal", "opencode_shim"}
    assert {"shim/py.typed", "universal/py.typed"} <= set(names)
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert package.wheel.stat().st_size < WHEEL_LIMIT_BYTES
    assert metadata.get_all("Provides-Extra") == ["cluster", "mdns", "otel", "record", "sandbox", "speed"]
    assert metadata["Requires-Python"] == ">=3.11"
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    assert info["commit"] == head


def test_the_sdist_has_what_the_wheel_is_built_from_and_no_more(package: Package) -> None:
    with tarfile.open(package.sdist) as archive:
        names = {member.name.partition("/")[2] for member in archive.getmembers()}
    assert {"pyproject.toml", "hatch_build.py", "LICENSE", "CHANGELOG.md", "shim/build.json", "shim/main/app.py"} <= names
    assert not [name for name in names if name.startswith(("tests", "compat_fixtures", ".e2e", "node_modules"))]


def test_a_release_has_a_tag_checksums_and_a_bill_of_materials(tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    local = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_AUTHOR_NAME": "t", "GIT_AUTHOR_EMAIL": "t@example.com"}
    local |= {"GIT_COMMITTER_NAME": "t", "GIT_COMMITTER_EMAIL": "t@example.com"}
    uv_folder = ROOT / ".uv" / "bin"
    local |= {"PATH": f"{os.environ['PATH']}:{uv_folder}", "UV_SYSTEM_CERTS": "true", "UV_NATIVE_TLS": "true"}

    def run(*argv: str, cwd: Path = checkout) -> str:
        done = subprocess.run(argv, cwd=cwd, env=local, capture_output=True, text=True, timeout=200, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    run("git", "clone", "--quiet", "--shared", str(ROOT), str(checkout), cwd=tmp_path)
    said = run(sys.executable, "scripts/release", "9.8.7")
    assert "uv publish dist/*.whl dist/*.tar.gz" in said
    dist = checkout / "dist"
    sums = dict(reversed(line.split("  ")) for line in (dist / "SHA256SUMS").read_text().splitlines())
    assert set(sums) == {
        "RELEASE_NOTES.md",
        "opencode_shim-9.8.7-py3-none-any.whl",
        "opencode_shim-9.8.7.cdx.json",
        "opencode_shim-9.8.7.tar.gz",
        "opencode_shim_record-9.8.7-py3-none-any.whl",
        "opencode_shim_record-9.8.7.tar.gz",
    }
    for name, value in sums.items():
        assert hashlib.sha256((dist / name).read_bytes()).hexdigest() == value
    parts = {part["name"] for part in json.loads((dist / "opencode_shim-9.8.7.cdx.json").read_text())["components"]}
    assert {"aiohttp", "pydantic", "opentelemetry-sdk", "zeroconf"} <= parts
    assert "pytest" not in parts
    assert run("git", "tag", "--list").split() == ["v9.8.7"]
    assert "## [9.8.7] - " in (checkout / "CHANGELOG.md").read_text()
    with zipfile.ZipFile(dist / "opencode_shim-9.8.7-py3-none-any.whl") as archive:
        info = json.loads(archive.read("shim/build.json"))
    assert info["modified"] is False
    assert info["releases"][0]["version"] == "9.8.7"

    again = subprocess.run([sys.executable, "scripts/release", "9.8.7"], cwd=checkout, env=local, capture_output=True, text=True)
    assert again.returncode == 1
    assert "v9.8.7 is there already" in again.stderr
