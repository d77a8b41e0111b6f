"""`scripts/goldens write|compare [NAME...]`: what clients see of all recordings, written down or compared."""

from __future__ import annotations

import argparse
import gc
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from fnmatch import fnmatchcase
from itertools import groupby
from multiprocessing import get_context
from typing import Any

from tests.goldens import files
from tests.goldens.files import AcceptedDifference, Difference
from tests.goldens.play import play
from tests.goldens.timeline import names, timeline

SHOWN = 5
"""Differences that are printed of one recording."""
SHOWN_RECORDINGS = 20
CHUNK = 8
COLLECT_EVERY = 25
_played = 0


def lines_of(name: str) -> list[str]:
    """What clients see of a recording today."""
    return play(timeline(name)).lines()


def write_golden(name: str) -> None:
    """Write the golden of one recording."""
    _tidy()
    files.write(name, lines_of(name))


def compare_golden(name: str) -> list[Difference]:
    """What differs from the golden of one recording."""
    _tidy()
    if not files.path_of(name).exists():
        return [Difference(name, "golden", "+file", "", "there is no golden yet: scripts/goldens write")]
    return files.compare(name, files.read(name), lines_of(name))


def split_differences(
    differences: Iterable[Difference], listed: Sequence[AcceptedDifference]
) -> tuple[list[Difference], list[AcceptedDifference]]:
    """Differences that nobody wants, and entries that cover none."""
    left, used = [], set[AcceptedDifference]()
    for difference in differences:
        covering = [entry for entry in listed if entry.covers(difference)]
        used.update(covering)
        if not covering:
            left.append(difference)
    return left, [entry for entry in listed if entry not in used]


def _tidy() -> None:
    """Collect garbage now and then: each server leaves many cycles, and the collector would run all the time."""
    global _played
    gc.disable()
    _played += 1
    if _played % COLLECT_EVERY == 0:
        gc.collect()


def matching_names(patterns: Sequence[str]) -> list[str]:
    """Recordings whose name matches or begins with one of the patterns; all for none."""
    return [n for n in names() if not patterns or any(fnmatchcase(n, p) or n.startswith(p) for p in patterns)]


def in_processes(work: Callable[[str], Any], todo: Sequence[str]) -> list[Any]:
    """Do this for each recording, on all processors."""
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("fork")) as pool:
        return list(pool.map(work, todo, chunksize=CHUNK))


def main() -> int:
    """The exit code: 1 if something differs."""
    parser = argparse.ArgumentParser(prog="scripts/goldens", description=__doc__)
    parser.add_argument("act", choices=("write", "compare"))
    parser.add_argument("names", nargs="*", help="recordings: a glob or the beginning of AGENT/VERSION/SCENE")
    given = parser.parse_args()
    began = time.monotonic()
    todo = matching_names(given.names)
    if not todo:
        print(f"No recording is called {' or '.join(given.names)}.", file=sys.stderr)
        return 1
    if given.act == "write":
        in_processes(write_golden, todo)
        for name in set(files.names_on_disk()) - set(names()):
            files.path_of(name).unlink()
        size = sum(files.path_of(name).stat().st_size for name in files.names_on_disk())
        print(f"{len(todo)} goldens written, {size / 2**20:.1f} MiB in all, {time.monotonic() - began:.0f} s")
        return 0
    found = [difference for rows in in_processes(compare_golden, todo) for difference in rows]
    if not given.names:
        gone = set(files.names_on_disk()) - set(names())
        found += [Difference(name, "golden", "-file", "its recording is gone", "") for name in sorted(gone)]
    left, idle = split_differences(found, files.accepted_differences())
    report(left)
    if not given.names:
        for entry in idle:
            print(f"{files.DIFFERENCES.name}: this entry covers no difference any more, remove it: {entry}")
    print(f"{len(todo)} recordings, {len(left)} differences, {time.monotonic() - began:.0f} s")
    return 1 if left or (idle and not given.names) else 0


def report(differences: Sequence[Difference]) -> None:
    """The first differences of the first recordings."""
    for number, (name, rows) in enumerate(groupby(differences, key=lambda d: d.recording)):
        mine = list(rows)
        if number < SHOWN_RECORDINGS:
            print(f"{name}: {len(mine)} differences")
            print("\n".join(str(row) for row in mine[:SHOWN]))
    print()
