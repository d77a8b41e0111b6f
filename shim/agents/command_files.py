"""Reads the slash commands that lie in files: those of a project and of the person, by the table of each agent's folders.

Each call looks at the files, and so follows their changes; a file is read again when its stamp has changed. Strangers may have
written a project's files: a look is bounded in files, entries and bytes, and follows no link out of the repository. Blocking.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from shim.host.config import markdown
from shim.host.files.roots import folders_down_to, repository_of, within
from shim.lib import disk
from universal.lib.jsonvalue import arr, obj, text
from universal.lib.paths import expand
from universal.slash_commands import CommandFolder, CommandSources, PluginFolders, SlashCommand

FILE_LIMIT_BYTES = 2**20
"""Maximum size of one file. A larger one is no command."""
FILES_LIMIT = 500
ENTRIES_LIMIT = 5000
"""Maximum entries of one folder, and of all below it, that are looked at."""
PLUGINS_LIMIT = 100
CACHED_FILES = 5000
KEPT_DIRECTORIES = 500
"""Maximum directories, for each agent, whose names are kept."""
DESCRIPTION_CHARS = 1000
SKILL = "SKILL.md"
NO_DESCRIPTION = "Custom command"
"""Claude Code's own words for a command that says nothing about itself."""


@dataclass(frozen=True, slots=True)
class _File:
    """What a file says. `keys`: those of its head that have a value; `denied`: those that are `false`."""

    name: str
    description: str
    first_line: str
    hint: str
    keys: frozenset[str]
    denied: frozenset[str]


class CommandFiles:
    """Finds the commands in files. In: `environ`, the person's; `roots`, the folders that may be read, none for all."""

    def __init__(self, environ: Mapping[str, str], roots: Sequence[str] = ()) -> None:
        self._environ = environ
        self._roots = tuple(roots)
        self._read: dict[str, tuple[object, _File | None]] = {}
        self._names: dict[tuple[str, CommandSources], frozenset[str]] = {}
        """(directory, sources) -> all names that were ever found."""

    def find(self, directory: str, sources: CommandSources, *, with_project: bool) -> tuple[SlashCommand, ...]:
        """List the commands in a directory. `with_project`: False leaves out what the project brings."""
        found: dict[str, SlashCommand] = {}
        above = [folder for folder in reversed(folders_down_to(directory)) if within(folder, self._roots)] if with_project else []
        inside = [repository_of(directory)]
        for folder in sources.folders:
            if folder.is_personal:
                path = expand(folder.path, self._environ)
                places = [] if path is None else [path]
            else:
                places = [Path(base, folder.path) for base in (above if folder.is_everywhere else above[:1])]
            for path in places:
                for command in self._commands_in(path, folder, [] if folder.is_personal else inside):
                    found.setdefault(command.name, command)
        if sources.plugins is not None and above:
            for command in self._commands_of_plugins(sources.plugins, above, inside):
                found.setdefault(command.name, command)
        key = directory, sources
        names = self._names.pop(key, frozenset[str]()).union(found)
        self._names[key] = frozenset(islice(names, FILES_LIMIT))
        while len(self._names) > KEPT_DIRECTORIES:
            self._names.pop(next(iter(self._names)), None)  # another thread may have taken it
        return tuple(found.values())

    def removed_names(self, directory: str, sources: CommandSources, found: Iterable[SlashCommand]) -> frozenset[str]:
        """Return the names that earlier looks have found, and that are not in `found` any more."""
        return self._names.get((directory, sources), frozenset()).difference(command.name for command in found)

    def _commands_in(self, path: Path, folder: CommandFolder, inside: Sequence[str]) -> Iterator[SlashCommand]:
        documents = (file for file in _walk(path, folder.depth) if file.suffix == ".md")
        for file in islice(_skills_below(path, folder.depth) if folder.form == "skills" else documents, FILES_LIMIT):
            document = self._file(file, inside)
            if document is None or folder.hidden_by in document.denied:
                continue
            if folder.form == "skills":
                name = document.name or file.parent.name
                if not document.keys.issuperset(folder.needs):
                    continue
            else:
                relative = file.relative_to(path)
                name = ":".join((relative.parent if file.name == SKILL else relative.with_suffix("")).parts)
            if name and name.isprintable() and not any(map(str.isspace, name)):
                description = document.description or document.first_line or NO_DESCRIPTION
                yield SlashCommand(folder.name.format(name), description, document.hint, folder.mark, is_file=True)

    def _commands_of_plugins(self, plugins: PluginFolders, above: Sequence[str], inside: Sequence[str]) -> Iterator[SlashCommand]:
        enabled: dict[str, None] = {}
        for base in above:
            for name in plugins.enabled:
                rows = obj(_json(Path(base, name), inside).get("enabledPlugins"))
                enabled.update(dict.fromkeys(id_ for id_, value in rows.items() if value is True))
        if not enabled:
            return
        places = (expand(name, self._environ) for name in plugins.installed)
        installed = next((path for path in places if path is not None and disk.is_file(path)), None)
        rows = obj(_json(installed, []).get("plugins")) if installed is not None else {}
        for id_ in islice(enabled, PLUGINS_LIMIT):
            copies = [text(obj(row).get("installPath")) for row in arr(rows.get(id_))]
            if path := next(filter(None, copies), ""):
                plugin = id_.partition("@")[0]
                for folder in plugins.folders:
                    for command in self._commands_in(Path(path, folder.path), folder, []):
                        yield replace(command, name=f"{plugin}:{command.name}")

    def _file(self, path: Path, inside: Sequence[str]) -> _File | None:
        """Read a file, or return what was read of it before. None if it may not be read or is no text."""
        try:
            state = path.stat()
        except (OSError, ValueError):
            return None
        stamp = state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns, tuple(inside)
        before = self._read.get(str(path))
        if before is not None and before[0] == stamp:
            return before[1]
        document = _parse(path, inside)
        if len(self._read) >= CACHED_FILES:
            self._read.clear()
        self._read[str(path)] = stamp, document
        return document


def _parse(path: Path, inside: Sequence[str]) -> _File | None:
    source = _text(path, inside)
    if source is None:
        return None
    head, body = markdown.parse(source)
    first = next((line.strip().lstrip("#").strip() for line in body.splitlines() if line.strip()), "")
    return _File(
        str(head.get("name") or ""),
        str(head.get("description") or "")[:DESCRIPTION_CHARS],
        first[:DESCRIPTION_CHARS],
        str(head.get("argument-hint") or "")[:DESCRIPTION_CHARS],
        frozenset(key for key, value in head.items() if value),
        frozenset(key for key, value in head.items() if value is False),
    )


def _text(path: Path, inside: Sequence[str]) -> str | None:
    try:
        return disk.read_small(path, FILE_LIMIT_BYTES, inside).decode("utf-8", "replace")
    except (OSError, ValueError):
        return None


def _json(path: Path, inside: Sequence[str]) -> dict[str, Any]:
    """Read an object; an empty one stands for a file that is missing or holds something else."""
    try:
        return obj(json.loads(_text(path, inside) or "{}"))
    except (ValueError, RecursionError):
        return {}


def _skills_below(folder: Path, depth: int) -> Iterator[Path]:
    """The `SKILL.md` of each folder. What lies below a skill belongs to it."""
    skills: set[Path] = set()
    for path in _walk(folder, depth + 1):
        if path.name == SKILL and path.parent != folder and skills.isdisjoint(path.parents):
            skills.add(path.parent)
            yield path


def _walk(folder: Path, depth: int) -> Iterator[Path]:
    """Yield the files of a folder, then those of the folders in it, `depth` levels down, by name."""
    pending: list[tuple[Path, int]] = [(folder, depth)]
    left = ENTRIES_LIMIT
    while pending and left > 0:
        current, levels = pending.pop(0)
        entries = _entries(current, left)
        left -= len(entries)
        for entry in entries:
            if _is_folder(entry):
                if levels > 1 and entry.name != "node_modules":
                    pending.append((Path(entry.path), levels - 1))
            else:
                yield Path(entry.path)


def _entries(folder: Path, limit: int) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted(islice(entries, limit), key=lambda entry: entry.name)
    except (OSError, ValueError):
        return []


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def merge(*lists: Iterable[SlashCommand]) -> tuple[SlashCommand, ...]:
    """Join lists of commands. Of a name that occurs twice, the place is the first one's, the value the last one's."""
    return tuple({command.name: command for commands in lists for command in commands}.values())
