"""Reads the files of one configuration within bounds, and merges them. Blocking: call it in a thread.

Strangers may have written a project's files. The reader reads only regular files inside of the project, and at most a bounded
number of bytes, files and seconds per load. It leaves out and reports what exceeds a bound. The user's own files have separate
bounds, so that a project cannot use those up, and may refer to any file.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, cast

from shim.host.config import jsonc, markdown
from shim.lib import disk
from universal.lib.jsonvalue import obj
from universal.lib.paths import is_in

if TYPE_CHECKING:
    from shim.host.config.config_schema import ValidConfig
    from shim.lib.complaints import Fault

Origin: TypeAlias = Literal["personal", "project"]
"""Who wrote a source: the user (home, environment), or the repository that they work in."""
Stamp: TypeAlias = tuple[int, int, int, int, int] | None
"""Device, inode, size, mtime and ctime of a file; None if it does not exist."""

FILE_LIMIT_BYTES = 2**20
"""Maximum size of one configuration or command file. A larger one is reported as a problem."""
LOAD_LIMIT_BYTES = 4 * 2**20
"""Maximum size of all files of one origin in one load. It counts every text that `{file:...}` and `{env:...}` insert."""
LOAD_LIMIT_FILES = 1000
"""Maximum files of one origin that one load reads."""
LOAD_LIMIT_ENTRIES = 10_000
"""Maximum entries in command folders of one origin that one load visits."""
LOAD_LIMIT_S = 2.0
"""Maximum seconds that one load spends on the files of one origin."""
FOLDER_DEPTH_LIMIT = 16
"""Maximum levels of folders below a command folder."""
PROBLEMS_LIMIT = 50
"""Maximum problems that one load lists. It only counts the others."""
PROBLEM_LIMIT_CHARACTERS = 500
COMMAND_FOLDERS = ("command", "commands")
AGENT_FOLDERS = {"agents": None, "agent": None, "modes": "primary", "mode": "primary"}
"""Folder with markdown files of agents -> their `mode`, if the folder decides it. As in OpenCode, modes come after agents."""
OLD_TOOLS = {"write": "edit", "patch": "edit", "multiedit": "edit"}
"""Names under `tools` whose permission has another name."""
ACTIONS = ("allow", "ask", "deny")
ORDERED = "permissions"
"""The key of OpenCode 2's form of rules, a list of `{action, resource, effect}`. The lists of all sources follow each other."""
RULE_KEYS = ("permission", "tools", "agent", "mode")
"""Keys that may hold permission rules."""
GROWING_LISTS = frozenset({"plugin", "instructions"})
"""Lists that grow from source to source; any other list is replaced."""
NOT_UTF8 = "is not UTF-8: save it as UTF-8"
PLACEHOLDER = re.compile(r"\{(env|file):([^{}]+)\}")


class Problem(NamedTuple):
    """A fault in a configuration file. `message` continues the sentence that `path` begins."""

    path: str
    message: str


@dataclass(frozen=True, slots=True)
class Source:
    """A place that settings came from: a file, a folder with command files, or an environment variable."""

    path: str
    origin: Origin
    values: Mapping[str, Any]


class _LimitError(Exception):
    """A load would exceed a bound. The text says which one."""


@dataclass(slots=True)
class _Budget:
    """The bytes, files, entries and seconds left for the files of one origin."""

    bytes: int = LOAD_LIMIT_BYTES
    files: int = LOAD_LIMIT_FILES
    entries: int = LOAD_LIMIT_ENTRIES
    seconds: float = LOAD_LIMIT_S
    began: float = 0.0
    exceeded: bool = False

    def take(self, *, size: int = 0, files: int = 0, entries: int = 0) -> None:
        """Subtract work that the caller is about to do. Raises _LimitError."""
        self.bytes -= size
        self.files -= files
        self.entries -= entries
        if self.bytes < 0:
            raise _LimitError(f"more than {LOAD_LIMIT_BYTES} bytes of configuration")
        if self.files < 0:
            raise _LimitError(f"more than {LOAD_LIMIT_FILES} configuration files")
        if self.entries < 0:
            raise _LimitError(f"more than {LOAD_LIMIT_ENTRIES} entries in command folders")
        if time.monotonic() - self.began > self.seconds:
            raise _LimitError(f"configuration that takes more than {LOAD_LIMIT_S:g} seconds to read")


class ConfigReader:
    """Collects the sources of one load. A later source wins over an earlier one."""

    def __init__(self, environment: Mapping[str, str], inside: Sequence[str] = ()) -> None:
        """In: `inside`, the resolved folders that must hold a project's files; if empty, it reads no project files."""
        self._environment = environment
        self._inside = tuple(inside)
        self._budgets: dict[Origin, _Budget] = {"personal": _Budget(), "project": _Budget()}
        self._sources: list[Source | None] = []
        self._folders: list[tuple[int, Path, Origin]] = []
        self._texts: dict[tuple[str, Origin], str | None] = {}
        self._problems: list[Problem] = []
        self._unlisted = 0
        self.has_unread_rules = False
        """Whether a file that may hold permission rules could not be read or understood in full."""
        self.stamps: dict[str, Stamp] = {}
        """The stamp of each file and folder before it was read, including missing ones."""

    def file(self, path: Path, origin: Origin) -> None:
        with self._bounds(path, origin) as budget:
            text = self._read(path, origin, budget)
            if text is not None:
                self._add(text, str(path), path.parent, origin, budget)
            elif self._stamp(path) is not None:
                self.has_unread_rules = True
                if disk.is_folder(path):
                    self.problem(str(path), "is a folder: a file with JSON is expected, so move the folder away")
            elif os.path.islink(path):  # noqa: PTH114 - also for paths that pathlib refuses
                self.has_unread_rules = True
                self.problem(str(path), "is a link that leads nowhere: put the file there, or remove the link")

    def text(self, text: str, name: str, base: Path) -> None:
        """Add the user's JSON from an environment variable. `base`: the folder for relative `{file:...}` paths."""
        with self._bounds(name, "personal") as budget:
            budget.take(size=len(text))
            self._add(text, name, base, "personal", budget)

    def rules(self, text: str, name: str) -> None:
        """Add the user's permission rules, the value of `permission` as JSON, from an environment variable."""
        try:
            value = jsonc.loads(text)
        except jsonc.JsoncError:
            value = text  # `_add` says what is wrong with it
        self.text(json.dumps({"permission": value}), name, Path())

    def folder(self, folder: Path, origin: Origin) -> None:
        """Add the commands and agents below a configuration folder. `finish` reads them last: JSON gets the budget first."""
        self._folders.append((len(self._sources), folder, origin))
        self._sources.append(None)

    def finish(self) -> tuple[tuple[Source, ...], tuple[Problem, ...]]:
        """Return all non-empty sources, the winning one last, and all problems."""
        for index, folder, origin in self._folders:
            values = {"agent": self._agents_in(folder, origin), "command": self._commands_in(folder, origin)}
            if any(values.values()):
                self._sources[index] = Source(str(folder), origin, {key: value for key, value in values.items() if value})
        problems = self._problems
        if self._unlisted:
            problems = [*problems, Problem(problems[-1].path, f"is not the last: {self._unlisted} more problems are not listed")]
        return tuple(source for source in self._sources if source is not None), tuple(problems)

    # --- inside

    def _bounds(self, path: Path | str, origin: Origin) -> _Bounds:
        return _Bounds(self, str(path), origin, self._budgets[origin])

    def _add(self, text: str, name: str, base: Path, origin: Origin, budget: _Budget) -> None:
        try:
            value: Any = jsonc.loads(text) if text.strip() else dict[str, Any]()
        except jsonc.JsoncError as error:
            self.has_unread_rules = True
            self.problem(name, NOT_UTF8 if "\ufffd" in text or "\0" in text else f"is no JSON: {error}")
            return
        if not isinstance(value, dict):
            self.has_unread_rules = True
            self.problem(name, "must hold an object")
            return
        values = {key: inner for key, inner in cast("dict[str, Any]", value).items() if inner is not None}
        filled = self._fill(values, name, base, origin, budget)
        admitted = _admit(filled)
        if "\ufffd" in text or any(admitted.values.get(key) != filled.get(key) for key in RULE_KEYS):
            self.has_unread_rules = True
            if "\ufffd" in text:
                self.problem(name, NOT_UTF8)
        for line, fault in zip(jsonc.lines_of(text, [f.path for f in admitted.problems]), admitted.problems, strict=True):
            self.problem(name, _at_line(line, fault))
        ordered = self._ordered_rules(filled, name)
        if admitted.values or ordered:
            own = _with_permissions(admitted.values)
            for key, value in ordered.items():
                _merge(own, key, value)
            self._sources.append(Source(name, origin, own))

    def _ordered_rules(self, values: Mapping[str, Any], name: str) -> dict[str, Any]:
        """The rules in OpenCode 2's form, for all agents and for some, in the places of ours. Those that it cannot read ask."""
        agents = {**obj(values.get("agent")), **obj(values.get("mode")), **obj(values.get("agents"))}
        places = {"": values, **{agent: obj(value) for agent, value in agents.items()}}
        found = {agent: value[ORDERED] for agent, value in places.items() if value.get(ORDERED) is not None}
        for rows in found.values():
            if not isinstance(rows, list) or not all(map(_is_ordered_rule, cast("list[Any]", rows))):
                self.has_unread_rules = True
                self.problem(name, f"`{ORDERED}` must be a list of {{action, resource, effect}}; an effect is allow, ask or deny")
        of_agents = {agent: {ORDERED: rows} for agent, rows in found.items() if agent}
        of_all = {ORDERED: found[""]} if "" in found else {}
        return {**of_all, **({"agent": of_agents} if of_agents else {})}

    def _agents_in(self, folder: Path, origin: Origin) -> dict[str, Any]:
        """Read agents and modes by name, as in `agent`. One that cannot be read in full may have held rules."""
        agents: dict[str, Any] = {}
        for kind, mode in AGENT_FOLDERS.items():
            with self._bounds(folder / kind, origin) as budget:
                for path in sorted(self._markdown_below(folder / kind, origin, budget)):
                    text = self._read(path, origin, budget)
                    name = disk.printable(path.relative_to(folder / kind).with_suffix("").as_posix())
                    values, faults = _agent_of(text, mode)
                    if text is not None:
                        admitted = _admit({"agent": {name: values}})
                        places = (fault.path[2:] for fault in admitted.problems)  # below `agent` and its name
                        lines = (markdown.line_of(text, place) for place in places)
                        faults += tuple(map(_at_line, lines, admitted.problems))
                        ordered = self._ordered_rules({"agent": {name: values}}, str(path))
                        for key, value in (
                            *obj(_with_permissions(admitted.values).get("agent")).items(),
                            *obj(ordered.get("agent")).items(),
                        ):
                            _merge(agents, key, value)
                    if text is None or faults or "\ufffd" in text:
                        self.has_unread_rules = True
                    if text is None and self._stamp(path) is None:
                        faults = ("is a link that leads nowhere: put the file there, or remove the link",)
                    elif "\ufffd" in (text or ""):
                        faults = (NOT_UTF8,)
                    for fault in faults:
                        self.problem(str(path), fault)
        return agents

    def _commands_in(self, folder: Path, origin: Origin) -> dict[str, Any]:
        """Read commands by name. The name is the file's path below the folder, without `.md`. They hold no rules."""
        commands: dict[str, Any] = {}
        unread = self.has_unread_rules
        for kind in COMMAND_FOLDERS:
            with self._bounds(folder / kind, origin) as budget:
                for path in sorted(self._markdown_below(folder / kind, origin, budget)):
                    text = self._read(path, origin, budget)
                    if text is None:
                        continue
                    document = markdown.parse(text)
                    name = disk.printable(path.relative_to(folder / kind).with_suffix("").as_posix())
                    admitted = _admit({"command": {name: {**document.head, "template": document.body}}})
                    for fault in admitted.problems:
                        self.problem(str(path), _at_line(markdown.line_of(text, fault.path[2:]), fault))
                    commands.update(admitted.values.get("command") or {})
        self.has_unread_rules = unread
        return commands

    def _markdown_below(self, folder: Path, origin: Origin, budget: _Budget) -> Iterator[Path]:
        """Yield markdown files at any depth. It follows links to folders and visits each folder once."""
        visited: set[tuple[int, int]] = set()
        stack = [(folder, 0)]
        while stack:
            current, depth = stack.pop()
            stamp = self._stamp(current)
            if stamp is None and os.path.islink(current):  # noqa: PTH114 - also for paths that pathlib refuses
                self.has_unread_rules = True
                self.problem(str(current), "is a link that leads nowhere: put the folder there, or remove the link")
            if stamp is None or stamp[:2] in visited or not disk.is_folder(current):
                continue
            visited.add(stamp[:2])
            if not self._may_read(current, origin):
                self.has_unread_rules = True
                self.problem(str(current), "leads out of the project and is left out: put the folder into the project")
                continue
            try:
                with os.scandir(current) as entries:
                    for entry in entries:
                        budget.take(entries=1)
                        if entry.is_dir():
                            if depth < FOLDER_DEPTH_LIMIT:
                                stack.append((current / entry.name, depth + 1))
                        elif entry.name.endswith(".md"):
                            yield current / entry.name
            except OSError as error:
                self.has_unread_rules = True
                self.problem(str(current), f"cannot be read: {error.strerror}")

    def _may_read(self, path: Path, origin: Origin) -> bool:
        place = os.path.realpath(path)
        return origin == "personal" or is_in(place, self._inside)

    def _read(self, path: Path, origin: Origin, budget: _Budget) -> str | None:
        """Read a file once per load; None if it is missing or may not be read."""
        key = (str(path), origin)
        if key not in self._texts:
            self._texts[key] = self._read_once(path, origin, budget)
        return self._texts[key]

    def _read_once(self, path: Path, origin: Origin, budget: _Budget) -> str | None:
        if "\0" in str(path) or self._stamp(path) is None:
            return None
        if not self._may_read(path, origin):
            self.problem(str(path), "leads out of the project and is left out")
            return None
        if not disk.is_file(path):
            if not disk.is_folder(path):
                self.problem(str(path), "is no regular file and is left out")
            return None
        budget.take(files=1)
        try:
            with disk.open_confined(path, self._inside if origin == "project" else ()) as (file, state):
                raw = file.read(FILE_LIMIT_BYTES + 1) if disk.is_regular(state) else b""
        except OSError as error:
            self.problem(str(path), f"cannot be read: {error.strerror}")
            return None
        if len(raw) > FILE_LIMIT_BYTES:
            self.problem(str(path), f"is larger than {FILE_LIMIT_BYTES} bytes")
            return None
        budget.take(size=len(raw))
        return raw.decode("utf-8", "replace")

    def _stamp(self, path: Path) -> Stamp:
        name = str(path)
        if name not in self.stamps:
            self.stamps[name] = stamp_of(name)
            if self.stamps[name] is None and _is_hidden(name):
                self.has_unread_rules = True
                hidden = Problem(str(path.parent), "cannot be looked into: give the user of this server the right to read it")
                if hidden not in self._problems:
                    self.problem(*hidden)
        return self.stamps[name]

    def _fill(self, value: Any, name: str, base: Path, origin: Origin, budget: _Budget) -> Any:
        """Replace the placeholders in all texts of a value."""

        def replacement(match: re.Match[str]) -> str:
            text = self._placeholder(match[1], match[2].strip(), name, base, origin, budget)
            budget.take(size=len(text))
            return text

        def fill(inner: Any) -> Any:
            if isinstance(inner, str):
                return PLACEHOLDER.sub(replacement, inner)
            if isinstance(inner, list):
                return [fill(member) for member in cast("list[Any]", inner)]
            if isinstance(inner, dict):
                return {key: fill(member) for key, member in cast("dict[str, Any]", inner).items()}
            return inner

        return fill(value)

    def _placeholder(self, kind: str, argument: str, name: str, base: Path, origin: Origin, budget: _Budget) -> str:
        if kind == "env":
            return self._environment.get(argument, "")
        home = self._environment.get("HOME", "~")
        text = self._read(base / (home + argument[1:] if argument.startswith("~/") else argument), origin, budget)
        if text is None:
            self.problem(name, f"{{file:{argument}}} cannot be read")
        return (text or "").strip()

    def problem(self, path: str, message: str) -> None:
        """Report a problem. Beyond PROBLEMS_LIMIT it is only counted."""
        if len(self._problems) >= PROBLEMS_LIMIT:
            self._unlisted += 1
        else:
            self._problems.append(Problem(path, message[:PROBLEM_LIMIT_CHARACTERS]))


class _Bounds:
    """Charges the time of a source to its origin's budget, and reports the first source that exceeds it."""

    def __init__(self, reader: ConfigReader, path: str, origin: Origin, budget: _Budget) -> None:
        self._reader, self._path, self._origin, self._budget = reader, path, origin, budget

    def __enter__(self) -> _Budget:
        self._budget.began = time.monotonic()
        return self._budget

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        self._budget.seconds -= time.monotonic() - self._budget.began
        if error is not None and not isinstance(error, _LimitError):
            return False
        if error is not None and not self._budget.exceeded:
            self._budget.exceeded = True
            self._reader.has_unread_rules = True
            owner = "This project has" if self._origin == "project" else "Your own files have"
            self._reader.problem(self._path, f"is left out, and so is what comes after it. {owner} {error}: make it smaller.")
        return True


def stamp_of(path: str) -> Stamp:
    """A value that changes when a file or a folder's list changes. It follows links."""
    try:
        state = os.stat(path)  # noqa: PTH116 - also for paths that pathlib refuses
    except (OSError, ValueError):
        return None
    return (state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns)


def _is_hidden(path: str) -> bool:
    """Whether a file may exist that this process has no right to see."""
    try:
        os.stat(path)  # noqa: PTH116 - also for paths that pathlib refuses
    except PermissionError:
        return True
    except (OSError, ValueError):
        return False
    return False


def _admit(values: Mapping[str, Any]) -> ValidConfig:
    """Validate one file's values. The import is late: most users have no file, and these models take 1/30 of the start time."""
    from shim.host.config.config_schema import admit

    return admit(values)


def _at_line(line: int, fault: Fault) -> str:
    """The sentence of a fault with its line, if that is known."""
    return f"line {line}: {fault.message}" if line else fault.message


def _agent_of(text: str | None, mode: str | None) -> tuple[dict[str, Any], tuple[str, ...]]:
    """An agent's values from its markdown file, and its faults. In: the mode that its folder decides."""
    try:
        head, body = markdown.nested_head(text or "")
        values = json.loads(json.dumps({**head, "prompt": body, **({} if mode is None else {"mode": mode})}))
    except (ValueError, TypeError) as error:
        return {}, (f"cannot be read: {error}",)
    return values, ()


def _with_permissions(values: dict[str, Any]) -> dict[str, Any]:
    """The values with the `tools` of each agent as `permission` too, before its own rules, as OpenCode reads each source."""
    changed = dict(values)
    for key in ("agent", "mode"):
        for name, agent in obj(values.get(key)).items():
            if tools := obj(obj(agent).get("tools")):
                own = obj(agent).get("permission")
                rules = {"*": own} if isinstance(own, str) else obj(own)
                permission = {**permissions_of_tools(tools), **rules}
                changed[key] = {**changed[key], name: {**agent, "permission": permission}}
    return changed


def permissions_of_tools(tools: Mapping[str, Any]) -> dict[str, str]:
    """The permissions that `tools`, the older form, stands for."""
    return {OLD_TOOLS.get(name, name): "allow" if on else "deny" for name, on in tools.items() if on is not None}


@dataclass(slots=True)
class _Merger:
    """Merges sources key by key, in linear time."""

    values: dict[str, Any] = field(default_factory=dict[str, Any])
    _members: dict[str, set[str]] = field(default_factory=dict[str, "set[str]"])

    def add(self, values: Mapping[str, Any]) -> None:
        for key, value in values.items():
            if key in GROWING_LISTS and isinstance(value, list):
                members = self._members.setdefault(key, set())
                into = cast("list[Any]", self.values.setdefault(key, []))
                for member in cast("list[Any]", value):
                    text = json.dumps(member, sort_keys=True)
                    if text not in members:
                        members.add(text)
                        into.append(member)
            else:
                _merge(self.values, key, value)


def _is_ordered_rule(row: Any) -> bool:
    return all(isinstance(obj(row).get(key), str) for key in ("action", "resource")) and obj(row).get("effect") in ACTIONS


def _merge(into: dict[str, Any], key: str, value: Any) -> None:
    old = into.get(key)
    if key == ORDERED and isinstance(old, list) and isinstance(value, list):
        value = [*cast("list[Any]", old), *cast("list[Any]", value)]
    if isinstance(old, dict) and isinstance(value, dict):
        for inner_key, inner in cast("dict[str, Any]", value).items():
            _merge(cast("dict[str, Any]", old), inner_key, inner)
    else:
        into[key] = _copy(value)


def _copy(value: Any) -> Any:
    """Copy objects, because merging changes them in place. Other values never change."""
    if isinstance(value, dict):
        return {key: _copy(inner) for key, inner in cast("dict[str, Any]", value).items()}
    return value


def merge(sources: Sequence[Source], defaults: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Merge all sources into one value. The later one wins, key by key; `plugin` and `instructions` are concatenated."""
    merger = _Merger()
    for values in (defaults or {}, *(source.values for source in sources)):
        merger.add(values)
    return merger.values
