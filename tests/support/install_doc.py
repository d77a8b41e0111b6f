"""The blocks of docs/install.md and docs/remote-control.md, by the names in their marks."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = (DOCS / "install.md", DOCS / "remote-control.md")
BLOCK = re.compile(
    r"(?:<!-- (?P<mark>run|not run|file): (?P<name>[^\n]+?) -->\n)?```(?P<language>\w+)\n(?P<text>.*?)^```", re.M | re.S
)


@dataclass(frozen=True)
class Block:
    """A fenced block. `mark`: what is done with it; `name`: of the test or file, or why it is not run."""

    mark: str | None
    name: str
    language: str
    text: str


def blocks() -> list[Block]:
    """All blocks of the pages, in order."""
    return [
        Block(match["mark"], match["name"] or "", match["language"], match["text"])
        for page in PAGES
        for match in BLOCK.finditer(page.read_text("utf-8"))
    ]


def block(name: str) -> str:
    """The text of the one block of this name."""
    [found] = [one.text for one in blocks() if one.name == name]
    return found
