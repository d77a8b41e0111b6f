"""Finds the settings in a project that would run a program or allow a call when an agent starts in it.

`ProjectScanner.look` reads the settings files of agents, from the root of the repository down to the directory, and returns one
`ProjectSetting` for each entry that runs or allows something, by the tables of `shim.host.trust.settings_rules`.

A scan is bounded in bytes and files, follows no link out of the repository and opens no device. A file that it cannot read
counts as a setting too.
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
import os
import re
import shlex
import stat
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from threading import Lock
from typing import TypeAlias

from shim.host.files.roots import folders_down_to
from shim.host.trust.settings_rules import ANY, FILES, WHOLE_FILES, Effect, File
from shim.lib import disk

FILE_LIMIT_BYTES = 2**20
"""Maximum size of one settings file. A larger one is not read and counts as unknown."""
TOTAL_LIMIT_BYTES = 8 * 2**20
"""Maximum size of all files that one scan reads."""
FILES_LIMIT = 400
"""Maximum files and folders that one scan touches. All others count as one unknown entry."""
DEPTH_LIMIT = 4
"""Maximum levels that a scan descends below a folder of plugins, skills or agents."""
VALUE_CHARS = 300
"""Maximum characters of an entry that are shown."""
CACHED_DIRECTORIES = 256
"""Maximum directories whose last result is cached."""


@dataclass(frozen=True, slots=True)
class ProjectSetting:
    """A setting that runs or allows something. `digest` changes with its content.

    `family`: the agents that read it; ANY if this server applies it.
    """

    family: str
    path: str
    key: str
    value: str
    effect: Effect
    digest: str = ""

    @property
    def line(self) -> str:
        """One readable line: file, key and command."""
        return f"{self.path}  {self.key}: {self.value}" if self.value else f"{self.path}  {self.key}"


@dataclass(frozen=True, slots=True)
class ProjectSettings:
    """All settings of a directory, in file order. `root`: the repository's, or the directory itself."""

    root: str
    settings: tuple[ProjectSetting, ...] = ()

    def read_by(self, families: Iterable[str]) -> ProjectSettings:
        """Select the settings that agents of these families read, and those that this server applies."""
        selection = {*families, ANY}
        rows: dict[object, ProjectSetting] = {}
        for row in self.settings:
            if row.family in selection:  # an entry that both the agent and this server apply counts as the agent's
                rows.setdefault((row.path, row.key, row.value, row.digest), row)
        return ProjectSettings(self.root, tuple(rows.values()))

    @property
    def digest(self) -> str:
        """A hash of all settings; empty if there is none."""
        if not self.settings:
            return ""
        rows = sorted((s.family, s.path, s.key, s.digest) for s in self.settings)
        return hashlib.blake2b(json.dumps(rows).encode(), digest_size=16).hexdigest()


READ_ABOVE = frozenset({".mcp.json", "opencode.json", "opencode.jsonc", ".opencode"})
"""Files and folders that agents also read above the project, up to the root of the file system, wherever a `.git` or a link is.

Claude Code starts the servers of each `.mcp.json`, OpenCode those of each `opencode.json` (tried with 2.1.330 and 1.18.33).
"""


_BUILD_FILES = {
    **dict.fromkeys(("npm", "npx", "pnpm", "yarn", "bun"), ("package.json",)),
    "make": ("Makefile", "makefile", "GNUmakefile"),
    "just": ("justfile", "Justfile"),
    "task": ("Taskfile.yml", "Taskfile.yaml"),
}
"""Program -> the file of the folder in which it finds what it runs."""


# --- reading -------------------------------------------------------------------------------------------------------

_Stamp: TypeAlias = tuple[int, ...] | None


class _Unreadable(Exception):
    """The file exists and cannot be read. The text says why."""


class _Look:
    """One scan of one directory: its settings, and the stamps of all files that it touched."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.bound = root
        """The folder that the files of this scan may not lead out of."""
        self.settings: list[ProjectSetting] = []
        self.stamps: dict[str, _Stamp] = {}
        self._budget_bytes = TOTAL_LIMIT_BYTES
        self._texts: dict[str, str] = {}

    def folder(self, folder: str, *, only: Collection[str] = ()) -> None:
        for row in FILES:
            name = row.path.partition("/")[0]
            if only and name not in only:
                continue
            top = f"{folder}/{name}"
            if self.stamp(top) is None:  # without `.claude`, nothing below it needs a check
                continue
            path = f"{folder}/{row.path}"
            if row.names:
                self._files_in(row, path, DEPTH_LIMIT)
            else:
                self._file(row, path)

    def stamp(self, path: str) -> _Stamp:
        if path not in self.stamps:
            self.stamps[path] = _stamp_of(path)
        return self.stamps[path]

    def _files_in(self, row: File, folder: str, depth: int) -> None:
        stamp = self.stamp(folder)
        if stamp is None or not stat.S_ISDIR(stamp[0]):
            return
        if self._leads_out(folder):
            self._add(row, folder, "link", os.path.realpath(folder), "runs", repr(stamp))
            return
        for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
            if len(self.stamps) > FILES_LIMIT:
                self._add(row, folder, "more files", f"more than {FILES_LIMIT}: not all were looked at", "runs", repr(stamp))
                return
            if any(fnmatch.fnmatch(entry.name, pattern) for pattern in row.names) and not entry.is_dir():
                self._file(row, entry.path)
            elif entry.is_dir() and entry.name != "node_modules" and depth > 1:
                self._files_in(row, entry.path, depth - 1)

    def _file(self, row: File, path: str) -> None:
        if self.stamp(path) is None:
            return
        try:
            source = self._read(path)
            for key, value, effect in row.parse(source):
                content = (
                    source
                    if row.parse in WHOLE_FILES
                    else value + self._content_of_command(value, path.removesuffix(row.path).rstrip("/"))
                )
                self._add(row, path, key, value, effect, content)
        except _Unreadable as error:
            self._add(row, path, "unknown", str(error), "runs", repr(self.stamp(path)))
        except (ValueError, RecursionError) as error:  # no JSON, no TOML
            reason = f"cannot be read: {error}".partition("\n")[0]
            self._add(row, path, "unknown", reason, "runs", repr(self.stamp(path)))

    def _add(self, row: File, path: str, key: str, value: str, effect: Effect, content: str) -> None:
        digest = hashlib.blake2b(content.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
        relative = os.path.relpath(path, self.root)
        self.settings.append(ProjectSetting(row.family, _plain(relative), _plain(key), _plain(value), effect, digest))

    def _content_of_command(self, command: str, folder: str) -> str:
        """Read the repository's files that a command names, so that a changed hook script changes the digest.

        In: `folder`, the one with the settings. A name counts from there, from the root, and from where the command goes.
        """
        try:
            words = shlex.split(re.sub(r"[;|&()<>]", " ", command))[:50]
        except ValueError:  # a quote without an end
            words = command.split()[:50]
        names: list[str] = []
        for word, following in zip(words, [*words[1:], ""], strict=True):
            plain = re.sub(r"^\$\{?(CLAUDE_PROJECT_DIR|GEMINI_PROJECT_DIR|PWD)\}?/", "", word)
            names += [plain, *re.split(r"[=\s{}]+", plain), *_BUILD_FILES.get(word.rpartition("/")[2], ())]
            if word == "-m":
                module = following.replace(".", "/")
                names += [f"{module}.py", f"{module}/__init__.py", f"{module}/__main__.py"]
        entered = [following for word, following in pairwise(words) if word == "cd"]
        bases = [self.root, folder, *(f"{base}/{name}" for base in (self.root, folder) for name in entered)]
        content: list[str] = []
        for path in dict.fromkeys(
            os.path.normpath(name if name.startswith("/") else f"{base}/{name}") for base in bases for name in names
        ):
            if "\0" in path or len(path) > 1000 or path in (self.root, folder):
                continue
            stamp = _stamp_of(path)
            if stamp is None or not stat.S_ISREG(stamp[0]):
                continue
            self.stamps[path] = stamp
            try:
                content.append(self._read(path))
            except _Unreadable:
                content.append(repr(stamp))
        return "".join(content)

    def _leads_out(self, path: str) -> bool:
        real = os.path.realpath(path)
        return real != self.bound and not real.startswith(self.bound.rstrip(os.sep) + os.sep)

    def _read(self, path: str) -> str:
        """Read a file once per scan. Raises _Unreadable."""
        if path in self._texts:
            return self._texts[path]
        if len(self.stamps) > FILES_LIMIT:
            raise _Unreadable(f"not read: there are more than {FILES_LIMIT} files of settings")
        if self._leads_out(path):
            raise _Unreadable(f"is a link out of the project, to {os.path.realpath(path)}")
        try:
            with disk.open_confined(path, [self.bound]) as (file, state):
                if not disk.is_regular(state):
                    raise _Unreadable("is no regular file")
                limit = min(FILE_LIMIT_BYTES, self._budget_bytes)
                data = file.read(limit + 1)
        except OSError as error:
            raise _Unreadable(f"cannot be read: {error.strerror}") from error
        if len(data) > limit:
            raise _Unreadable(f"is larger than {limit} bytes")
        self._budget_bytes -= len(data)
        self._texts[path] = data.decode("utf-8", "replace")
        return self._texts[path]


def _stamp_of(path: str) -> _Stamp:
    """A value that changes with a file or folder, and with a link to it; None if it does not exist."""
    try:
        link = os.lstat(path)
        target = Path(path).stat() if stat.S_ISLNK(link.st_mode) else link
    except (OSError, ValueError):
        return None
    return target.st_mode, target.st_size, target.st_mtime_ns, target.st_ino, link.st_mtime_ns, link.st_ino


def _plain(value: str) -> str:
    """Escape control characters and writing direction marks, so that one line shows the whole value."""
    line = "".join(c if c.isprintable() else repr(c)[1:-1] for c in value)
    return line if len(line) <= VALUE_CHARS else f"{line[:VALUE_CHARS]}… ({len(line)} characters)"


class ProjectScanner:
    """Scans directories and caches each result until a file changes. Blocking; threads may share it.

    In: `home`, the user's home, whose own settings are ignored.
    """

    def __init__(self, home: str) -> None:
        self._home = os.path.realpath(home)
        self._cached: dict[str, tuple[Mapping[str, _Stamp], ProjectSettings]] = {}
        self._lock = Lock()

    def look(self, directory: str) -> ProjectSettings:
        """Scan a project's settings. If nothing changed since the last scan, it only checks the stamps of the files."""
        with self._lock:
            cached = self._cached.get(directory)
        if cached is not None and all(_stamp_of(path) == stamp for path, stamp in cached[0].items()):
            return cached[1]
        folders = folders_down_to(directory)
        root = os.path.realpath(folders[0])
        look = _Look(root)
        for parent in Path(os.path.realpath(directory)).parents:
            look.bound = str(parent)
            if look.bound not in (self._home, root) and not look.bound.startswith(root.rstrip(os.sep) + os.sep):
                look.folder(look.bound, only=READ_ABOVE)
        look.bound = root
        for folder in folders:
            look.stamp(f"{folder}/.git")
            if os.path.realpath(folder) != self._home:
                look.folder(os.path.realpath(folder))
        result = ProjectSettings(root, tuple(look.settings))
        with self._lock:
            self._cached.pop(directory, None)
            self._cached[directory] = (look.stamps, result)
            while len(self._cached) > CACHED_DIRECTORIES:
                del self._cached[next(iter(self._cached))]
        return result
