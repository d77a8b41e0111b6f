"""`python -m tests.bench [--rounds N] [--only ROW,...] [--out FILE]`: all rows, contenders in turn, medians of the rounds.

Rows are independent; each starts its servers fresh. A B A B: every round starts every contender once, so that what the
machine does meanwhile falls on all of them.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import TypeAlias

from tests.bench import report, rows

Rounds: TypeAlias = "dict[str, list[dict[str, dict[str, float]]]]"
"""row -> of each round: contender -> figure -> value."""
ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 660
"""Three rounds take eight minutes on two processors; a row that began just before this ends within 15."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help=f"comma-separated: {', '.join(rows.ROWS)}")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "BENCHMARKS.md")
    parser.add_argument("--data", type=Path, help="also write all figures of all rounds there, as JSON")
    parser.add_argument("--limit-s", type=float, default=LIMIT_S, help="no new row is begun after so many seconds")
    wanted = parser.parse_args()
    chosen = [name for name in wanted.only.split(",") if name] or list(rows.ROWS)
    began = time.monotonic()
    figures: Rounds = defaultdict(list)
    troubles: list[str] = []
    for round_ in range(wanted.rounds):
        for name in chosen:
            if round_ and not rows.ROWS[name].every_round:
                continue
            at = f"round {round_ + 1} of {wanted.rounds}, {time.monotonic() - began:.0f} s: {name}"
            if time.monotonic() - began > wanted.limit_s:
                troubles.append(f"{name} was left out in round {round_ + 1}: {wanted.limit_s:.0f} s were over")
                print(f"{at}: left out, the time is over", file=sys.stderr, flush=True)
                continue
            print(at, file=sys.stderr, flush=True)
            found = measure_row(name, troubles)
            print(f"  {json.dumps(found)}", file=sys.stderr, flush=True)
            if found:
                figures[name].append(found)
            write(figures, troubles, wanted, round_ + 1)
    if wanted.only:
        print(page(figures, troubles, wanted.rounds))
    return 0


def measure_row(name: str, troubles: list[str]) -> rows.Found:
    """One row once. What cannot be measured is noted, shown, and left out."""

    def note(text: str) -> None:
        troubles.append(f"{name}: {text}")
        print(f"  ! {text}", file=sys.stderr, flush=True)

    try:
        with rows.within(rows.ROWS[name].most_s, name):
            return rows.ROWS[name].run(note)
    except Exception as error:  # whatever a contender does, the other rows are measured
        note(f"{error or type(error).__name__}")
        return {}


def write(figures: Rounds, troubles: list[str], wanted: argparse.Namespace, round_: int) -> None:
    """What is known so far: who stops the run in the middle has that."""
    if wanted.data:
        wanted.data.write_text(json.dumps(figures, indent=1))
    if not wanted.only:
        wanted.out.write_text(page(figures, troubles, round_))
        if "growth" in figures:
            (wanted.out.parent / "pictures" / "bench.svg").write_text(report.plot(medians(figures)))


def medians(figures: Rounds) -> report.Found:
    return {name: rows.middle(rounds) for name, rounds in figures.items()}


def page(figures: Rounds, troubles: list[str], rounds: int) -> str:
    return report.page(medians(figures), rounds, troubles)


if __name__ == "__main__":
    sys.exit(main())
