"""Prints the agents, clients and SDKs that have a newer version than the tested one (`make outdated`).

    python -m tools.outdated [--json] [--report FOLDER]
    python -m tools.outdated --write

Exit code: 0 if nothing is outdated, 1 if something is, 2 if a registry did not answer. `--report` also writes the lines to
FOLDER/outdated-DATE.txt. `--json` prints an object for each package, with days of publication:
{kind, name, registry, package, tested, newest, verdict, tested_on, newest_on, age_days, remedy}. `--write` writes the table of
docs/compatibility.md, also after an adoption; its exit code is 0.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any, Literal

from tools.generated_files import settle
from tools.packages import ROOT, Package, Registry, RegistryError, Release, newest, numbers, release_days, watched_packages

PAGE = ROOT / "docs" / "compatibility.md"
BEGIN, END = "<!-- versions: written by `make outdated ARGS=--write` -->", "<!-- /versions -->"
HEADS = ("kind", "name", "package", "tested", "newest known", "age in days", "")

Verdict = Literal["current", "behind", "held", "not tested", "not found"]
BEHIND, NO_ANSWER = 1, 2
"""Exit codes."""


@dataclass(frozen=True, slots=True)
class Row:
    """One package with its newest version ("" if the registry does not have it), and on which days both were published."""

    package: Package
    newest: str
    verdict: Verdict
    tested_on: date | None = None
    newest_on: date | None = None

    @property
    def age_days(self) -> int | None:
        """Days from the tested version to the newest one. None if a day is not known or nothing was tested."""
        if self.verdict == "current":
            return 0
        return (self.newest_on - self.tested_on).days if self.tested_on and self.newest_on else None

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
    table = [Row(package, version, verdict(package, version)) for package, version in pairs]
    programs = {row.package.name: row for row in table if row.package.kind == "platform" and row.newest}
    return [hold(row, programs.get(row.package.name)) for row in table]


def hold(row: Row, program: Row | None) -> Row:
    """A row whose version wants a program for this machine that the registry does not have is held."""
    if program is None or row.verdict != "behind" or numbers(program.newest) >= numbers(row.newest):
        return row
    reason = f"Its program for this machine, {program.package.package}, ends at {program.newest}"
    return replace(row, package=replace(row.package, reason=reason), verdict="held")


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


def with_days(table: Sequence[Row]) -> list[Row]:
    """Ask the registries when the versions of a table were published."""
    pairs: list[tuple[Release, Release]] = []
    for row in table:
        one = row.package
        pairs.append(((one.registry, one.package, one.tested), (one.registry, one.package, row.newest)))
    days = release_days(release for pair in pairs for release in pair if release[2])
    return [
        replace(row, tested_on=days.get(tested), newest_on=days.get(latest))
        for row, (tested, latest) in zip(table, pairs, strict=True)
    ]


def record(row: Row) -> dict[str, Any]:
    """A row as JSON."""
    shown = {key: value for key, value in asdict(row.package).items() if key != "reason"}
    days = {key: day.isoformat() if day else None for key, day in (("tested_on", row.tested_on), ("newest_on", row.newest_on))}
    return shown | {"newest": row.newest, "verdict": row.verdict} | days | {"age_days": row.age_days, "remedy": row.remedy}


def page_table(table: Sequence[Row], today: str) -> str:
    """The table of docs/compatibility.md, between its marks."""
    out = [BEGIN, f"Asked on {today}.", "", f"| {' | '.join(HEADS)} |", "|" + "---|" * len(HEADS)]
    for row in table:
        age, package = row.age_days, row.package
        cells = (package.kind, f"`{package.name}`", f"`{package.package}`", package.tested or "–", row.newest or "–")
        out.append(f"| {' | '.join(cells)} | {'–' if age is None else age} | {row.verdict} |")
    return "\n".join([*out, END])


def write_page(table: Sequence[Row]) -> None:
    """Write the table into docs/compatibility.md."""
    block = page_table(table, time.strftime("%Y-%m-%d"))
    text = re.sub(f"{re.escape(BEGIN)}.*?{re.escape(END)}", lambda _: block, PAGE.read_text("utf-8"), flags=re.DOTALL)
    settle({PAGE: text}, check=False)


def main(arguments: list[str]) -> int:
    """Print the table, and write it where the arguments say. Returns the exit code."""
    packages = watched_packages()
    try:
        table = rows(packages, newest(packages))
        if dated := {"--json", "--write"}.intersection(arguments):
            table = with_days(table)
    except RegistryError as error:
        sys.stderr.write(f"outdated: {error}\n")
        return NO_ANSWER
    if "--write" in dated:
        write_page(table)
        return 0
    text = (json.dumps([record(row) for row in table], indent=1) if dated else "\n".join(lines(table))) + "\n"
    sys.stdout.write(text)
    if "--report" in arguments:
        folder = Path(arguments[arguments.index("--report") + 1])
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"outdated-{time.strftime('%Y-%m-%d')}.txt").write_text(text, "utf-8")
    return BEHIND if any(row.verdict == "behind" for row in table) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
