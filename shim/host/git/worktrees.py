"""Creates, resets and removes git worktrees for UIs. They lie in our data directory, each with its own branch.

    create   DATA/worktree/PROJECT/NAME on the branch `opencode/NAME`, from HEAD. It returns at once and checks out the files in
             the background (worktree.ready, or worktree.failed); then the start commands run in the worktree
    reset    to the default branch (of the remote as of the last fetch, if there is one), and removes all other files
    remove   the folder and the branch

It resets and removes only worktrees in our data directory; native OpenCode 1.18.33 does so with any worktree of the repository.
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

import structlog

from shim.host.changes import EVERYWHERE, HostFeed, ProjectUpdated, WorktreeFailed, WorktreeReady
from shim.host.git import vcs
from shim.host.git.git_command import git, message_of
from shim.host.git.projects import GLOBAL, Projects
from shim.lib.disk import private_folder
from shim.lib.errors import (
    WorktreeCreateFailed,
    WorktreeNameFailed,
    WorktreeNotGit,
    WorktreeRemoveFailed,
    WorktreeResetFailed,
    WorktreeStartCommandFailed,
)
from shim.lib.ids import slug
from shim.lib.tasks import end_tasks, keep
from shim.processes.command import CommandResult, run

BRANCH = "opencode/"
NAME_TRIES = 26
NAME_LENGTH = 60
GIT_S = 600.0
"""Seconds for git to check out the files of a worktree."""
SUBMODULE_MODE = b"160000 "
"""The start of a submodule's line in `git ls-files --stage`."""
SUBMODULE_DEPTH = 10
"""Maximum depth of nested submodules that a reset visits."""
START_S = 600.0
"""Seconds for one start command."""
START_OUTPUT_BYTES = 2**20

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Worktree:
    """A worktree of this server."""

    name: str
    branch: str
    directory: str


class Worktrees:
    """The worktrees of this server. State: the tasks that check out files."""

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
        """Create a worktree. Raises WorktreeError.

        In: `branch`, the name of a new branch instead of ours; `base`, the revision that it starts at.
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
            worktree = await self._free(project.id, project.worktree, plain(name or branch or ""))
            worktree = worktree if branch is None else replace(worktree, branch=branch)
            await asyncio.to_thread(private_folder, Path(worktree.directory).parent)
            added = await _git(
                project.worktree, "worktree", "add", "--no-checkout", "-b", worktree.branch, worktree.directory, *since
            )
        if not added.ok:
            raise WorktreeCreateFailed(message_of(added))
        await self._projects.identity(worktree.directory)
        await self._refresh(directory)
        self._start(self._fill(worktree, project.id, start), worktree.name)
        return worktree

    async def reset(self, directory: str, target: str) -> None:
        """Reset a worktree to the default branch. Raises WorktreeResetFailed."""
        project = await self._projects.current(directory)
        if await _is_same_path(target, project.worktree):
            raise WorktreeResetFailed("Cannot reset the primary workspace")
        place = await self._managed_place(target)
        if place is None or not await _is_same_path(await vcs.root(str(place)) or "", str(place)):
            raise WorktreeResetFailed(f"Worktree not found: {target}. Only those made by this server can be reset.")
        await _put_back(str(place), await _default(str(place)))
        self._start(self._run_starts(str(place), project.id, None), place.name)

    async def remove(self, directory: str, target: str) -> None:
        """Remove a worktree. Raises WorktreeRemoveFailed. A missing one is no error, as in native OpenCode."""
        place = await self._managed_place(target)
        project = await self._projects.identity(directory)
        if place is None:
            if await asyncio.to_thread(os.path.lexists, target):
                message = f"{target} was not made by this server, so it is not removed. Use `git worktree remove`."
                raise WorktreeRemoveFailed(message)
            return
        branch = (await vcs.branches(str(place))).current if await asyncio.to_thread(place.is_dir) else None
        await git(project.worktree, "worktree", "unlock", str(place))
        result = await _git(project.worktree, "worktree", "remove", "--force", str(place))
        if not result.ok and await asyncio.to_thread(place.exists):
            # The worktree is broken or its repository is gone. The folder is still ours to delete.
            await asyncio.to_thread(shutil.rmtree, place, ignore_errors=True)
            if await asyncio.to_thread(place.exists):
                raise WorktreeRemoveFailed(message_of(result))
        await git(project.worktree, "worktree", "prune")
        if branch is not None and branch.startswith(BRANCH):
            await git(project.worktree, "branch", "-D", branch)
        self._projects.forget(str(place))
        await self._refresh(directory)

    async def settle(self) -> None:
        """Wait for the background work to end: checkouts and start commands."""
        if self._filling:
            await asyncio.wait(self._filling)

    async def close(self) -> None:
        await end_tasks(*self._filling)

    async def is_managed(self, target: str) -> bool:
        return await self._managed_place(target) is not None

    # --- inside

    async def _managed_place(self, target: str) -> Path | None:
        """Return the resolved path if it is DATA/worktree/PROJECT/NAME, else None."""
        if "\0" in target:
            return None
        root, place = map(Path, await asyncio.to_thread(_real_paths, str(self._root), target))
        return place if root in place.parents and len(place.relative_to(root).parts) == 2 else None

    async def _free(self, project: str, top: str, base: str) -> Worktree:
        """Choose a name that no folder and no branch has: the base name, else the base name with a random suffix."""
        for attempt in range(NAME_TRIES):
            random = slug(secrets.token_hex(8))
            name = random if not base else base if attempt == 0 else f"{base}-{random}"
            place = self._root / project / name
            branch = await git(top, "show-ref", "--verify", "--quiet", f"refs/heads/{BRANCH}{name}")
            if not branch.ok and not await asyncio.to_thread(place.exists):
                return Worktree(name, BRANCH + name, str(place))
        raise WorktreeNameFailed(f"No free name was found for a worktree ({NAME_TRIES} were tried)")

    async def _fill(self, worktree: Worktree, project: str, start: str | None) -> None:
        """Check out the files, in the background, because a large repository takes long."""
        result = await _git(worktree.directory, "reset", "--hard")
        if not result.ok:
            self._changes.publish(WorktreeFailed(message_of(result)), worktree.directory, project)
            return
        self._changes.publish(WorktreeReady(worktree.name, worktree.branch), worktree.directory, project)
        await self._run_starts(worktree.directory, project, start)

    async def _run_starts(self, directory: str, project: str, extra: str | None) -> None:
        row = await self._projects.get(project)
        for command in (row.start_command if row else None, extra):
            if not command or not command.strip():
                continue
            result = await run(["/bin/sh", "-c", command], directory, timeout_s=START_S, limit_bytes=START_OUTPUT_BYTES)
            if not result.ok:
                message = message_of(result)[:500]
                log.warning("worktree.start_command_failed", directory=directory, code=result.code, message=message)

    def _start(self, work: Coroutine[None, None, None], name: str) -> None:
        keep(asyncio.create_task(work, name=f"worktree {name}"), self._filling)

    async def _refresh(self, directory: str) -> None:
        """Read the project's worktrees again, and publish the project."""
        self._projects.forget(directory)
        await self._projects.identity(directory)
        project = await self._projects.current(directory)
        self._changes.publish(ProjectUpdated(project), EVERYWHERE, project.id)


def plain(name: str) -> str:
    """Turn a name into a valid folder and branch name: `My Feature! x` -> `my-feature-x`."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:NAME_LENGTH].strip("-")


def _real_paths(*paths: str) -> list[str]:
    """The paths with links followed. Blocking."""
    return [os.path.realpath(path) for path in paths]


async def _is_same_path(path: str, expected: str) -> bool:
    return "\0" not in path and len(set(await asyncio.to_thread(_real_paths, path, expected))) == 1


async def _default(place: str) -> str:
    """The ref to reset a worktree to: the remote's default branch as of the last fetch, else the local one."""
    branches = await vcs.branches(place)
    if branches.default is None:
        raise WorktreeResetFailed("Default branch not found: there is neither `main` nor `master`, nor a remote")
    remote = f"refs/remotes/origin/{branches.default}"
    fetched = await git(place, "show-ref", "--verify", "--quiet", remote)
    return remote if fetched.ok else f"refs/heads/{branches.default}"


async def _git(directory: str, *arguments: str) -> CommandResult:
    """Run git with the time limit for many files."""
    return await git(directory, *arguments, timeout_s=GIT_S)


async def _put_back(top: str, commit: str, depth: int = 0) -> None:
    """Reset a working tree and its checked out submodules to a commit. Raises WorktreeResetFailed.

    It does not use `git submodule update`, which fetches from addresses that the repository names, and runs programs that each
    submodule's settings name.
    """
    for step in (("reset", "--hard", commit), ("clean", "-ffdxq")):
        result = await _git(top, *step)
        if not result.ok:
            hint = "" if depth == 0 else f" Run `git submodule update --init` in {top}, then reset again."
            raise WorktreeResetFailed(f"{message_of(result)}{hint}")
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
    """Whether a path is a checked out submodule of this working tree, reached without a link."""
    if not await asyncio.to_thread(os.path.lexists, place / ".git"):
        return False
    outer, inner = [await git(folder, "rev-parse", "--absolute-git-dir") for folder in (top, str(place))]
    if not (outer.ok and inner.ok):
        return False
    git_dirs = (os.fsdecode(result.stdout).rstrip("\n") for result in (outer, inner))
    return await asyncio.to_thread(_belongs, Path(top), place, *git_dirs) and await _is_same_path(
        await vcs.root(str(place)) or "", str(place)
    )


def _belongs(top: Path, place: Path, outer: str, inner: str) -> bool:
    """Whether a folder lies in the tree without a link, with its git directory in it or among the tree's modules."""
    real, git_dir = place.resolve(), Path(inner).resolve()
    inside = git_dir.is_relative_to(real) or git_dir.is_relative_to(Path(outer, "modules").resolve())
    return inside and real == top.resolve() / place.relative_to(top)
