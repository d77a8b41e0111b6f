"""Decides which sandbox each process of an agent gets, and names the places that it needs inside."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import universal
from shim.agents.login_signs import place
from shim.host.files.roots import repository_above
from shim.lib.errors import AgentStartFailed
from shim.processes import sandbox_start
from shim.processes.egress import Egress, Reach
from shim.processes.sandbox import SYSTEM, Enclosure, Tool, enclose, find_tool
from universal.codec import AgentSpec, LaunchSpec
from universal.permissions import Rule
from universal.sandbox import Bounds, bounds_of

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
STARTER = str(Path(sandbox_start.__file__))
FILE_BYTES = 2**20
"""Bytes of a file of settings that are searched for addresses of models."""
_ADDRESS = re.compile(r"""base_?url["']?\s*[:=]\s*["'](https?://[^"'\s]+)""", re.IGNORECASE)
PACKAGE = str(Path(universal.__file__).parent)
"""Files of ours that agents load (Pi's gate)."""


def bounds(spec: AgentSpec, rules: Iterable[Rule]) -> Bounds | None:
    """Return what a process under these rules is held to, or None. An agent inside of the server has no process.

    One that is an HTTP server keeps the network in `project`, since we reach it that way.
    """
    found = bounds_of(spec.sandbox.level, rules) if spec.binaries else None
    is_reached_by_network = spec.transport == "http" and found is not None and found.level == "project"
    return found._replace(web=None) if found is not None and is_reached_by_network else found


def held_keys(spec: AgentSpec, bounds: Bounds | None) -> tuple[str, ...]:
    """Return the permission keys whose denies the kernel holds in such a process, as runs of the real agent have shown."""
    if bounds is None:
        return ()
    return tuple(key for key in spec.sandbox.shown if key != "webfetch" or bounds.web is not None)


async def bounds_here(spec: AgentSpec, rules: Iterable[Rule], environ: Mapping[str, str]) -> tuple[Bounds | None, str]:
    """Return the bounds, and why there are none where the level is `project` and this machine makes no sandboxes."""
    wanted = bounds(spec, rules)
    if wanted is None or wanted.level == "strict":
        return wanted, ""
    why = (await asyncio.to_thread(tool, environ)).why
    return (None, why) if why else (wanted, "")


def tool(environ: Mapping[str, str]) -> Tool:
    """Return what makes sandboxes in this environment. Tries it once. Blocking."""
    return find_tool(environ.get("PATH", os.defpath))


def reach(spec: AgentSpec, bounds: Bounds, environ: Mapping[str, str]) -> Reach | None:
    """Return what an agent without a network reaches; None if it has one. In: the whole environment. Blocking.

    Raises AgentStartFailed for an agent that cannot do without.
    """
    if bounds.web is None:
        return None
    if spec.transport == "http":
        raise AgentStartFailed(
            f"{spec.title} was not started: its sandbox is strict, and this server reaches it over the network. Set its sandbox "
            'to "project", or use it as an agent of the Agent Client Protocol.'
        )
    use = spec.sandbox
    named = [address for name in use.variables if (address := environ.get(name))]
    written = [address for path in _first_places(use.settings, environ) for address in _addresses_in(path)]
    addresses = [urlsplit(address) for address in (*named, *written)]
    here = [address for address in addresses if address.hostname in LOOPBACK]
    ports = [address.port or (443 if address.scheme == "https" else 80) for address in here]
    hosts = {address.hostname for address in addresses if address.hostname} - LOOPBACK
    return Reach(frozenset(hosts.union(() if named else use.hosts)), tuple(dict.fromkeys(ports)), bounds.web)


def _addresses_in(path: Path) -> list[str]:
    try:
        with path.open("rb") as file:
            return _ADDRESS.findall(file.read(FILE_BYTES).decode("utf-8", "replace"))
    except OSError:
        return []


def launch_inside(
    spec: AgentSpec,
    bounds: Bounds,
    launch: LaunchSpec,
    environ: Mapping[str, str],
    also: Sequence[str] = (),
    egress: Egress | None = None,
) -> LaunchSpec:
    """Return the launch with the sandbox before it. In: the whole environment; what to read besides; its connections. Blocking.

    Raises AgentStartFailed, also where no sandbox can be made.
    """
    made_by, use = tool(environ), spec.sandbox
    if made_by.why:
        raise AgentStartFailed(f"{spec.title} was not started: its sandbox is {bounds.level}. {made_by.why}")
    folders, files, fixed = (list(_first_places(names, environ)) for names in (use.folders, use.files, use.fixed))
    for path in folders:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    enclosure = Enclosure(
        bounds,
        launch.cwd,
        repository_above(launch.cwd),
        environ.get("HOME") or os.sep,
        environ.get("TMPDIR") or "/tmp",  # noqa: S108 - its own, in memory
        writable=[str(path) for path in (*folders, *files, *_first_places(use.paths, environ))],
        fixed=[str(path) for path in fixed],
        readable=[*programs(launch.argv[0], environ), PACKAGE, *also],
    )
    env = {**use.env, **launch.env}
    if egress is not None:
        python = os.path.realpath(sys.executable)
        starter = (python, "-I", "-S", STARTER, str(egress.descriptor), ",".join(map(str, egress.reach.listeners)))
        enclosure = replace(enclosure, starter=starter, readable=[*enclosure.readable, sys.base_prefix, STARTER])
        launch, env = replace(launch, descriptors=(egress.descriptor,)), {**env, **egress.reach.variables}
    return replace(launch, argv=tuple(enclose(made_by, enclosure, launch.argv)), env=env)


def _first_places(names: Iterable[str], environ: Mapping[str, str]) -> Iterator[Path]:
    """The places of `A or B`: the first whose variable is set."""
    for name in names:
        found = (place(part, environ) for part in name.split(" or "))
        if (path := next(filter(None, found), None)) is not None:
            yield path


def programs(program: str, environ: Mapping[str, str]) -> Iterator[str]:
    """The folders in which an agent's program lies with what it loads, and those on PATH. Never a home, or what holds one."""
    home = Path(os.path.realpath(environ.get("HOME") or os.sep))
    folders = [Path(folder) for folder in environ.get("PATH", "").split(os.pathsep) if folder.startswith(os.sep)]
    for path in (Path(program), Path(os.path.realpath(program))):
        modules = [folder for folder in path.parents if folder.name == "node_modules"]
        folders.append(modules[-1] if modules else path.parent)
    for folder in folders:
        library = folder.with_name("lib")  # beside `bin` of Node, Python and the like
        for found in (folder, *([library] if folder.name == "bin" and folder.parent.name != ".local" else [])):
            is_system = f"{found}/".startswith(tuple(f"{name}/" for name in SYSTEM))
            if not is_system and not home.is_relative_to(os.path.realpath(found)):
                yield str(found)
