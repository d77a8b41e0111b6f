"""`scripts/recordings show|pack|unpack [NAME...]`: recordings of `compat_fixtures`, which are packed by version.

`show` prints recordings, `unpack` writes them as files to edit them, and `pack` packs what is not packed. NAME is a glob, or the
beginning of `agents/claude/2.1.330/text`, say. The mock's recordings stay files: tests write them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from shim.dev.record.packs import ENDING, pack_folder, read_text, recordings_below, unpack_folder
from tools.generated_files import ROOT

FIXTURES = ROOT / "compat_fixtures"
WRITTEN_BY_TESTS = FIXTURES / "agents" / "mock"


def recordings() -> list[Path]:
    """The paths of all recordings of agents and of OpenCode 2, packed or not."""
    return [
        path
        for path in (*recordings_below(FIXTURES / "agents"), *recordings_below(FIXTURES / "opencode2"))
        if path.parent != FIXTURES / "opencode2" and not path.is_relative_to(WRITTEN_BY_TESTS)
    ]


def name_of(path: Path) -> str:
    """The name of a recording: its path below `compat_fixtures` without the ending."""
    return str(path.relative_to(FIXTURES)).removesuffix(ENDING)


def matches(patterns: Sequence[str]) -> list[Path]:
    """Recordings whose name matches or begins with one of the patterns; all for none."""
    named = [(name_of(path), path) for path in recordings()]
    return [path for name, path in named if not patterns or any(fnmatchcase(name, p) or name.startswith(p) for p in patterns)]


def main(arguments: list[str]) -> int:
    """Do what is asked. Returns the exit code: 1 if no recording has such a name."""
    parser = argparse.ArgumentParser(prog="scripts/recordings", description=__doc__)
    parser.add_argument("act", choices=("show", "pack", "unpack"))
    parser.add_argument("names", nargs="*", help="a glob or the beginning of a name, such as agents/claude/2.1.330/text")
    options = parser.parse_args(arguments)
    paths = matches(options.names)
    if not paths:
        called = " or ".join(options.names)
        sys.stderr.write(f"No recording is called {called}. `scripts/recordings show | grep '^#'` prints the names.\n")
        return 1
    if options.act == "show":
        for path in paths:
            sys.stdout.write(f"# {name_of(path)}\n{read_text(path)}")
        return 0
    act = pack_folder if options.act == "pack" else unpack_folder
    number = sum(act(folder) for folder in sorted({path.parent for path in paths}))
    sys.stdout.write(f"{number} recordings {options.act}ed\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
