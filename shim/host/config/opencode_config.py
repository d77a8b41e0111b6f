"""Reads the user's OpenCode configuration from where native OpenCode reads it, and writes it on request.

    ~/.config/opencode/{config.json,opencode.json,opencode.jsonc}     the user's own files
    $OPENCODE_CONFIG                                                  a file that the user names
    opencode.json, opencode.jsonc                                     from the root of the repository down to the directory
    .opencode/{opencode.json,opencode.jsonc}                          from the directory up to the root of the repository
    ~/.opencode, $OPENCODE_CONFIG_DIR                                 the same files in folders of the user
    $OPENCODE_CONFIG_CONTENT                                          JSON text
    $OPENCODE_PERMISSION                                              JSON text of `permission` alone

Later sources win, key by key; `plugin` and `instructions` are concatenated. Commands may also be `command/**/*.md` (or
`commands`), and agents `agent/**/*.md` (or `agents`, `mode`, `modes`), in `~/.config/opencode` and in each `.opencode`.
`{env:NAME}` and `{file:path}` in texts are replaced. The server uses model, permission rules and commands; it only shows the
rest to clients.

A project's files, and the targets of its links and `{file:...}`, must lie in its repository (and in `roots`). The user's files
may lie anywhere. `shim.host.config.config_reader` bounds a load.

A faulty file stops nothing: faulty values are left out and listed in `problems`, while native OpenCode refuses all requests of
the directory. A change to a project goes to a file that is read later; native OpenCode writes a `config.json` that it never
reads.
Source: a live OpenCode 1.18.33; recordings `endpoints`, `misc`.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import structlog

from shim.host.config import jsonc
from shim.host.config.config_reader import (
    FILE_LIMIT_BYTES,
    ORDERED,
    PLACEHOLDER,
    ConfigReader,
    Origin,
    Problem,
    Source,
    Stamp,
    merge,
    permissions_of_tools,
    stamp_of,
)
from shim.host.config.skills import Skill, SkillFolders
from shim.host.files.roots import folders_down_to, within
from shim.lib import disk
from shim.processes.child_environment import child_environment
from universal.lib.jsonvalue import arr, obj, text
from universal.lib.paths import is_in
from universal.permissions import BUILD, MODES, PLAN, Rule, combine, rules_from_config, rules_from_json
from universal.sandbox import tighter_of
from universal.setup import ConfigAgent
from universal.slash_commands import ConfigCommand

__all__ = [
    "FILE_LIMIT_BYTES",
    "PLACEHOLDER",
    "ConfigFiles",
    "OpenCodeConfig",
    "Problem",
    "Source",
    "describe",
    "unread_rules_notice",
]

SCHEMA = "https://opencode.ai/config.json"
GLOBAL_NAMES = ("config.json", "opencode.json", "opencode.jsonc")
PROJECT_NAMES = ("opencode.json", "opencode.jsonc")
REFRESH_S = 2.0
"""Seconds between checks of a directory's files while an agent runs there. No applied rule is older."""
LOOK_LIMIT_S = 10.0
"""Maximum seconds that a request waits for the disk to tell whether files changed."""
SETTLING_NS = 50_000_000
"""A file changed this shortly before a read is read again: a second change might keep the same mtime. In nanoseconds."""
CACHED_DIRECTORIES = 32
"""Maximum directories whose configuration stays cached, besides those in use."""

log = structlog.get_logger()


@dataclass(frozen=True)
class OpenCodeConfig:
    """The merged configuration. `values` satisfies OpenCode's `Config` schema."""

    values: Mapping[str, Any]
    problems: tuple[Problem, ...] = ()
    sources: tuple[Source, ...] = ()
    """The sources of the values; a later one wins."""
    has_unread_rules: bool = False
    """Whether a source of permission rules could not be read or understood in full."""

    @cached_property
    def personal_values(self) -> Mapping[str, Any]:
        """Values from the user's own files and environment."""
        return merge([source for source in self.sources if source.origin == "personal"])

    @cached_property
    def project_values(self) -> Mapping[str, Any]:
        """Values from the project's files, which strangers may have written."""
        return merge([source for source in self.sources if source.origin == "project"])

    def personal_rules(self, mode: str = "") -> tuple[Rule, ...]:
        """The user's own permission rules in a mode, in every form."""
        return rules_of_values(self.personal_values, mode)

    def project_rules(self, mode: str = "") -> tuple[Rule, ...]:
        """The project's permission rules in a mode, in every form."""
        return rules_of_values(self.project_values, mode)

    @property
    def model(self) -> str | None:
        """The `provider/model` of new sessions, if the user chose one."""
        return self.values.get("model")

    @property
    def default_agent(self) -> str | None:
        """The name of the OpenCode agent (mode) of new sessions."""
        return self.values.get("default_agent")

    @property
    def goes_on_after_rejection(self) -> bool:
        """Whether a turn goes on when a person rejects a call without words."""
        return obj(self.values.get("experimental")).get("continue_loop_on_deny") is True

    @cached_property
    def disabled_agents(self) -> frozenset[str]:
        """The modes that `agent.X.disable` switches off; a project switches none on. `build` stays: all falls back to it."""
        both = (self.personal_values, self.project_values)
        parts = [obj(values.get(key)) for values in both for key in ("agent", "mode")]
        return frozenset(name for part in parts for name, row in part.items() if obj(row).get("disable") is True) - {BUILD}

    @cached_property
    def agents(self) -> Mapping[str, ConfigAgent]:
        """The agents of all sources by name, and what is set for the agents' own modes. None that is disabled."""
        rows = agents_of(self.values)
        return {name: row for name, row in rows.items() if name not in self.disabled_agents}

    @cached_property
    def primary_agents(self) -> Mapping[str, ConfigAgent]:
        """Those of them that a person can choose, beside the agents' own modes."""
        return {name: row for name, row in self.agents.items() if name not in MODES and row.mode != "subagent"}

    @cached_property
    def personal_agents(self) -> Mapping[str, ConfigAgent]:
        """The same without what the project says."""
        rows = agents_of(self.personal_values)
        return {name: row for name, row in rows.items() if name not in self.disabled_agents}

    def offers(self, provider: str) -> bool:
        """Whether a provider is offered: it is not in `disabled_providers`. A project switches none on."""
        personal, project = self.personal_values.get("disabled_providers"), self.project_values.get("disabled_providers")
        return provider not in (personal or ()) and provider not in (project or ())

    @property
    def shares_new_sessions(self) -> bool:
        """Whether the user shares every new session (`"share": "auto"`). A project may only forbid it."""
        return self.personal_values.get("share") == "auto" and self.values.get("share") != "disabled"

    @property
    def permission(self) -> Any:
        """The permission rules as written: an action, or `{tool: action | {pattern: action}}`; None without rules."""
        return self.values.get("permission")

    @property
    def commands(self) -> tuple[ConfigCommand, ...]:
        """Slash commands, in the order of the files."""
        agents = {**obj(self.values.get("mode")), **obj(self.values.get("agent"))}
        restricted = {name for name, part in agents.items() if rules_from_config(obj(part).get("permission"))}
        return tuple(
            ConfigCommand(
                name,
                row["template"],
                row.get("description") or "",
                row.get("agent"),
                row.get("model"),
                bool(row.get("subtask")),
                row.get("agent") in restricted,
            )
            for name, row in obj(self.values.get("command")).items()
        )


def agents_of(values: Mapping[str, Any]) -> dict[str, ConfigAgent]:
    """The agents of a configuration. `mode` is an older form of `agent`, and has primary ones."""
    rows = {name: obj(row) for name, row in obj(values.get("agent")).items()}
    for name, row in obj(values.get("mode")).items():
        rows[name] = {**rows.get(name, {}), **obj(row), "mode": "primary"}
    return {
        name: ConfigAgent(
            name,
            "primary" if name in MODES else row.get("mode") or "all",
            text(row.get("description")),
            text(row.get("prompt")).strip(),
            text(row.get("model")),
            text(row.get("variant")),
            text(row.get("color")),
            rules_from_config(row.get("permission")),
            row.get("steps") or row.get("maxSteps"),
            row.get("hidden") is True,
            tuple(key for key in row if key in _IDLE),
            tighter_of(row.get("sandbox")),
        )
        for name, row in rows.items()
        if name not in _NATIVE_AGENTS
    }


_NATIVE_AGENTS = frozenset({"general", "explore", "title", "summary", "compaction"})
"""OpenCode's own agents that are no modes. What is set for them is for OpenCode alone."""
_IDLE = frozenset({"temperature", "top_p", "options"})
"""Keys of an agent that this server does not apply; unknown keys are options too."""
OF_MODEL = frozenset({"attachment", "compaction", "provider", "small_model", "subagent_depth", "tool_output", "watcher"})
"""Keys about OpenCode's own way to ask a model. Nobody misses them in a session of another agent, so no notice names them."""
NATIVE_KEYS = frozenset({"lsp", "reference", "references", *OF_MODEL})
"""Keys that act with OpenCode as the agent alone. Why is in docs/setup.md."""


def idle_keys(values: Mapping[str, Any], *, of_model: bool = True) -> tuple[str, ...]:
    """What is set in a configuration and acts with OpenCode as the agent alone. In: whether OF_MODEL counts."""
    counted = NATIVE_KEYS if of_model else NATIVE_KEYS - OF_MODEL
    keys = [key for key in sorted(counted) if values.get(key) not in (None, False, {}, [])]
    keys += [f"mcp.{name}.oauth" for name, row in obj(values.get("mcp")).items() if obj(row).get("oauth")]
    agents = obj(values.get("agent")).items()
    keys += [f"agent.{name}" for name, row in agents if name in _NATIVE_AGENTS and set(obj(row)) - {"disable"}]
    return tuple(f"`{key}`" for key in keys)


ACTION_NAMES = {"shell": "bash", "subagent": "task", "write": "edit", "patch": "edit", "multiedit": "edit"}
"""Actions of OpenCode 2, and names of tools, whose permission has another name here."""


def rules_of_values(values: Mapping[str, Any], mode: str = "") -> tuple[Rule, ...]:
    """Return the rules of a configuration in a mode: those for all agents, then those of the agent that the mode runs.

    As in OpenCode, `tools` is an older form of `permission` that comes before it, and `mode` one of `agent` that comes after.
    `plan` and agents of the configuration have their own rules; other modes are ways to run `build`. What `build` allows counts
    in `build` alone.
    """
    parts = [obj(values.get(key)) for key in ("agent", "mode")]
    is_own = mode not in MODES and any(mode in part for part in parts)
    name = mode if is_own or mode == PLAN else BUILD
    agents = [obj(part.get(name)) for part in parts]
    is_own_mode = mode in ("", name)

    def select(rules: Iterable[Rule]) -> tuple[Rule, ...]:
        return tuple(rule for rule in rules if is_own_mode or rule.action != "allow")

    tools = rules_from_config(permissions_of_tools(obj(values.get("tools"))))
    of_agents = select(rule for agent in agents for rule in rules_from_config(agent.get("permission")))
    rules = (*tools, *rules_from_config(values.get("permission")), *of_agents)
    ordered = (*_read_ordered(values), *select(rule for agent in agents for rule in _read_ordered(agent)))
    return combine(rules, ordered) if rules else ordered


def _read_ordered(values: Mapping[str, Any]) -> tuple[Rule, ...]:
    """The rules in the form of OpenCode 2, whose actions have other names."""
    rows = [obj(row) for row in arr(values.get(ORDERED))]
    names = [ACTION_NAMES.get(text(row.get("action")), row.get("action")) for row in rows]
    return rules_from_json(
        [
            {"permission": name, "pattern": row.get("resource"), "action": row.get("effect")}
            for name, row in zip(names, rows, strict=True)
        ]
    )


UNREAD = OpenCodeConfig({"permission": "ask"})
"""The configuration of a directory whose files were not read yet. It asks about every permission."""


@dataclass(frozen=True, slots=True)
class _FilesRead:
    """What a configuration was read from: the project's folders, and the stamps of all files at the time of the read."""

    folders: tuple[Path, ...]
    stamps: Mapping[str, Stamp]
    settled: bool
    """Whether no file changed within SETTLING_NS before the read."""


class _Configs(dict[str, OpenCodeConfig]):
    """Directory -> its last configuration; `UNREAD` if its files were not read yet."""

    def __missing__(self, directory: str) -> OpenCodeConfig:
        return UNREAD


WITHOUT_PROJECTS = ("OPENCODE_DISABLE_PROJECT_CONFIG", "OPENCODE_CONFIG_PROJECT_DISABLE")
"""Environment variables that make OpenCode 1.x and 2.x ignore project files."""


class ConfigFiles:
    """Reads and writes the configuration files, and caches each configuration until a file changes.

    `fresh` reads in a thread. `current` returns the last configuration without reading; `keep_current` keeps it up to date.
    In: the user's home and environment; `roots`, outside of which it reads no project file; `copies`, for skills of URLs.
    `{env:...}` sees only the variables that agents get: a repository's commands are sent to agents, which must not see this
    server's password.
    """

    def __init__(self, home: Path, environment: Mapping[str, str], roots: Sequence[str] = (), copies: Path | None = None) -> None:
        self._home, self._copies = home, copies
        self._environment = child_environment(environment, {})
        self._roots = tuple(roots)
        self._files: dict[str, _FilesRead] = {}
        self._configs = _Configs()
        self.current: Callable[[str], OpenCodeConfig] = self._configs.__getitem__
        """Returns the last configuration of a directory without reading the disk; `UNREAD` if there is none."""
        self._loading: dict[str, asyncio.Task[OpenCodeConfig]] = {}

    @property
    def home(self) -> Path:
        return self._home

    @property
    def folder(self) -> Path:
        base = self._environment.get("XDG_CONFIG_HOME", "")
        return (Path(base) if base.startswith("/") else self._home / ".config") / "opencode"

    @cached_property
    def skill_folders(self) -> SkillFolders:
        named = self._environment.get("OPENCODE_CONFIG_DIR")
        folders = (self.folder, self._home / ".opencode", *((Path(named),) if named else ()))
        return SkillFolders(self._home, folders, self._environment, self._copies)

    def skills(self, directory: str) -> list[Skill]:
        """List the skills that apply in a directory, by the configuration that was read last. Blocking."""
        config = self.current(directory)
        return self.skill_folders.find(directory, config.personal_values, config.project_values)

    # --- reading

    async def fresh(self, directory: str) -> OpenCodeConfig:
        """Return the configuration as of now. It checks the files in a thread, and reads them if one changed.

        If the disk does not answer within LOOK_LIMIT_S, it returns the last configuration.
        """
        try:
            async with asyncio.timeout(LOOK_LIMIT_S):
                if (task := self._loading.get(directory)) is not None:  # a file may have changed after that task checked it
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
        """Check the files of the directories in use every REFRESH_S, and forget others. Runs until it is cancelled."""
        while True:
            await asyncio.sleep(REFRESH_S)
            used = set(in_use()) if self._files else set[str]()
            for directory in used - self._loading.keys():
                self._look(directory)
            for directory in list(self._files)[:-CACHED_DIRECTORIES]:
                if directory not in used:
                    self._files.pop(directory, None)
                    self._configs.pop(directory, None)

    def load(self, directory: str) -> OpenCodeConfig:
        """Load the configuration of a directory, which need not exist. Blocking."""
        _need_thread()
        folders = () if self._without_projects() else self._folders(directory)
        files, config = self._files.get(directory), self._configs.get(directory)
        if files is None or config is None or not files.settled or files.folders != folders or _has_changed(files.stamps):
            config, self._files[directory] = self._read(directory, folders)
            self._configs[directory] = config
        return config

    def _read(self, directory: str, folders: tuple[Path, ...]) -> tuple[OpenCodeConfig, _FilesRead]:
        began_ns = time.time_ns()
        reader = ConfigReader(self._environment, _inside(folders))
        for name in GLOBAL_NAMES:
            reader.file(self.folder / name, "personal")
        if config_path := self._environment.get("OPENCODE_CONFIG"):
            reader.file(Path(config_path), "personal")
        for folder in folders:
            for name in PROJECT_NAMES:
                reader.file(folder / name, "project")
        reader.folder(self.folder, "personal")
        for folder in reversed(folders):
            self._read_folder(reader, folder / ".opencode", "project")
        self._read_folder(reader, self._home / ".opencode", "personal")
        if named := self._environment.get("OPENCODE_CONFIG_DIR"):
            self._read_folder(reader, Path(named), "personal")
        if content := self._environment.get("OPENCODE_CONFIG_CONTENT"):
            reader.text(content, "OPENCODE_CONFIG_CONTENT", Path(directory))
        if rules := self._environment.get("OPENCODE_PERMISSION"):
            reader.rules(rules, "OPENCODE_PERMISSION")
        sources, problems = reader.finish()
        settled = all(stamp is None or stamp[-1] < began_ns - SETTLING_NS for stamp in reader.stamps.values())
        config = OpenCodeConfig(merge(sources, self._defaults()), problems, sources, reader.has_unread_rules)
        return config, _FilesRead(folders, reader.stamps, settled)

    def _read_folder(self, reader: ConfigReader, folder: Path, origin: Origin) -> None:
        for name in PROJECT_NAMES:
            reader.file(folder / name, origin)
        reader.folder(folder, origin)

    def load_global(self) -> OpenCodeConfig:
        """Load the user's own files alone, as `GET /global/config` shows them. Blocking."""
        _need_thread()
        reader = ConfigReader(self._environment)
        for name in GLOBAL_NAMES:
            reader.file(self.folder / name, "personal")
        sources, problems = reader.finish()
        return OpenCodeConfig(merge(sources, {"$schema": SCHEMA}), problems, sources)

    def _folders(self, directory: str) -> tuple[Path, ...]:
        """The folders from the root of the repository down to the directory, as far as `roots` allow."""
        return tuple(Path(folder) for folder in folders_down_to(directory) if within(folder, self._roots))

    def _without_projects(self) -> bool:
        """Whether the environment disables project files, by the same variables as for OpenCode."""
        return any(self._environment.get(name, "").lower() in ("1", "true") for name in WITHOUT_PROJECTS)

    def _defaults(self) -> dict[str, Any]:
        """The keys that native OpenCode always returns."""
        person = self._environment.get("USER") or self._environment.get("LOGNAME") or self._home.name or "user"
        return {"$schema": SCHEMA, "command": {}, "plugin": [], "username": person, "mode": {}, "agent": {}}

    # --- writing

    def update(self, directory: str, changes: Mapping[str, Any]) -> Path:
        """Merge changes into the directory's own file that wins; None removes a key.

        Out: the file. Raises JsoncError if the file cannot be parsed (it stays unchanged), OSError if it cannot be written.
        """
        base = Path(directory)
        candidates = [folder / name for folder in (base / ".opencode", base) for name in reversed(PROJECT_NAMES)]
        path = next((path for path in candidates if path.is_file()), base / "opencode.json")
        place = os.path.realpath(path)
        if not is_in(place, _inside(self._folders(directory))):
            raise OSError(errno.EACCES, "it is a link that leads out of the project", str(path))
        return _write(path, changes)

    def update_global(self, changes: Mapping[str, Any]) -> Path:
        """Merge changes into the user's own file, as `update` does."""
        candidates = [self.folder / name for name in reversed(GLOBAL_NAMES)]
        return _write(next((path for path in candidates if path.is_file()), self.folder / "opencode.jsonc"), changes)


def _need_thread() -> None:
    """Raise RuntimeError on the event loop, because a disk that hangs would stop all sessions."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError("Configuration files are read in a thread: use `fresh`, or `current` for what was read last.")


def _has_changed(stamps: Mapping[str, Stamp]) -> bool:
    return any(stamp_of(path) != stamp for path, stamp in stamps.items())


def _inside(folders: Sequence[Path]) -> list[str]:
    """The resolved folder that must hold a project's files: the topmost of its folders."""
    return [os.path.realpath(folder) for folder in folders[:1]]


def _write(path: Path, changes: Mapping[str, Any]) -> Path:
    """Change a file atomically. A link (as dotfile managers create) stays a link."""
    target = path.resolve()
    old = target.read_bytes().decode("utf-8") if target.exists() else json.dumps({"$schema": SCHEMA}, indent=2) + "\n"
    new = jsonc.edit(old.replace("\r\n", "\n"), changes)
    if "\r\n" in old:
        new = new.replace("\n", "\r\n")
    if new == old and target.exists():
        return path
    target.parent.mkdir(parents=True, exist_ok=True)
    disk.put(target, new.encode(), (str(target.parent),), None if target.exists() else 0o644)
    return path


def unread_rules_notice(config: OpenCodeConfig) -> str:
    """What a person is told of rules that cannot be read: what it means, and the faults. "" if all can be read."""
    if not config.has_unread_rules:
        return ""
    words = "Until this is corrected, everything that a permission rule could be about is asked here:"
    return "\n".join((words, *describe(config.problems)))


def describe(problems: tuple[Problem, ...]) -> Iterator[str]:
    """Yield one readable line for each problem."""
    for problem in problems:
        yield f"{problem.path} {problem.message}".replace("\n", "")
