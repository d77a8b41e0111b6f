"""Takes snapshots of a project's files, so that an agent's changes can be undone. Snapshots are git trees.

The user's repository never changes: GIT_DIR, the index and the objects lie in our data directory, one folder for each project.
Snapshots only read the project's files, and `restore` writes them. The project need not be a repository.
A snapshot has the files that git would add: no ignored files, no nested repositories, no new file over `FILE_LIMIT_BYTES`.
It keeps bytes and the executable bit exactly: the project's `.gitattributes` and line-end settings do not apply.

Names are relative to the project's directory. Each directory has one operation at a time. Measurements: docs/undo.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import math
import os
import shutil
import stat
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from shim.host.git import vcs
from shim.host.git.git_command import git, git_in, is_installed, message_of, scratch_folder
from shim.lib.clock import Clock
from shim.lib.disk import private_folder
from shim.lib.errors import ShimError
from shim.lib.tasks import end_tasks, keep, retrieve_error
from shim.processes.command import CommandResult, ProgramMissing
from universal.lib.diffs import FileDiff, file_diff

# --- files of a snapshot ----------------------------------------------------------------------------------------


def choose(directory: str, listed: bytes, limit_bytes: int) -> tuple[list[bytes], list[bytes], list[str]]:
    """Sort the output of `git ls-files -z -t -o -m -d` into (removed, taken, left out: too large or unreadable).

    Names of nested repositories end with a slash and are skipped silently, because they are separate projects.
    """
    removed: list[bytes] = []
    changed: list[bytes] = []
    left_out: list[str] = []
    base = Path(directory)
    for entry in sorted(set(listed.split(b"\0"))):
        tag, _, name = entry.partition(b" ")
        if not name or name.endswith(b"/"):
            continue
        if tag == b"R":
            removed.append(name)
            continue
        try:
            path = base / name.decode()
            state = path.lstat()
        except UnicodeDecodeError:
            left_out.append(os.fsdecode(name))
            continue
        except OSError:  # the file was removed meanwhile
            if tag == b"C":
                removed.append(name)
            continue
        if stat.S_ISDIR(state.st_mode) or _link_above(base, path):  # a folder replaced the file, or a link replaced its folder
            removed.append(name)
            continue
        regular = stat.S_ISREG(state.st_mode)
        readable = not regular or os.access(path, os.R_OK)
        if readable and (not regular or state.st_size <= limit_bytes or tag == b"C"):
            changed.append(name)
        else:
            left_out.append(os.fsdecode(name))
    return removed, changed, left_out


def not_larger(directory: str, names: Iterable[str], limit_bytes: int) -> frozenset[str]:
    """Those of these files that can be read and are not larger."""
    base, taken = Path(directory), set[str]()
    for name in names:
        with contextlib.suppress(OSError):
            state = (base / name).lstat()
            if stat.S_ISREG(state.st_mode) and state.st_size <= limit_bytes and os.access(base / name, os.R_OK):
                taken.add(name)
    return frozenset(taken)


def remove(directory: str, names: Iterable[str]) -> None:
    """Remove these files, and folders that become empty, deepest first."""
    base = Path(directory)
    for name in sorted(names, key=lambda n: (-n.count("/"), n)):
        path = base / name
        if _link_above(base, path) or (path.is_dir() and not path.is_symlink()):
            continue
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            path.unlink()
        for folder in path.parents:
            if folder == base or not folder.is_relative_to(base):
                break
            try:
                folder.rmdir()
            except OSError:
                break


def free_names(directory: str, names: Iterable[str]) -> tuple[list[str], list[str]]:
    """Sort names into (writable, sentences about blocked ones). Other files in their place must not be lost."""
    base = Path(directory)
    good: list[str] = []
    blocked: list[str] = []
    for name in names:
        path = base / name
        link = _link_above(base, path)
        if link:
            blocked.append(f"{name} was not put back: {link} is a symbolic link.")
        elif path.is_dir() and not path.is_symlink() and _has_files(path):
            blocked.append(f"{name} was not put back: a folder with other files has that name.")
        elif file := next((p for p in path.parents if p.is_relative_to(base) and p.is_file()), None):
            blocked.append(f"{name} was not put back: {file.relative_to(base)} is a file now.")
        else:
            good.append(name)
    return good, blocked


def _has_files(folder: Path) -> bool:
    """Whether it holds more than empty folders, which a deleted file leaves behind."""
    return any(inner.is_symlink() or not inner.is_dir() for inner in folder.rglob("*"))


def _link_above(base: Path, path: Path) -> str:
    """The first symbolic link among the folders between the project and the path; empty if there is none."""
    for folder in path.parents:
        if folder == base or not folder.is_relative_to(base):
            return ""
        if folder.is_symlink():
            return str(folder.relative_to(base))
    return ""


def unlock(git_dir: str) -> None:
    """Remove the index lock that a killed git left."""
    Path(git_dir, "index.lock").unlink(missing_ok=True)


log = structlog.get_logger()

# --- snapshots --------------------------------------------------------------------------------------------------

FILE_LIMIT_BYTES = 2 * 2**20
"""Maximum size of a file that the project's repository does not have. Larger ones are left out, as in native OpenCode 1.18.33."""
COMMITTED_LIMIT_BYTES = 256 * 2**20
"""Maximum size of a file that the project's repository has."""
FILES_LIMIT = 50_000
"""Maximum files of a project. A larger one gets no snapshots, because each would take seconds."""
TRACK_S = 20.0
"""Seconds for one git command of a snapshot. A directory that takes longer gets no snapshots."""
KEEP_DAYS = 30
"""Days that a snapshot is kept. Changes behind an older one can no longer be undone."""
ALONE_S = 60.0
"""Seconds to wait until another server with the same data ends its operation on the same directory."""
ALONE_EVERY_S = 0.02
TIDY_EVERY_S = 24 * 3600.0
TIDY_S = 600.0
"""Seconds for git to remove the old snapshots of one project."""
ATTRIBUTES = "* -text !eol -filter -ident !working-tree-encoding !diff !merge\n"
"""git attributes that keep all bytes unchanged. They override all other attribute files."""
SETTINGS = {
    "core.bare": "false",
    "core.untrackedCache": "false",
    "core.longPaths": "true",
    "core.sharedRepository": "0600",  # whatever the umask: they hold what the person's files hold
}


class SnapshotError(ShimError):
    """A snapshot could not be taken, read or restored. The text says why."""


class NoSnapshots(SnapshotError):
    """This directory gets no snapshots. The text says why and what to do."""


@dataclass(slots=True)
class _Project:
    """The state of one directory.

    off     why it gets no snapshots, until the server restarts
    tree    the last snapshot, while the index still has its content
    index   the stamp of the index file then: another server may have taken a snapshot since
    taken   whether a snapshot was taken since the server's start
    coming  a requested snapshot that has not begun; requests until then share it
    """

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    top: str | None = None
    off: str | None = None
    tree: str | None = None
    index: tuple[int, ...] | None = None
    taken: bool = False
    coming: asyncio.Task[str] | None = None


class Snapshots:
    """All snapshots of this server. In: the folder for them, and the user's home, which gets no snapshots."""

    def __init__(self, folder: Path, home: Path, clock: Clock) -> None:
        self._folder = folder
        self._home = home
        self._clock = clock
        self._projects: dict[str, _Project] = {}
        self._tidying: asyncio.Task[None] | None = None
        self._taking: set[asyncio.Task[str]] = set()

    def start(self) -> None:
        """Start to remove old snapshots in the background."""
        self._tidying = asyncio.get_running_loop().create_task(self._tidy_logged(), name="tidy snapshots")

    async def close(self) -> None:
        """Cancel the removal of old snapshots and all unfinished snapshots."""
        await end_tasks(*self._taking, self._tidying)

    async def _tidy_logged(self) -> None:
        try:
            await self.tidy()
        except Exception:  # a task that nobody awaits: its fault would be lost
            log.exception("snapshot.tidy_failed")

    # --- operations for sessions -----------------------------------------------------------------------------

    def has_taken(self, directory: str) -> bool:
        """Whether a snapshot of this directory was taken since the server's start, so that it gets snapshots."""
        project = self._projects.get(directory)
        return project is not None and project.taken and project.off is None

    async def track(self, directory: str) -> str:
        """Take a snapshot of the files; return its tree id. Raises NoSnapshots, SnapshotError.

        Callers that wait for a running snapshot share the next one, so that a hundred prompts at once take only two. The snapshot
        continues if one of its callers is cancelled.
        """
        project = self._project(directory)
        if project.coming is None:
            taking = asyncio.create_task(self._take(directory, project), name=f"snapshot of {directory}")
            project.coming = keep(taking, self._taking)
            project.coming.add_done_callback(retrieve_error)
        return await asyncio.shield(project.coming)

    async def _take(self, directory: str, project: _Project) -> str:
        try:
            async with self._open_project(directory):
                project.coming = None  # a later caller may have changed files meanwhile, so it needs another snapshot
                tree = await self._track(directory, project)
                project.taken = True
                return tree
        finally:
            if project.coming is asyncio.current_task():
                project.coming = None

    async def changed_files(self, directory: str, before: str, after: str) -> list[str]:
        """List the names of the files that differ, sorted. A renamed file has both of its names."""
        if before == after:
            return []
        async with self._open_project(directory) as project:
            result = await self._git(directory, project, "diff-tree", "-r", "-z", "--no-renames", "--name-only", before, after)
        return sorted(os.fsdecode(name) for name in result.stdout.split(b"\0") if name)

    async def diff(self, directory: str, before: str, after: str, names: Iterable[str], context: int) -> list[vcs.Change]:
        """List the changes in these files with patches, sorted by name."""
        selection = set(names)
        if before == after or not selection:
            return []
        async with self._open_project(directory) as project:
            command = ("diff-tree", "-r", "--no-renames")
            raw = await self._git(directory, project, *command, "--raw", "--numstat", "-z", before, after)
            patch = await self._git(directory, project, *command, "-p", f"-U{context}", before, after)
        states, counts = vcs.parse_raw_numstat(raw.stdout)
        texts = vcs.split_patch(patch.stdout.decode("utf-8", "replace"))
        return [
            vcs.Change(name, added, deleted, states.get(name, "modified"), texts.get(name))
            for name, (added, deleted) in sorted(counts.items())
            if name in selection
        ]

    async def patch(self, directory: str, before: str, after: str) -> str:
        """Return all changes as one git patch, without its last line end, as in native OpenCode."""
        if before == after:
            return ""
        async with self._open_project(directory) as project:
            result = await self._git(directory, project, "diff-tree", "-r", "-p", "--no-renames", before, after)
        return result.text.rstrip("\n")

    async def restore(self, directory: str, tree_by_file: Mapping[str, str]) -> list[str]:
        """Restore each of these files from its tree; a file that the tree lacks is removed.

        Out: sentences about files that were not restored, because the user's files are in their place.
        Raises NoSnapshots; SnapshotError, before any change, if a tree is gone.
        """
        async with self._open_project(directory) as project:
            trees: dict[str, list[str]] = {}
            for name, tree in sorted(tree_by_file.items()):
                trees.setdefault(tree, []).append(name)
            async with scratch_folder("restore-", self._git_dir(directory)) as scratch:
                indexes = {tree: str(Path(scratch, tree)) for tree in trees}
                present: dict[str, set[str]] = {}
                for tree, index in indexes.items():
                    await self._git(directory, project, "read-tree", tree, index=index)
                    listed = await self._git(directory, project, "ls-files", "-z", index=index)
                    present[tree] = {os.fsdecode(name) for name in listed.stdout.split(b"\0") if name}
                absent = [name for tree, names in trees.items() for name in names if name not in present[tree]]
                await asyncio.to_thread(remove, directory, absent)
                problems: list[str] = []
                for tree, names in trees.items():
                    again = [name for name in names if name in present[tree]]
                    restorable, blocked = await asyncio.to_thread(free_names, directory, again)
                    problems += blocked
                    data = b"".join(os.fsencode(name) + b"\0" for name in restorable)
                    if data:
                        command = ("checkout-index", "-f", "-q", "-z", "--stdin")
                        await self._git(directory, project, *command, index=indexes[tree], stdin=data)
                return problems

    async def tidy(self) -> None:
        """Remove snapshots older than KEEP_DAYS, and those of deleted directories. At most once a day for each project."""
        for project in self._projects.values():
            project.tree = None  # gc may remove this tree
        for file in await asyncio.to_thread(lambda: list(self._folder.glob("*/shim-directory"))):
            try:
                directory = await asyncio.to_thread(file.read_text)
            except OSError:
                continue
            git_dir, marker = file.parent, file.with_name("shim-tidied")
            if not await asyncio.to_thread(os.path.isdir, directory):
                log.info("snapshot.removed", directory=directory, why="the directory is gone")
                await asyncio.to_thread(shutil.rmtree, git_dir, ignore_errors=True)
            elif await asyncio.to_thread(_age_s, marker, self._clock.now_ms()) > TIDY_EVERY_S:
                command = ("gc", "-q", f"--prune={KEEP_DAYS}.days.ago")
                with contextlib.suppress(OSError, ProgramMissing):
                    await git_in(git_dir, str(git_dir), *command, settings=SETTINGS, timeout_s=TIDY_S)
                    await asyncio.to_thread(marker.touch)

    # --- one project -------------------------------------------------------------------------------------------

    def _project(self, directory: str) -> _Project:
        return self._projects.setdefault(directory, _Project())

    def _git_dir(self, directory: str) -> Path:
        return self._folder / hashlib.sha256(os.fsencode(directory)).hexdigest()[:32]

    @contextlib.asynccontextmanager
    async def _open_project(self, directory: str) -> AsyncGenerator[_Project]:
        project = self._project(directory)
        async with project.lock:
            if project.off is not None:
                raise NoSnapshots(project.off)
            if project.top is None:
                try:
                    project.top = await self._open(directory)
                except NoSnapshots as error:
                    project.off = str(error)
                    log.warning("snapshot.off", directory=directory, why=project.off)
                    raise
                except OSError as error:
                    raise SnapshotError(f"Snapshots of {directory} cannot be kept: {error.strerror or error}.") from error
            git_dir = self._git_dir(directory)
            descriptor = await _alone(git_dir, directory)
            try:
                await asyncio.to_thread(unlock, str(git_dir))  # a killed server may have left its lock
                yield project
            finally:
                os.close(descriptor)

    async def _open(self, directory: str) -> str:
        """Create or find the git directory. Out: the top of the working tree, because `.gitignore` files above apply too."""
        here = await asyncio.to_thread(os.path.realpath, directory)
        home = await asyncio.to_thread(os.path.realpath, self._home)
        if home == here or Path(here) in Path(home).parents:
            raise NoSnapshots(
                f"{directory} is your home directory, or holds it: what agents change there cannot be undone. "
                "Open a project's own folder for that."
            )
        if not await asyncio.to_thread(os.path.isdir, directory):
            raise SnapshotError(f"{directory} is not there.")
        if not await asyncio.to_thread(is_installed):
            raise NoSnapshots("git is not installed: what agents change cannot be undone. Install git, then restart the server.")
        git_dir = self._git_dir(directory)
        top = await vcs.root(directory) or here
        exclude = await git(directory, "rev-parse", "--path-format=absolute", "--git-path", "info/exclude")
        ignored = await git(directory, "config", "--type=path", "--get", "core.excludesFile")
        if not await asyncio.to_thread(Path(git_dir, "HEAD").exists):
            await asyncio.to_thread(private_folder, git_dir)
            result = await git_in(git_dir, here, "init", "-q", "--bare", "--template=", "--shared=0600", str(git_dir))
            if not result.ok:
                raise SnapshotError(f"git cannot create {git_dir}: {message_of(result)}")
        folder = await asyncio.to_thread(self._folder.resolve)
        lines = [f"/{folder.relative_to(top).as_posix()}/"] if folder.is_relative_to(top) else []
        config = ignored.text.rstrip("\n") if ignored.ok else ""
        await asyncio.to_thread(_configure, git_dir, directory, exclude.text.rstrip("\n") if exclude.ok else "", lines, config)
        return top

    async def _git(
        self, directory: str, project: _Project, *arguments: str, index: str | None = None, stdin: bytes = b""
    ) -> CommandResult:
        """Run one git command on the project's snapshots. Raises SnapshotError with git's message."""
        git_dir = self._git_dir(directory)
        command, *rest = arguments
        relative = ("--relative",) if command == "diff-tree" else ()
        try:
            result = await git_in(
                git_dir,
                directory,
                *(command, *relative, *rest),
                settings=SETTINGS,
                work_tree=project.top,
                index=index or str(git_dir / "index"),
                stdin=stdin,
                timeout_s=TRACK_S,
            )
        except (OSError, ProgramMissing) as error:
            raise SnapshotError(f"git could not be run in {directory}: {error}") from error
        if result.code is None and not result.truncated:
            await asyncio.to_thread(unlock, str(git_dir))
            raise NoSnapshots(
                f"{directory} is too large for snapshots (git took over {TRACK_S:.0f} s): what agents change there cannot be "
                "undone. List what need not be kept in .gitignore, then restart the server."
            )
        if not result.ok:
            if "index.lock" in result.stderr.decode(errors="replace"):
                await asyncio.to_thread(unlock, str(git_dir))  # a killed server left it: we hold the lock of `_alone`
            raise SnapshotError(message_of(result))
        return result

    async def _track(self, directory: str, project: _Project) -> str:
        for again in (True, False):
            try:
                return await self._track_once(directory, project)
            except NoSnapshots as error:
                project.off = str(error)
                log.warning("snapshot.off", directory=directory, why=project.off)
                raise
            except SnapshotError as error:
                if not again:
                    raise
                log.info("snapshot.retried", directory=directory, why=str(error))
        raise AssertionError("not reached")

    async def _track_once(self, directory: str, project: _Project) -> str:
        listed = await self._git(directory, project, "ls-files", "-z", "-t", "-o", "-m", "-d", "--exclude-standard", "--", ".")
        if listed.truncated or listed.stdout.count(b"\0") > FILES_LIMIT:
            raise NoSnapshots(
                f"{directory} has more than {FILES_LIMIT} files: what agents change there cannot be undone. "
                "List what need not be kept in .gitignore, then restart the server."
            )
        index = self._git_dir(directory) / "index"
        stamp, (removed, changed, left_out) = await asyncio.to_thread(
            lambda: (_stamp(index), choose(directory, listed.stdout, FILE_LIMIT_BYTES))
        )
        if stamp != project.index:
            project.tree = None
        if left_out:
            committed = await self._committed_among(directory, left_out)
            changed += [os.fsencode(name) for name in committed]
            left_out = [name for name in left_out if name not in committed]
        if left_out:
            log.info("snapshot.left_out", directory=directory, files=len(left_out), first=left_out[:5])
        if project.tree is not None and not removed and not changed:
            return project.tree
        project.tree = None
        # Removed names go first: a file that became a folder would block the files in that folder.
        for names, options in ((removed, ("--force-remove",)), (changed, ("--add", "--remove", "--replace"))):
            if names:
                command = ("update-index", "-z", *options, "--stdin")
                await self._git(directory, project, *command, stdin=b"".join(name + b"\0" for name in names))
        project.tree = (await self._git(directory, project, "write-tree")).text.strip()
        project.index = await asyncio.to_thread(_stamp, index)
        return project.tree

    async def _committed_among(self, directory: str, names: Sequence[str]) -> frozenset[str]:
        """Those of these names that the project's own repository has: their size does not matter, an undo must bring them back.

        Those over COMMITTED_LIMIT_BYTES are not among them.
        """
        listed = await git(directory, "ls-files", "-z", "--", ".", timeout_s=TRACK_S)
        own = {os.fsdecode(name) for name in listed.stdout.split(b"\0")} if listed.ok and not listed.truncated else set[str]()
        return await asyncio.to_thread(not_larger, directory, sorted(own & set(names)), COMMITTED_LIMIT_BYTES)


async def _alone(git_dir: Path, directory: str) -> int:
    """Lock these snapshots against other servers with the same data; return the descriptor to close. Raises SnapshotError."""
    try:
        descriptor = await open_descriptor(git_dir / "shim-lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise SnapshotError(f"Snapshots of {directory} cannot be kept: {error.strerror or error}.") from error
    try:
        async with asyncio.timeout(ALONE_S):
            while not _try_lock(descriptor):  # noqa: ASYNC110 - what is waited for is in another process
                await asyncio.sleep(ALONE_EVERY_S)
    except BaseException as error:  # a cancelled wait gives the file back too
        os.close(descriptor)
        if isinstance(error, TimeoutError):
            raise SnapshotError(f"Another server has been at the snapshots of {directory} for {ALONE_S:g} s.") from error
        raise
    return descriptor


async def open_descriptor(path: Path, flags: int, mode: int) -> int:
    """`os.open`. A descriptor that comes after a cancellation is closed. Raises OSError."""
    opening = asyncio.ensure_future(asyncio.to_thread(os.open, path, flags, mode))
    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:
        opening.add_done_callback(_close)
        raise


def _close(opening: asyncio.Future[int]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        os.close(opening.result())


def _try_lock(descriptor: int) -> bool:
    """Try to take the lock. It is released when the descriptor is closed or this process ends."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _stamp(path: Path) -> tuple[int, ...] | None:
    """A value that changes with a file; None if the file does not exist."""
    try:
        state = path.stat()
    except OSError:
        return None
    return state.st_ino, state.st_size, state.st_mtime_ns


def _put(path: Path, text: str) -> None:
    """Write a file only if its content differs, because another server's git may be reading it."""
    data = text.encode("utf-8", "surrogateescape")
    if not path.is_file() or path.read_bytes() != data:
        path.write_bytes(data)
        path.chmod(0o600)


def _configure(git_dir: Path, directory: str, exclude: str, lines: list[str], excludes_file: str) -> None:
    """Write the settings that decide which files are kept, and how, once per server start, as the user's may have changed."""
    exclude_text = Path(exclude).read_text(errors="surrogateescape") if exclude and Path(exclude).is_file() else ""
    (git_dir / "info").mkdir(exist_ok=True)
    _put(git_dir / "info" / "exclude", "\n".join([exclude_text, *lines, ""]))
    _put(git_dir / "info" / "attributes", ATTRIBUTES)
    quoted = excludes_file.replace("\\", "\\\\").replace('"', '\\"')
    config = "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n"
    if quoted:
        config += f'\texcludesFile = "{quoted}"\n'
    _put(git_dir / "config", config)
    _put(git_dir / "shim-directory", directory)


def _age_s(path: Path, now_ms: int) -> float:
    """Seconds since the last write of a file; infinity if it does not exist."""
    try:
        return now_ms / 1000 - path.stat().st_mtime
    except OSError:
        return math.inf


# --- differences ------------------------------------------------------------------------------------------------

WHOLE_FILE = 1_000_000
"""Lines of context in diffs for clients. OpenCode shows whole files."""


async def diffs_between(
    snapshots: Snapshots, directory: str, before: str, after: str, names: Iterable[str], context: int = WHOLE_FILE
) -> list[FileDiff]:
    """The diffs of these files between two trees, with this number of lines around each change. Raises ShimError."""
    changes = await snapshots.diff(directory, before, after, names, context)
    return [file_diff(c.file, c.patch or "", c.additions, c.deletions, c.status) for c in changes]
