"""Adds agents of the Agent Client Protocol from a registry file, in the form of the protocol's own registry.

The package holds a dated copy with the entries that were looked up and start, so that it works without a network. A registry
is somebody else's word about what to run. So nothing is added unasked, each version is an exact one, and an archive needs a
checksum.

An agent that this server knows is added under its name here, whatever the registry calls it: it keeps its modes and its rules.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
import tarfile
import tempfile
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shim.lib.errors import ShimError
from shim.processes import child_process
from shim.processes.child_environment import child_environment
from universal.lib.jsonvalue import arr, obj, text
from universal.registry import agents

COPY = Path(__file__).with_name("acp_registry.json")
ASK_S, INSTALL_S = 20.0, 600.0
"""Timeouts in seconds: of the registry's answer, and of a download."""
REGISTRY_BYTES, ARCHIVE_BYTES = 8 << 20, 512 << 20
"""Maximum sizes of a registry file and of an archive."""
NAME = re.compile(r"[a-z][a-z0-9-]*\Z")
EXACT = re.compile(r"\d[\w.+-]*")
"""A version. It is a part of a folder's name."""
SYSTEMS: Mapping[str, str] = {"arm64": "aarch64", "amd64": "x86_64"}


class RegistryRefusal(ShimError):
    """An agent was not added. The text says why and what to do."""


@dataclass(frozen=True, slots=True)
class Entry:
    """An agent of a registry: the command that starts it, and what makes the program ready.

    `prepare` is a command that downloads the package. An `archive` has a `sha256` and goes into the data directory.
    """

    name: str
    title: str
    version: str
    command: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    prepare: tuple[str, ...] = ()
    archive: str = ""
    sha256: str = ""


def read_registry(source: str = "") -> dict[str, Any]:
    """Read a registry: of a URL, of a path, or the package's copy. Raises RegistryRefusal."""
    try:
        if source.startswith(("https://", "http://")):
            content = _fetch(source, REGISTRY_BYTES)
        else:
            content = (Path(source) if source else COPY).read_bytes()
        if len(content) > REGISTRY_BYTES:
            raise RegistryRefusal(f"The registry {source} has more than {REGISTRY_BYTES >> 20} MiB.")
        return obj(json.loads(content))
    except (OSError, ValueError) as error:
        raise RegistryRefusal(f"The registry {source} cannot be read: {error}. Give a URL or a path of its file.") from None


def _fetch(url: str, most: int) -> bytes:
    """The content of a URL, at most one byte more than `most`. Raises OSError."""
    with urllib.request.urlopen(url, timeout=ASK_S) as answer:  # noqa: S310 - callers pass http and https
        return answer.read(most + 1)


def names(registry: Mapping[str, Any]) -> list[str]:
    """Names of the agents of a registry, as they are called here."""
    return sorted(agent_name(text(obj(agent).get("id"))) for agent in arr(registry.get("agents")))


def agent_name(registry_name: str) -> str:
    """The name here of an agent of a registry."""
    return next((spec.name for spec in agents().values() if spec.program.registry == registry_name), registry_name)


def find_entry(registry: Mapping[str, Any], wanted: str) -> Entry:
    """Return the entry of an agent, by either name. Raises RegistryRefusal if there is none, or none that can be added here."""
    name = agent_name(wanted)
    agent = next((obj(one) for one in arr(registry.get("agents")) if agent_name(text(obj(one).get("id"))) == name), None)
    if agent is None or not NAME.match(name):
        raise RegistryRefusal(f"The registry has no agent {name}. It has: {', '.join(names(registry))}.")
    title, version = text(agent.get("name"), name), text(agent.get("version"))
    ways = obj(agent.get("distribution"))
    if npx := obj(ways.get("npx")):
        package = _package(npx, r".+@\d[\w.+-]*\Z", "@", version)
        start = ("--package", package, text(npx["cmd"])) if "cmd" in npx else (package,)
        ready = ("npx", "--yes", "--package", package, "--", "node", "--eval", "0")
        return Entry(name, title, version, ("npx", "--yes", *start, *_args(npx)), _env(npx), ready)
    if uvx := obj(ways.get("uvx")):
        package = _package(uvx, r".+(==|@)\d[\w.+-]*\Z", "==", version)
        start = ("--from", package, text(uvx["cmd"])) if "cmd" in uvx else (package,)
        ready = ("uvx", "--from", package, "python", "-c", "")
        return Entry(name, title, version, ("uvx", *start, *_args(uvx)), _env(uvx), ready)
    machine = platform.machine().lower()
    target = obj(obj(ways.get("binary")).get(f"{platform.system().lower()}-{SYSTEMS.get(machine, machine)}"))
    if not target:
        raise RegistryRefusal(f"The registry has no {title} for this machine. Install it yourself and set agents.{name}.command.")
    if not EXACT.fullmatch(version):
        raise RegistryRefusal(f"The registry names no exact version of {title}, so it is not added.")
    sha256, archive = text(target.get("sha256")).lower(), text(target.get("archive"))
    if not re.fullmatch(r"[0-9a-f]{64}", sha256) or not archive.startswith("https://"):
        raise RegistryRefusal(
            f"The registry has no checksum for the program of {title}, so it is not downloaded. Install it yourself: {archive}"
        )
    return Entry(name, title, version, (text(target.get("cmd")), *_args(target)), _env(target), archive=archive, sha256=sha256)


def _package(way: Mapping[str, Any], exact: str, sign: str, version: str) -> str:
    """The package with an exact version: its own, or that of the entry."""
    package = text(way.get("package"))
    if package.startswith("-") or text(way.get("cmd")).startswith("-"):
        raise RegistryRefusal(f"The registry names an option in the place of a program: {package}. It is not added.")
    if re.match(exact, package):
        return package
    if not re.fullmatch(r"@?[\w./-]+", package) or not EXACT.fullmatch(version):
        raise RegistryRefusal(f"The registry names no exact version of {package or 'the package'}, so it is not added.")
    return f"{package}{sign}{version}"


def _args(way: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(map(text, arr(way.get("args"))))


def _env(way: Mapping[str, Any]) -> dict[str, str]:
    return {name: text(value) for name, value in obj(way.get("env")).items()}


def make_ready(entry: Entry, data: Path, say: Callable[[str], None]) -> tuple[str, ...]:
    """Download the program of an entry and return the command that starts it. Raises RegistryRefusal."""
    if entry.archive:
        return _unpack(entry, data / "agents" / f"{entry.name}-{entry.version}", say)
    if shutil.which(entry.prepare[0]) is None:
        needed = "Node.js 22 or newer (nodejs.org)" if entry.prepare[0] == "npx" else "uv (docs.astral.sh/uv)"
        raise RegistryRefusal(f"{entry.prepare[0]} is not on PATH. Install {needed}, then try again.")
    say(f"$ {' '.join(entry.prepare)}")
    done = child_process.ask(entry.prepare, environment=child_environment(os.environ, {}), timeout_s=INSTALL_S)
    if done is None:
        raise RegistryRefusal(f"{entry.prepare[0]} did not start, or was not done within {INSTALL_S:.0f} s.")
    if done.returncode != 0:
        raise RegistryRefusal(f"{entry.prepare[0]} failed ({done.returncode}): {(done.stderr or done.stdout).strip()[-400:]}")
    return entry.command


def _unpack(entry: Entry, folder: Path, say: Callable[[str], None]) -> tuple[str, ...]:
    program = (folder / entry.command[0]).resolve()
    if not program.is_relative_to(folder.resolve()):
        raise RegistryRefusal(f"The registry names a program outside of the archive: {entry.command[0]}. It is not added.")
    say(f"Downloading {entry.archive}")
    name = entry.archive.rpartition("/")[2]
    with tempfile.TemporaryDirectory(prefix="acp-registry-") as scratch:
        file = Path(scratch) / name
        try:
            file.write_bytes(_fetch(entry.archive, ARCHIVE_BYTES))
            digest = hashlib.sha256(file.read_bytes()).hexdigest()
            if digest != entry.sha256:
                raise RegistryRefusal(f"{entry.archive} has another checksum than the registry says ({digest}). It is not added.")
            folder.mkdir(parents=True, exist_ok=True)
            if name.endswith((".zip", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2")):
                shutil.unpack_archive(file, folder, filter=None if name.endswith(".zip") else "data")
            else:
                shutil.copy(file, program)
            program.chmod(0o755)
        except (OSError, ValueError, shutil.ReadError, tarfile.TarError) as error:
            raise RegistryRefusal(f"{entry.archive} cannot be fetched and unpacked: {error}.") from None
    return (str(program), *entry.command[1:])
