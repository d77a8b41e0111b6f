"""Checks paths against the allowed directories (setting `roots`). A link in a root that leads out counts as outside."""

from __future__ import annotations

import os
from collections.abc import Iterable
from os import PathLike
from pathlib import Path

from shim.errors import OutsideRoots
from shim.host import disk
from universal.jsonvalue import JsonObject
from universal.session.model import SessionRecord


def within(path: str, roots: Iterable[str | PathLike[str]]) -> bool:
    """Whether a path lies in one of the roots; always true without roots. Roots are absolute and resolved."""
    allowed = [os.fspath(root) for root in roots]
    if not allowed:
        return True
    place = os.path.realpath(path)
    return any(place == root or place.startswith(root.rstrip(os.sep) + os.sep) for root in allowed)


def repository_of(directory: str) -> str:
    """Return the resolved root of a directory's repository; the directory itself outside of git. Blocking."""
    return repository_above(os.path.realpath(directory))


def repository_above(directory: str) -> str:
    """Return the root of a directory's repository without resolving links; the directory itself outside of git. Blocking."""
    place = Path(directory)
    return str(next((folder for folder in (place, *place.parents) if disk.exists(folder / ".git")), place))


def visible(records: Iterable[SessionRecord], roots: Iterable[str | PathLike[str]]) -> Iterable[SessionRecord]:
    """Yield the sessions whose directory lies in one of the roots. Each directory is checked once."""
    allowed, is_allowed = [os.fspath(root) for root in roots], dict[str, bool]()
    for record in records:
        directory = record.directory
        if allowed and directory not in is_allowed:
            is_allowed[directory] = within(directory, allowed)
        if is_allowed.get(directory, True):
            yield record


def visible_projects(rows: Iterable[JsonObject], roots: Iterable[str | PathLike[str]], current: str) -> list[JsonObject]:
    """List the projects with a working tree in one of the roots, and the project with the id `current`.

    `current` is the request's own project. It is always included, because a root may be a folder of a larger repository.
    """
    allowed = [os.fspath(root) for root in roots]
    return [row for row in rows if row["id"] == current or any(within(p, allowed) for p in (row["worktree"], *row["sandboxes"]))]


def require(directory: str, roots: Iterable[str | PathLike[str]]) -> None:
    """Raise OutsideRoots for a directory outside of the roots. The error does not name them."""
    if not within(directory, roots):
        raise OutsideRoots(directory)
