"""OpenCode's projects: a directory belongs to its repository, and the first commit identifies a repository.

    in a repository with commits   id = the root commit of HEAD (the least, if there are several), worktree = its top
    without commits yet            id = "global", worktree = its top, vcs git
    anywhere else                  id = "global", worktree = "/"

Clones and worktrees of one repository form one project: the first one seen is its `worktree`, the others its `sandboxes`.
The store keeps the rows (namespace `project`) and the ids of worktrees (`project_id`), because walking the history of a large
repository takes seconds. Unlike native OpenCode, this writes nothing into the repository's `.git`.
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
"""Seconds for which a directory's identity is cached. Nearly every request asks for it, and each check needs a thread."""
SEEN_LIMIT = 1000
"""Maximum directories in that cache."""
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
    """All projects that were ever opened on this server. State: rows by id, and a cache of identities by directory."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._loading = asyncio.Lock()
        self._rows: dict[str, dict[str, Any]] | None = None
        self._ids: dict[str, str] = {}
        self._known: dict[str, Identity] = {}
        self._seen: dict[str, tuple[float, Identity]] = {}

    async def identity(self, directory: str) -> Identity:
        """Return the project of a directory, which need not exist. The result is cached for LOOK_AGAIN_S."""
        now = asyncio.get_running_loop().time()
        until, identity = self._seen.get(directory, (0.0, None))
        if identity is None or now >= until:
            identity = await self._look_up(directory)
            if len(self._seen) > SEEN_LIMIT:
                self._seen.clear()
            self._seen[directory] = (now + LOOK_AGAIN_S, identity)
        return identity

    async def _look_up(self, directory: str) -> Identity:
        top = await asyncio.to_thread(_top, directory)
        cached = self._known.get(directory)
        if cached is not None and cached.worktree == top:
            return cached
        rows = await self._load_rows()
        identity = await self._identify(top)
        if identity.id != GLOBAL:  # a global one may get a commit at any time, and clients can name any number of directories
            self._known[directory] = identity
        await self._open(rows, identity)
        return identity

    async def current(self, directory: str) -> dict[str, Any]:
        """Return the project of a directory in the form of `GET /project/current`."""
        identity = await self.identity(directory)
        row = dict((await self._load_rows())[identity.id])
        # All directories without a commit share one row, but the answer is about this directory.
        if identity.id == GLOBAL:
            row |= {"worktree": identity.worktree} | ({"vcs": "git"} if identity.vcs else {})
        return row

    async def list_all(self) -> list[dict[str, Any]]:
        """List all projects in the order of their first use."""
        return sorted((await self._load_rows()).values(), key=lambda row: row["time"]["created"])

    async def directories(self, project_id: str) -> list[dict[str, str]]:
        """List the existing worktree and sandboxes of a project; [] for an unknown one, as in native OpenCode."""
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
        """Create a repository in a directory outside of git; return its project. Raises GitInitFailed with git's message."""
        if (await self.identity(directory)).vcs is None:
            result = await git(directory, "init", "--quiet")
            if not result.ok:
                raise GitInitFailed(directory, result.stderr.decode(errors="replace").strip())
            self.forget(directory)
        return await self.current(directory)

    def forget(self, directory: str) -> None:
        """Drop the cached identity of a directory, because its instance was disposed."""
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
        stored = self._ids.get(top)
        # The folder may hold another repository now.
        if stored and (await git(top, "cat-file", "-e", f"{stored}^{{commit}}")).ok:
            return Identity(stored, top, "git")
        roots = await git(top, "rev-list", "--max-parents=0", "HEAD")
        first = min(roots.text.split(), default="") if roots.ok else ""
        if not first:
            return Identity(GLOBAL, top, "git")
        self._ids[top] = first
        self._store.set_value(IDS, top, first)
        return Identity(first, top, "git")

    async def _open(self, rows: dict[str, dict[str, Any]], identity: Identity) -> None:
        """Create the row of a project, or add this working tree to it."""
        row = rows.get(identity.id, {})
        missing = await asyncio.to_thread(_missing_folders, [text(row.get("worktree")), *map(text, arr(row.get("sandboxes")))])
        now = self._clock.now_ms()
        row = rows.get(identity.id)  # others may have changed it meanwhile
        worktree = "/" if identity.id == GLOBAL else identity.worktree
        if row is None:
            kind = {"vcs": "git"} if identity.id != GLOBAL else {}
            self._save(
                rows, {"id": identity.id, "worktree": worktree, **kind, "time": {"created": now, "updated": now}, "sandboxes": []}
            )
            return
        sandboxes = [place for place in map(text, arr(row["sandboxes"])) if place != worktree and place not in missing]
        if row["worktree"] != worktree and row["worktree"] not in missing:
            sandboxes.append(worktree)
            worktree = row["worktree"]
        changed = row | {"worktree": worktree, "sandboxes": sandboxes}
        if changed != row:
            self._save(rows, changed | {"time": row["time"] | {"updated": now}})

    def _save(self, rows: dict[str, dict[str, Any]], row: dict[str, Any]) -> None:
        rows[row["id"]] = row
        self._store.set_value(ROWS, row["id"], row)


def _missing_folders(directories: list[str]) -> set[str]:
    """The directories that do not exist. Blocking."""
    return {directory for directory in directories if not is_folder(directory)}


def _places(directories: list[str]) -> list[dict[str, str]]:
    """Describe the directories that exist. In a worktree from `git worktree add`, `.git` is a file."""
    return [
        {"directory": directory} | ({"strategy": "git_worktree"} if is_file(Path(directory, ".git")) else {})
        for directory in directories
        if is_folder(directory)
    ]


def _top(directory: str) -> str | None:
    """Find the nearest folder upwards with a repository's `.git`, without resolving links in the client's path.

    An empty `.git` does not count, for git neither: Codex's sandbox creates one in its working directory while a command runs.
    """
    here = Path(directory)
    return next((str(folder) for folder in (here, *here.parents) if _is_repository(folder / ".git")), None)


def _is_repository(place: Path) -> bool:
    """Whether this is a repository's `.git` folder, or the `.git` file of a worktree or submodule."""
    return is_file(place) or is_file(place / "HEAD")
