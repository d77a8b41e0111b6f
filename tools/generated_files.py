"""Writes generated files, or with `--check` lists those that are not current. Every tool of `scripts/gen` ends here."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def settle(files: Mapping[Path, str], *, check: bool, command: str = "make gen") -> int:
    """Write the files whose text differs, or only list them with `check`. Returns the exit code.

    In: `files`, path -> the text that it should have; `command`, which writes them, for the message.
    """
    stale = [path for path, text in files.items() if not path.exists() or path.read_text("utf-8") != text]
    for path in stale:
        if check:
            sys.stderr.write(f"{path.relative_to(ROOT)} is not current: run `{command}`\n")
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(files[path], "utf-8")
            sys.stdout.write(f"wrote {path.relative_to(ROOT)}\n")
    return 1 if check and stale else 0
