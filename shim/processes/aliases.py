"""Tells aliases, programs named `opencode` that start this server, from a real OpenCode.

An alias is a small shell script with `MARK` in it. Code that needs OpenCode itself (the TUI, the files of the web UI, the agent
`opencode`) uses `find_program`: a server that mistook its own alias for OpenCode would start itself.
"""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

MARK = "# opencode-shim alias"
"""The beginning of an alias's second line."""
MARK_BYTES = 256
"""Number of bytes at the beginning of a file that are searched for the mark."""
NAMES = ("opencode", "opencode2")
"""Names that an alias can have: the programs of OpenCode 1.x and 2.x."""


def script(python: str, name: str) -> str:
    """Return the text of an alias. `-P` keeps Python from importing modules of the current directory, which may be untrusted."""
    command = f'exec {shlex.quote(python)} -P -m shim.cli.opencode {name} "$@"'
    return f"#!/bin/sh\n{MARK}: written by `opencode-shim alias install`, removed by `opencode-shim alias remove`.\n{command}\n"


def is_alias(path: str | Path) -> bool:
    """Return True if a file is an alias. Blocks."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - a path that may be text
            return MARK.encode() in file.read(MARK_BYTES)
    except OSError:
        return False


def candidates(name: str, search_path: str) -> Iterator[str]:
    """Yield all programs of this name on a PATH, in its order and with aliases. Blocks."""
    for folder in search_path.split(os.pathsep):
        if folder and (path := shutil.which(name, path=folder)):
            yield path


def find_program(name: str, search_path: str) -> str | None:
    """Return the path of a program like `shutil.which`, but skip aliases. Blocks."""
    return next(programs_on(name, search_path), None)


def programs_on(name: str, search_path: str) -> Iterator[str]:
    """Yield all programs of this name on a PATH, in its order and without aliases. Blocks."""
    programs = candidates(name, search_path) if os.sep not in name else filter(None, [shutil.which(name)])
    yield from (path for path in programs if not is_alias(path))
