"""Writes the table of routes and roles into docs/people.md; `--check` compares. Its source is `shim.http.people`."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from shim.http.people import OPEN, VIEW, WHOLE, WORK
from tools.generated_files import ROOT, settle

DOC = ROOT / "docs" / "people.md"
BEGIN, END = "<!-- routes: written by tools/people.py (make gen) -->", "<!-- /routes -->"


def _list(rows: Iterable[tuple[str, str]]) -> str:
    """The paths of each method, the methods by name."""
    paths: dict[str, list[str]] = {}
    for method, path in sorted(rows):
        paths.setdefault(method, []).append(f"`{path}`")
    return "; ".join(f"{method} {', '.join(found)}" for method, found in paths.items())


def table() -> str:
    """The routes of each role."""
    rows = [
        ("everybody, also without a token", _list(OPEN)),
        ("`view`", _list(VIEW)),
        ("`work`", _list(WORK)),
        ("`admin`", "all others"),
        ("nobody with roots or own sessions", ", ".join(f"`{path}`" for path in WHOLE) + ", and what is below"),
    ]
    return "\n".join(["| who | routes |", "|---|---|", *(f"| {who} | {routes} |" for who, routes in rows)])


def page(text: str) -> str:
    """The page with its table made anew."""
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}\n{table()}\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    sys.exit(settle({DOC: page(DOC.read_text())}, check="--check" in sys.argv))
