"""Skills on the disk: folders with a `SKILL.md`, where Claude Code, OpenCode and others look for them. Blocking.

    PROJECT/.claude/skills/NAME/SKILL.md, .opencode/{skill,skills}/..., .agents/skills/...     from the directory up to its root
    HOME/.claude/skills/NAME/SKILL.md, HOME/.config/opencode/{skill,skills}/..., HOME/.agents/skills/...

Of two with one name the nearer one holds. The head has `name` and `description`, the rest is the skill.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from shim.host import disk, markdown
from shim.host.disk import is_folder, printable
from shim.host.roots import repository_of, within

FILE = "SKILL.md"
IN_PROJECT = (".claude/skills", ".opencode/skill", ".opencode/skills", ".agents/skills")
IN_HOME = (".claude/skills", ".config/opencode/skill", ".config/opencode/skills", ".agents/skills")
FILE_LIMIT_BYTES = 2**20
SKILLS_LIMIT = 500
"""Of one folder."""
ENTRIES_LIMIT = 10_000
"""Entries of one folder that are looked at."""


@dataclass(frozen=True, slots=True)
class Skill:
    """A skill. `id` is the name of its folder; `content` has no head."""

    id: str
    name: str
    description: str
    path: str
    content: str

    def as_prompt(self) -> str:
        """As an agent is given it, whichever agent it is."""
        return f'<skill name="{self.name}" path="{self.path}">\n{self.content}\n</skill>'

    def wire(self) -> dict[str, Any]:
        """`SkillInfo` of the second wire."""
        head: dict[str, Any] = {"id": self.id, "name": self.name}
        if self.description:
            head["description"] = self.description
        return {**head, "path": self.path, "content": self.content}


def find(directory: str, home: Path) -> list[Skill]:
    """All that hold in a directory, by name."""
    found: dict[str, Skill] = {}
    inside = [repository_of(directory)]
    project, personal = _folders(Path(directory), home)
    for folder, allowed in [*((folder, inside) for folder in project), *((folder, []) for folder in personal)]:
        for skill in _in(folder, allowed):
            found.setdefault(skill.id, skill)
    return sorted(found.values(), key=lambda skill: skill.name.casefold())


def _folders(directory: Path, home: Path) -> tuple[list[Path], list[Path]]:
    """Those of the project and those of the person, the nearest first."""
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
    """None if there is none, it is none that a person wrote, or a link leads out of `inside` (none: it may lead anywhere)."""
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
