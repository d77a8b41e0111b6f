"""Worktrees that the server makes for the UIs: `git worktree` in our data directory, each with a branch of its own.

    create   DATA/worktree/PROJECT/NAME on the branch `opencode/NAME`, from HEAD; answered at once, files follow:
             worktree.ready, or worktree.failed; then the start commands run in it
    reset    to the default branch (fetched, if there is a remote), everything else in it removed
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
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import structlog

from shim.errors import ApiError
from shim.host import vcs
from shim.host.command import Finished, ProgramMissing, run
from shim.host.disk import private_folder
from shim.host.projects import GLOBAL, Projects
from shim.opencode.build import slug
from shim.sse.event import OpenCodeEvent
from universal.frozen import frozen
from universal.jsonvalue import obj, text

BRANCH = "opencode/"
NAME_TRIES = 26
NAME_LENGTH = 60
GIT_S = 600.0
"""For filling a worktree with files, or a fetch."""
START_S = 600.0
"""For one start command."""
START_OUTPUT_BYTES = 2**20

log = structlog.get_logger()


@frozen
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

    def __init__(self, data_dir: Path, projects: Projects, publish: Callable[[OpenCodeEvent], None]) -> None:
        self._root = data_dir / "worktree"
        self._projects = projects
        self._publish = publish
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

        Raises ApiError 400 (WorktreeNotGitError and the like).
        """
        if "\0" in (start or ""):
            raise failed("WorktreeStartCommandFailedError", "A command may not contain NUL")
        project = await self._projects.identity(directory)
        if project.vcs is None:
            raise failed("WorktreeNotGitError", "Worktrees are only supported for git projects")
        if project.id == GLOBAL:
            raise failed("WorktreeCreateFailedError", f"The repository {project.worktree} has no commit yet. Make one first.")
        since = () if base is None else (await vcs.revision(project.worktree, base),)
        async with self._making:
            made = await self._free(project.id, project.worktree, plain(name or branch or ""))
            made = made if branch is None else replace(made, branch=branch)
            private_folder(Path(made.directory).parent)
            added = await _git(project.worktree, "worktree", "add", "--no-checkout", "-b", made.branch, made.directory, *since)
        if not added.ok:
            raise failed("WorktreeCreateFailedError", _said(added))
        await self._projects.identity(made.directory)
        await self._updated(directory)
        self._start(self._fill(made, project.id, start), made.name)
        return made

    async def reset(self, directory: str, target: str) -> None:
        """Raises ApiError 400 (WorktreeResetFailedError)."""
        project = await self._projects.current(directory)
        if _same(target, project["worktree"]):
            raise failed("WorktreeResetFailedError", "Cannot reset the primary workspace")
        place = self._ours(target)
        if place is None or not _same(await vcs.root(str(place)) or "", str(place)):
            raise failed(
                "WorktreeResetFailedError", f"Worktree not found: {target}. Only those made by this server can be reset."
            )
        wanted = await _default(str(place))
        for step in (
            ("reset", "--hard", wanted),
            ("clean", "-ffdxq"),
            ("submodule", "update", "--init", "--checkout", "--recursive", "--force"),  # not by a command of its settings
        ):
            done = await _git(str(place), *step)
            if not done.ok:
                raise failed("WorktreeResetFailedError", _said(done))
        self._start(self._run_starts(str(place), project["id"], None), place.name)

    async def remove(self, directory: str, target: str) -> None:
        """Raises ApiError 400 (WorktreeRemoveFailedError). One that is not there any more is fine, as for native."""
        place = self._ours(target)
        project = await self._projects.identity(directory)
        if place is None:
            if _is_there(target):
                message = f"{target} was not made by this server, so it is not removed. Use `git worktree remove`."
                raise failed("WorktreeRemoveFailedError", message)
            return
        branch = (await vcs.branches(str(place))).current if place.is_dir() else None
        await vcs.git(project.worktree, "worktree", "unlock", str(place))
        done = await _git(project.worktree, "worktree", "remove", "--force", str(place))
        if not done.ok and place.exists():
            # Broken, or of a repository that is not there any more: it is ours all the same.
            await asyncio.to_thread(shutil.rmtree, place, ignore_errors=True)
            if place.exists():
                raise failed("WorktreeRemoveFailedError", _said(done))
        await vcs.git(project.worktree, "worktree", "prune")
        if branch is not None and branch.startswith(BRANCH):
            await vcs.git(project.worktree, "branch", "-D", branch)
        self._projects.forget(str(place))
        await self._updated(directory)

    async def settled(self) -> None:
        """Wait for what runs in the background now: files that are filled in, start commands."""
        if self._filling:
            await asyncio.wait(self._filling)

    async def close(self) -> None:
        """End what still runs."""
        for task in self._filling:
            task.cancel()
        if self._filling:
            await asyncio.wait(self._filling)

    def ours(self, target: str) -> bool:
        """Whether it lies where we make them."""
        return self._ours(target) is not None

    # --- inside

    def _ours(self, target: str) -> Path | None:
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
            known = await vcs.git(top, "show-ref", "--verify", "--quiet", f"refs/heads/{BRANCH}{name}")
            if not known.ok and not place.exists():
                return Worktree(name, BRANCH + name, str(place))
        raise failed("WorktreeNameGenerationFailedError", f"No free name was found for a worktree ({NAME_TRIES} were tried)")

    async def _fill(self, made: Worktree, project: str, start: str | None) -> None:
        """The files, in the background: a large repository takes its time."""
        done = await _git(made.directory, "reset", "--hard")
        if not done.ok:
            self._publish(OpenCodeEvent("worktree.failed", {"message": _said(done)}, made.directory, project))
            return
        ready = {"name": made.name, "branch": made.branch}
        self._publish(OpenCodeEvent("worktree.ready", ready, made.directory, project))
        await self._run_starts(made.directory, project, start)

    async def _run_starts(self, directory: str, project: str, extra: str | None) -> None:
        row = next((one for one in await self._projects.all() if one["id"] == project), dict[str, Any]())
        for command in (text(obj(row.get("commands")).get("start")), extra or ""):
            if not command.strip():
                continue
            done = await run(["/bin/sh", "-c", command], directory, timeout_s=START_S, limit_bytes=START_OUTPUT_BYTES)
            if not done.ok:
                log.warning("worktree.start_command", directory=directory, code=done.code, said=_said(done)[:500])

    def _start(self, work: Coroutine[None, None, None], name: str) -> None:
        task = asyncio.create_task(work, name=f"worktree {name}")
        self._filling.add(task)
        task.add_done_callback(self._filling.discard)

    async def _updated(self, directory: str) -> None:
        """Look at the project's worktrees again, and tell."""
        self._projects.forget(directory)
        await self._projects.identity(directory)
        row = await self._projects.current(directory)
        self._publish(OpenCodeEvent("project.updated", row, "global", row["id"]))


def plain(name: str) -> str:
    """A name as a folder and a branch may have it: `My Feature! x` -> `my-feature-x`."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:NAME_LENGTH].strip("-")


def _same(one: str, other: str) -> bool:
    return "\0" not in one and os.path.realpath(one) == os.path.realpath(other)


def _is_there(place: str) -> bool:
    return os.path.lexists(place)


def failed(name: str, message: str) -> ApiError:
    """400, as OpenCode says it."""
    return ApiError(400, name, message)


async def _default(place: str) -> str:
    """What a worktree is reset to: the default branch of the remote, fetched, else the local one."""
    found = await vcs.branches(place)
    if found.default is None:
        raise failed("WorktreeResetFailedError", "Default branch not found: there is neither `main` nor `master`, nor a remote")
    remote = f"refs/remotes/origin/{found.default}"
    if (await vcs.git(place, "show-ref", "--verify", "--quiet", remote)).ok:
        fetched = await _git(place, "fetch", "--quiet", "--", "origin", found.default)
        if not fetched.ok:
            raise failed("WorktreeResetFailedError", f"Cannot fetch {found.default} from origin: {_said(fetched)}")
        return remote
    return f"refs/heads/{found.default}"


async def _git(directory: str, *arguments: str) -> Finished:
    """With time for many files. Hooks and filters of the repository do not run."""
    try:
        environment = {**vcs.ENVIRONMENT, **await vcs.without_filters(directory)}
        return await run([*vcs.GIT, *arguments], directory, environment=environment, timeout_s=GIT_S)
    except (OSError, ProgramMissing) as error:
        return Finished(None, b"", str(error).encode())


def _said(done: Finished) -> str:
    return (done.stderr or done.stdout).decode("utf-8", "replace").strip() or "git did not end in time"
