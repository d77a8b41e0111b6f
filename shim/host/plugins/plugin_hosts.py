"""Runs a person's own tools and plugins of OpenCode: one host process (`host.mjs`) for a directory that has any.

    PROJECT/.opencode/{tool,tools,plugin,plugins}/*.ts|js     from the root of the repository down to the directory
    ~/.config/opencode/{tool,tools,plugin,plugins}/*.ts|js    and `plugin` of both configurations: files and npm packages

Agents get the tools as one more MCP server (`server`); calls are shown to the plugins before they are made (`before`). A
project's files run only where the project is trusted: `wake` says so, and files that have changed since then run in no new host.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import shutil
import sys
import tempfile
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import structlog

from shim.host.config.opencode_config import OpenCodeConfig
from shim.host.files.roots import folders_down_to
from shim.lib import disk
from shim.lib.tasks import end_tasks, keep, retrieve_error
from shim.processes import child_process
from shim.processes.aliases import find_program
from shim.processes.child_environment import child_environment
from universal.lib.jsonvalue import arr, obj, text
from universal.setup import TOOLS_SERVER, McpServer

START_S = 90.0
"""Maximum seconds until a host has loaded everything. Packages of npm may have to be installed."""
CALL_S = 20.0
"""Maximum seconds for the plugins to look at one call. After it, the call is refused and the host is ended."""
VARIABLES_S = 10.0
"""Maximum seconds that the start of an agent or a shell waits for `shell.env`. It goes on without, so that a package may come."""
LOOK_S = 0.05
"""Seconds between two tries to reach a host that starts."""
RSS_LIMIT_BYTES = 2**30
"""Memory with which a host ends itself."""
FAILURES_LIMIT = 3
"""Number of failures after which a host starts again only with other files."""
HOSTS_LIMIT = 16
"""Maximum hosts. The one that was used least recently is ended."""
DIRECTORIES_LIMIT = 512
"""Maximum directories, each with and without its project, whose files are known."""
FILES_LIMIT = 100
"""Maximum files of tools, and of plugins, of one folder."""
LINE_LIMIT_BYTES = 2**22
TAIL_CHARS = 2000
"""Characters of a host's output that are kept, to say why it ended."""
ENDINGS = (".ts", ".js")
HERE = Path(__file__).parent
NO_VARIABLES = "An agent or a shell was started without the variables of your plugins (`shell.env`): {why}"
GUARD_IS_GONE = "The plugins of this directory do not answer, so the call was not allowed: {why} Mend them or take them away."

log = structlog.get_logger(__name__)


class HostFailed(Exception):
    """The host cannot be started, or has ended. The text says why."""


class PluginFailed(Exception):
    """A plugin has thrown. The text is its message."""


class PluginFiles(NamedTuple):
    """What a host loads. `stamps` change with its files; `plugins` are paths, or names of packages, each with its options.

    `found`: the plugins that stand in a folder of OpenCode.
    """

    tools: tuple[str, ...] = ()
    plugins: tuple[tuple[str, Any], ...] = ()
    stamps: tuple[tuple[str, int, int], ...] = ()
    found: frozenset[str] = frozenset()


def find_files(directory: str, folder: Path, config: OpenCodeConfig) -> tuple[PluginFiles, PluginFiles]:
    """List the tools and plugins of a directory: the person's own, and those with the project's. Blocking."""
    tools, plugins = _sources(str(folder))
    personal = _plugin_files(tools, plugins, config.personal_values, directory)
    for place in [f"{above}/.opencode" for above in folders_down_to(directory)]:
        if disk.is_folder(place):
            more_tools, more_plugins = _sources(place)
            tools, plugins = (*tools, *more_tools), (*plugins, *more_plugins)
    return personal, _plugin_files(tools, plugins, config.values, directory)


def _plugin_files(tools: tuple[str, ...], sources: tuple[str, ...], values: Mapping[str, Any], directory: str) -> PluginFiles:
    plugins: dict[str, Any] = {}
    for entry in arr(values.get("plugin")):
        spec, options = (entry, None) if isinstance(entry, str) else (*arr(entry), None)[:2]
        plugins[_path_of(text(spec), directory)] = options
    plugins |= dict.fromkeys(sources)
    plugins.pop("", None)
    return PluginFiles(tools, tuple(plugins.items()), tuple(map(_stamp, (*tools, *plugins))), frozenset(sources))


def _path_of(spec: str, directory: str) -> str:
    """The absolute path of a plugin that is a file, or the name of its package."""
    path = spec.removeprefix("file://")
    return os.path.normpath(Path(directory) / path) if path.startswith(("/", "./", "../")) else path


def _sources(place: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The files of tools and of plugins in a folder of OpenCode."""
    found: list[tuple[str, ...]] = []
    for names in (("tool", "tools"), ("plugin", "plugins")):
        paths: list[str] = []
        for name in names:
            with contextlib.suppress(OSError), os.scandir(f"{place}/{name}") as entries:
                kept = [entry.path for entry in entries if entry.name.endswith(ENDINGS) and not entry.name.endswith(".d.ts")]
                paths += sorted(kept)[:FILES_LIMIT]
        found.append(tuple(paths))
    return found[0], found[1]


def _stamp(path: str) -> tuple[str, int, int]:
    try:
        state = Path(path).stat()
    except OSError:
        return path, 0, 0
    return path, state.st_mtime_ns, state.st_size


def find_runtime(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The program that runs a host: the Bun inside of OpenCode, else Bun, else Node. Raises HostFailed."""
    named = environ.get("SHIM_OPENCODE_BIN")
    path = environ.get("PATH", os.defpath)
    for program, options in (
        (named or find_program("opencode", path), ("--no-install",)),
        (find_program("bun", path), ("--no-install",)),
        (find_program("node", path), ()),
    ):
        if program:
            return program, *options
    raise HostFailed("They need OpenCode, Bun or Node on PATH. Install one of them: npm install -g opencode-ai.")


@dataclass(slots=True)
class _Host:
    """A host process and the connection with it. It starts with its first call, and again after a failure."""

    directory: str
    files: PluginFiles
    socket: str
    start: Callable[[_Host], Any]
    process: Process | None = None
    writer: asyncio.StreamWriter | None = None
    answers: dict[int, asyncio.Future[Any]] = field(default_factory=dict[int, "asyncio.Future[Any]"])
    tail: str = ""
    state: Mapping[str, Any] = field(default_factory=dict[str, Any])
    failures: int = 0
    starting: asyncio.Task[None] | None = None
    tasks: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])

    def ready(self) -> asyncio.Task[None]:
        has_failed = self.starting is not None and self.starting.done() and not self.is_alive
        if self.starting is None or (has_failed and self.failures < FAILURES_LIMIT):
            self.starting = asyncio.create_task(self.start(self), name=f"plugins of {self.directory}")
            self.starting.add_done_callback(retrieve_error)
        return self.starting

    @property
    def is_alive(self) -> bool:
        return self.process is not None and self.process.returncode is None and self.writer is not None

    async def call(self, method: str, params: Mapping[str, Any], limit_s: float) -> Mapping[str, Any]:
        """Call a method of the host. Raises HostFailed, PluginFailed; after `limit_s` seconds the host is ended."""
        if self.writer is None:
            raise HostFailed(self.tail or "it does not run.")
        id_ = max(self.answers, default=0) + 1
        self.answers[id_] = answer = asyncio.get_running_loop().create_future()
        try:
            self.writer.write(json.dumps({"id": id_, "method": method, "params": params}).encode() + b"\n")
            async with asyncio.timeout(limit_s):
                reply = obj(await answer)
        except TimeoutError:
            await self.end()
            raise HostFailed(f"they took more than {limit_s:.0f} s.") from None
        finally:
            self.answers.pop(id_, None)
        if "error" in reply:
            raise PluginFailed(text(obj(reply["error"]).get("message")))
        return obj(reply.get("result"))

    async def read(self, reader: asyncio.StreamReader) -> None:
        """Give each answer to its call, until the host ends."""
        with contextlib.suppress(OSError, ValueError):
            while line := await reader.readline():
                row = obj(json.loads(line))
                answer = self.answers.get(row.get("id", 0))
                if answer is not None and not answer.done():
                    answer.set_result(row)
        self.writer = None
        for answer in self.answers.values():
            if not answer.done():
                answer.set_exception(HostFailed(f"their host has ended. {self.tail[-300:]}"))

    async def read_output(self, stream: asyncio.StreamReader) -> None:
        """Keep the end of what the host writes."""
        while data := await stream.read(2**16):
            self.tail = (self.tail + data.decode("utf-8", "replace"))[-TAIL_CHARS:]

    async def end(self) -> None:
        if self.writer is not None:
            self.writer.close()
            self.writer = None
        if self.process is not None:
            await child_process.end(self.process)


class PluginVerdict(NamedTuple):
    """What plugins say of a call. `refusal`: why they refuse it, or ""; `missing`: plugins that could not be loaded."""

    refusal: str = ""
    missing: tuple[str, ...] = ()


class PluginHosts:
    """The hosts of all directories.

    In: `folder`, the person's folder of OpenCode; `packages`, where packages are installed; `notify`, which shows an error to the
    clients of a directory; `address`, the URL of this server and the headers of its clients.
    """

    def __init__(
        self,
        folder: Path,
        packages: Path,
        environ: Mapping[str, str],
        version: str,
        notify: Callable[[str, str], None] = lambda _directory, _words: None,
        address: Callable[[], tuple[str, Mapping[str, str]]] = lambda: ("", {}),
    ) -> None:
        self._folder, self._packages, self._environ, self._version = folder, packages, environ, version
        self._notify, self._address = notify, address
        self._files: dict[tuple[str, bool], PluginFiles] = {}
        self._hosts: dict[tuple[str, bool], _Host] = {}
        self._sockets = ""
        self._endings = set[asyncio.Task[None]]()

    def look(self, directory: str, config: OpenCodeConfig) -> object:
        """Look which files there are. Blocking. Returns a value that changes with them."""
        found = find_files(directory, self._folder, config)
        for with_project, files in zip((False, True), found, strict=True):
            self._files.pop((directory, with_project), None)
            self._files[directory, with_project] = files
        while len(self._files) > DIRECTORIES_LIMIT:
            del self._files[next(iter(self._files))]
        return found

    def server(self, directory: str, *, with_project: bool) -> McpServer | None:
        """The MCP server of the tools and plugins of a directory; None if it has none."""
        files = self._files.get((directory, with_project), PluginFiles())
        if not files.stamps:
            return None
        bridge = (sys.executable, "-I", "-S", str(HERE / "bridge.py"), self._socket(directory, files))
        return McpServer(TOOLS_SERVER, command=bridge)

    def has_plugins(self, directory: str, *, with_project: bool) -> bool:
        """Whether a directory has plugins, which may refuse calls."""
        return bool(self._files.get((directory, with_project), PluginFiles()).plugins)

    def wake(self, directory: str, *, with_project: bool) -> None:
        """Start the host of a directory, if it has tools or plugins. The person has trusted those of the project."""
        self._host(directory, with_project=with_project)

    async def before(self, directory: str, call: Mapping[str, Any], *, with_project: bool) -> PluginVerdict:
        """Show a call to the plugins, once they are loaded: START_S at most for each try, FAILURES_LIMIT tries."""
        host = self._host(directory, with_project=with_project)
        if host is None or not host.files.plugins:
            return PluginVerdict()
        was_started = bool(host.state)
        try:
            await host.ready()
        except HostFailed as error:
            names = tuple(name for name, _ in host.files.plugins)
            return PluginVerdict(GUARD_IS_GONE.format(why=error)) if was_started else PluginVerdict(missing=names)
        missing = tuple(map(text, arr(host.state.get("missing"))))
        if "tool.execute.before" not in arr(host.state.get("hooks")):
            return PluginVerdict(missing=missing)
        try:
            await host.call("hook/before", call, CALL_S)
        except PluginFailed as error:
            return PluginVerdict(str(error) or "A plugin has refused this call.")
        except HostFailed as error:
            self._fail(host, str(error))
            return PluginVerdict(GUARD_IS_GONE.format(why=error))
        return PluginVerdict(missing=missing)

    async def variables(self, directory: str, shell: Mapping[str, Any], *, with_project: bool) -> Mapping[str, str]:
        """The variables that plugins give to a shell, or to an agent for its shells. In: `cwd`, and ids if there are."""
        host = self._host(directory, with_project=with_project)
        if host is None or not host.files.plugins:
            return {}
        try:
            async with asyncio.timeout(VARIABLES_S):
                await asyncio.shield(host.ready())
                if "shell.env" not in arr(host.state.get("hooks")):
                    return {}
                given = obj((await host.call("hook/env", shell, VARIABLES_S)).get("env"))
        except TimeoutError:
            self._notify(directory, NO_VARIABLES.format(why=f"they took more than {VARIABLES_S:.0f} s."))
            return {}
        except PluginFailed as error:
            self._notify(directory, NO_VARIABLES.format(why=error))
            return {}
        except HostFailed:  # that is told
            return {}
        rows = {name: value for name, value in given.items() if isinstance(value, str) and "\0" not in name + value}
        return {name: value for name, value in rows.items() if name and "=" not in name}

    def idle_hooks(self, directory: str, *, with_project: bool) -> tuple[str, ...]:
        """The hooks that the plugins have and nothing here calls. Empty until they are loaded."""
        host = self._hosts.get((directory, with_project))
        return () if host is None else tuple(map(text, arr(host.state.get("unused"))))

    async def close(self) -> None:
        hosts, self._hosts = list(self._hosts.values()), {}
        await asyncio.gather(*map(self._end, hosts), *self._endings)
        if self._sockets:
            await asyncio.to_thread(shutil.rmtree, self._sockets, ignore_errors=True)

    def _socket(self, directory: str, files: PluginFiles) -> str:
        if not self._sockets:  # short: a socket's path has at most 107 bytes
            self._sockets = tempfile.mkdtemp(prefix="opencode-shim-plugins-")
        name = hashlib.blake2b(repr((directory, files)).encode(), digest_size=9).hexdigest()
        return f"{self._sockets}/{name}"

    def _host(self, directory: str, *, with_project: bool) -> _Host | None:
        key = directory, with_project
        files = self._files.get(key, PluginFiles())
        host = self._hosts.pop(key, None)
        if host is not None and host.files != files:
            keep(asyncio.create_task(self._end(host)), self._endings)
            host = None
        if not files.stamps:
            return None
        self._hosts[key] = host = host or _Host(directory, files, self._socket(directory, files), self._start)
        while len(self._hosts) > HOSTS_LIMIT:
            oldest = self._hosts.pop(next(iter(self._hosts)))
            keep(asyncio.create_task(self._end(oldest)), self._endings)
        host.ready()
        return host

    async def _start(self, host: _Host) -> None:
        """Start a host and wait until it has loaded everything. Raises HostFailed."""
        try:
            async with asyncio.timeout(START_S):
                await self._start_process(host)
        except (HostFailed, OSError, ValueError, TimeoutError) as error:
            why = str(error) or f"it did not start within {START_S:.0f} s."
            await host.end()
            self._fail(host, why)
            raise HostFailed(why) from error
        problems = [text(row) for row in arr(host.state.get("problems"))]
        if problems:
            self._notify(host.directory, "Not loaded:\n" + "\n".join(problems))
        log.info("plugins.started", directory=host.directory, tools=host.state.get("tools"), hooks=host.state.get("hooks"))

    async def _start_process(self, host: _Host) -> None:
        if tuple(map(_stamp, (stamp[0] for stamp in host.files.stamps))) != host.files.stamps:
            raise HostFailed("their files have changed. They are loaded with the next prompt.")
        argv = (*await asyncio.to_thread(find_runtime, self._environ), str(HERE / "host.mjs"))
        await asyncio.to_thread(Path(host.socket).unlink, missing_ok=True)
        await asyncio.to_thread(disk.private_folder, self._packages)
        environment = child_environment(self._environ, {"BUN_BE_BUN": "1"})
        process = await child_process.start(argv, cwd=host.directory, environment=environment, stdin=PIPE, stderr=STDOUT)
        host.process, host.tail = process, ""
        assert process.stdin is not None
        assert process.stdout is not None
        url, headers = self._address()
        lines = {
            "directory": host.directory,
            "worktree": folders_down_to(host.directory)[0],
            "socket": host.socket,
            "packages": str(self._packages),
            "version": self._version,
            "rss_limit": RSS_LIMIT_BYTES,
            "tools": host.files.tools,
            "plugins": host.files.plugins,
            "url": url,
            "headers": headers,
        }
        process.stdin.write(json.dumps(lines).encode() + b"\n")
        keep(asyncio.create_task(host.read_output(process.stdout)), host.tasks)
        while True:
            with contextlib.suppress(OSError):
                reader, host.writer = await asyncio.open_unix_connection(host.socket, limit=LINE_LIMIT_BYTES)
                break
            if process.returncode is not None:
                raise HostFailed(f"it ended with {process.returncode}. {host.tail}".strip())
            await asyncio.sleep(LOOK_S)
        keep(asyncio.create_task(host.read(reader)), host.tasks)
        host.state = await host.call("hook/state", {}, START_S)

    def _fail(self, host: _Host, why: str) -> None:
        host.failures += 1
        log.warning("plugins.failed", directory=host.directory, why=why, failures=host.failures)
        self._notify(host.directory, f"The host of your tools and plugins failed: {why}")

    async def _end(self, host: _Host) -> None:
        await end_tasks(host.starting)
        await host.end()
