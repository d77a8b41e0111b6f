"""Reads branch, changed files and diffs of a directory from git. It changes nothing in the repository, not even its index.

Outside of a repository, and without git, all results are empty, as in native OpenCode. Paths are relative to the root of the
repository; files outside of the directory are left out (a project may be a folder of a larger repository).
Source: a live OpenCode 1.18.33 on the same repositories (unborn, detached, worktree, sub-folder).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from shim.host.git.git_command import git, harmless_settings, scratch_folder
from shim.lib import disk
from shim.lib.errors import GitTooSlow, InvalidRequest
from shim.processes.command import CommandResult

DIFF = ("diff", "--no-renames", "--ignore-submodules=dirty")
UNTRACKED_LIMIT = 2000
"""Maximum untracked files that are read. A folder that nobody ignores may hold a hundred thousand."""
PATCH_LIMIT_BYTES = 2**20
"""Maximum size of a new file in a patch. Larger ones are counted but not shown, because UIs could not show them."""
LOOK_LIMIT_S = 10.0
"""Seconds for one git command that reads the working tree. git waits forever if a `.gitignore` is a FIFO."""
SNIFF_BYTES = 8000
"""The first bytes of a file in which git looks for a NUL, to tell binary files."""

Status = Literal["added", "deleted", "modified"]
LETTERS: dict[str, Status] = {"A": "added", "D": "deleted"}


@dataclass(frozen=True, slots=True)
class Branches:
    """The checked out branch (None when detached), and the default branch of the repository."""

    current: str | None = None
    default: str | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """A changed file: lines added and deleted (0 for binary ones); a unified diff if asked for and not too large."""

    file: str
    additions: int
    deletions: int
    status: Status
    patch: str | None = None


async def root(directory: str) -> str | None:
    """Return the top of a directory's working tree, with links resolved; None outside of a repository."""
    result = await git(directory, "rev-parse", "--show-toplevel")
    return os.fsdecode(result.stdout).rstrip("\n") or None if result.ok else None


async def prefix(directory: str) -> str:
    """Return the directory's path below the top, such as `src/`; empty at the top itself."""
    result = await git(directory, "rev-parse", "--show-prefix")
    return result.text.rstrip("\n") if result.ok else ""


async def ignored_paths(directory: str, paths: list[str]) -> frozenset[str]:
    """Return the paths among these that git ignores; empty outside of a repository, or if git takes too long."""
    if not paths:
        return frozenset()
    stdin = b"\0".join(os.fsencode(path) for path in paths)
    answer = await git(directory, "check-ignore", "-z", "--stdin", stdin=stdin, timeout_s=LOOK_LIMIT_S)
    return frozenset(os.fsdecode(name) for name in answer.stdout.split(b"\0") if name)


async def branches(directory: str) -> Branches:
    """Return the current and the default branch. An unborn branch counts as checked out."""
    if await root(directory) is None:
        return Branches()
    head, remote, local, configured = await asyncio.gather(
        git(directory, "symbolic-ref", "--short", "-q", "HEAD"),
        git(directory, "symbolic-ref", "--short", "-q", "refs/remotes/origin/HEAD"),
        git(directory, "for-each-ref", "--format=%(refname:short)", "refs/heads"),
        git(directory, "config", "--get", "init.defaultBranch"),
    )
    names = local.text.split()
    default = remote.text.strip().removeprefix("origin/") if remote.ok else ""
    if not default:
        default = next((name for name in (configured.text.strip(), "main", "master") if name in names), "")
    return Branches(head.text.strip() or None, default or None)


@dataclass(frozen=True, slots=True)
class Base:
    """The start of a branch: the target branch's name, the commit, and the source of this information."""

    name: str
    ref: str
    source: Literal["default"] = "default"


async def branch_names(directory: str) -> list[str]:
    """List local branches, the last changed first; empty outside of a repository."""
    result = await git(directory, "for-each-ref", "--sort=-committerdate", "--format=%(refname:short)", "refs/heads")
    return result.text.split() if result.ok else []


async def review_base(directory: str) -> Base | None:
    """Return the base of the current branch; None on the default branch, without one, and outside of a repository."""
    names = await branches(directory)
    ref = await _fork_point(directory)
    return None if ref is None or names.default is None else Base(names.default, ref)


async def compare(directory: str, base: str | None, context: int | None = None, *, committed: bool) -> list[Change]:
    """List the changes since a revision, with patches. Raises InvalidRequest for a base that is no revision.

    In: `base`, else the review base; `committed`: compare with the last commit instead of the files.
    """
    since = await _fork_point(directory) if base is None else await revision(directory, base)
    if not committed or since is None:
        return await _changes(directory, since, patches=True, context=context)
    lines = () if context is None else (f"-U{context}",)
    counts, patch = await asyncio.gather(
        git(directory, *DIFF, "--raw", "--numstat", "-z", since, "HEAD", "--", "."),
        git(directory, *DIFF, "-p", *lines, since, "HEAD", "--", "."),
    )
    changed = _parse(counts.stdout, patch.text) if counts.ok and patch.ok else []
    return sorted(map(_printable, changed), key=lambda change: change.file.casefold())


async def revision(directory: str, name: str) -> str:
    """Resolve a revision's name to a commit. Raises InvalidRequest if there is none."""
    result = await git(directory, "rev-parse", "--verify", "-q", "--end-of-options", f"{name}^{{commit}}")
    if not result.ok:
        raise InvalidRequest(f"There is no revision {name} in {directory}", "Query", ("base",))
    return result.text.strip()


def _parse(counts: bytes, patches: str) -> list[Change]:
    states, lines = parse_raw_numstat(counts)
    texts = split_patch(patches)
    return [
        Change(name, added, deleted, states.get(name, "modified"), texts.get(name)) for name, (added, deleted) in lines.items()
    ]


async def changes(directory: str) -> list[Change]:
    """List the changes since the last commit, staged or not, with new files."""
    return await _changes(directory, await _last_commit(directory), patches=False)


async def diff(directory: str, mode: Literal["git", "branch"], context: int | None = None) -> list[Change]:
    """List the changes with patches. `branch`: since the fork from the default branch; empty on the default branch."""
    base = await (_last_commit(directory) if mode == "git" else _fork_point(directory))
    return await _changes(directory, base, patches=True, context=context)


async def raw_diff(directory: str) -> str:
    """Join all patches of `diff(directory, "git")`."""
    return "".join(change.patch or "" for change in await diff(directory, "git"))


async def _last_commit(directory: str) -> str | None:
    head = await git(directory, "rev-parse", "--verify", "-q", "HEAD^{commit}")
    if head.ok:
        return head.text.strip()
    # Without a commit, all files are new against the empty tree, whose id depends on the repository's hash.
    empty = await git(directory, "hash-object", "-t", "tree", "/dev/null")
    return empty.text.strip() if empty.ok and await root(directory) else None


async def _fork_point(directory: str) -> str | None:
    names = await branches(directory)
    if names.default is None or names.current == names.default:
        return None
    for name in (f"refs/heads/{names.default}", f"refs/remotes/origin/{names.default}"):
        base = await git(directory, "merge-base", "HEAD", name)
        if base.ok:
            return base.text.strip()
    return None


async def _changes(directory: str, base: str | None, *, patches: bool, context: int | None = None) -> list[Change]:
    top = await root(directory) if base else None
    if base is None or top is None:
        return []
    tracked, new = await asyncio.gather(
        _tracked_changes(directory, base, patches=patches, context=context),
        _git_bounded(directory, "ls-files", "--others", "--exclude-standard", "--full-name", "-z", "--", "."),
    )
    names = [os.fsdecode(name) for name in new.stdout.split(b"\0") if name and not name.endswith(b"/")]
    untracked = await asyncio.to_thread(_untracked_changes, top, names[:UNTRACKED_LIMIT], patches)
    return sorted((_printable(change) for change in tracked + untracked), key=lambda change: change.file.casefold())


async def _tracked_changes(directory: str, base: str, *, patches: bool, context: int | None) -> list[Change]:
    settings = await harmless_settings(directory)
    if settings is None:
        return []
    async with _index_copy(directory) as index:
        result = await _git_bounded(directory, *DIFF, "--raw", "--numstat", "-z", base, "--", ".", index=index, settings=settings)
        if not result.ok:
            return []
        lines = () if context is None else (f"-U{context}",)
        patched = (*DIFF, "-p", *lines, base, "--", ".")
        patch = await _git_bounded(directory, *patched, index=index, settings=settings) if patches else None
    return _parse(result.stdout, patch.text if patch is not None and patch.ok else "")


async def _git_bounded(
    directory: str, *arguments: str, index: str | None = None, settings: Mapping[str, str | None] | None = None
) -> CommandResult:
    """Run a git command that reads the working tree. Raises GitTooSlow."""
    result = await git(directory, *arguments, index=index, settings=settings, timeout_s=LOOK_LIMIT_S)
    if result.timed_out:
        raise GitTooSlow(directory, LOOK_LIMIT_S)
    return result


@contextlib.asynccontextmanager
async def _index_copy(directory: str) -> AsyncGenerator[str | None]:
    """Copy the index for `git diff`; yield its path, or None if there is no index yet.

    `git diff` writes the index when it finds a touched but unchanged file, in spite of GIT_OPTIONAL_LOCKS.
    """
    result = await git(directory, "rev-parse", "--git-path", "index")
    original = Path(directory, os.fsdecode(result.stdout).rstrip("\n"))
    async with scratch_folder("shim-git-") as folder:
        yield await asyncio.to_thread(_copy, original, Path(folder, "index"))


def _copy(original: Path, copy: Path) -> str | None:
    try:
        # Keep the mtime: git treats files that are not older than the index as possibly changed.
        return str(shutil.copy2(original, copy))
    except OSError:
        return None


def parse_raw_numstat(out: bytes) -> tuple[dict[str, Status], dict[str, tuple[int, int]]]:
    """Parse `git diff --raw --numstat -z` into states and line counts by file."""
    states: dict[str, Status] = {}
    counts: dict[str, tuple[int, int]] = {}
    fields = iter(out.split(b"\0"))
    for field in fields:
        if field.startswith(b":"):
            letter = field.rsplit(b" ", 1)[-1][:1].decode()
            states[os.fsdecode(next(fields, b""))] = LETTERS.get(letter, "modified")
        elif field:
            added, deleted, name = field.split(b"\t", 2)
            counts[os.fsdecode(name)] = (_count(added), _count(deleted))
    return states, counts


def _count(field: bytes) -> int:
    return 0 if field == b"-" else int(field)


def split_patch(text: str) -> dict[str, str]:
    """Split a patch by file. Content lines never start with `diff`: a space, +, - or backslash precedes them."""
    patches: dict[str, str] = {}
    for patch in re.split(r"(?m)^(?=diff --git )", text):
        header = re.match(r"diff --git a/(.*) b/\1\n", patch)
        if header:
            patches[header[1]] = patch
    return patches


def _untracked_changes(top: str, names: list[str], patches: bool) -> list[Change]:
    changed: list[Change] = []
    root = os.path.realpath(top)
    for name in names:
        content = _content(Path(top, name), root)
        if content is None:
            continue
        mode, data, whole = content
        binary = b"\0" in data[:SNIFF_BYTES]
        lines = 0 if binary else data.count(b"\n") + (bool(data) and not data.endswith(b"\n"))
        patch = new_file_patch(name, mode, data, binary=binary) if patches and whole else None
        changed.append(Change(name, lines, 0, "added", patch))
    return changed


def _content(path: Path, root: str) -> tuple[str, bytes, bool] | None:
    """Return git's mode, the content up to the limit, and whether that is all; None for files that git would not add."""
    try:
        if path.is_symlink():
            return "120000", os.fsencode(path.readlink()), True
        with disk.open_confined(path, [root]) as (file, state):
            if not disk.is_regular(state):
                return None
            data = file.read(PATCH_LIMIT_BYTES)
        return "100755" if state.st_mode & 0o111 else "100644", data, state.st_size <= PATCH_LIMIT_BYTES
    except OSError:
        return None


def new_file_patch(name: str, mode: str, data: bytes, *, binary: bool) -> str:
    """Build the output of `git diff --no-index /dev/null name`, without the line of hashes."""
    head = f"diff --git a/{name} b/{name}\nnew file mode {mode}\n"
    if binary:
        return f"{head}Binary files /dev/null and b/{name} differ\n"
    if not data:
        return head
    lines = data.decode("utf-8", "replace").split("\n")
    last = lines.pop()
    if last:
        lines.append(f"{last}\n\\ No newline at end of file")
    count = f"1,{len(lines)}" if len(lines) != 1 else "1"
    return f"{head}--- /dev/null\n+++ b/{name}\n@@ -0,0 +{count} @@\n" + "".join(f"+{line}\n" for line in lines)


def _printable(change: Change) -> Change:
    """Replace bytes of the name that are not UTF-8, which JSON cannot hold."""
    name = change.file.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return change if name == change.file else replace(change, file=name)
