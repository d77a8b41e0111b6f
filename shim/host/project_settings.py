"""What a project brings that would run a program or allow a call when an agent is started in it.

`ProjectScanner.look` reads the settings files of agents, from the root of the repository down to the directory, and gives one
`ProjectSetting` for each entry that runs or allows something; `shim.host.settings_rules` says which those are.

Reading is bounded in bytes and files, follows no link out of the repository and opens no device. What cannot be read counts too.
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
import os
import re
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import TypeAlias

from shim.host import disk
from shim.host.settings_rules import ANY, FILES, WHOLE_FILES, Effect, File

FILE_LIMIT_BYTES = 2**20
"""Of one settings file. A larger one is not read and counts as unknown."""
TOTAL_LIMIT_BYTES = 8 * 2**20
"""Of all files that are read in one look."""
FILES_LIMIT = 400
"""Files and folders that one look touches. What comes after them counts as one unknown entry."""
DEPTH_LIMIT = 4
"""Levels below a folder of plugins, skills or agents that are looked at."""
VALUE_CHARS = 300
"""Longest text of one entry that is shown."""
CACHED_DIRECTORIES = 256
"""Directories whose last result is kept."""


@dataclass(frozen=True, slots=True)
class ProjectSetting:
    """One entry. `family`: the agents that read it; ANY for what this server applies. `digest` changes with the content."""

    family: str
    path: str
    key: str
    value: str
    effect: Effect
    digest: str = ""

    @property
    def line(self) -> str:
        """One line for a person: file, key and command."""
        return f"{self.path}  {self.key}: {self.value}" if self.value else f"{self.path}  {self.key}"


@dataclass(frozen=True, slots=True)
class ProjectSettings:
    """All entries of a directory, in the order of its files. `root`: the repository's, or the directory itself."""

    root: str
    settings: tuple[ProjectSetting, ...] = ()

    def read_by(self, families: Iterable[str]) -> ProjectSettings:
        """The entries that agents of these families read, and those that this server applies."""
        wanted = {*families, ANY}
        return ProjectSettings(self.root, tuple(setting for setting in self.settings if setting.family in wanted))

    @property
    def digest(self) -> str:
        """A hash of all entries; empty if there is none."""
        if not self.settings:
            return ""
        rows = sorted((s.family, s.path, s.key, s.digest) for s in self.settings)
        return hashlib.blake2b(json.dumps(rows).encode(), digest_size=16).hexdigest()


# --- reading -------------------------------------------------------------------------------------------------------

_Stamp: TypeAlias = tuple[int, ...] | None


class _Unreadable(Exception):
    """The file is there and cannot be read; the text says why."""


class _Look:
    """One look at one directory: what was found, and the stamps of all that was touched."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.found: list[ProjectSetting] = []
        self.stamps: dict[str, _Stamp] = {}
        self._left = TOTAL_LIMIT_BYTES
        self._texts: dict[str, str] = {}

    def folder(self, folder: str) -> None:
        for row in FILES:
            top = f"{folder}/{row.path.partition('/')[0]}"
            if self.stamp(top) is None:  # one look at `.claude` stands for all that could be in it
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
                content = source if row.parse in WHOLE_FILES else value + self._content_of_command(value)
                self._add(row, path, key, value, effect, content)
        except _Unreadable as error:
            self._add(row, path, "unknown", str(error), "runs", repr(self.stamp(path)))
        except (ValueError, RecursionError) as error:  # no JSON, no TOML
            why = f"cannot be read: {error}".partition("\n")[0]
            self._add(row, path, "unknown", why, "runs", repr(self.stamp(path)))

    def _add(self, row: File, path: str, key: str, value: str, effect: Effect, content: str) -> None:
        digest = hashlib.blake2b(content.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
        relative = os.path.relpath(path, self.root)
        self.found.append(ProjectSetting(row.family, _plain(relative), _plain(key), _plain(value), effect, digest))

    def _content_of_command(self, command: str) -> str:
        """Content of the repository's own files that a command names: a hook whose script changes has changed."""
        content: list[str] = []
        for word in re.split(r"[\s=;|&()<>]+", re.sub(r"[\"'{}]", "", command))[:50]:
            name = re.sub(r"^\$(CLAUDE_PROJECT_DIR|GEMINI_PROJECT_DIR|PWD)/", "", word)
            if not name or name.startswith("-") or "\0" in name or len(name) > 1000:
                continue
            path = os.path.normpath(name if name.startswith("/") else f"{self.root}/{name}")
            stamp = _stamp_of(path)
            if stamp is None or not stat.S_ISREG(stamp[0]) or path == self.root:
                continue
            self.stamps[path] = stamp
            try:
                content.append(self._read(path))
            except _Unreadable:
                content.append(repr(stamp))
        return "".join(content)

    def _leads_out(self, path: str) -> bool:
        real = os.path.realpath(path)
        return real != self.root and not real.startswith(self.root.rstrip(os.sep) + os.sep)

    def _read(self, path: str) -> str:
        """Raises _Unreadable."""
        if path in self._texts:
            return self._texts[path]
        if len(self.stamps) > FILES_LIMIT:
            raise _Unreadable(f"not read: there are more than {FILES_LIMIT} files of settings")
        if self._leads_out(path):
            raise _Unreadable(f"is a link out of the project, to {os.path.realpath(path)}")
        try:
            with disk.open_confined(path, [self.root]) as (file, state):
                if not disk.is_regular(state):
                    raise _Unreadable("is no regular file")
                limit = min(FILE_LIMIT_BYTES, self._left)
                data = file.read(limit + 1)
        except OSError as error:
            raise _Unreadable(f"cannot be read: {error.strerror}") from error
        if len(data) > limit:
            raise _Unreadable(f"is larger than {limit} bytes")
        self._left -= len(data)
        self._texts[path] = data.decode("utf-8", "replace")
        return self._texts[path]


def _stamp_of(path: str) -> _Stamp:
    """What changes with a file or folder; None if there is none. Follows links, and notes the link itself."""
    try:
        own = os.lstat(path)
        found = Path(path).stat() if stat.S_ISLNK(own.st_mode) else own
    except (OSError, ValueError):
        return None
    return found.st_mode, found.st_size, found.st_mtime_ns, found.st_ino, own.st_mtime_ns, own.st_ino


def _plain(value: str) -> str:
    """One line that shows all it holds: control characters and marks of writing direction are escaped."""
    shown = "".join(c if c.isprintable() else repr(c)[1:-1] for c in value)
    return shown if len(shown) <= VALUE_CHARS else f"{shown[:VALUE_CHARS]}… ({len(shown)} characters)"


def folders_of(directory: str) -> Sequence[str]:
    """The folders from the root of its repository down to it; only itself outside of git."""
    above = [Path(directory), *Path(directory).parents]
    root = next((index for index, folder in enumerate(above) if (folder / ".git").exists()), 0)
    return [str(folder) for folder in reversed(above[: root + 1])]


class ProjectScanner:
    """Looks at directories and keeps what it saw while no file has changed. Blocking; may be called from several threads.

    In: `home`, the person's home, whose own settings count for nothing.
    """

    def __init__(self, home: str) -> None:
        self._home = os.path.realpath(home)
        self._kept: dict[str, tuple[Mapping[str, _Stamp], ProjectSettings]] = {}
        self._lock = Lock()

    def look(self, directory: str) -> ProjectSettings:
        """What the project brings. If nothing has changed since the last look, this only asks for the state of its files."""
        with self._lock:
            kept = self._kept.get(directory)
        if kept is not None and all(_stamp_of(path) == stamp for path, stamp in kept[0].items()):
            return kept[1]
        folders = folders_of(directory)
        root = os.path.realpath(folders[0])
        look = _Look(root)
        for folder in folders:
            look.stamp(f"{folder}/.git")
            if os.path.realpath(folder) != self._home:
                look.folder(os.path.realpath(folder))
        found = ProjectSettings(root, tuple(look.found))
        with self._lock:
            self._kept.pop(directory, None)
            self._kept[directory] = (look.stamps, found)
            while len(self._kept) > CACHED_DIRECTORIES:
                del self._kept[next(iter(self._kept))]
        return found
