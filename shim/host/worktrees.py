"""Worktrees that the server makes for the UIs: `git worktree` in our data directory, each with a branch of its own.

    create   DATA/worktree/PROJECT/NAME on the branch `opencode/NAME`, from HEAD; answered at once, files follow:
             worktree.ready, or worktree.failed; then the start commands run in it
    reset    to the default branch (of the remote as it was fetched last, if there is one), everything else in it removed
    remove   the folder and the branch

Only what lies in our data directory is reset or removed; native 1.18.33 does it to any worktree of the repository.
Source: a live OpenCode 1.18.33 (names, branches, errors, events and their directories).
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import shutil
from collections.abc import Coroutine
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import structlog

from shim.errors import (
    WorktreeCreateFailed,
    WorktreeNameFailed,
    WorktreeNotGit,
    WorktreeRemoveFailed,
    WorktreeResetFailed,
    WorktreeStartCommandFailed,
)
from shim.host import vcs
from shim.host.changes import EVERYWHERE, HostFeed, ProjectUpdated, WorktreeFailed, WorktreeReady
from shim.host.command import CommandResult, run
from shim.host.disk import private_folder
from shim.host.git import git
from shim.host.projects import GLOBAL, Projects
from shim.ids import slug
from universal.jsonvalue import obj, text

BRANCH = "opencode/"
NAME_TRIES = 26
NAME_LENGTH = 60
GIT_S = 600.0
"""For filling a worktree with files."""
SUBMODULE_MODE = b"160000 "
"""How `git ls-files --stage` begins the line of a submodule."""
SUBMODULE_DEPTH = 10
"""Submodules in submodules that a reset looks into."""
START_S = 600.0
"""For one start command."""
START_OUTPUT_BYTES = 2**20

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Worktree:
    """One that was made."""

    name: str
    branch: str
    directory: str

    def wire(self) -> dict[str, str]:
        """As clients get it."""
        return {"name": self.name, "branch": self.branch, "directory": self.directory}


class Worktrees:
    """What the server makes and removes. State: the tasks that fill worktrees."""

    def __init__(self, data_dir: Path, projects: Projects, changes: HostFeed) -> None:
        self._root = data_dir / "worktree"
        self._projects = projects
        self._changes = changes
        self._making = asyncio.Lock()
        self._filling: set[asyncio.Task[None]] = set()

    async def create(
        self,
        directory: str,
        name: str | None = None,
        start: str | None = None,
        *,
        branch: str | None = None,
        base: str | None = None,
    ) -> Worktree:
        """In: `branch`, a new one of the person's own; `base`, the revision that it begins at.

        Raises WorktreeError.
        """
        if "\0" in (start or ""):
            raise WorktreeStartCommandFailed("A command may not contain NUL")
        project = await self._projects.identity(directory)
        if project.vcs is None:
            raise WorktreeNotGit("Worktrees are only supported for git projects")
        if project.id == GLOBAL:
            raise WorktreeCreateFailed(f"The repository {project.worktree} has no commit yet. Make one first.")
        since = () if base is None else (await vcs.revision(project.worktree, base),)
        async with self._making:
            made = await self._free(project.id, project.worktree, plain(name or branch or ""))
            made = made if branch is None else replace(made, branch=branch)
            private_folder(Path(made.directory).parent)
            added = await _git(project.worktree, "worktree", "add", "--no-checkout", "-b", made.branch, made.directory, *since)
        if not added.ok:
            raise WorktreeCreateFailed(_git_message(added))
        await self._projects.identity(made.directory)
        await self._refresh(directory)
        self._start(self._fill(made, project.id, start), made.name)
        return made

    async def reset(self, directory: str, target: str) -> None:
        """Raises WorktreeResetFailed."""
        project = await self._projects.current(directory)
        if _is_same_path(target, project["worktree"]):
            raise WorktreeResetFailed("Cannot reset the primary workspace")
        place = self._managed_place(target)
        if place is None or not _is_same_path(await vcs.root(str(place)) or "", str(place)):
            raise WorktreeResetFailed(f"Worktree not found: {target}. Only those made by this server can be reset.")
        await _put_back(str(place), await _default(str(place)))
        self._start(self._run_starts(str(place), project["id"], None), place.name)

    async def remove(self, directory: str, target: str) -> None:
        """Raises WorktreeRemoveFailed. One that is not there any more is fine, as for native."""
        place = self._managed_place(target)
        project = await self._projects.identity(directory)
        if place is None:
            if _is_there(target):
                message = f"{target} was not made by this server, so it is not removed. Use `git worktree remove`."
                raise WorktreeRemoveFailed(message)
            return
        branch = (await vcs.branches(str(place))).current if place.is_dir() else None
        await git(project.worktree, "worktree", "unlock", str(place))
        done = await _git(project.worktree, "worktree", "remove", "--force", str(place))
        if not done.ok and place.exists():
            # Broken, or of a repository that is not there any more: it is ours all the same.
            await asyncio.to_thread(shutil.rmtree, place, ignore_errors=True)
            if place.exists():
                raise WorktreeRemoveFailed(_git_message(done))
        await git(project.worktree, "worktree", "prune")
        if branch is not None and branch.startswith(BRANCH):
            await git(project.worktree, "branch", "-D", branch)
        self._projects.forget(str(place))
        await self._refresh(directory)

    async def settle(self) -> None:
        """Wait for what runs in the background now: files that are filled in, start commands."""
        if self._filling:
            await asyncio.wait(self._filling)

    async def close(self) -> None:
        """End what still runs."""
        for task in self._filling:
            task.cancel()
        if self._filling:
            await asyncio.wait(self._filling)

    def is_managed(self, target: str) -> bool:
        """Whether it lies where we make them."""
        return self._managed_place(target) is not None

    # --- inside

    def _managed_place(self, target: str) -> Path | None:
        """The place, if it is one of ours: DATA/worktree/PROJECT/NAME."""
        if "\0" in target:
            return None
        root, place = Path(os.path.realpath(self._root)), Path(os.path.realpath(target))
        return place if root in place.parents and len(place.relative_to(root).parts) == 2 else None

    async def _free(self, project: str, top: str, base: str) -> Worktree:
        """A name that no folder and no branch has. With a base name: it, or it with an addition."""
        for attempt in range(NAME_TRIES):
            random = slug(secrets.token_hex(8))
            name = random if not base else base if attempt == 0 else f"{base}-{random}"
            place = self._root / project / name
            known = await git(top, "show-ref", "--verify", "--quiet", f"refs/heads/{BRANCH}{name}")
            if not known.ok and not place.exists():
                return Worktree(name, BRANCH + name, str(place))
        raise WorktreeNameFailed(f"No free name was found for a worktree ({NAME_TRIES} were tried)")

    async def _fill(self, made: Worktree, project: str, start: str | None) -> None:
        """The files, in the background: a large repository takes its time."""
        done = await _git(made.directory, "reset", "--hard")
        if not done.ok:
            self._changes.publish(WorktreeFailed(_git_message(done)), made.directory, project)
            return
        self._changes.publish(WorktreeReady(made.name, made.branch), made.directory, project)
        await self._run_starts(made.directory, project, start)

    async def _run_starts(self, directory: str, project: str, extra: str | None) -> None:
        row = next((one for one in await self._projects.list_all() if one["id"] == project), dict[str, Any]())
        for command in (text(obj(row.get("commands")).get("start")), extra or ""):
            if not command.strip():
                continue
            done = await run(["/bin/sh", "-c", command], directory, timeout_s=START_S, limit_bytes=START_OUTPUT_BYTES)
            if not done.ok:
                log.warning("worktree.start_command", directory=directory, code=done.code, said=_git_message(done)[:500])

    def _start(self, work: Coroutine[None, None, None], name: str) -> None:
        task = asyncio.create_task(work, name=f"worktree {name}")
        self._filling.add(task)
        task.add_done_callback(self._filling.discard)

    async def _refresh(self, directory: str) -> None:
        """Look at the project's worktrees again, and tell."""
        self._projects.forget(directory)
        await self._projects.identity(directory)
        row = await self._projects.current(directory)
        self._changes.publish(ProjectUpdated(row), EVERYWHERE, row["id"])


def plain(name: str) -> str:
    """A name as a folder and a branch may have it: `My Feature! x` -> `my-feature-x`."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:NAME_LENGTH].strip("-")


def _is_same_path(one: str, other: str) -> bool:
    return "\0" not in one and os.path.realpath(one) == os.path.realpath(other)


def _is_there(place: str) -> bool:
    return os.path.lexists(place)


async def _default(place: str) -> str:
    """What a worktree is reset to: the default branch of the remote as it was fetched last, else the local one."""
    found = await vcs.branches(place)
    if found.default is None:
        raise WorktreeResetFailed("Default branch not found: there is neither `main` nor `master`, nor a remote")
    remote = f"refs/remotes/origin/{found.default}"
    known = await git(place, "show-ref", "--verify", "--quiet", remote)
    return remote if known.ok else f"refs/heads/{found.default}"


async def _git(directory: str, *arguments: str) -> CommandResult:
    """With time for many files."""
    return await git(directory, *arguments, timeout_s=GIT_S)


async def _put_back(top: str, commit: str, depth: int = 0) -> None:
    """Give a working tree the files of a commit, with its submodules that are there. Raises WorktreeResetFailed.

    Not by `git submodule update`, which fetches from addresses that the repository names and runs what each submodule's own
    settings name.
    """
    for step in (("reset", "--hard", commit), ("clean", "-ffdxq")):
        done = await _git(top, *step)
        if not done.ok:
            hint = "" if depth == 0 else f" Run `git submodule update --init` in {top}, then reset again."
            raise WorktreeResetFailed(f"{_git_message(done)}{hint}")
    if depth == SUBMODULE_DEPTH:
        return
    listed = await _git(top, "ls-files", "--stage", "-z")
    for entry in listed.stdout.split(b"\0"):
        if not entry.startswith(SUBMODULE_MODE):
            continue
        fields, _, name = entry.partition(b"\t")
        place = Path(top, os.fsdecode(name))
        if await _is_submodule(top, place):
            await _put_back(str(place), fields.split(b" ")[1].decode(), depth + 1)


async def _is_submodule(top: str, place: Path) -> bool:
    """Whether a repository is checked out there that belongs to this working tree, and no link leads elsewhere."""
    if not await asyncio.to_thread(os.path.lexists, place / ".git"):
        return False
    outer, inner = [await git(folder, "rev-parse", "--absolute-git-dir") for folder in (top, str(place))]
    if not (outer.ok and inner.ok):
        return False
    git_dirs = (os.fsdecode(found.stdout).rstrip("\n") for found in (outer, inner))
    return await asyncio.to_thread(_belongs, Path(top), place, *git_dirs) and _is_same_path(
        await vcs.root(str(place)) or "", str(place)
    )


def _belongs(top: Path, place: Path, outer: str, inner: str) -> bool:
    """Whether a folder lies in the tree without a link on the way, and its git directory in it or among the tree's modules."""
    real, git_dir = place.resolve(), Path(inner).resolve()
    inside = git_dir.is_relative_to(real) or git_dir.is_relative_to(Path(outer, "modules").resolve())
    return inside and real == top.resolve() / place.relative_to(top)


def _git_message(done: CommandResult) -> str:
    return (done.stderr or done.stdout).decode("utf-8", "replace").strip() or "git did not end in time"
