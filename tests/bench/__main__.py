"""`python -m tests.bench [--rounds N] [--only ROW,...] [--out FILE]`: all rows, contenders in turn, medians of the rounds.

Rows are independent; each starts its servers fresh. A B A B: every round starts every contender once, so that what the
machine does meanwhile falls on all of them.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from pathlib import Path
from statistics import median

from tests.bench import report, rows

ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help=f"comma-separated: {', '.join(rows.ROWS)}")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "BENCHMARKS.md")
    parser.add_argument("--data", type=Path, help="also write all figures of all rounds there, as JSON")
    wanted = parser.parse_args()
    chosen = [name for name in wanted.only.split(",") if name] or list(rows.ROWS)
    figures: dict[str, list[dict[str, dict[str, float]]]] = defaultdict(list)
    for round_ in range(wanted.rounds):
        for name in chosen:
            print(f"round {round_ + 1} of {wanted.rounds}: {name}", file=sys.stderr, flush=True)
            if round_ == 0 or rows.ROWS[name].every_round:
                found = rows.ROWS[name].run()
                print(f"  {json.dumps(found)}", file=sys.stderr, flush=True)
                figures[name].append(found)
    if wanted.data:
        wanted.data.write_text(json.dumps(figures, indent=1))
    medians = {name: middle(rounds) for name, rounds in figures.items()}
    text = report.page(medians, wanted.rounds)
    if wanted.only:
        print(text)
    else:
        wanted.out.write_text(text)
        (wanted.out.parent / "pictures" / "bench.svg").write_text(report.plot(medians))
        print(f"wrote {wanted.out}")
    return 0


def middle(rounds: list[dict[str, dict[str, float]]]) -> dict[str, dict[str, float]]:
    """The median of each figure of each contender over the rounds."""
    names = {who: set(figures) for found in rounds for who, figures in found.items()}
    return {
        who: {key: median(found[who][key] for found in rounds if key in found.get(who, {})) for key in keys}
        for who, keys in names.items()
    }


if __name__ == "__main__":
    sys.exit(main())
