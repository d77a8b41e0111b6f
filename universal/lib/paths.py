"""Compares absolute paths as they are written, and says what `~` and variables in one stand for. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath


def is_in(path: str, folders: Iterable[str]) -> bool:
    """Whether a path is one of these folders, or lies below one."""
    return any(path == folder or path.startswith(folder.rstrip("/") + "/") for folder in folders)


def relative(path: str, base: str) -> str:
    """Return `path` relative to `base` if it lies below it, else unchanged."""
    try:
        return str(PurePosixPath(path).relative_to(base))
    except ValueError:
        return path


def expand(path: str, environ: Mapping[str, str]) -> Path | None:
    """What `~/...`, `$VARIABLE/...` or an absolute path is in this environment. None if the variable is not set."""
    if path.startswith("/"):
        return Path(path)
    head, _, rest = path.partition("/")
    base = environ.get("HOME", "") if head == "~" else environ.get(head.removeprefix("$"), "")
    return Path(base, rest) if base else None
