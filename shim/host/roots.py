"""The allow-list of directories (setting `roots`). Links are resolved: a link in a root that leads out is outside."""

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
    """Whether a path lies in one of the roots; always if there are none. Roots are absolute and resolved."""
    allowed = [os.fspath(root) for root in roots]
    if not allowed:
        return True
    place = os.path.realpath(path)
    return any(place == root or place.startswith(root.rstrip(os.sep) + os.sep) for root in allowed)


def repository_of(directory: str) -> str:
    """The resolved root of the repository that a directory is in; itself outside of git. Blocking."""
    return repository_above(os.path.realpath(directory))


def repository_above(directory: str) -> str:
    """The root of the repository that a directory is in, as the directory is written; itself outside of git. Blocking."""
    place = Path(directory)
    return str(next((folder for folder in (place, *place.parents) if disk.exists(folder / ".git")), place))


def visible(records: Iterable[SessionRecord], roots: Iterable[str | PathLike[str]]) -> Iterable[SessionRecord]:
    """The sessions whose directory lies in one of the roots. Each directory is looked up once."""
    allowed, known = [os.fspath(root) for root in roots], dict[str, bool]()
    for record in records:
        directory = record.directory
        if allowed and directory not in known:
            known[directory] = within(directory, allowed)
        if known.get(directory, True):
            yield record


def visible_projects(rows: Iterable[JsonObject], roots: Iterable[str | PathLike[str]], current: str) -> list[JsonObject]:
    """The projects that have a working tree in one of the roots, and `current`, the id of the request's own: a root may be a
    folder of a larger repository."""
    allowed = [os.fspath(root) for root in roots]
    return [row for row in rows if row["id"] == current or any(within(p, allowed) for p in (row["worktree"], *row["sandboxes"]))]


def require(directory: str, roots: Iterable[str | PathLike[str]]) -> None:
    """Raises OutsideRoots for a directory outside of them, without naming them."""
    if not within(directory, roots):
        raise OutsideRoots(directory)
