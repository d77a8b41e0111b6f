"""Finds skills (folders with a `SKILL.md`) where Claude Code, OpenCode and others look for them. Blocking.

    PROJECT/.claude/skills/NAME/SKILL.md, .opencode/{skill,skills}/..., .agents/skills/...     from the directory up to its root
    HOME/.claude/skills/NAME/SKILL.md, HOME/.config/opencode/{skill,skills}/..., HOME/.agents/skills/...

Of two skills with the same name, the nearer one wins. The front matter has `name` and `description`; the rest is the skill.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from shim.host.config import markdown
from shim.host.files.roots import repository_of, within
from shim.lib import disk
from shim.lib.disk import is_folder, printable
from universal.permissions import Rule, decide

FILE = "SKILL.md"
IN_PROJECT = (".claude/skills", ".opencode/skill", ".opencode/skills", ".agents/skills")
IN_HOME = (".claude/skills", ".config/opencode/skill", ".config/opencode/skills", ".agents/skills")
OF_OPENCODE = frozenset({".opencode/skill", ".opencode/skills", ".config/opencode/skill", ".config/opencode/skills"})
"""Those of them that no other agent reads by itself."""
FILE_LIMIT_BYTES = 2**20
HEADING = "Skills. Before a task that one of them is for, read its file and follow it:"
SKILLS_LIMIT = 500
ENTRIES_LIMIT = 10_000
"""Maximum entries of one folder that are scanned."""
HEAD_LIMIT_BYTES = 16 * 2**10
"""Maximum bytes of a file of which only the name and the description count."""
LISTED_LIMIT = 50
"""Maximum skills of the person, and of the project, that an agent is told of."""
DESCRIPTION_LIMIT = 1024
"""Maximum characters of a description that an agent is told, as in OpenCode."""


@dataclass(frozen=True, slots=True)
class Skill:
    """A skill. `id` is the name of its folder; `content` excludes the front matter."""

    id: str
    name: str
    description: str
    path: str
    content: str
    is_of_project: bool = False

    def as_prompt(self) -> str:
        """Format the skill as a prompt. The form is the same for all agents."""
        return f'<skill name="{self.name}" path="{self.path}">\n{self.content}\n</skill>'


def find(directory: str, home: Path) -> list[Skill]:
    """List the skills that apply in a directory, by name."""
    return _find(directory, home, (*IN_PROJECT, *IN_HOME), FILE_LIMIT_BYTES)


def list_text(directory: str, home: Path, rules: Sequence[Rule], *, of_project: bool) -> str:
    """Tell an agent of OpenCode's own skills, as text: what they are for, and the file to read. "" without any.

    A skill that the rules deny or ask about is left out: no agent asks before it reads the file.
    """
    found = (s for s in _find(directory, home, OF_OPENCODE, HEAD_LIMIT_BYTES) if s.is_of_project == of_project)
    offered = islice((s for s in found if decide("skill", (s.id, s.name), rules) in (None, "allow")), LISTED_LIMIT)
    lines = [f"- {_one_line(s.name)}: {_one_line(s.description)} (file: {s.path})" for s in offered]
    return "\n".join((HEADING, *lines)) if lines else ""


def _one_line(words: str) -> str:
    return " ".join(words.split())[:DESCRIPTION_LIMIT]


def _find(directory: str, home: Path, names: Collection[str], limit: int) -> list[Skill]:
    """List the skills in the named folders. In: `limit`, how many bytes of a file are read."""
    skills: dict[str, Skill] = {}
    inside = [repository_of(directory)]
    project, personal = _folders(Path(directory), home, names)
    for folder, allowed in [*((folder, inside) for folder in project), *((folder, []) for folder in personal)]:
        for skill in _in(folder, allowed, limit):
            skills.setdefault(skill.id, skill)
    return sorted(skills.values(), key=lambda skill: skill.name.casefold())


def _folders(directory: Path, home: Path, names: Collection[str]) -> tuple[list[Path], list[Path]]:
    """The skill folders of the project and those of the user, the nearest first."""
    above = [directory, *directory.parents]
    root = next((index for index, folder in enumerate(above) if disk.exists(folder / ".git")), 0)
    project = [folder / name for folder in above[: root + 1] for name in IN_PROJECT if name in names]
    return project, [home / name for name in IN_HOME if name in names]


def _in(folder: Path, inside: Sequence[str], limit: int) -> list[Skill]:
    if not is_folder(folder) or (inside and not within(str(folder), inside)):
        return []
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in islice(entries, ENTRIES_LIMIT))[:SKILLS_LIMIT]
    except OSError:
        return []
    return [skill for name in names if (skill := _read(folder / name / FILE, inside, limit)) is not None]


def _read(path: Path, inside: Sequence[str], limit: int) -> Skill | None:
    """Read a skill file; None if it is missing, too large, not a regular file, or a link that leads out of `inside`.

    If `inside` is empty, links may lead anywhere.
    """
    try:
        with disk.open_confined(path, inside) as (file, state):
            if not disk.is_regular(state) or state.st_size > FILE_LIMIT_BYTES:
                return None
            text = file.read(limit).decode("utf-8", "replace")
    except OSError:
        return None
    head, body = markdown.parse(text)
    id_ = printable(path.parent.name)
    return Skill(id_, str(head.get("name") or id_), str(head.get("description") or ""), printable(str(path)), body, bool(inside))
