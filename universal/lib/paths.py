"""Compares absolute paths as they are written. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePosixPath


def is_in(path: str, folders: Iterable[str]) -> bool:
    """Whether a path is one of these folders, or lies below one."""
    return any(path == folder or path.startswith(folder.rstrip("/") + "/") for folder in folders)


def relative(path: str, base: str) -> str:
    """Return `path` relative to `base` if it lies below it, else unchanged."""
    try:
        return str(PurePosixPath(path).relative_to(base))
    except ValueError:
        return path
