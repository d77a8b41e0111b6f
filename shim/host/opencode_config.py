"""The person's OpenCode configuration: read from where native OpenCode reads it, and written on request.

    ~/.config/opencode/{config.json,opencode.json,opencode.jsonc}     the person's
    $OPENCODE_CONFIG                                                  a file of their choice
    opencode.jsonc, opencode.json                                     from the root of the repository down to the directory
    .opencode/{opencode.jsonc,opencode.json}                          the same
    $OPENCODE_CONFIG_CONTENT                                          JSON itself

Later ones win, key by key; `plugin` and `instructions` add up. Commands are also `command/**/*.md` (or `commands`) in
`~/.config/opencode` and in each `.opencode`. `{env:NAME}` and `{file:path}` in texts are replaced. Model, permission
rules and commands are used here; the rest is only shown to clients.

A faulty file never stops anything: what is wrong in it is left out and told (`problems`), while native refuses all requests
of the directory. A change of a project goes to a file that is read again; native writes a `config.json` which it never reads.
Source: a live OpenCode 1.18.33; recordings `endpoints`, `misc`.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from shim.host import jsonc, markdown
from shim.runtime.environment import child_environment
from universal.frozen import frozen
from universal.jsonvalue import obj

if TYPE_CHECKING:
    from shim.opencode.config import Admitted

SCHEMA = "https://opencode.ai/config.json"
GLOBAL_NAMES = ("config.json", "opencode.json", "opencode.jsonc")
PROJECT_NAMES = ("opencode.jsonc", "opencode.json")
COMMAND_FOLDERS = ("command", "commands")
ADDED_UP = frozenset({"plugin", "instructions"})
FILE_LIMIT_BYTES = 2**20
"""Of one configuration or command file. Larger ones are mistakes and are reported."""
PLACEHOLDER = re.compile(r"\{(env|file):([^{}]+)\}")


class Problem(NamedTuple):
    """What is wrong with a file, in a sentence that names the place."""

    path: str
    message: str


@frozen
class ConfigCommand:
    """A slash command of the person's own. `template` has `$1`, `$ARGUMENTS`, `@file` and !`shell` still in it."""

    name: str
    template: str
    description: str = ""
    agent: str | None = None
    model: str | None = None
    subtask: bool = False


@frozen
class OpenCodeConfig:
    """Everything merged. `values` satisfies OpenCode's `Config` schema."""

    values: Mapping[str, Any]
    problems: tuple[Problem, ...] = ()

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


class ConfigFiles:
    """Reads and writes them. Calls touch the disk, briefly; nothing is cached, so an edit holds at once.

    In: the person's home and environment; nothing else of the machine. Texts may name of it what agents get too (`{env:...}`):
    a repository's commands are sent to them, and this server's password is not theirs.
    """

    def __init__(self, home: Path, environment: Mapping[str, str]) -> None:
        self._home = home
        self._environment = child_environment(environment, {})

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

    def load(self, directory: str) -> OpenCodeConfig:
        """What holds in a directory, which need not exist."""
        reader = _Reader(self._environment)
        for name in GLOBAL_NAMES:
            reader.file(self.folder / name)
        if chosen := self._environment.get("OPENCODE_CONFIG"):
            reader.file(Path(chosen))
        folders = _down_to(Path(directory))
        for folder in folders:
            for name in PROJECT_NAMES:
                reader.file(folder / name)
        reader.commands(self.folder)
        for folder in folders:
            for name in PROJECT_NAMES:
                reader.file(folder / ".opencode" / name)
            reader.commands(folder / ".opencode")
        if content := self._environment.get("OPENCODE_CONFIG_CONTENT"):
            reader.text(content, "OPENCODE_CONFIG_CONTENT", Path(directory))
        return reader.result(self._defaults())

    def load_global(self) -> OpenCodeConfig:
        """The person's own files alone, as `GET /global/config` shows them."""
        reader = _Reader(self._environment)
        for name in GLOBAL_NAMES:
            reader.file(self.folder / name)
        return reader.result({"$schema": SCHEMA})

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
        return _write(next((path for path in candidates if path.is_file()), base / "opencode.json"), changes)

    def update_global(self, changes: Mapping[str, Any]) -> Path:
        """The same for the person's own file."""
        candidates = [self.folder / name for name in reversed(GLOBAL_NAMES)]
        return _write(next((path for path in candidates if path.is_file()), self.folder / "opencode.jsonc"), changes)


def _admit(values: Mapping[str, Any]) -> Admitted:
    """Imported with the first file: most people have none, and the models of one take a thirtieth of a start."""
    from shim.opencode.config import admit

    return admit(values)


class _Reader:
    """Collects files into one value. One per load."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._values: dict[str, Any] = {}
        self._problems: list[Problem] = []

    def file(self, path: Path) -> None:
        text = self._read(path)
        if text is not None:
            self.text(text, str(path), path.parent)

    def text(self, text: str, origin: str, base: Path) -> None:
        """One source. `base`: what `{file:...}` is relative to."""
        try:
            value: Any = jsonc.loads(text) if text.strip() else dict[str, Any]()
        except jsonc.JsoncError as error:
            self._problems.append(Problem(origin, f"is no JSON: {error}"))
            return
        if not isinstance(value, dict):
            self._problems.append(Problem(origin, "must hold an object"))
            return
        values = {key: inner for key, inner in cast("dict[str, Any]", value).items() if inner is not None}
        admitted = _admit(self._filled(values, origin, base))
        self._problems += [Problem(origin, problem) for problem in admitted.problems]
        _merge(self._values, admitted.values)

    def commands(self, folder: Path) -> None:
        """Command files below a configuration folder; the name is the path without `.md`."""
        for kind in COMMAND_FOLDERS:
            for path in sorted((folder / kind).glob("**/*.md")):
                text = self._read(path)
                if text is None:
                    continue
                document = markdown.parse(text)
                name = path.relative_to(folder / kind).with_suffix("").as_posix()
                admitted = _admit({"command": {name: {**document.head, "template": document.body}}})
                self._problems += [Problem(str(path), problem) for problem in admitted.problems]
                _merge(self._values, admitted.values)

    def result(self, defaults: dict[str, Any]) -> OpenCodeConfig:
        _merge(defaults, self._values)
        return OpenCodeConfig(defaults, tuple(self._problems))

    def _read(self, path: Path) -> str | None:
        try:
            if not path.is_file():
                return None
            with path.open("rb") as file:
                raw = file.read(FILE_LIMIT_BYTES + 1)
        except OSError as error:
            self._problems.append(Problem(str(path), f"cannot be read: {error.strerror}"))
            return None
        if len(raw) > FILE_LIMIT_BYTES:
            self._problems.append(Problem(str(path), f"is larger than {FILE_LIMIT_BYTES} bytes"))
            return None
        return raw.decode("utf-8", "replace")

    def _filled(self, value: Any, origin: str, base: Path) -> Any:
        """Placeholders replaced, in all texts of a value."""
        if isinstance(value, str):
            return PLACEHOLDER.sub(lambda found: self._placeholder(found[1], found[2].strip(), origin, base), value)
        if isinstance(value, list):
            return [self._filled(inner, origin, base) for inner in cast("list[Any]", value)]
        if isinstance(value, dict):
            return {key: self._filled(inner, origin, base) for key, inner in cast("dict[str, Any]", value).items()}
        return value

    def _placeholder(self, kind: str, name: str, origin: str, base: Path) -> str:
        if kind == "env":
            return self._environment.get(name, "")
        home = self._environment.get("HOME", "~")
        text = self._read(base / (home + name[1:] if name.startswith("~/") else name))
        if text is None:
            self._problems.append(Problem(origin, f"{{file:{name}}} cannot be read"))
        return (text or "").strip()


def _down_to(directory: Path) -> list[Path]:
    """The folders from the root of its repository down to it; only itself outside of git."""
    above = [directory, *directory.parents]
    root = next((index for index, folder in enumerate(above) if (folder / ".git").exists()), 0)
    return list(reversed(above[: root + 1]))


def _merge(into: dict[str, Any], values: Mapping[str, Any]) -> None:
    for key, value in values.items():
        old = into.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            copy = dict(cast("dict[str, Any]", old))
            _merge(copy, cast("dict[str, Any]", value))
            into[key] = copy
        elif key in ADDED_UP and isinstance(old, list) and isinstance(value, list):
            added = cast("list[Any]", old)
            into[key] = added + [one for one in cast("list[Any]", value) if one not in added]
        else:
            into[key] = value


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
