"""Finds skills (folders with a `SKILL.md`) where Claude Code, OpenCode and others look for them. Blocking.

    PROJECT/.claude/skills/NAME/SKILL.md, .opencode/{skill,skills}/..., .agents/skills/...     from the directory up to its root
    HOME/.claude/skills/NAME/SKILL.md, HOME/.config/opencode/{skill,skills}/..., HOME/.agents/skills/...

Of two skills with the same name, the nearer one wins. The front matter has `name` and `description`; the rest is the skill.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from shim.host.config import markdown
from shim.host.files.roots import repository_of, within
from shim.lib import disk
from shim.lib.disk import is_folder, printable

FILE = "SKILL.md"
IN_PROJECT = (".claude/skills", ".opencode/skill", ".opencode/skills", ".agents/skills")
IN_HOME = (".claude/skills", ".config/opencode/skill", ".config/opencode/skills", ".agents/skills")
FILE_LIMIT_BYTES = 2**20
SKILLS_LIMIT = 500
"""Maximum skills of one folder."""
ENTRIES_LIMIT = 10_000
"""Maximum entries of one folder that are scanned."""


@dataclass(frozen=True, slots=True)
class Skill:
    """A skill. `id` is the name of its folder; `content` excludes the front matter."""

    id: str
    name: str
    description: str
    path: str
    content: str

    def as_prompt(self) -> str:
        """Format the skill as a prompt. The form is the same for all agents."""
        return f'<skill name="{self.name}" path="{self.path}">\n{self.content}\n</skill>'


def find(directory: str, home: Path) -> list[Skill]:
    """List the skills that apply in a directory, by name."""
    skills: dict[str, Skill] = {}
    inside = [repository_of(directory)]
    project, personal = _folders(Path(directory), home)
    for folder, allowed in [*((folder, inside) for folder in project), *((folder, []) for folder in personal)]:
        for skill in _in(folder, allowed):
            skills.setdefault(skill.id, skill)
    return sorted(skills.values(), key=lambda skill: skill.name.casefold())


def _folders(directory: Path, home: Path) -> tuple[list[Path], list[Path]]:
    """The skill folders of the project and those of the user, the nearest first."""
    above = [directory, *directory.parents]
    root = next((index for index, folder in enumerate(above) if disk.exists(folder / ".git")), 0)
    project = [folder / name for folder in above[: root + 1] for name in IN_PROJECT]
    return project, [home / name for name in IN_HOME]


def _in(folder: Path, inside: Sequence[str]) -> list[Skill]:
    if not is_folder(folder) or (inside and not within(str(folder), inside)):
        return []
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in islice(entries, ENTRIES_LIMIT))[:SKILLS_LIMIT]
    except OSError:
        return []
    return [skill for name in names if (skill := _read(folder / name / FILE, inside)) is not None]


def _read(path: Path, inside: Sequence[str]) -> Skill | None:
    """Read a skill file; None if it is missing, too large, not a regular file, or a link that leads out of `inside`.

    If `inside` is empty, links may lead anywhere.
    """
    try:
        with disk.open_confined(path, inside) as (file, state):
            if not disk.is_regular(state) or state.st_size > FILE_LIMIT_BYTES:
                return None
            text = file.read(FILE_LIMIT_BYTES).decode("utf-8", "replace")
    except OSError:
        return None
    head, body = markdown.parse(text)
    id_ = printable(path.parent.name)
    return Skill(id_, str(head.get("name") or id_), str(head.get("description") or ""), printable(str(path)), body)
