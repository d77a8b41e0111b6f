"""Watches files (`file.watcher.updated`) and the branch (`vcs.branch.updated`) of directories that have a subscriber.

A watch begins with the first `visit` of a directory while a stream gets its events, and ends when no stream does. It skips
files that git ignores and the folders in `SKIPPED_FOLDERS`; in `.git` it watches only HEAD. It watches each folder separately,
at most `FOLDERS_LIMIT`, the ones near the top first, because a recursive watch would cover every folder of node_modules.
It never watches the home and the root of the disk: nobody works in them, and files there change all the time.

Native OpenCode 1.18.33 sends the branch and a few files of `.git` (`HEAD`, locks), and other files only with an experimental
switch. The events here have its form.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, cast

import structlog

from shim.host.changes import FileChanged, GitBranchChanged, HostFeed
from shim.host.git import vcs
from shim.host.git.git_command import git
from shim.lib.disk import printable

FOLDERS_LIMIT = 2000
"""Maximum watched folders of one directory. Linux gives a user some ten thousand watches in all."""
DIRECTORIES_LIMIT = 8
"""Maximum directories that are watched at once. Each takes a thread."""
BATCH_LIMIT = 300
"""Maximum events for one burst of changes (a checkout, a build). The rest is left out."""
DEBOUNCE_MS, STEP_MS = 300, 50
LISTENER_CHECK_MS = 2000
"""Milliseconds between checks for a live subscriber."""
END_S = 3.0
"""Seconds for a watch to end before its task is cancelled."""
SKIPPED_FOLDERS = frozenset(
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
"""The numbers of watchfiles, which is imported only at the first watch."""
KINDS: Mapping[int, Literal["add", "change", "unlink"]] = {ADDED: "add", MODIFIED: "change", DELETED: "unlink"}

log = structlog.get_logger()


@dataclass(slots=True)
class _Watch:
    """A watched directory."""

    directory: str
    project: str
    git_dir: str | None = None
    branch: str | None = None
    added: set[str] = field(default_factory=set[str])
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None
    rounds: set[asyncio.Task[None]] = field(default_factory=set["asyncio.Task[None]"])


class Watchers:
    """All watched directories. In: `listened`, whether a stream gets a directory's events."""

    def __init__(self, changes: HostFeed, listened: Callable[[str], bool], home: Path) -> None:
        self._changes = changes
        self._listened = listened
        self._unwatchable = {os.path.realpath(home), "/"}
        self._watches: dict[str, _Watch] = {}
        self._closed = False

    def visit(self, directory: str, project: str) -> None:
        """Start to watch a directory in use, if a stream gets its events. Returns at once."""
        if self._closed or directory in self._watches or len(self._watches) >= DIRECTORIES_LIMIT:
            return
        if not self._listened(directory):
            return
        watch = self._watches[directory] = _Watch(directory, project)
        watch.task = asyncio.create_task(self._run(watch), name=f"watch {directory}")
        watch.task.add_done_callback(lambda _: self._watches.pop(directory, None))

    def watched_directories(self) -> list[str]:
        return list(self._watches)

    async def forget(self, directory: str) -> None:
        """Stop to watch a directory, because its instance was disposed."""
        if watch := self._watches.get(directory):
            await _end([watch])

    async def close(self) -> None:
        """Stop all watches, for the server's shutdown."""
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
                finished, _ = await asyncio.wait(watch.rounds, return_when=asyncio.FIRST_COMPLETED)
                watch.rounds -= finished
                for ended in finished:
                    ended.result()
        except OSError as error:
            # Usually the user's limit of inotify watches. The server logs it and goes on without this watch.
            log.warning("watch.failed", directory=watch.directory, reason=str(error), hint="see fs.inotify.max_user_watches")
        except RuntimeError as error:
            log.warning("watch.failed", directory=watch.directory, reason=str(error))
        finally:
            watch.stop.set()
            for task in watch.rounds:
                task.cancel()

    def _renew(self, watch: _Watch) -> None:
        watch.rounds.add(asyncio.create_task(self._round(watch), name=f"watch {watch.directory}"))

    async def _round(self, watch: _Watch) -> None:
        """Watch the existing folders until a new folder appears, which starts the next round.

        This round goes on for one more batch, so that no change falls between the two. A change that both see is sent twice.
        """
        folders, whole = await _folders(watch.directory, watch.added)
        if not whole:
            log.info("watch.partial", directory=watch.directory, folders=len(folders))
        places = [*folders, *([watch.git_dir] if watch.git_dir else [])]
        if not places or watch.stop.is_set():
            return
        watched = set(folders)
        import watchfiles  # late import: most servers start without a subscriber

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
                new = bool(batch) and await self._publish_batch(watch, batch, watched)
                if renewed:
                    return
                if new:
                    renewed = True
                    self._renew(watch)

    async def _publish_batch(self, watch: _Watch, batch: set[tuple[int, str]], watched: set[str]) -> bool:
        """Publish a batch of changes; return whether it has a new folder."""
        head = f"{watch.git_dir}/HEAD"
        rows = sorted({(path, kind) for kind, path in batch if _is_shown(path, watch, head)})
        ignored = await vcs.ignored_paths(watch.directory, [path for path, _ in rows if path != head])
        visible = [(path, kind) for path, kind in rows if path not in ignored]
        if any(path == head for path, _ in visible):
            await self._look_at_branch(watch)
        new = await asyncio.to_thread(_new_folders, [path for path, _ in visible], watched) if visible else []
        watch.added |= set(new)
        inside = await asyncio.to_thread(_files_in, new)
        hidden = await vcs.ignored_paths(watch.directory, inside)
        visible += [(path, ADDED) for path in inside if path not in hidden]
        for path, kind in visible[:BATCH_LIMIT]:
            if path not in new:
                self._changes.publish(FileChanged(printable(path), KINDS[kind]), watch.directory, watch.project)
        if len(visible) > BATCH_LIMIT:
            log.info("watch.burst", directory=watch.directory, changes=len(visible), published=BATCH_LIMIT)
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
    """Return the folder of this working tree's HEAD. A worktree has a folder of its own."""
    result = await git(directory, "rev-parse", "--absolute-git-dir")
    return os.fsdecode(result.stdout).rstrip("\n") or None if result.ok else None


async def _folders(directory: str, more: set[str]) -> tuple[list[str], bool]:
    """List the folders to watch, the ones near the top first, and whether these are all."""
    listed = await git(directory, "ls-files", "--others", "--ignored", "--exclude-standard", "--directory", "-z")
    ignored = (
        {os.fsdecode(name).rstrip("/") for name in listed.stdout.split(b"\0") if name.endswith(b"/")} if listed.ok else set[str]()
    )
    return await asyncio.to_thread(_walk, directory, {str(Path(directory, name)) for name in ignored}, more)


def _walk(directory: str, ignored: set[str], more: set[str]) -> tuple[list[str], bool]:
    folders: list[str] = []
    waiting = deque([directory])
    while waiting and len(folders) < FOLDERS_LIMIT:
        here = waiting.popleft()
        with suppress(OSError), os.scandir(here) as entries:
            folders.append(here)
            waiting.extend(
                entry.path
                for entry in entries
                if entry.name not in SKIPPED_FOLDERS and entry.path not in ignored and entry.is_dir(follow_symlinks=False)
            )
    listed = set(folders)
    folders += [place for place in sorted(more) if place not in listed and Path(place).is_dir()][: FOLDERS_LIMIT - len(folders)]
    return folders, not waiting


def _is_shown(path: str, watch: _Watch, head: str) -> bool:
    if watch.git_dir and path.startswith(f"{watch.git_dir}/"):
        return path == head
    return (
        SKIPPED_FOLDERS.isdisjoint(Path(path).relative_to(watch.directory).parts)
        if path.startswith(f"{watch.directory}/")
        else False
    )


def _new_folders(paths: list[str], watched: set[str]) -> list[str]:
    return [path for path in paths if path not in watched and Path(path).is_dir() and not Path(path).is_symlink()]


def _files_in(folders: list[str]) -> list[str]:
    """List files that appeared in new folders before these were watched."""
    paths: list[str] = []
    for folder in folders:
        for here, below, files in os.walk(folder):
            below[:] = [name for name in below if name not in SKIPPED_FOLDERS]
            paths += [str(Path(here, name)) for name in files]
            if len(paths) > BATCH_LIMIT:
                return paths
    return paths
