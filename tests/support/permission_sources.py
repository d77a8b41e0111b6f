"""Where OpenCode reads permission rules from, and in which forms: a world for each pair, for our reader and for native OpenCode.

`compat_fixtures/permission_sources.json` holds what OpenCode 1.18.33 makes of each: the action of `bash` for the agent `build`
(`tests/e2e/test_permission_sources.py` asks it again).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise, product
from pathlib import Path
from typing import Any

DENY, ALLOW = "deny", "allow"

FORMS: dict[str, Any] = {
    "permission": lambda action: {"permission": {"bash": action}},
    "permission *": lambda action: {"permission": action},
    "permission pattern": lambda action: {"permission": {"bash": {"*": action}}},
    "tools": lambda action: {"tools": {"bash": action == ALLOW}},
    "agent.permission": lambda action: {"agent": {"build": {"permission": {"bash": action}}}},
    "agent.permission *": lambda action: {"agent": {"build": {"permission": action}}},
    "agent.tools": lambda action: {"agent": {"build": {"tools": {"bash": action == ALLOW}}}},
    "mode.permission": lambda action: {"mode": {"build": {"permission": {"bash": action}}}},
    "mode.tools": lambda action: {"mode": {"build": {"tools": {"bash": action == ALLOW}}}},
}
"""Form of a rule -> the configuration that says it."""
FILES = {
    "global config.json": "home/.config/opencode/config.json",
    "global opencode.json": "home/.config/opencode/opencode.json",
    "global opencode.jsonc": "home/.config/opencode/opencode.jsonc",
    "OPENCODE_CONFIG": "named.json",
    "root opencode.jsonc": "project/opencode.jsonc",
    "root opencode.json": "project/opencode.json",
    "opencode.json": "project/sub/opencode.json",
    "root .opencode": "project/.opencode/opencode.json",
    ".opencode jsonc": "project/sub/.opencode/opencode.jsonc",
    ".opencode json": "project/sub/.opencode/opencode.json",
    "home .opencode": "home/.opencode/opencode.json",
    "OPENCODE_CONFIG_DIR": "named/opencode.json",
}
HEADS = {
    "global agent": "home/.config/opencode/agent/build.md",
    "global agents": "home/.config/opencode/agents/build.md",
    "global mode": "home/.config/opencode/mode/build.md",
    "root agent": "project/.opencode/agent/build.md",
    "agent": "project/sub/.opencode/agent/build.md",
    "agents": "project/sub/.opencode/agents/build.md",
    "mode": "project/sub/.opencode/mode/build.md",
    "modes": "project/sub/.opencode/modes/build.md",
    "home agent": "home/.opencode/agent/build.md",
    "OPENCODE_CONFIG_DIR agent": "named/agent/build.md",
}
HEAD_FORMS: dict[str, Any] = {
    "permission": lambda action: f"permission:\n  bash: {action}",
    "permission pattern": lambda action: f'permission:\n  bash:\n    "*": {action}',
    "tools": lambda action: f"tools:\n  bash: {str(action == ALLOW).lower()}",
}
TEXTS = ("OPENCODE_CONFIG_CONTENT", "OPENCODE_PERMISSION")


@dataclass(frozen=True, slots=True)
class Place:
    """A source with a rule in one form. `name`: as in the fixture."""

    source: str
    form: str

    @property
    def name(self) -> str:
        return f"{self.source}: {self.form}"

    def put(self, folder: Path, action: str) -> dict[str, str]:
        """Write the rule below a folder, beside what is there. Returns what the environment must have."""
        if self.source == "OPENCODE_PERMISSION":
            return {self.source: json.dumps(FORMS[self.form](action)["permission"])}
        if self.source in TEXTS:
            return {self.source: json.dumps(FORMS[self.form](action))}
        path = folder / (FILES.get(self.source) or HEADS[self.source])
        path.parent.mkdir(parents=True, exist_ok=True)
        if self.source in HEADS:
            path.write_text(f"---\ndescription: builds\n{HEAD_FORMS[self.form](action)}\n---\nBuild.\n")
        else:
            path.write_text(json.dumps(FORMS[self.form](action)))
        return {}


def environment(folder: Path) -> dict[str, str]:
    """The environment of every world: its home, and the places that variables name."""
    return {
        "HOME": str(folder / "home"),
        "OPENCODE_CONFIG": str(folder / "named.json"),
        "OPENCODE_CONFIG_DIR": str(folder / "named"),
    }


def directory(folder: Path) -> Path:
    """A directory in a repository: a root with one folder in it."""
    sub = folder / "project" / "sub"
    sub.mkdir(parents=True, exist_ok=True)
    (folder / "project" / ".git").mkdir(exist_ok=True)
    return sub


def singles() -> Iterator[Place]:
    """Each source with each form that it can have."""
    yield from (Place(*pair) for pair in product((*FILES, "OPENCODE_CONFIG_CONTENT"), FORMS))
    yield from (Place(*pair) for pair in product(HEADS, HEAD_FORMS))
    yield from (Place("OPENCODE_PERMISSION", form) for form in FORMS if form.startswith("permission"))


def pairs() -> Iterator[tuple[Place, Place]]:
    """Two places, of which the first denies and the second allows: each source with the next one, each form with each."""
    sources = (*FILES, "OPENCODE_CONFIG_CONTENT")
    for first, second in pairwise(sources):
        yield Place(first, "permission"), Place(second, "permission")
        yield Place(second, "permission"), Place(first, "permission")
    for first, second in product(
        ("permission", "tools", "agent.permission", "agent.tools", "mode.permission", "mode.tools"), repeat=2
    ):
        yield Place("global config.json", first), Place("global opencode.json", second)
    for head in HEADS:
        yield Place(head, "permission"), Place("OPENCODE_CONFIG_CONTENT", "agent.permission")
        yield Place("global opencode.json", "agent.permission"), Place(head, "permission")
    yield Place("OPENCODE_CONFIG_CONTENT", "permission"), Place("OPENCODE_PERMISSION", "permission")
    yield Place("OPENCODE_PERMISSION", "permission"), Place("OPENCODE_CONFIG_CONTENT", "permission")
    yield Place("agent", "permission"), Place("mode", "permission")
    yield Place("mode", "permission"), Place("agent", "permission")
    yield Place("agent", "tools"), Place("agents", "permission")
