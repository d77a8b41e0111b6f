"""The command of `make cluster-chaos`."""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
from pathlib import Path

from tools.chaos.run import Parameters, Report, Run

SHOWN = 60
"""Maximum violations that are printed."""


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def show(report: Report) -> None:
    """Print the figures, and what was broken."""
    say("")
    for name, count in sorted(report.figures.items()):
        say(f"{count:8,}  {name}")
    say(f"{len(report.violations):8,}  violations")
    for violation in report.violations[:SHOWN]:
        say(f"  {violation}")


def main() -> int:
    """Run, and return 1 if a promise was broken. Then the data and logs stay."""
    defaults = Parameters()
    parser = argparse.ArgumentParser(prog="python -m tools.chaos", description=__doc__)
    parser.add_argument("--nodes", type=int, default=defaults.nodes)
    parser.add_argument("--sessions", type=int, default=defaults.sessions)
    parser.add_argument("--seconds", type=float, default=defaults.seconds)
    parser.add_argument("--seed", type=int, default=defaults.seed)
    parser.add_argument("--seeds", type=int, default=1, help="run so many seeds, one after the other")
    parser.add_argument(
        "--data", type=Path, help="folder for data and logs; unset: a temporary one, which stays if a check fails"
    )
    options = parser.parse_args()
    seeds = range(options.seed, options.seed + options.seeds)
    return max([_run(Parameters(options.nodes, options.sessions, options.seconds, seed), options.data) for seed in seeds])


def _run(parameters: Parameters, data: Path | None) -> int:
    folder = Path(tempfile.mkdtemp(prefix="opencode-shim-chaos-")) if data is None else data / str(parameters.seed)
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    report = asyncio.run(Run(parameters, folder, say).run())
    show(report)
    if report.violations:
        say(f"\ndata and logs: {folder}")
        return 1
    if data is None:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
