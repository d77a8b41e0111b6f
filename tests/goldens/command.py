"""`scripts/goldens write|compare|show|diff [NAME...]`: what clients see of all recordings, written down, compared or read."""

from __future__ import annotations

import argparse
import gc
import os
import sys
import time
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from fnmatch import fnmatchcase
from itertools import groupby
from multiprocessing import get_context
from typing import Any

from shim.lib.logging import configure
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


def lines_of_next(name: str) -> list[str]:
    """`lines_of`, one recording of many in a process."""
    _tidy()
    return lines_of(name)


def write_goldens(todo: Sequence[str]) -> None:
    """Write the goldens of these recordings, and drop those whose recordings are gone."""
    known = set(names())
    played = zip(todo, in_processes(lines_of_next, todo), strict=True)
    for folder, rows in groupby(played, key=lambda row: files.folder_of(row[0])):
        kept = {scene: lines for scene, lines in files.scenes_of(folder).items() if f"{folder}/{scene}" in known}
        files.write(folder, kept | {name.rpartition("/")[2]: lines for name, lines in rows})
    for folder in set(files.folders_on_disk()) - {files.folder_of(name) for name in known}:
        files.path_of(folder).unlink()


def compare_golden(name: str) -> list[Difference]:
    """What differs from the golden of one recording."""
    _tidy()
    try:
        before = files.read(name)
    except FileNotFoundError:
        return [Difference(name, "golden", "+file", "", "there is no golden yet: scripts/goldens write")]
    return files.compare(name, before, lines_of(name))


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


def in_processes(work: Callable[[str], Any], todo: Sequence[str]) -> Iterator[Any]:
    """Do this for each recording, on all processors; the results in the order of the recordings."""
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("fork")) as pool:
        yield from pool.map(work, todo, chunksize=CHUNK)


def main() -> int:
    """The exit code: 1 if something differs."""
    parser = argparse.ArgumentParser(prog="scripts/goldens", description=__doc__)
    parser.add_argument("act", choices=("write", "compare", "show", "diff"))
    parser.add_argument("names", nargs="*", help="recordings: a glob or the beginning of AGENT/VERSION/SCENE")
    parser.add_argument(
        "--since", default="HEAD", metavar="COMMIT", help="diff: the commit whose goldens are compared with those here"
    )
    given = parser.parse_intermixed_args()
    configure("error", "console", sys.stderr)  # recordings of turns that fail are as they should be
    began = time.monotonic()
    todo = matching_names(given.names)
    if not todo:
        print(f"No recording is called {' or '.join(given.names)}.", file=sys.stderr)
        return 1
    if given.act == "show":
        return show(todo)
    if given.act == "diff":
        report(differences_since(given.since, set(todo) if given.names else None))
        return 0
    if given.act == "write":
        write_goldens(todo)
        size = sum(files.path_of(folder).stat().st_size for folder in files.folders_on_disk())
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


def show(todo: Sequence[str]) -> int:
    """Print the goldens of these recordings, a line for each event and answer. Returns the exit code."""
    for name in todo:
        print(f"# {name}", *files.read(name), sep="\n")
    return 0


def differences_since(commit: str, wanted: Container[str] | None) -> list[Difference]:
    """What differs between the goldens of a commit and those on disk, of these recordings or of all."""
    found: list[Difference] = []
    for folder in files.folders_changed_since(commit):
        before, after = files.scenes_at(commit, folder), files.scenes_of(folder)
        for scene in sorted({*before, *after}):
            if wanted is None or f"{folder}/{scene}" in wanted:
                found += files.compare(f"{folder}/{scene}", before.get(scene, []), after.get(scene, []))
    return found


def report(differences: Sequence[Difference]) -> None:
    """The first differences of the first recordings."""
    for number, (name, rows) in enumerate(groupby(differences, key=lambda d: d.recording)):
        mine = list(rows)
        if number < SHOWN_RECORDINGS:
            print(f"{name}: {len(mine)} differences")
            print("\n".join(str(row) for row in mine[:SHOWN]))
    print()
