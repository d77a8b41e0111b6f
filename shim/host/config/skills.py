"""Finds skills (folders with a `SKILL.md`) where Claude Code, OpenCode and others look for them. Blocking.

    PROJECT/.claude/skills/**/SKILL.md, .opencode/{skill,skills}/..., .agents/skills/...     from the directory up to its root
    HOME/.claude/skills/**/SKILL.md, HOME/.agents/skills/..., and {skill,skills}/... of the person's folders of OpenCode
    the folders in `skills.paths`; a relative one counts from the directory
    the indexes in `skills.urls` of the person: a copy of what they name, in this server's data

Of two skills with the same name, the nearer one wins. The front matter has `name` and `description`; the rest is the skill.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import quote

import structlog

from shim.host.config import markdown, pages
from shim.host.files.roots import folders_down_to, repository_of, within
from shim.lib import disk
from shim.lib.disk import is_folder, printable
from universal.lib.jsonvalue import arr, obj

log = structlog.get_logger(__name__)

FILE = "SKILL.md"
CLAUDE, AGENTS, OPENCODE = ".claude/skills", ".agents/skills", ("skill", "skills")
IN_PROJECT = (CLAUDE, *(f".opencode/{name}" for name in OPENCODE), AGENTS)
FILE_LIMIT_BYTES = 2**20
HEADING = "Skills. Before a task that one of them is for, read its file and follow it:"
SKILLS_LIMIT = 500
"""Maximum skills of one folder."""
ENTRIES_LIMIT, DEPTH = 10_000, 4
"""Maximum entries that are scanned below one folder, and levels of folders. A skill's own folders are not looked into."""
HEAD_LIMIT_BYTES = 16 * 2**10
"""Maximum bytes of a file of which only the name and the description count."""
URLS_LIMIT, FETCHED_LIMIT, FILES_LIMIT, FETCH_S = 5, 50, 50, 60.0
"""Maximum URLs, skills of one, files of a skill, and seconds for all files of one URL. Nobody waits so long for them."""
_PART = re.compile(r"(?!\.)[\w .+@-]{1,100}")
"""A part of a path that leads nowhere else."""
LISTED_LIMIT = 50
"""Maximum skills of the person, and of the project, that an agent is told of."""
DESCRIPTION_LIMIT = 1024
"""Maximum characters of a description that an agent is told, as in OpenCode."""
WITHOUT: Mapping[str, tuple[str, ...]] = {
    "OPENCODE_DISABLE_CLAUDE_CODE": (CLAUDE,),
    "OPENCODE_DISABLE_CLAUDE_CODE_SKILLS": (CLAUDE,),
    "OPENCODE_DISABLE_EXTERNAL_SKILLS": (CLAUDE, AGENTS),
}
"""Variable of OpenCode -> the folders in which it then looks for no skills."""


@dataclass(frozen=True, slots=True)
class Skill:
    """A skill. `id` is the name of its folder; `content` excludes the front matter.

    `place`: the folder in which it was found, as in `CommandFolder.path`; "" for one that OpenCode alone reads.
    """

    id: str
    name: str
    description: str
    path: str
    content: str
    is_of_project: bool = False
    place: str = ""

    def as_prompt(self) -> str:
        """Format the skill as a prompt. The form is the same for all agents."""
        return f'<skill name="{self.name}" path="{self.path}">\n{self.content}\n</skill>'


@dataclass(frozen=True, slots=True)
class SkillFolders:
    """Where a person has skills: `home`, the `folders` of OpenCode, and `environ`, whose `WITHOUT` says what does not count."""

    home: Path
    folders: tuple[Path, ...] = ()
    environ: Mapping[str, str] = field(default_factory=dict[str, str])
    copies: Path | None = None
    """Where skills of `skills.urls` are kept. None: nobody asks for them."""
    due: dict[str, float] = field(default_factory=dict[str, float])
    """URL -> when it is asked for again, on the monotonic clock."""

    def find(
        self, directory: str, mine: Mapping[str, Any], projects: Mapping[str, Any], limit: int = FILE_LIMIT_BYTES
    ) -> list[Skill]:
        """List the skills that apply in a directory, by name.

        In: the person's configuration and the project's, for `skills.paths`; `limit`, how many bytes of a file are read.
        """
        skills: dict[str, Skill] = {}
        inside = [repository_of(directory)]
        for folder, place, allowed in (
            *((folder, place, inside) for folder, place in self._of_project(directory)),
            *((path, "", inside) for path in _paths(projects, directory, self.home)),
            *((folder, place, ()) for folder, place in self._personal()),
            *((path, "", ()) for path in _paths(mine, directory, self.home)),
            *((path, "", ()) for path in self._of_urls(mine)),
        ):
            for skill in _in(folder, place, allowed, limit):
                skills.setdefault(skill.id, skill)
        return sorted(skills.values(), key=lambda skill: skill.name.casefold())

    def _of_project(self, directory: str) -> Iterator[tuple[Path, str]]:
        """The skill folders of the project, the nearest first, each with its place."""
        above = reversed(folders_down_to(directory))
        counted = [name for name in IN_PROJECT if name not in self._left_out()]
        return ((Path(folder, name), name if name in (CLAUDE, AGENTS) else "") for folder in above for name in counted)

    def _personal(self) -> Iterator[tuple[Path, str]]:
        left_out = self._left_out()
        yield from ((self.home / name, f"~/{name}") for name in (CLAUDE,) if name not in left_out)
        yield from ((folder / name, "") for folder in self.folders for name in OPENCODE)
        yield from ((self.home / name, f"~/{name}") for name in (AGENTS,) if name not in left_out)

    def _of_urls(self, mine: Mapping[str, Any]) -> Iterator[Path]:
        """The folders with what `skills.urls` name, asked for anew where it is time."""
        for url in [str(url) for url in arr(obj(mine.get("skills")).get("urls"))][: URLS_LIMIT if self.copies else 0]:
            if not url.startswith(("https://", "http://")):
                continue
            folder = Path(str(self.copies), hashlib.blake2b(url.encode(), digest_size=8).hexdigest())
            if time.monotonic() >= self.due.get(url, 0.0):
                self.due[url] = time.monotonic() + pages.KEPT_S  # before: others go on with what is there
                try:
                    _copy(url, folder)
                except (OSError, ValueError) as error:
                    log.warning("skills.url_failed", url=url, error=str(error))
                    self.due[url] = time.monotonic() + pages.AGAIN_S
            yield folder

    def _left_out(self) -> Collection[str]:
        names = (name for name in WITHOUT if self.environ.get(name, "").lower() in ("1", "true"))
        return {folder for name in names for folder in WITHOUT[name]}


def _copy(url: str, folder: Path) -> None:
    """Copy the skills of an index: `URL/index.json`, with the name, version and files of each. Raises OSError, ValueError.

    A skill that is there in its version is not copied again. Source: OpenCode 1.18.33.
    """
    base, end = url.rstrip("/"), time.monotonic() + FETCH_S
    disk.private_folder(folder)
    index = obj(json.loads(pages.fetch(f"{base}/index.json", FILE_LIMIT_BYTES)))
    for row in [obj(row) for row in arr(index.get("skills"))][:FETCHED_LIMIT]:
        name, version, files = str(row.get("name")), str(row.get("version") or ""), [str(file) for file in arr(row.get("files"))]
        mark = folder / name / ".version"
        is_safe = all(_PART.fullmatch(part) for file in (name, *files) for part in file.split("/")) and "/" not in name
        if FILE not in files or not is_safe or (version and mark.is_file() and mark.read_text("utf-8") == version):
            continue
        for file in files[:FILES_LIMIT]:
            if time.monotonic() > end:
                raise TimeoutError(f"its files take more than {FETCH_S:.0f} s")
            data = pages.fetch(f"{base}/{quote(name)}/{quote(file)}", FILE_LIMIT_BYTES)
            disk.put(folder / name / file, data, [str(folder)])
        disk.put(mark, version.encode(), [str(folder)])


def lines(skills: Sequence[Skill]) -> str:
    """Tell an agent of skills, as text: what they are for, and the file to read. "" without any."""
    rows = [f"- {_one_line(s.name)}: {_one_line(s.description)} (file: {s.path})" for s in skills[:LISTED_LIMIT]]
    return "\n".join((HEADING, *rows)) if rows else ""


def _one_line(words: str) -> str:
    return " ".join(words.split())[:DESCRIPTION_LIMIT]


def _paths(values: Mapping[str, Any], directory: str, home: Path) -> list[Path]:
    """The folders in `skills.paths`."""
    entries = [str(entry) for entry in arr(obj(values.get("skills")).get("paths"))][:SKILLS_LIMIT]
    return [home / entry[2:] if entry.startswith("~/") else Path(directory) / entry for entry in entries if "\0" not in entry]


def _in(top: Path, place: str, inside: Sequence[str], limit: int) -> Iterator[Skill]:
    """The skills below a folder, the higher ones first, at most SKILLS_LIMIT."""
    visited = found = 0
    waiting = deque([(top, 0)])
    while waiting and visited < ENTRIES_LIMIT and found < SKILLS_LIMIT:
        folder, depth = waiting.popleft()
        if not is_folder(folder) or (inside and not within(str(folder), inside)):
            continue
        try:
            with os.scandir(folder) as entries:
                names = sorted(entry.name for entry in islice(entries, ENTRIES_LIMIT - visited))
        except OSError:
            continue
        for name in names:
            visited += 1
            if found < SKILLS_LIMIT and (skill := _read(folder / name / FILE, place, inside, limit)) is not None:
                found += 1
                yield skill
            elif depth + 1 < DEPTH:
                waiting.append((folder / name, depth + 1))


def _read(path: Path, place: str, inside: Sequence[str], limit: int) -> Skill | None:
    """Read a skill file; None if it is missing, too large, not a regular file, or a link that leads out of `inside`.

    If `inside` is empty, links may lead anywhere.
    """
    try:
        content, size = disk.head(path, limit, inside)
    except OSError:
        return None
    if size > FILE_LIMIT_BYTES:
        return None
    head, body = markdown.parse(content.decode("utf-8", "replace"))
    id_ = printable(path.parent.name)
    name, description = str(head.get("name") or id_), str(head.get("description") or "")
    return Skill(id_, name, description, printable(str(path)), body, bool(inside), place)
