"""Decides which sandbox each process of an agent gets, and names the places that it needs inside."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import universal
from shim.host.files.roots import repository_above
from shim.host.terminals.shell_command import Enclose
from shim.lib.errors import AgentStartFailed, InvalidRequest
from shim.processes import sandbox_start
from shim.processes.egress import Egress, McpDoor, Reach
from shim.processes.sandbox import SYSTEM, Enclosure, Tool, enclose, find_tool, view_of
from universal.agent_spec import AgentSpec
from universal.launch import LaunchOptions, LaunchSpec
from universal.lib.jsonvalue import obj
from universal.lib.paths import expand
from universal.permissions import Rule
from universal.refusals import View
from universal.sandbox import NO_NEEDS, TIGHTER, Bounds, Level, SandboxUse, bounds_of, strictest, tighter_of
from universal.session.values import Fields, SessionRecord
from universal.setup import ConfigAgent, McpServer

KEY = "sandbox"
"""Key in a session's `metadata`, and of an agent of OpenCode's configuration: a level that only tightens."""
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
STARTER = str(Path(sandbox_start.__file__))
FILE_BYTES = 2**20
"""Bytes of a file of settings that are searched for addresses of models."""
_ADDRESS = re.compile(r"""(?:base_?url|api_?base)["']?\s*[:=]\s*["'](https?://[^"'\s]+)""", re.IGNORECASE)
SHELL_FILES = (".zshrc",)
"""Files of a home without which a shell does not begin its work: zsh asks a new user how it is to be set up."""
PACKAGE = str(Path(universal.__file__).parent)
"""Files of ours that agents load (Pi's gate)."""


def bounds(spec: AgentSpec, rules: Sequence[Rule], wanted: Level = "auto", *, is_trusted: bool = True) -> Bounds | None:
    """Return what a process under these rules is held to, or None. An agent inside of the server has no process.

    In: the level that the session or the prompt wants; whether the project's settings are trusted. In `project` two keep the
    network: an agent that is an HTTP server, since we reach it that way, and one that nobody wanted enclosed, if no rule denies.
    """
    if not spec.program.binaries:
        return None
    level = strictest(spec.rules.sandbox.level, wanted)
    is_unasked = level == "auto"
    if is_unasked and sys.platform == "darwin":  # its sandbox was not run
        return None
    if is_unasked and ((not is_trusted and is_enclosed_untrusted(spec)) or needs_kernel(spec, rules)):
        level = "project"
    found = bounds_of(level, rules)
    if found is None or found.level == "strict":
        return found
    denies_hosts = any(rule.action == "deny" for rule in found.web or ())
    return found._replace(web=None) if spec.program.transport == "http" or (is_unasked and not denies_hosts) else found


def is_enclosed_untrusted(spec: AgentSpec) -> bool:
    """Whether this agent is to run in a sandbox in a project that nobody has trusted: where it was seen to work in one."""
    return bool(spec.rules.sandbox.shown) and spec.rules.sandbox.level != "off"


def needs_kernel(spec: AgentSpec, rules: Iterable[Rule]) -> bool:
    """Whether a rule denies what nothing but the kernel holds with this agent, as runs of the real agent have shown."""
    if not spec.rules.kernel_keys:
        return False
    gaps = spec.rules.enforcement.gaps(rule for rule in rules if rule.action != "ask")
    return any(key in spec.rules.sandbox.shown for key in gaps)


def may_be_held(spec: AgentSpec, demand: Bounds | None) -> bool:
    """Whether other rules may change what the kernel must hold this agent to. In: what it is held to now."""
    return demand is not None or (
        bool(spec.program.binaries) and (spec.rules.sandbox.level in TIGHTER or bool(spec.rules.kernel_keys))
    )


def sandbox_notice(spec: AgentSpec, bounds: Bounds | None, why: str, *, is_missed: bool) -> str:
    """Return the sentence for a person that this agent has no sandbox though it should, or a lesser one; "" if nobody cares.

    In: what it is held to, and what `bounds_here` says of it; whether rules of the person do not hold.
    """
    is_wanted = is_missed or spec.rules.sandbox.level != "auto" or (bounds is not None and bounds.level == "strict")
    if not why or not is_wanted:
        return ""
    if bounds is None:
        return f"{spec.title} runs without the sandbox that would hold it to your rules. {why}"
    return f"{spec.title} runs in a sandbox that holds less than bubblewrap's (docs/sandbox.md). {why}"


def level_of(record: SessionRecord, agent: ConfigAgent | None) -> Level:
    """Return the stricter one of the levels of a session and of the agent of the configuration that a prompt names."""
    of_agent: Level = agent.sandbox if agent is not None else "auto"
    of_session = record.metadata.get(KEY) if record.metadata else None
    return of_agent if of_session is None else strictest(tighter_of(of_session), of_agent)


def inherit_level(metadata: Fields | None, parent: SessionRecord) -> Fields | None:
    """Return the `metadata` of a new session below another one, which begins in no milder sandbox."""
    of_parent, own = level_of(parent, None), tighter_of(obj(metadata).get(KEY))
    return {**(metadata or {}), KEY: strictest(of_parent, own)} if of_parent != "auto" else metadata


def check_level(metadata: Any) -> None:
    """Raise InvalidRequest if a session's `metadata` has no usable level. It only tightens."""
    value = obj(metadata).get(KEY)
    if value is not None and value not in TIGHTER:
        raise InvalidRequest(f"metadata.{KEY} cannot be used: give {' or '.join(TIGHTER)}, not {str(value)[:100]!r}.")


def held_keys(spec: AgentSpec, bounds: Bounds | None) -> tuple[str, ...]:
    """Return the permission keys whose denies the kernel holds in such a process, as runs of the real agent have shown."""
    if bounds is None:
        return ()
    return tuple(key for key in spec.rules.sandbox.shown if key != "webfetch" or bounds.web is not None)


async def bounds_here(spec: AgentSpec, wanted: Bounds | None, environ: Mapping[str, str]) -> tuple[Bounds | None, str]:
    """Return the bounds that this machine can hold, and why there are none, or why they are held by less than bubblewrap."""
    if wanted is None:
        return None, ""
    made_by = await asyncio.to_thread(tool, environ)
    if wanted.level == "strict":
        return wanted, made_by.better  # without any tool the start says so
    if made_by.why:
        return None, made_by.why
    is_cut_off = spec.rules.sandbox.own_server and not made_by.has_mounts  # from its own server: it keeps the network
    return wanted._replace(web=None) if is_cut_off else wanted, made_by.better


def tool(environ: Mapping[str, str]) -> Tool:
    """Return what makes sandboxes in this environment. Tries it once. Blocking."""
    return find_tool(environ.get("PATH", os.defpath))


def reach(spec: AgentSpec, bounds: Bounds, environ: Mapping[str, str], own: McpServer | None = None) -> Reach | None:
    """Return what an agent without a network reaches; None if it has one. In: the whole environment; our MCP server. Blocking.

    Raises AgentStartFailed for an agent that cannot do without.
    """
    if bounds.web is None:
        return None
    if spec.program.transport == "http":
        raise AgentStartFailed(
            f"{spec.title} was not started: its sandbox is strict, and this server reaches it over the network. Set its sandbox "
            'to "project", or use it as an agent of the Agent Client Protocol.'
        )
    use, is_shared = spec.rules.sandbox, not tool(environ).has_mounts
    if is_shared and use.own_server:
        raise AgentStartFailed(
            f"{spec.title} was not started: its sandbox is strict, and without bubblewrap it could not reach the server that it "
            f"makes for itself. {tool(environ).better}"
        )
    named = [address for name in use.variables if (address := environ.get(name))]
    written = [address for path in _first_places(use.settings, environ) for address in _addresses_in(path)]
    addresses = [urlsplit(address) for address in (*named, *written)]
    here = [address for address in addresses if address.hostname in LOOPBACK]
    ports = [address.port or (443 if address.scheme == "https" else 80) for address in here]
    hosts = {address.hostname for address in addresses if address.hostname} - LOOPBACK
    every = frozenset(hosts.union(() if named else use.hosts))
    door = None if is_shared else _door(own)
    return Reach(every, tuple(dict.fromkeys(ports)), bounds.web, is_shared, door=door)


def _door(own: McpServer | None) -> McpDoor | None:
    """Our MCP server as a process without a network reaches it. None if this server listens elsewhere, or with TLS."""
    address = urlsplit(own.url) if own is not None else None
    if own is None or address is None or address.scheme != "http" or address.hostname not in LOOPBACK - {"::1"}:
        return None
    return McpDoor(address.port or 80, address.path, own.headers["Authorization"])


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
    made_by, use = tool(environ), spec.rules.sandbox
    if made_by.why:
        raise AgentStartFailed(f"{spec.title} was not started: its sandbox is {bounds.level}. {made_by.why}")
    for path in _first_places(use.folders, environ):
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    enclosure = _enclosure(use, bounds, launch.argv[0], launch.cwd, environ, also)
    env = {**use.env, **launch.env}
    if egress is not None and egress.reach.is_shared:
        enclosure, env = replace(enclosure, ports=egress.reach.listeners), {**env, **egress.reach.variables}
    elif egress is not None:
        python = os.path.realpath(sys.executable)
        starter = (python, "-I", "-S", STARTER, str(egress.descriptor), ",".join(map(str, egress.reach.listeners)))
        enclosure = replace(enclosure, starter=starter, readable=[*enclosure.readable, sys.base_prefix, STARTER])
        launch, env = replace(launch, descriptors=(egress.descriptor,)), {**env, **egress.reach.variables}
    return replace(launch, argv=tuple(enclose(made_by, enclosure, launch.argv)), env=env)


async def sight_here(
    spec: AgentSpec, wanted: Bounds | None, options: LaunchOptions, environ: Mapping[str, str]
) -> tuple[Bounds | None, str, View | None]:
    """Return `bounds_here`, and what a process with these options sees (`view`)."""
    found, why = await bounds_here(spec, wanted, environ)
    return found, why, await view(spec, found, options.binary, options.directory, environ)


def shell_sandbox(settings: Level, environ: Mapping[str, str], is_trusted: Callable[[str], bool], of_session: Level) -> Enclose:
    """Return what holds terminals and shell lines: `project` where nobody has trusted the project, if no level is set.

    In: the levels of the settings and of the session; whether a directory's settings are trusted, blocking. Rules are for agents.
    """
    level = strictest(settings, of_session)

    def enclose_shell(argv: Sequence[str], directory: str) -> Sequence[str]:
        is_needed = level == "auto" and not is_trusted(directory)
        bounds = bounds_of("project" if is_needed else level, ())
        if bounds is None:
            return argv
        try:
            if (made_by := tool(environ)).why:
                raise AgentStartFailed(made_by.why)
            enclosure = replace(_enclosure(NO_NEEDS, bounds, argv[0], directory, environ), empty=SHELL_FILES)
            return enclose(made_by, enclosure, argv)
        except AgentStartFailed as error:
            if bounds.level == "strict":
                raise PermissionError(errno.EACCES, f"the sandbox is strict, and none can be made here. {error}") from error
            return argv

    return enclose_shell


async def view(spec: AgentSpec, bounds: Bounds | None, program: str, directory: str, environ: Mapping[str, str]) -> View | None:
    """Return what a process within these bounds sees. In: its program, its directory, the whole environment."""
    if bounds is None:
        return None
    use = spec.rules.sandbox
    return await asyncio.to_thread(lambda: view_of(_enclosure(use, bounds, program, directory, environ), tool(environ)))


def _enclosure(
    use: SandboxUse, bounds: Bounds, program: str, directory: str, environ: Mapping[str, str], also: Sequence[str] = ()
) -> Enclosure:
    writable, fixed = (
        list(map(str, _first_places(names, environ))) for names in ((*use.folders, *use.files, *use.paths), use.fixed)
    )
    own = environ.get("TMPDIR") or "/tmp"  # noqa: S108 - an empty folder is mounted there
    return Enclosure(
        bounds,
        directory,
        repository_above(directory),
        environ.get("HOME") or os.sep,
        own if tool(environ).has_mounts else _temporary(directory, environ),
        writable=writable,
        fixed=fixed,
        readable=[*programs(program, environ), PACKAGE, *also],
    )


def _temporary(directory: str, environ: Mapping[str, str]) -> str:
    """The folder for temporary files of a project's agents, where none can be mounted. It stays: nobody sees their last use."""
    cache = environ.get("XDG_CACHE_HOME") or f"{environ.get('HOME') or os.sep}/.cache"
    folder = Path(cache, "opencode-shim", "tmp", hashlib.sha256(os.fsencode(directory)).hexdigest()[:16])
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return str(folder)


def _first_places(names: Iterable[str], environ: Mapping[str, str]) -> Iterator[Path]:
    """The places of `A or B`: the first whose variable is set."""
    for name in names:
        found = (expand(part, environ) for part in name.split(" or "))
        if (path := next(filter(None, found), None)) is not None:
            yield path


def programs(program: str, environ: Mapping[str, str]) -> Iterator[str]:
    """The folders in which an agent's program lies with what it loads, and those on PATH. Never a home, or what holds one."""
    home = Path(os.path.realpath(environ.get("HOME") or os.sep))
    folders = [Path(folder) for folder in environ.get("PATH", "").split(os.pathsep) if folder.startswith(os.sep)]
    for path in (Path(program), Path(os.path.realpath(program))):
        modules = [folder for folder in path.parents if folder.name == "node_modules"]
        folders.append(modules[-1] if modules else path.parent)
        if (venv := path.parent.parent).joinpath("pyvenv.cfg").exists():  # its interpreter is a link that leads elsewhere
            folders += [venv, Path(os.path.realpath(path.with_name("python"))).parent]
    for folder in folders:
        library = folder.with_name("lib")  # beside `bin` of Node, Python and the like
        for found in (folder, *([library] if folder.name == "bin" and folder.parent.name != ".local" else [])):
            is_system = f"{found}/".startswith(tuple(f"{name}/" for name in SYSTEM))
            if not is_system and not home.is_relative_to(os.path.realpath(found)):
                yield str(found)
