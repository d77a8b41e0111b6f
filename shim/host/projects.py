"""Projects as OpenCode has them: a directory belongs to the repository it is in, and a repository is known by its first commit.

    in a repository with commits   id = the root commit of HEAD (the least, if there are several), worktree = its top
    without commits yet            id = "global", worktree = its top, vcs git
    anywhere else                  id = "global", worktree = "/"

Clones and worktrees of one repository are one project: the first one seen is its `worktree`, the others its `sandboxes`.
Rows are kept in the store (namespace `project`), ids of worktrees beside them (`project_id`), since to walk the history
of a large repository takes seconds. Unlike native, nothing is written into the repository's `.git`.
Source: a live OpenCode 1.18.33, recordings `endpoints`, `directories`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from shim.clock import Clock
from shim.errors import GitInitFailed, ProjectNotFound
from shim.host import vcs
from shim.host.disk import is_file, is_folder
from shim.host.git import git
from shim.store.base import Store
from universal.jsonvalue import arr, obj, text

LOOK_AGAIN_S = 0.25
"""How long it is believed where a directory's repository is: nearly every request asks, and each look is a thread's turn."""
SEEN_LIMIT = 1000
"""Directories that this is kept of."""
GLOBAL = "global"
ROWS = "project"
IDS = "project_id"


@dataclass(frozen=True, slots=True)
class Identity:
    """The project of a directory. `worktree` is the top of the directory's own working tree, `/` outside of git."""

    id: str
    worktree: str
    vcs: Literal["git"] | None = None


class Projects:
    """All projects that were ever opened here. State: rows by id, identities by directory (a cache)."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._loading = asyncio.Lock()
        self._rows: dict[str, dict[str, Any]] | None = None
        self._ids: dict[str, str] = {}
        self._known: dict[str, Identity] = {}
        self._seen: dict[str, tuple[float, Identity]] = {}

    async def identity(self, directory: str) -> Identity:
        """The project of a directory, which need not exist. Cached while the repository is still there."""
        now = asyncio.get_running_loop().time()
        until, found = self._seen.get(directory, (0.0, None))
        if found is None or now >= until:
            found = await self._look_up(directory)
            if len(self._seen) > SEEN_LIMIT:
                self._seen.clear()
            self._seen[directory] = (now + LOOK_AGAIN_S, found)
        return found

    async def _look_up(self, directory: str) -> Identity:
        top = await asyncio.to_thread(_top, directory)
        known = self._known.get(directory)
        if known is not None and known.worktree == top:
            return known
        rows = await self._load_rows()
        found = await self._identify(top)
        if found.id != GLOBAL:  # others may get a commit at any time, and clients can name any number of them
            self._known[directory] = found
        self._open(rows, found)
        return found

    async def current(self, directory: str) -> dict[str, Any]:
        """The project of a directory, as `GET /project/current` answers."""
        found = await self.identity(directory)
        row = dict((await self._load_rows())[found.id])
        # One row stands for everything without a commit; the answer is about this directory.
        if found.id == GLOBAL:
            row |= {"worktree": found.worktree} | ({"vcs": "git"} if found.vcs else {})
        return row

    async def list_all(self) -> list[dict[str, Any]]:
        """Every project, the first opened first."""
        return sorted((await self._load_rows()).values(), key=lambda row: row["time"]["created"])

    async def directories(self, project_id: str) -> list[dict[str, str]]:
        """Its worktree and sandboxes that still exist, as `GET /project/{id}/directories`; [] for an unknown one, as native."""
        row = (await self._load_rows()).get(project_id)
        return [] if row is None else await asyncio.to_thread(_places, [row["worktree"], *row["sandboxes"]])

    async def update(self, project_id: str, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Change `name`, `icon`, `commands`; objects are merged. Raises ProjectNotFound."""
        rows = await self._load_rows()
        row = rows.get(project_id)
        if row is None:
            raise ProjectNotFound(project_id)
        merged = {key: obj(row.get(key)) | obj(value) if isinstance(value, dict) else value for key, value in changes.items()}
        self._save(rows, row | merged | {"time": row["time"] | {"updated": self._clock.now_ms()}})
        return rows[project_id]

    async def init_git(self, directory: str) -> dict[str, Any]:
        """Make a repository of a directory that is in none; its project. Raises GitInitFailed with what git said."""
        if (await self.identity(directory)).vcs is None:
            made = await git(directory, "init", "--quiet")
            if not made.ok:
                raise GitInitFailed(directory, made.stderr.decode(errors="replace").strip())
            self.forget(directory)
        return await self.current(directory)

    def forget(self, directory: str) -> None:
        """The instance of a directory is disposed of: look again at the next request."""
        self._known.pop(directory, None)
        self._seen.pop(directory, None)

    # --- inside

    async def _load_rows(self) -> dict[str, dict[str, Any]]:
        async with self._loading:
            if self._rows is None:
                self._ids = {top: text(id_) for top, id_ in (await self._store.values(IDS)).items()}
                stored = await self._store.values(ROWS)
                self._rows = {id_: row for id_, row in stored.items() if obj(row).get("worktree")}
        return self._rows

    async def _identify(self, top: str | None) -> Identity:
        if top is None or await vcs.root(top) is None:
            return Identity(GLOBAL, "/")
        kept = self._ids.get(top)
        # The folder may hold another repository now.
        if kept and (await git(top, "cat-file", "-e", f"{kept}^{{commit}}")).ok:
            return Identity(kept, top, "git")
        roots = await git(top, "rev-list", "--max-parents=0", "HEAD")
        first = min(roots.text.split(), default="") if roots.ok else ""
        if not first:
            return Identity(GLOBAL, top, "git")
        self._ids[top] = first
        self._store.set_value(IDS, top, first)
        return Identity(first, top, "git")

    def _open(self, rows: dict[str, dict[str, Any]], found: Identity) -> None:
        """The row of a project that is opened: made, or told of another of its working trees."""
        now = self._clock.now_ms()
        row = rows.get(found.id)
        worktree = "/" if found.id == GLOBAL else found.worktree
        if row is None:
            kind = {"vcs": "git"} if found.id != GLOBAL else {}
            self._save(
                rows, {"id": found.id, "worktree": worktree, **kind, "time": {"created": now, "updated": now}, "sandboxes": []}
            )
            return
        sandboxes = [place for place in map(text, arr(row["sandboxes"])) if place != worktree and is_folder(place)]
        if row["worktree"] != worktree and is_folder(row["worktree"]):
            sandboxes.append(worktree)
            worktree = row["worktree"]
        changed = row | {"worktree": worktree, "sandboxes": sandboxes}
        if changed != row:
            self._save(rows, changed | {"time": row["time"] | {"updated": now}})

    def _save(self, rows: dict[str, dict[str, Any]], row: dict[str, Any]) -> None:
        rows[row["id"]] = row
        self._store.set_value(ROWS, row["id"], row)


def _places(directories: list[str]) -> list[dict[str, str]]:
    """Of a worktree made by `git worktree add`, `.git` is a file."""
    return [
        {"directory": one} | ({"strategy": "git_worktree"} if is_file(Path(one, ".git")) else {})
        for one in directories
        if is_folder(one)
    ]


def _top(directory: str) -> str | None:
    """The nearest folder upwards with a repository's `.git`, spelled as the client spells it (links unresolved).

    An empty one is none, for git neither: Codex's sandbox makes one in its working directory while a command runs.
    """
    here = Path(directory)
    return next((str(folder) for folder in (here, *here.parents) if _is_repository(folder / ".git")), None)


def _is_repository(place: Path) -> bool:
    """A repository's own folder, or the file that leads to one (of worktrees and submodules)."""
    return is_file(place) or is_file(place / "HEAD")
