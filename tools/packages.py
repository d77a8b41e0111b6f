"""Lists the packages of agents, clients and SDKs that the tests run, with the tested version of each.

    agent      a program that the server starts; `tested` is the newest version in the agent's spec
    platform   the program of an agent for this kind of machine, which is sometimes published before the agent's own package
    client     a program that connects to the server; pinned in tests/e2e
    sdk        a client library; pinned in tests/e2e or in pyproject.toml

`newest` asks npm and PyPI through their own clients, once each, for all packages together.
"""

from __future__ import annotations

import json
import platform
import re
import shutil
import subprocess
import tempfile
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any, Literal, TypeAlias

ROOT = Path(__file__).resolve().parent.parent
E2E = ROOT / "tests" / "e2e"
ARCH = {"aarch64": "arm64", "arm64": "arm64"}.get(platform.machine(), "x64")
SYSTEM = platform.system().lower()
ASK_S = 120
"""Timeout in seconds for a registry to answer for all packages."""
ASKED_AT_ONCE = 4
"""Packages whose dates npm is asked for at the same time. It tells them of one package only."""
NEWEST_PYTHON = "3.14"
"""Python for which PyPI is asked. Some programs want a newer one than this process has."""

Kind = Literal["agent", "platform", "client", "sdk"]
Registry = Literal["npm", "pypi"]
Release: TypeAlias = tuple[Registry, str, str]
"""Registry, package and version."""

PLATFORM: Mapping[str, str] = {
    "opencode": f"opencode-{SYSTEM}-{ARCH}",
    "claude": f"@anthropic-ai/claude-code-{SYSTEM}-{ARCH}",
    **dict.fromkeys(("kilo", "kilo-serve"), f"@kilocode/cli-{SYSTEM}-{ARCH}"),
}
"""Agent -> the package of its program for this machine. Codex publishes its programs as versions of the same package."""
CLIENTS = ("opencode-ai", "@opencode-ai/sdk", "@opencode-ai/cli-linux-x64", "@sandbox-agent/cli")
"""npm packages of tests/e2e/package.json that connect to the server."""
SDKS = ("@opencode-ai/sdk", "opencode-python-sdk", "opencode-py", "agent-client-protocol")


class RegistryError(Exception):
    """A registry did not answer. The text says which and what to do."""


@dataclass(frozen=True, slots=True)
class Package:
    """One package. `tested` is empty for an agent without a tested version; `reason` says why a newer version is not adopted."""

    kind: Kind
    name: str
    registry: Registry
    package: str
    tested: str
    reason: str = ""


def numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of a version: (1, 18, 34) of `1.18.34-beta.1`."""
    match = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(part) for part in match[0].split(".")) if match else ()


def watched_packages() -> list[Package]:
    """All packages, agents first."""
    return [*_agents(), *_clients()]


def _agents() -> Iterator[Package]:
    from shim.dev.record.homes import TARGETS
    from universal.registry import agents

    for name, spec in agents().items():
        package = TARGETS[name].package if name in TARGETS else next(iter(spec.program.npm), None)
        if package is None:
            continue
        tested = max(spec.program.tested, key=numbers, default="")
        registry: Registry = "pypi" if name in TARGETS and TARGETS[name].python else "npm"
        yield Package("agent", name, registry, package, tested, spec.program.unrecorded)
        if name in PLATFORM:
            yield Package("platform", name, "npm", PLATFORM[name], tested)


def _clients() -> Iterator[Package]:
    manifest = json.loads((E2E / "package.json").read_text("utf-8"))
    pinned: Mapping[str, str] = manifest["dependencies"] | manifest["optionalDependencies"]
    for name in CLIENTS:
        yield Package("sdk" if name in SDKS else "client", name, "npm", name, pinned[name])
    lines = (E2E / "python-packages.txt").read_text("utf-8").splitlines()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    groups = [line for group in project.get("dependency-groups", {}).values() for line in group if isinstance(line, str)]
    for line in [*lines, *(line for line in groups if line.startswith("opencode-"))]:
        name, exact, version = line.partition(";")[0].partition("==")  # what follows `;` says for which Python
        name = name.partition("[")[0]  # without its extras
        if exact and not name.startswith("#"):
            yield Package("sdk" if name in SDKS else "client", name, "pypi", name, version)


def newest(packages: Iterable[Package]) -> dict[tuple[Registry, str], str]:
    """(registry, package) -> the newest version. Packages that the registry does not have are left out.

    Raises: RegistryError.
    """
    names: dict[Registry, set[str]] = {"npm": set(), "pypi": set()}
    for package in packages:
        names[package.registry].add(package.package)
    versions: dict[tuple[Registry, str], str] = {}
    for name, version in _npm(sorted(names["npm"])).items():
        versions["npm", name] = version
    for name, version in _pypi(sorted(names["pypi"])).items():
        versions["pypi", name] = version
    return versions


def _npm(names: list[str]) -> dict[str, str]:
    """Ask npm, by `npm outdated` in an empty folder. Its `latest` obeys `engines` for this machine's Node; `wanted` does not."""
    if not names:
        return {}
    with tempfile.TemporaryDirectory(prefix="outdated-") as folder:
        manifest = {"private": True, "dependencies": dict.fromkeys(names, "latest")}
        (Path(folder) / "package.json").write_text(json.dumps(manifest), "utf-8")
        output = _run([program("npm"), "outdated", "--json", "--loglevel=error"], folder)
    try:
        rows = json.loads(output or "{}")
    except ValueError:
        raise RegistryError(f"npm did not answer with JSON: {output[:200]}") from None
    if "error" in rows or not rows:
        raise RegistryError(f"npm knows none of the packages; does its registry answer (`npm ping`)? {output[:200]}")
    return {name: row["wanted"] for name, row in rows.items()}


def _pypi(names: list[str]) -> dict[str, str]:
    """Ask PyPI for the newest versions of names."""
    rows = {name: version for name, version, _ in _lock_rows(names)}
    if names and not rows:
        raise RegistryError("uv found none of the packages on PyPI; does the index answer?")
    return rows


def _lock_rows(requirements: list[str]) -> list[tuple[str, str, date | None]]:
    """Ask PyPI, by `uv pip compile`. Returns name, version and day of publication of each requirement."""
    if not requirements:
        return []
    argv = [uv(), "pip", "compile", "-", "--quiet", "--no-deps", "--no-header", "--upgrade", "--format", "pylock.toml"]
    output = _run([*argv, "--python-version", NEWEST_PYTHON], str(ROOT), "\n".join(requirements))
    rows: list[tuple[str, str, date | None]] = []
    for row in tomllib.loads(output).get("packages", []):
        files: list[dict[str, Any]] = [*row.get("wheels", []), *([row["sdist"]] if "sdist" in row else [])]
        days = [file["upload-time"].date() for file in files if "upload-time" in file]
        rows.append((row["name"], row["version"], min(days, default=None)))
    return rows


def release_days(releases: Iterable[Release]) -> dict[Release, date]:
    """Ask on which days versions were published. Those whose day is not known are left out."""
    wanted = set(releases)
    packages = sorted({package for registry, package, _ in wanted if registry == "npm"})
    days: dict[Release, date] = {}
    with ThreadPoolExecutor(ASKED_AT_ONCE) as pool:
        for package, times in zip(packages, pool.map(_npm_times, packages), strict=True):
            for version, at in times.items():
                day = datetime.fromisoformat(at).date()
                days |= {("npm", package, name): day for name in (version, version.partition("-")[0])}
    left = {release for release in wanted if release[0] == "pypi"}
    while left:  # uv takes one version of a package at a time
        batch = {package: version for _, package, version in left}
        left -= {("pypi", package, version) for package, version in batch.items()}
        for name, version, day in _lock_rows([f"{name}=={version}" for name, version in batch.items()]):
            days |= {("pypi", name, version): day} if day else {}
    return {release: days[release] for release in wanted if release in days}


def _npm_times(package: str) -> dict[str, str]:
    """Version -> when it was release_days, of one package."""
    output = _run([program("npm"), "view", package, "time", "--json", "--loglevel=error"], str(ROOT))
    try:
        times: Any = json.loads(output or "{}")
    except ValueError:
        return {}
    return {} if "error" in times else times


def program(name: str) -> str:
    """The path of a program. Raises RegistryError, which says what to install."""
    path = shutil.which(name)
    if path is None:
        raise RegistryError(f"{name} is not on PATH; install it (Debian: apt install {name}) and try again.")
    return path


def uv() -> str:
    """The path of uv: from PATH, or where `scripts/setup` installs it."""
    return shutil.which("uv") or str(ROOT / ".uv" / "bin" / "uv")


def _run(argv: list[str], folder: str, text: str = "") -> str:
    try:
        result = subprocess.run(argv, cwd=folder, input=text, capture_output=True, text=True, timeout=ASK_S, check=False)
    except subprocess.TimeoutExpired:
        raise RegistryError(f"`{Path(argv[0]).name} {argv[1]}` did not end within {ASK_S} s.") from None
    except OSError as error:
        raise RegistryError(f"{argv[0]} cannot be started: {error}") from None
    return result.stdout
