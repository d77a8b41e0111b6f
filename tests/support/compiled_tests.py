"""Compiles the tests of a fresh checkout once, and not once in each worker of pytest-xdist.

pytest writes its assertions into each file of tests before it compiles it: 5.5 s in all. All workers collect all files in the
same order, so each would do that for all of them. Here each compiles its own share first.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from _pytest.assertion import rewrite


def compile_share(config: pytest.Config, files: Sequence[Path], number: int, count: int) -> int:
    """Compile each of these files that no run has compiled and whose turn it is. Out: how many were compiled."""
    if sys.dont_write_bytecode:
        return 0
    state = config.stash[rewrite.assertstate_key]
    compiled = 0
    for path in files[number::count]:
        place = rewrite.get_cache_dir(path)
        target = place / f"{path.stem}{rewrite.PYC_TAIL}"
        if not target.exists() and rewrite.try_makedirs(place):
            source, code = rewrite._rewrite_test(path, config)
            compiled += rewrite._write_pyc(state, code, source, target)
    return compiled
