"""Programs named `opencode` that are this server under another name, and how to tell them from a real OpenCode.

An alias is a small shell script with `MARK` in it. Whoever looks for OpenCode itself (the TUI, the files of the web UI, the agent
`opencode`) uses `which`: a server that took its own alias for OpenCode would start itself.
"""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

MARK = "# opencode-shim alias"
"""The second line of an alias begins with it."""
MARK_BYTES = 256
"""Bytes at the beginning of a file in which the mark is looked for."""
NAMES = ("opencode", "opencode2")
"""What an alias can be called: OpenCode's programs of 1.x and of 2.x."""


def script(python: str, name: str) -> str:
    """The text of an alias. `-P`: the directory it is called in, perhaps a strange project, must not hold Python's modules."""
    command = f'exec {shlex.quote(python)} -P -m shim.cli.opencode {name} "$@"'
    return f"#!/bin/sh\n{MARK}: written by `opencode-shim alias install`, removed by `opencode-shim alias remove`.\n{command}\n"


def is_alias(path: str | Path) -> bool:
    """Whether a file is an alias. Blocking."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - a path that may be text
            return MARK.encode() in file.read(MARK_BYTES)
    except OSError:
        return False


def candidates(name: str, search_path: str) -> Iterator[str]:
    """All programs of a name in the folders of a PATH, aliases too, the first one first. Blocking."""
    for folder in search_path.split(os.pathsep):
        if folder and (found := shutil.which(name, path=folder)):
            yield found


def find_program(name: str, search_path: str) -> str | None:
    """As `shutil.which`, but an alias does not count. Blocking."""
    if os.sep in name:
        found = shutil.which(name)
        return None if found is None or is_alias(found) else found
    return next((found for found in candidates(name, search_path) if not is_alias(found)), None)
