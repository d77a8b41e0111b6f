"""Reads what OpenCode tells its model of files: those of `instructions`, the person's own AGENTS.md, and skills. Blocking.

    ~/.config/opencode/AGENTS.md     always
    PATH, ~/PATH, /PATH              a file, or a pattern with `*`; a relative one counts from the directory up to its root
    https://..., http://...          a page, of the person alone: no project has this server ask for one

A project's entries, and the targets of its links, must lie in its repository. Reading is bounded in files, bytes and entries;
what is beyond is left out. AGENTS.md of a project is not read here: agents read it themselves.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from pathlib import Path, PurePath
from typing import Any

import structlog

from shim.host.config import pages
from shim.host.config.opencode_config import OpenCodeConfig
from shim.host.config.skills import HEAD_LIMIT_BYTES, Skill, SkillFolders
from shim.host.files.roots import folders_down_to, repository_of
from shim.lib import disk
from universal.lib.jsonvalue import arr

FILES_LIMIT = 50
"""Maximum files of the person, and of the project."""
LIMIT_BYTES = 128 * 2**10
"""Maximum bytes of all files of the person, and of the project."""
ENTRIES_LIMIT = 10_000
"""Maximum entries of folders that one pattern visits."""
URLS_LIMIT = 5
"""Maximum pages. A prompt waits for them (`setups.READ_LIMIT_S`)."""
PERSONAL_FILE = "AGENTS.md"
log = structlog.get_logger()

LEFT_OUT = frozenset({".git", "node_modules"})
"""Folders that no pattern looks into."""


@dataclass(frozen=True, slots=True)
class InstructionTexts:
    """Instructions as the model gets them: of the person, and of the project, which strangers may have written.

    `skills`: those of both, without their texts.
    """

    personal: tuple[str, ...] = ()
    project: tuple[str, ...] = ()
    skills: tuple[Skill, ...] = ()


@dataclass(frozen=True, slots=True)
class InstructionFiles:
    """The files of one person. `home`: their home; `folder`: the folder of their configuration; `skills`: where these are."""

    home: Path
    folder: Path
    skills: SkillFolders
    pages: dict[str, tuple[float, str]] = field(default_factory=dict[str, "tuple[float, str]"])
    """URL -> when it is asked for again, on the monotonic clock, and its text."""

    def read(self, directory: str, config: OpenCodeConfig) -> InstructionTexts:
        """Read the instructions of a directory. Files that cannot be read are left out."""
        mine = [self.folder / PERSONAL_FILE, *self._find(directory, _entries(config.personal_values))]
        projects = [path for path in self._find(directory, _entries(config.project_values)) if path not in mine]
        skills = self.skills.find(directory, config.personal_values, config.project_values, HEAD_LIMIT_BYTES)
        inside = (os.path.realpath(repository_of(directory)),)
        personal, project = (*_texts(mine, ()), *self._pages(config.personal_values)), _texts(projects, inside)
        return InstructionTexts(personal, project, tuple(replace(skill, content="") for skill in skills))

    def _pages(self, values: Any) -> Iterator[str]:
        """The texts of pages, asked for anew where it is time."""
        urls = [entry for entry in arr(values.get("instructions")) if str(entry).startswith(("https://", "http://"))]
        for url in urls[:URLS_LIMIT]:
            due, text = self.pages.get(url, (0.0, ""))
            if time.monotonic() >= due:
                try:
                    page, due = pages.fetch(url, LIMIT_BYTES), pages.KEPT_S
                    text = page.decode("utf-8", "replace").strip()
                except (OSError, ValueError) as error:
                    log.warning("instructions.page_failed", url=url, error=str(error))
                    due = pages.AGAIN_S
                self.pages[url] = time.monotonic() + due, text
                while len(self.pages) > FILES_LIMIT:
                    self.pages.pop(next(iter(self.pages)), None)
            if text:
                yield f"Instructions from: {url}\n{text}"

    def _find(self, directory: str, entries: Iterable[str]) -> Iterator[Path]:
        for entry in entries:
            path = self.home / entry[2:] if entry.startswith("~/") else Path(entry)
            folders = [Path(path.anchor)] if path.is_absolute() else _folders(directory)
            pattern = path.relative_to(path.anchor) if path.is_absolute() else path
            for folder in folders:
                yield from _matches(folder, pattern)


def _entries(values: Any) -> list[str]:
    """The entries that are files. A URL is no file."""
    entries = (entry for entry in arr(values.get("instructions")) if isinstance(entry, str))
    return [entry for entry in entries if "://" not in entry and "\0" not in entry]


def _folders(directory: str) -> list[Path]:
    """The folders from the directory up to the root of its repository."""
    return [Path(folder) for folder in reversed(folders_down_to(os.path.realpath(directory)))]


def _matches(folder: Path, pattern: PurePath) -> Iterator[Path]:
    """The files below a folder that match a pattern, by name, or the one that it names."""
    parts = pattern.parts
    plain = next((at for at, part in enumerate(parts) if set(part) & set("*?[")), None)
    if plain is None:
        yield folder / pattern
        return
    base, rest = folder.joinpath(*parts[:plain]), "/".join(parts[plain:])
    names = (path.relative_to(base).as_posix() for path in _below(base))
    yield from (base / name for name in sorted(name for name in names if _fits(name, rest)))


def _fits(name: str, pattern: str) -> bool:
    if "**" in pattern:
        return fnmatch(name, pattern) or fnmatch(name, pattern.replace("**/", ""))
    return name.count("/") == pattern.count("/") and PurePath(name).match(pattern)


def _below(folder: Path) -> Iterator[Path]:
    """The files below a folder, at most ENTRIES_LIMIT entries. It follows no links to folders."""
    visited = 0
    for current, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name not in LEFT_OUT]
        for name in files:
            visited += 1
            if visited > ENTRIES_LIMIT:
                return
            yield Path(current, name)


def _texts(paths: Iterable[Path], inside: Sequence[str]) -> tuple[str, ...]:
    """The texts of files, in OpenCode's form, until a limit is reached."""
    texts: list[str] = []
    left = LIMIT_BYTES
    for path in dict.fromkeys(paths):
        try:
            with disk.open_confined(path, inside) as (file, state):
                content = file.read(left + 1) if disk.is_regular(state) else b""
        except (OSError, ValueError):
            continue
        if len(texts) >= FILES_LIMIT or len(content) > left:
            break
        left -= len(content)
        if content.strip():
            texts.append(f"Instructions from: {disk.printable(str(path))}\n{content.decode('utf-8', 'replace').strip()}")
    return tuple(texts)
