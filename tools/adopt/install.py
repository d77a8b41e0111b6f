"""Installs a version of an agent from npm into a separate folder, with the Node that it needs.

A version is sometimes published in parts: the agent's package refers to a package that npm does not have, or npm has only the
program for this machine. So three ways are tried in order. `notes` says which failed and why.

    package    npm install PACKAGE@VERSION
    platform   the package of the program for this machine (`tools.packages.PLATFORM`)
    tarball    the agent's package, unpacked, with the dependencies that npm has

A package of PyPI goes into a virtual environment of the Python that it wants, by uv; exact versions of other packages that the
index lacks are let go of.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tools.packages import ARCH, PLATFORM, SYSTEM, numbers, program, uv
from universal.lib.jsonvalue import arr, obj

INSTALL_S = 420
"""Timeout in seconds of one `npm install`. Agents have up to 250 MB."""
START_S = 30
"""Timeout in seconds for a program to print its version."""
NODE_PACKAGE = f"node-{SYSTEM}-{ARCH}"


class InstallError(Exception):
    """The version cannot be installed. The text says what was tried."""


@dataclass(frozen=True, slots=True)
class InstalledProgram:
    """An installed program. `path` is the PATH that it needs; `how` is package, platform or tarball."""

    program: Path
    path: str
    how: str
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class _Folder:
    """The folder of one version, in which npm works."""

    root: Path
    notes: list[str] = field(default_factory=list[str])
    node: Path | None = None

    @property
    def modules(self) -> Path:
        return self.root / "node_modules"

    @property
    def search_path(self) -> str:
        places = [str(self.node)] if self.node else []
        return os.pathsep.join([*places, str(self.modules / ".bin"), os.environ.get("PATH", os.defpath)])

    def npm(self, *arguments: str) -> str:
        """Run npm in the folder and return its output. Raises InstallError with npm's first reason."""
        argv = [program("npm"), *arguments, "--no-fund", "--no-audit", "--loglevel=error"]
        done = _run(argv, self.root, {**os.environ, "PATH": self.search_path}, INSTALL_S)
        if done.returncode != 0:
            raise InstallError(reason_of(done.stderr))
        return done.stdout


def reason_of(stderr: str) -> str:
    """The first line of npm's errors that names the reason."""
    lines = [re.sub(r"^npm error ?(?:code|notarget|404)? ?", "", line) for line in stderr.splitlines() if "npm error" in line]
    told = [line.strip() for line in lines if len(line.split()) > 2]
    return told[0] if told else stderr.strip()[-200:] or "npm failed without a word"


def install(agent: str, package: str, name: str, version: str, folder: Path, say: Callable[[str], None]) -> InstalledProgram:
    """Install `package@version`, whose program is `name`, into the folder.

    Raises InstallError if no way gives a program that starts.
    """
    place = _Folder(folder)
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "package.json").exists():
        (folder / "package.json").write_text('{"private": true}', "utf-8")
    manifest = _manifest(place, package, version)
    place.node = _node(place, manifest, say)
    ways: list[tuple[str, Callable[[], Path]]] = [("package", lambda: _package(place, package, name, version))]
    if agent in PLATFORM:
        ways.append(("platform", lambda: _platform(place, PLATFORM[agent], name, version)))
    ways.append(("tarball", lambda: _tarball(place, package, name, version)))
    for how, way in ways:
        try:
            binary = way()
        except InstallError as error:
            place.notes.append(f"The {how} of {version} cannot be installed: {error}")
            say(place.notes[-1])
            continue
        return InstalledProgram(binary, place.search_path, how, tuple(place.notes))
    raise InstallError(" ".join(place.notes))


def install_python(package: str, name: str, version: str, python: str, folder: Path) -> InstalledProgram:
    """Install `package==version` of PyPI, whose program is `name`, with this version of Python. Raises InstallError."""
    folder.mkdir(parents=True, exist_ok=True)
    place, home = _Folder(folder), folder / "python"
    interpreter, notes = home / "bin" / "python", ()
    if not interpreter.exists():
        _uv(folder, "venv", "--quiet", "--python", python, str(home), env={**os.environ, **_pyenv(folder, python)})
    command = ("pip", "install", "--quiet", "--compile-bytecode", "--python", str(interpreter))
    try:
        _uv(folder, *command, f"{package}=={version}")
    except InstallError as error:
        absent = re.search(r"there is no version of ([\w.-]+)==", str(error))
        if absent is None or absent[1] == package:
            raise
        notes = (f"It was installed with another {absent[1]}, since the index lacks the version that it wants.",)
        (folder / "overrides.txt").write_text(absent[1], "utf-8")
        _uv(folder, *command, "--override", str(folder / "overrides.txt"), f"{package}=={version}")
    return InstalledProgram(_need_working_program(place, home / "bin" / name), place.search_path, "package", notes)


def _pyenv(folder: Path, python: str) -> dict[str, str]:
    """The variable that lets pyenv's programs run this Python, where pyenv has it: uv stops at one that fails."""
    if shutil.which("pyenv") is None:
        return {}
    latest = _run(["pyenv", "latest", python], folder, os.environ, START_S)
    return {"PYENV_VERSION": latest.stdout.strip()} if latest.returncode == 0 else {}


def _uv(folder: Path, *arguments: str, env: Mapping[str, str] = os.environ) -> None:
    done = _run([uv(), *arguments], folder, env, INSTALL_S)
    if done.returncode != 0:
        raise InstallError(" ".join(done.stderr.split())[-400:])


def _manifest(place: _Folder, package: str, version: str) -> Mapping[str, Any]:
    """The package.json of a version, from npm. Empty if npm does not have the version."""
    try:
        found: Any = json.loads(place.npm("view", f"{package}@{version}", "--json") or "{}")
    except (InstallError, ValueError):
        return {}
    return obj(arr(found)[-1] if arr(found) else found)


def _node(place: _Folder, manifest: Mapping[str, Any], say: Callable[[str], None]) -> Path | None:
    """Install a Node and return its folder, if the Node on PATH is too old for the package."""
    wanted = str(manifest.get("engines", {}).get("node", ""))
    least = re.search(r"\d+(?:\.\d+)*", wanted)
    if least is None:
        return None
    have = _run([program("node"), "--version"], place.root, os.environ, START_S).stdout.strip().removeprefix("v")
    if numbers(have) >= numbers(least[0]):
        return None
    major = numbers(least[0])[0]
    folder = place.modules / NODE_PACKAGE / "bin"
    if not (folder / "node").exists():
        say(f"It wants Node {wanted}; here is {have}. Installing {NODE_PACKAGE}@{major}.")
        place.npm("install", f"{NODE_PACKAGE}@{major}")
    return folder


def _has(place: _Folder, package: str, version: str) -> bool:
    """Whether npm installed this version in an earlier run. It then stands among the dependencies of the folder."""
    try:
        wanted = json.loads((place.root / "package.json").read_text("utf-8")).get("dependencies", {})
        manifest = json.loads((place.modules / package / "package.json").read_text("utf-8"))
    except (OSError, ValueError):
        return False
    return package in wanted and manifest.get("version") == version


def _package(place: _Folder, package: str, name: str, version: str) -> Path:
    if not _has(place, package, version) or not (place.modules / ".bin" / name).exists():
        place.npm("install", f"{package}@{version}")
    return _need_working_program(place, place.modules / ".bin" / name)


def _platform(place: _Folder, package: str, name: str, version: str) -> Path:
    if not _has(place, package, version):
        place.npm("install", f"{package}@{version}")
    return _need_working_program(place, place.modules / package / "bin" / name)


def _tarball(place: _Folder, package: str, name: str, version: str) -> Path:
    target = place.modules / package
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    told = json.loads(place.npm("pack", f"{package}@{version}", "--json"))
    archive = place.root / Path(told[0]["filename"]).name
    with tarfile.open(archive) as tar:
        tar.extractall(place.root / "unpacked", filter="data")
    archive.unlink()
    shutil.rmtree(target)
    shutil.move(place.root / "unpacked" / "package", target)
    manifest = json.loads((target / "package.json").read_text("utf-8"))
    script = manifest["bin"] if isinstance(manifest["bin"], str) else manifest["bin"][name]
    binary = place.modules / ".bin" / name
    binary.parent.mkdir(exist_ok=True)
    binary.unlink(missing_ok=True)
    (target / script).chmod(0o755)
    binary.symlink_to(target / script)
    if missing := _dependencies(place, target, manifest):
        place.notes.append(f"It was installed without these dependencies, which npm does not have: {', '.join(missing)}")
    return _need_working_program(place, binary)


def _dependencies(place: _Folder, target: Path, manifest: dict[str, Any]) -> list[str]:
    """Install the dependencies that npm has. Returns the others."""
    wanted: dict[str, str] = dict(manifest.get("dependencies", {}))
    missing: list[str] = []
    while wanted:
        plain = {"name": manifest["name"], "version": manifest["version"], "type": manifest.get("type", "commonjs")}
        (target / "package.json").write_text(json.dumps({**plain, "bin": manifest["bin"], "dependencies": wanted}), "utf-8")
        try:
            place.npm("install", "--prefix", str(target), "--omit=dev")
        except InstallError as error:
            absent = _absent(place, wanted, str(error))
            if not absent:
                place.notes.append(f"npm cannot install the dependencies of the tarball: {error}")
                break
            missing += [f"{name}@{wanted.pop(name)}" for name in absent]
        else:
            break
    (target / "package.json").write_text(json.dumps(manifest), "utf-8")
    return missing


def _absent(place: _Folder, wanted: Mapping[str, str], told: str) -> list[str]:
    """The dependency that npm's error names, else the first dependency that depends on the named package."""
    match = re.search(r"(?:found for |/)((?:@[\w.-]+(?:/|%2f))?[\w.-]+?)(?=@|'|\s|$)", told)
    if match is None:
        return []
    package = match[1].replace("%2f", "/")
    if package in wanted:
        return [package]
    scope = package.partition("/")[0]
    for name in sorted(wanted, key=lambda name: not name.startswith(scope)):  # packages of the same publisher first
        try:
            theirs = json.loads(place.npm("view", f"{name}@{wanted[name]}", "dependencies", "--json") or "{}")
        except (InstallError, ValueError):
            return [name]
        if package in theirs:
            return [name]
    return []


def _need_working_program(place: _Folder, binary: Path) -> Path:
    """The program, if it exists and `--version` does not fail. A program that waits for input counts as started."""
    if not binary.exists():
        raise InstallError(f"there is no {binary.name} in it")
    try:
        done = _run([str(binary), "--version"], place.root, {**os.environ, "PATH": place.search_path}, START_S)
    except subprocess.TimeoutExpired:
        return binary
    if done.returncode != 0:
        words = (done.stderr or done.stdout).strip().splitlines()
        told = next((line for line in words if "Error" in line or "error" in line), words[-1] if words else "no output")
        raise InstallError(f"it ends with code {done.returncode}: {told.strip()[:200]}")
    return binary


def _run(argv: Sequence[str], folder: Path, env: Mapping[str, str], most_s: float) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        argv, cwd=folder, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=most_s, check=False
    )
