"""Changes of files, as `file.watcher.updated`, and of the branch, as `vcs.branch.updated`: only while somebody listens.

A directory is watched from the first `visit` while a stream gets its events, and for as long as one does. What git ignores
is left out, and folders that nobody reads (`SKIPPED`); of `.git` only HEAD is watched. Each folder is watched for itself, at
most `FOLDERS_LIMIT`, the ones near the top first: to watch a whole tree would put a watch on every folder of node_modules.
The home and the root of the disk are not watched: nobody works in them, and everything changes there all the time.

Native 1.18.33 sends the branch and a few files of `.git` (`HEAD`, locks), and other files only with an experimental switch;
its form of the events is ours.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import structlog

from shim.host import vcs
from shim.host.changes import FileChanged, GitBranchChanged, HostFeed
from shim.host.disk import printable
from shim.host.git import git

FOLDERS_LIMIT = 2000
"""Of one directory; Linux gives a user some ten thousand watches in all."""
DIRECTORIES_LIMIT = 8
"""Watched at once: each takes a thread."""
BATCH_LIMIT = 300
"""Events for one burst of changes (a checkout, a build); the rest of it is left out."""
DEBOUNCE_MS, STEP_MS = 300, 50
LISTENER_CHECK_MS = 2000
"""How often it is looked whether still somebody listens."""
END_S = 3.0
"""For a watch to end."""
SKIPPED = frozenset(
    {
        ".git",
        ".hg",
        ".svn",
        "node_modules",
        "__pycache__",
        ".venv",
        ".tox",
        ".cache",
        ".mypy_cache",
        ".pytest_cache",
        ".ruff_cache",
    }
)
ADDED, MODIFIED, DELETED = 1, 2, 3
"""As watchfiles numbers changes; it is loaded when somebody first watches."""
KINDS = {ADDED: "add", MODIFIED: "change", DELETED: "unlink"}

log = structlog.get_logger()


@dataclass(slots=True)
class _Watch:
    """One directory that is watched."""

    directory: str
    project: str
    git_dir: str | None = None
    branch: str | None = None
    added: set[str] = field(default_factory=set[str])
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None
    rounds: set[asyncio.Task[None]] = field(default_factory=set["asyncio.Task[None]"])


class Watchers:
    """All watched directories. `listened` tells whether a stream gets a directory's events."""

    def __init__(self, changes: HostFeed, listened: Callable[[str], bool], home: Path) -> None:
        self._changes = changes
        self._listened = listened
        self._unwatchable = {os.path.realpath(home), "/"}
        self._watches: dict[str, _Watch] = {}
        self._closed = False

    def visit(self, directory: str, project: str) -> None:
        """Somebody works in this directory: watch it, if somebody listens and it can be watched. Returns at once."""
        if self._closed or directory in self._watches or len(self._watches) >= DIRECTORIES_LIMIT:
            return
        if not self._listened(directory):
            return
        watch = self._watches[directory] = _Watch(directory, project)
        watch.task = asyncio.create_task(self._run(watch), name=f"watch {directory}")
        watch.task.add_done_callback(lambda _: self._watches.pop(directory, None))

    def watched_directories(self) -> list[str]:
        """The directories that are watched now."""
        return list(self._watches)

    async def forget(self, directory: str) -> None:
        """The instance of a directory is disposed of."""
        if watch := self._watches.get(directory):
            await _end([watch])

    async def close(self) -> None:
        """For the server's shutdown."""
        self._closed = True
        await _end(list(self._watches.values()))

    # --- inside

    async def _run(self, watch: _Watch) -> None:
        try:
            if await asyncio.to_thread(os.path.realpath, watch.directory) in self._unwatchable:
                return
            watch.git_dir = await _git_dir(watch.directory)
            watch.branch = (await vcs.branches(watch.directory)).current
            self._renew(watch)
            while watch.rounds:
                done, _ = await asyncio.wait(watch.rounds, return_when=asyncio.FIRST_COMPLETED)
                watch.rounds -= done
                for one in done:
                    one.result()
        except OSError as error:
            # Mostly: no more watches. Told once for each attempt, and everything else goes on.
            log.warning("watch.failed", directory=watch.directory, reason=str(error), hint="see fs.inotify.max_user_watches")
        except RuntimeError as error:
            log.warning("watch.failed", directory=watch.directory, reason=str(error))
        finally:
            watch.stop.set()
            for one in watch.rounds:
                one.cancel()

    def _renew(self, watch: _Watch) -> None:
        watch.rounds.add(asyncio.create_task(self._round(watch), name=f"watch {watch.directory}"))

    async def _round(self, watch: _Watch) -> None:
        """Watch the folders that there are. With a new folder the next round begins, and this one goes on for another look,
        so that nothing falls between the two; what both see is told twice."""
        folders, whole = await _folders(watch.directory, watch.added)
        if not whole:
            log.info("watch.partial", directory=watch.directory, folders=len(folders))
        places = [*folders, *([watch.git_dir] if watch.git_dir else [])]
        if not places or watch.stop.is_set():
            return
        known = set(folders)
        import watchfiles  # late: most servers start with nobody who watches

        awatch = cast(
            "Callable[..., AsyncGenerator[set[tuple[int, str]]]]",
            watchfiles.awatch,  # pyright: ignore[reportUnknownMemberType] - its types name a class of anyio that is not typed here
        )
        watching = awatch(
            *places,
            watch_filter=None,
            debounce=DEBOUNCE_MS,
            step=STEP_MS,
            stop_event=watch.stop,
            rust_timeout=LISTENER_CHECK_MS,
            yield_on_timeout=True,
            recursive=False,
            ignore_permission_denied=True,
        )
        async with aclosing(watching) as changes:
            renewed = False
            async for batch in changes:
                if not self._listened(watch.directory):
                    watch.stop.set()
                    return
                new = bool(batch) and await self._tell(watch, batch, known)
                if renewed:
                    return
                if new:
                    renewed = True
                    self._renew(watch)

    async def _tell(self, watch: _Watch, batch: set[tuple[int, str]], known: set[str]) -> bool:
        """Publish a burst; whether it has a new folder."""
        head = f"{watch.git_dir}/HEAD"
        rows = sorted({(path, kind) for kind, path in batch if _is_shown(path, watch, head)})
        ignored = await vcs.ignored_paths(watch.directory, [path for path, _ in rows if path != head])
        shown = [(path, kind) for path, kind in rows if path not in ignored]
        if any(path == head for path, _ in shown):
            await self._look_at_branch(watch)
        new = await asyncio.to_thread(_new_folders, [path for path, _ in shown], known) if shown else []
        watch.added |= set(new)
        inside = await asyncio.to_thread(_files_in, new)
        hidden = await vcs.ignored_paths(watch.directory, inside)
        shown += [(path, ADDED) for path in inside if path not in hidden]
        for path, kind in shown[:BATCH_LIMIT]:
            if path not in new:
                self._changes.publish(FileChanged(printable(path), KINDS[kind]), watch.directory, watch.project)
        if len(shown) > BATCH_LIMIT:
            log.info("watch.burst", directory=watch.directory, changes=len(shown), told=BATCH_LIMIT)
        return bool(new)

    async def _look_at_branch(self, watch: _Watch) -> None:
        branch = (await vcs.branches(watch.directory)).current
        if branch != watch.branch:
            watch.branch = branch
            self._changes.publish(GitBranchChanged(branch), watch.directory, watch.project)


async def _end(watches: Iterable[_Watch]) -> None:
    tasks = [watch.task for watch in watches if watch.task is not None]
    for watch in watches:
        watch.stop.set()
    if tasks:
        _, late = await asyncio.wait(tasks, timeout=END_S)
        for task in late:
            task.cancel()


async def _git_dir(directory: str) -> str | None:
    """Where HEAD of this working tree is (of a worktree, a folder of its own)."""
    found = await git(directory, "rev-parse", "--absolute-git-dir")
    return os.fsdecode(found.stdout).rstrip("\n") or None if found.ok else None


async def _folders(directory: str, more: set[str]) -> tuple[list[str], bool]:
    """The folders to watch, the ones near the top first, and whether those are all."""
    listed = await git(directory, "ls-files", "--others", "--ignored", "--exclude-standard", "--directory", "-z")
    ignored = (
        {os.fsdecode(name).rstrip("/") for name in listed.stdout.split(b"\0") if name.endswith(b"/")} if listed.ok else set[str]()
    )
    return await asyncio.to_thread(_walk, directory, {str(Path(directory, name)) for name in ignored}, more)


def _walk(directory: str, ignored: set[str], more: set[str]) -> tuple[list[str], bool]:
    found: list[str] = []
    waiting = deque([directory])
    while waiting and len(found) < FOLDERS_LIMIT:
        here = waiting.popleft()
        with suppress(OSError), os.scandir(here) as entries:
            found.append(here)
            waiting.extend(
                entry.path
                for entry in entries
                if entry.name not in SKIPPED and entry.path not in ignored and entry.is_dir(follow_symlinks=False)
            )
    known = set(found)
    found += [place for place in sorted(more) if place not in known and Path(place).is_dir()][: FOLDERS_LIMIT - len(found)]
    return found, not waiting


def _is_shown(path: str, watch: _Watch, head: str) -> bool:
    if watch.git_dir and path.startswith(f"{watch.git_dir}/"):
        return path == head
    return SKIPPED.isdisjoint(Path(path).relative_to(watch.directory).parts) if path.startswith(f"{watch.directory}/") else False


def _new_folders(paths: list[str], known: set[str]) -> list[str]:
    return [path for path in paths if path not in known and Path(path).is_dir() and not Path(path).is_symlink()]


def _files_in(folders: list[str]) -> list[str]:
    """What came into new folders before they were watched."""
    found: list[str] = []
    for folder in folders:
        for here, below, files in os.walk(folder):
            below[:] = [name for name in below if name not in SKIPPED]
            found += [str(Path(here, name)) for name in files]
            if len(found) > BATCH_LIMIT:
                return found
    return found
