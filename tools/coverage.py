"""Writes docs/coverage.md, the matrix of what works with which agent, and the agents of README.md; `--check` compares.

It runs the predicates of `tests/coverage` over the recordings, so that every tick stands for a test that passes.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from shim.lib.logging import configure
from tools.generated_files import ROOT, settle

if TYPE_CHECKING:
    from tests.coverage.cells import Cell, Column
    from universal.agent_spec import AgentSpec

README = ROOT / "README.md"
DOC = ROOT / "docs" / "coverage.md"
BEGIN, END = "<!-- agents: written by tools/coverage.py (make gen) -->", "<!-- /agents -->"
README_LEGEND = """✓ these versions were tested; [docs/compatibility.md](docs/compatibility.md) says how, and what was run of
the others. What works with each agent, feature by feature: [docs/coverage.md](docs/coverage.md). Pi (ACP) asks about nothing.
Amp cannot ask, so what a rule asks about is refused."""
LEGEND = """✓ shown by a test over recordings of the real agent; ✓* with a limit; – the agent or its protocol does not have it;
· not verified. ACP is `claude-agent-acp`, `codex-acp` and `opencode acp`, each of them."""
HEAD = """<!-- Written by tools/coverage.py (`make gen`); do not edit. -->
# What works with which agent?

A tick is a test that passes. `tests/coverage` plays recordings of the real agent (`compat_fixtures/agents`) to our code. It asks
whether the feature is in the universal events and in what OpenCode's clients are sent. `opencode-shim record` makes the
recordings: the real program, against a scripted model. For images and files in prompts, a tick shows that the model got them.
For model, effort and resume, it shows that the agent was told and answered with them.

"""

POWERS_HEAD = """## What works beside the turns?

A tick is an end-to-end test with the real agent and the scripted model, in that file of `tests/e2e` (`make e2e-all`). ACP is
at least one adapter. Other agents, and cells with a point, were not run.
"""


def symbol(cell: Cell | None, *, holds: bool) -> str:
    """Return the mark of a cell. ✗ means that its test fails."""
    if cell is None:
        return "·"
    if cell.why:
        return "–"
    return ("✓*" if cell.note else "✓") if holds else "✗"


def _holds() -> Mapping[tuple[str, str], bool]:
    """Return (agent, feature) -> whether its predicate holds in all of its recordings."""
    from tests.coverage.cells import COLUMNS
    from tests.coverage.evidence import look
    from tests.coverage.features import FEATURES

    out: dict[tuple[str, str], bool] = {}
    for agent, column in COLUMNS.items():
        for name, feature in FEATURES.items():
            cell = column.cell(name)
            if cell is not None and cell.recordings:
                out[agent, name] = all(feature.holds(look(recording)) for recording in cell.recordings)
    return out


def table(columns: Mapping[str, Column], results: Mapping[tuple[str, str], bool]) -> str:
    """The matrix: a row for each feature, a column for each agent."""
    from tests.coverage.features import FEATURES

    lines = ["| | " + " | ".join(column.title for column in columns.values()) + " |", "|---|" + ":-:|" * len(columns)]
    for name, feature in FEATURES.items():
        cells = [symbol(column.cell(name), holds=results.get((agent, name), False)) for agent, column in columns.items()]
        lines.append(f"| {feature.title} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def powers_table() -> str:
    """The second table: what end-to-end tests show beside the turns, of the agents that they run."""
    from tests.coverage.cells import COLUMNS, POWERS

    shown = [name for name in COLUMNS if any(name in power.tests for power in POWERS)]
    lines = ["| | " + " | ".join(COLUMNS[name].title for name in shown) + " | test |", "|---|" + ":-:|" * len(shown) + "---|"]
    for title, tests, lacks in POWERS:
        marks = ["✓" if name in tests else "–" if name in lacks else "·" for name in shown]
        lines.append(f"| {title} | {' | '.join(marks)} | `{next(iter(tests.values())).partition('::')[0]}` |")
    reasons = [f"- – {title}, {COLUMNS[name].title}: {why}" for title, _, lacks in POWERS for name, why in lacks.items()]
    return "\n".join([POWERS_HEAD, *lines, "", *reasons, "", *wires_table(), ""])


def wires_table() -> Iterator[str]:
    """The third table: the test of each power by each wire."""
    from tests.coverage.cells import WIRES

    yield "| by which wire | OpenCode 1.x | OpenCode 2 | `/v1` |\n|---|---|---|---|"
    for title, *cells in WIRES:
        shown = [f"`{cell.partition('::')[0]}`" if "::" in cell else f"– {cell}" for cell in cells]
        yield f"| {title} | {' | '.join(shown)} |"


def _details() -> Iterator[str]:
    """Per agent: versions, reasons, limits; then what each row means."""
    from tests.coverage.cells import COLUMNS
    from tests.coverage.features import FEATURES

    yield "\n## What a tick means\n"
    for feature in FEATURES.values():
        yield f"- **{feature.title}**: {feature.means} (scene `{feature.scene}`)"
    yield "\n## By agent\n"
    for column in COLUMNS.values():
        yield f"### {column.title}\n"
        if column.folders:
            yield f"Recorded: {', '.join(f'`{folder}`' for folder in column.folders)}.\n"
        for name, feature in FEATURES.items():
            cell = column.cell(name)
            if cell is None:
                yield f"- · {feature.title}: not verified"
            elif cell.why:
                yield f"- – {feature.title}: {cell.why}"
            elif name in column.differs:
                recordings = ", ".join(f"`{recording}`" for recording in cell.recordings)
                yield f"- {symbol(cell, holds=True)} {feature.title}: {recordings}{f'. {cell.note}' if cell.note else ''}"
        yield ""


def agent_rows(specs: Iterable[AgentSpec]) -> str:
    """The README's table. A row for each agent: whether versions of it were tested, and how far permission rules hold."""
    lines = ["| agent | provider | tested | permission rules hold for |", "|---|---|---|---|"]
    for spec in specs:
        tested = f"✓ {', '.join(spec.program.tested)}" if spec.program.tested else "–" if spec.program.binaries else "✓ built in"
        gaps = spec.rules.enforcement.missing or spec.rules.enforcement.partial or spec.rules.enforcement.no_asks
        extent = "what it asks about" if "*" in spec.rules.enforcement.missing else "most calls" if gaps else "all calls"
        lines.append(f"| {spec.title} | `{spec.name}` | {tested} | {extent} |")
    return "\n".join(lines)


def render_files() -> dict[Path, str]:
    """Return the current text of both files."""
    from tests.coverage.cells import COLUMNS
    from universal.registry import agents

    matrix = table(COLUMNS, _holds())
    doc = f"{HEAD}{matrix}\n\n{LEGEND}\n\n{powers_table()}" + "\n".join(_details()).rstrip() + "\n"
    block = f"{BEGIN}\n{agent_rows(agents().values())}\n\n{README_LEGEND}\n{END}"
    readme = README.read_text("utf-8")
    return {README: re.sub(f"{re.escape(BEGIN)}.*?{re.escape(END)}", lambda _: block, readme, flags=re.DOTALL), DOC: doc}


def main(arguments: list[str]) -> int:
    """Write, or with `--check` compare. Returns the exit code."""
    return settle(render_files(), check="--check" in arguments)


if __name__ == "__main__":
    configure("error", "console", sys.stderr)  # recordings of turns that fail are as they should be
    sys.exit(main(sys.argv[1:]))
