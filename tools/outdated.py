"""Prints the agents, clients and SDKs that have a newer version than the tested one (`make outdated`).

    python -m tools.outdated [--report FOLDER]

Exit code: 0 if nothing is outdated, 1 if something is, 2 if a registry did not answer. `--report` also writes the lines to
FOLDER/outdated-DATE.txt.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tools.packages import Package, Registry, RegistryError, newest, numbers, watched_packages

Verdict = Literal["current", "behind", "held", "not tested", "not found"]
BEHIND, NO_ANSWER = 1, 2
"""Exit codes."""


@dataclass(frozen=True, slots=True)
class Row:
    """One package with its newest version ("" if the registry does not have it)."""

    package: Package
    newest: str
    verdict: Verdict

    @property
    def remedy(self) -> str:
        """The command with which a person adopts the newest version."""
        package = self.package
        if self.verdict == "held":
            return package.reason.partition(". ")[0].removesuffix(".")
        if self.verdict != "behind":
            return ""
        if package.kind in ("agent", "platform"):
            return f"make adopt AGENT={package.name} VERSION={self.newest}"
        if package.package in ("opencode-ai", "@opencode-ai/sdk"):
            return f"make adopt-client PACKAGE={package.package} VERSION={self.newest}"
        return "change the version where it is pinned (tests/e2e/package.json, python-packages.txt or pyproject.toml)"


def verdict(package: Package, latest: str) -> Verdict:
    """Compare the tested version with the newest."""
    if not latest:
        return "not found"
    if not package.tested:
        return "not tested"
    if numbers(latest) <= numbers(package.tested):
        return "current"
    return "held" if package.reason else "behind"


def rows(packages: Sequence[Package], latest: Mapping[tuple[Registry, str], str]) -> list[Row]:
    """A row for each package, in their order."""
    pairs = [(package, latest.get((package.registry, package.package), "")) for package in packages]
    return [Row(package, version, verdict(package, version)) for package, version in pairs]


def lines(table: Sequence[Row]) -> list[str]:
    """Return the table and a last line with the number of outdated packages."""
    cells = [
        (row.package.kind, row.package.name, row.package.package, row.package.tested or "-", row.newest or "-", row.verdict)
        for row in table
    ]
    heads = ("kind", "name", "package", "tested", "newest", "verdict")
    widths = [max(len(cell[column]) for cell in (heads, *cells)) for column in range(len(heads))]
    out = ["  ".join(word.ljust(width) for word, width in zip(heads, widths, strict=True)).rstrip()]
    for row, cell in zip(table, cells, strict=True):
        line = "  ".join(word.ljust(width) for word, width in zip(cell, widths, strict=True))
        out.append(f"{line}  {row.remedy}".rstrip())
    behind = sum(row.verdict == "behind" for row in table)
    return [*out, "", f"{behind} of {len(table)} packages are behind." if behind else "Nothing is behind."]


def main(arguments: list[str]) -> int:
    """Print the table, and write it where `--report` says. Returns the exit code."""
    packages = watched_packages()
    try:
        table = rows(packages, newest(packages))
    except RegistryError as error:
        sys.stderr.write(f"outdated: {error}\n")
        return NO_ANSWER
    text = "\n".join(lines(table)) + "\n"
    sys.stdout.write(text)
    if "--report" in arguments:
        folder = Path(arguments[arguments.index("--report") + 1])
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"outdated-{time.strftime('%Y-%m-%d')}.txt").write_text(text, "utf-8")
    return BEHIND if any(row.verdict == "behind" for row in table) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
