"""The person's OpenCode configuration: read from where native OpenCode reads it, and written on request.

    ~/.config/opencode/{config.json,opencode.json,opencode.jsonc}     the person's
    $OPENCODE_CONFIG                                                  a file of their choice
    opencode.jsonc, opencode.json                                     from the root of the repository down to the directory
    .opencode/{opencode.jsonc,opencode.json}                          the same
    $OPENCODE_CONFIG_CONTENT                                          JSON itself

Later ones win, key by key; `plugin` and `instructions` add up. Commands are also `command/**/*.md` (or `commands`) in
`~/.config/opencode` and in each `.opencode`. `{env:NAME}` and `{file:path}` in texts are replaced. Model, permission
rules and commands are used here; the rest is only shown to clients.

A project's files must lie in its repository (and in `roots`), links and `{file:...}` too; the person's may lie anywhere.
Bounds of a load: `shim.host.config_reader`.

A faulty file never stops anything: what is wrong in it is left out and told (`problems`), while native refuses all requests
of the directory. A change of a project goes to a file that is read again; native writes a `config.json` which it never reads.
Source: a live OpenCode 1.18.33; recordings `endpoints`, `misc`.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import structlog

from shim.host import disk, jsonc
from shim.host.config_reader import FILE_LIMIT_BYTES, PLACEHOLDER, ConfigReader, Problem, Source, Stamp, merge, stamp_of
from shim.host.roots import within
from shim.runtime.environment import child_environment
from universal.jsonvalue import obj

__all__ = ["FILE_LIMIT_BYTES", "PLACEHOLDER", "ConfigCommand", "ConfigFiles", "OpenCodeConfig", "Problem", "Source", "describe"]

SCHEMA = "https://opencode.ai/config.json"
GLOBAL_NAMES = ("config.json", "opencode.json", "opencode.jsonc")
PROJECT_NAMES = ("opencode.jsonc", "opencode.json")
REFRESH_S = 2.0
"""Seconds between looks at the files of a directory in which an agent runs: no rule that is applied is older."""
LOOK_LIMIT_S = 10.0
"""Seconds that somebody waits for the disk to tell whether files have changed."""
SETTLING_NS = 50_000_000
"""A file that changed so shortly before it was read may change again without another time: it is read again."""
CACHED_DIRECTORIES = 32
"""Directories whose configuration is kept, beside those in use."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class ConfigCommand:
    """A slash command of the person's own. `template` has `$1`, `$ARGUMENTS`, `@file` and !`shell` still in it."""

    name: str
    template: str
    description: str = ""
    agent: str | None = None
    model: str | None = None
    subtask: bool = False


@dataclass(frozen=True)
class OpenCodeConfig:
    """Everything merged. `values` satisfies OpenCode's `Config` schema."""

    values: Mapping[str, Any]
    problems: tuple[Problem, ...] = ()
    sources: tuple[Source, ...] = ()
    """Where the values came from; a later one wins."""

    @cached_property
    def personal_values(self) -> Mapping[str, Any]:
        """What the person's own files and environment say, without the project's."""
        return merge([source for source in self.sources if source.origin == "personal"])

    @cached_property
    def project_values(self) -> Mapping[str, Any]:
        """What the files of the project say, which strangers may have written."""
        return merge([source for source in self.sources if source.origin == "project"])

    @property
    def personal_permission(self) -> Any:
        """The person's own permission rules, as `permission`."""
        return self.personal_values.get("permission")

    @property
    def project_permission(self) -> Any:
        """The project's permission rules, as `permission`."""
        return self.project_values.get("permission")

    @property
    def model(self) -> str | None:
        """`provider/model` that new sessions start with, if the person chose one."""
        return self.values.get("model")

    @property
    def default_agent(self) -> str | None:
        """Name of the OpenCode agent (mode) that new sessions start with."""
        return self.values.get("default_agent")

    @property
    def permission(self) -> Any:
        """The permission rules as written: an action, or `{tool: action | {pattern: action}}`; None if there are none."""
        return self.values.get("permission")

    @property
    def commands(self) -> tuple[ConfigCommand, ...]:
        """Slash commands, in the order of the files."""
        return tuple(
            ConfigCommand(
                name,
                row["template"],
                row.get("description") or "",
                row.get("agent"),
                row.get("model"),
                bool(row.get("subtask")),
            )
            for name, row in obj(self.values.get("command")).items()
        )


UNREAD = OpenCodeConfig({"permission": "ask"})
"""What holds in a directory whose files were not read yet: nothing is allowed that nobody was asked about."""


@dataclass(frozen=True, slots=True)
class _LoadedConfig:
    """A configuration with what its files were when it was read."""

    config: OpenCodeConfig
    folders: tuple[Path, ...]
    stamps: Mapping[str, Stamp]
    settled: bool
    """No file had changed just before."""


WITHOUT_PROJECTS = ("OPENCODE_DISABLE_PROJECT_CONFIG", "OPENCODE_CONFIG_PROJECT_DISABLE")
"""Variables by which those that start OpenCode 1.x and 2.x leave out the files of projects."""


class ConfigFiles:
    """Reads and writes them, and keeps what was read for as long as no file changes.

    `fresh` reads in a thread. `current` reads nothing: it gives what was read last, which `keep_current` holds up to date.
    In: the person's home and environment; `roots`, outside of which no project's file is read. Texts may name what agents get
    too (`{env:...}`): a repository's commands are sent to them, and this server's password is not theirs.
    """

    def __init__(self, home: Path, environment: Mapping[str, str], roots: Sequence[str] = ()) -> None:
        self._home = home
        self._environment = child_environment(environment, {})
        self._roots = tuple(roots)
        self._loaded: dict[str, _LoadedConfig] = {}
        self._loading: dict[str, asyncio.Task[OpenCodeConfig]] = {}

    @property
    def home(self) -> Path:
        """The person's home."""
        return self._home

    @property
    def folder(self) -> Path:
        """Where the person's own files are."""
        base = self._environment.get("XDG_CONFIG_HOME", "")
        return (Path(base) if base.startswith("/") else self._home / ".config") / "opencode"

    # --- reading

    def current(self, directory: str) -> OpenCodeConfig:
        """What was read last, without a look at the disk; `UNREAD` if nothing was."""
        loaded = self._loaded.get(directory)
        return UNREAD if loaded is None else loaded.config

    async def fresh(self, directory: str) -> OpenCodeConfig:
        """What holds now. Looks at the files in a thread, and reads them if one has changed.

        A disk that does not answer within LOOK_LIMIT_S leaves what was read last.
        """
        try:
            async with asyncio.timeout(LOOK_LIMIT_S):
                if (task := self._loading.get(directory)) is not None:  # it may have looked at a file before that changed
                    await asyncio.shield(task)
                return await asyncio.shield(self._loading.get(directory) or self._look(directory))
        except TimeoutError:
            log.warning("config.slow", directory=directory, after_s=LOOK_LIMIT_S)
            return self.current(directory)

    def _look(self, directory: str) -> asyncio.Task[OpenCodeConfig]:
        task = asyncio.create_task(asyncio.to_thread(self.load, directory), name=f"config {directory}")
        self._loading[directory] = task
        task.add_done_callback(lambda _: self._loading.pop(directory, None))
        return task

    async def keep_current(self, in_use: Callable[[], Collection[str]]) -> None:
        """Look at the files of the directories in use again and again, and forget others. Runs until it is cancelled."""
        while True:
            await asyncio.sleep(REFRESH_S)
            used = set(in_use()) if self._loaded else set[str]()
            for directory in used - self._loading.keys():
                self._look(directory)
            for directory in list(self._loaded)[:-CACHED_DIRECTORIES]:
                if directory not in used:
                    self._loaded.pop(directory, None)

    def load(self, directory: str) -> OpenCodeConfig:
        """What holds in a directory, which need not exist. Blocking."""
        _need_thread()
        folders = () if self._without_projects() else self._folders(directory)
        loaded = self._loaded.get(directory)
        if loaded is None or not loaded.settled or loaded.folders != folders or _has_changed(loaded.stamps):
            loaded = self._read(directory, folders)
            self._loaded[directory] = loaded
        return loaded.config

    def _read(self, directory: str, folders: tuple[Path, ...]) -> _LoadedConfig:
        began_ns = time.time_ns()
        reader = ConfigReader(self._environment, _inside(folders))
        for name in GLOBAL_NAMES:
            reader.file(self.folder / name, "personal")
        if chosen := self._environment.get("OPENCODE_CONFIG"):
            reader.file(Path(chosen), "personal")
        for folder in folders:
            for name in PROJECT_NAMES:
                reader.file(folder / name, "project")
        reader.commands(self.folder, "personal")
        for folder in folders:
            for name in PROJECT_NAMES:
                reader.file(folder / ".opencode" / name, "project")
            reader.commands(folder / ".opencode", "project")
        if content := self._environment.get("OPENCODE_CONFIG_CONTENT"):
            reader.text(content, "OPENCODE_CONFIG_CONTENT", Path(directory))
        sources, problems = reader.finish()
        settled = all(stamp is None or stamp[-1] < began_ns - SETTLING_NS for stamp in reader.stamps.values())
        config = OpenCodeConfig(merge(sources, self._defaults()), problems, sources)
        return _LoadedConfig(config, folders, reader.stamps, settled)

    def load_global(self) -> OpenCodeConfig:
        """The person's own files alone, as `GET /global/config` shows them. Blocking."""
        _need_thread()
        reader = ConfigReader(self._environment)
        for name in GLOBAL_NAMES:
            reader.file(self.folder / name, "personal")
        sources, problems = reader.finish()
        return OpenCodeConfig(merge(sources, {"$schema": SCHEMA}), problems, sources)

    def _folders(self, directory: str) -> tuple[Path, ...]:
        """The folders from the root of the repository down to the directory, as far as `roots` allow."""
        return tuple(folder for folder in _down_to(Path(directory)) if within(str(folder), self._roots))

    def _without_projects(self) -> bool:
        """Whether whoever started the server wants no project's files read, as OpenCode takes it."""
        return any(self._environment.get(name, "").lower() in ("1", "true") for name in WITHOUT_PROJECTS)

    def _defaults(self) -> dict[str, Any]:
        """Keys that native always answers with."""
        person = self._environment.get("USER") or self._environment.get("LOGNAME") or self._home.name or "user"
        return {"$schema": SCHEMA, "command": {}, "plugin": [], "username": person, "mode": {}, "agent": {}}

    # --- writing

    def update(self, directory: str, changes: Mapping[str, Any]) -> Path:
        """Merge changes into the directory's own file, the one that wins if there are several; None removes a key.

        Out: the file. Raises JsoncError if it cannot be read (it is left as it is), OSError if it cannot be written.
        """
        base = Path(directory)
        candidates = [folder / name for folder in (base / ".opencode", base) for name in reversed(PROJECT_NAMES)]
        path = next((path for path in candidates if path.is_file()), base / "opencode.json")
        place = os.path.realpath(path)
        if not any(disk.is_inside(place, folder) for folder in _inside(self._folders(directory))):
            raise OSError(errno.EACCES, "it is a link that leads out of the project", str(path))
        return _write(path, changes)

    def update_global(self, changes: Mapping[str, Any]) -> Path:
        """The same for the person's own file."""
        candidates = [self.folder / name for name in reversed(GLOBAL_NAMES)]
        return _write(next((path for path in candidates if path.is_file()), self.folder / "opencode.jsonc"), changes)


def _need_thread() -> None:
    """Raise RuntimeError on the event loop: a disk that hangs would stop all sessions."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError("Configuration files are read in a thread: use `fresh`, or `current` for what was read last.")


def _has_changed(stamps: Mapping[str, Stamp]) -> bool:
    return any(stamp_of(path) != stamp for path, stamp in stamps.items())


def _down_to(directory: Path) -> list[Path]:
    """The folders from the root of its repository down to it; only itself outside of git."""
    above = [directory, *directory.parents]
    root = next((index for index, folder in enumerate(above) if os.path.exists(folder / ".git")), 0)  # noqa: PTH110 - raises nothing
    return list(reversed(above[: root + 1]))


def _inside(folders: Sequence[Path]) -> list[str]:
    """The resolved folder that a project's files must lie in: the highest one that counts."""
    return [os.path.realpath(folder) for folder in folders[:1]]


def _write(path: Path, changes: Mapping[str, Any]) -> Path:
    """Change a file at once or not at all. A link (dotfiles) stays a link."""
    target = path.resolve()
    old = target.read_text("utf-8") if target.exists() else json.dumps({"$schema": SCHEMA}, indent=2) + "\n"
    new = jsonc.edit(old, changes)
    if new == old and target.exists():
        return path
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(new)
        Path(temporary).chmod(target.stat().st_mode & 0o777 if target.exists() else 0o644)
        Path(temporary).replace(target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return path


def describe(problems: tuple[Problem, ...]) -> Iterator[str]:
    """One line for each problem, for a person."""
    for problem in problems:
        yield f"{problem.path} {problem.message}".replace("\n", "")
