"""Checks paths against the allowed directories (setting `roots`). A link in a root that leads out counts as outside."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import lru_cache
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from shim.lib import disk
from shim.lib.errors import OutsideRoots
from universal.lib.paths import is_in

if TYPE_CHECKING:
    from shim.host.git.projects import WorkingCopy
    from shim.host.values import Project
    from universal.session.values import SessionRecord

T = TypeVar("T")


def within(path: str, roots: Iterable[str | PathLike[str]]) -> bool:
    """Whether a path lies in one of the roots; always true without roots. Roots are absolute and resolved. Blocking."""
    allowed = [os.fspath(root) for root in roots]
    if not allowed:
        return True
    return is_in(os.path.realpath(path), allowed)


def folders_down_to(directory: str) -> list[str]:
    """Return the folders from the root of the repository down to the directory; it alone outside of git. Blocking."""
    above = [Path(directory), *Path(directory).parents]
    root = next((index for index, folder in enumerate(above) if disk.exists(folder / ".git")), 0)
    return [str(folder) for folder in reversed(above[: root + 1])]


def repository_of(directory: str) -> str:
    """Return the resolved root of a directory's repository; the directory itself outside of git. Blocking."""
    return repository_above(os.path.realpath(directory))


def repository_above(directory: str) -> str:
    """Return the root of a directory's repository without resolving links; the directory itself outside of git. Blocking."""
    return folders_down_to(directory)[0]


@lru_cache(maxsize=256)
def folds_case(directory: str) -> bool:
    """Return whether `.ENV` in a directory is `.env`, as on macOS. Asks with a name that is there. Blocking."""
    place = Path(directory)
    with suppress(OSError):
        for entry in place.iterdir():
            if entry.name.swapcase() != entry.name:
                return _is_same(entry)
    return place.name.swapcase() != place.name and _is_same(place)


def _is_same(path: Path) -> bool:
    try:
        return os.path.samestat(path.lstat(), path.with_name(path.name.swapcase()).lstat())
    except OSError:
        return False


async def visible(
    items: Iterable[T], roots: Sequence[str | PathLike[str]], places_of: Callable[[T], Iterable[str]]
) -> Sequence[T]:
    """The items of which a place lies in one of the roots. Links are followed in a thread, each place once."""
    candidates = tuple(items)
    if not roots:
        return candidates
    places = {place for item in candidates for place in places_of(item)}
    allowed = await asyncio.to_thread(lambda: {place for place in places if within(place, roots)})
    return [item for item in candidates if not allowed.isdisjoint(places_of(item))]


async def visible_sessions(records: Iterable[SessionRecord], roots: Sequence[str | PathLike[str]]) -> Sequence[SessionRecord]:
    """The sessions whose directory lies in one of the roots."""
    return await visible(records, roots, lambda record: (record.directory,))


async def visible_projects(projects: Iterable[Project], roots: Sequence[str | PathLike[str]], current: str) -> list[Project]:
    """List the projects with a working tree in one of the roots, and the project with the id `current`.

    `current` is the request's own project. It is always included, because a root may be a folder of a larger repository.
    """
    candidates = list(projects)
    visible_ids = {
        project.id for project in await visible(candidates, roots, lambda project: (project.worktree, *project.sandboxes))
    }
    return [project for project in candidates if project.id == current or project.id in visible_ids]


async def visible_copies(copies: Iterable[WorkingCopy], roots: Sequence[str | PathLike[str]]) -> Sequence[WorkingCopy]:
    """The working copies that lie in one of the roots."""
    return await visible(copies, roots, lambda copy: (copy.directory,))


async def require(directory: str, roots: Sequence[str | PathLike[str]]) -> None:
    """Raise OutsideRoots for a directory outside of the roots. The error does not name them. Links are followed in a thread."""
    if roots:
        await asyncio.to_thread(require_blocking, directory, roots)


def require_blocking(directory: str, roots: Iterable[str | PathLike[str]]) -> None:
    """Raise OutsideRoots, as `require`."""
    if not within(directory, roots):
        raise OutsideRoots(directory)
