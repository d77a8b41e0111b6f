"""What git says of a directory: branch, changed files, diffs. Nothing in the repository is touched, not even its index.

Outside of a repository, and where git is not installed, everything is empty, as native answers. Paths are relative to the
root of the repository; what lies outside of the directory is left out (a project may be a folder of a larger repository).
Source: a live OpenCode 1.18.33 beside this, over the same repositories (unborn, detached, worktree, sub-folder).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from shim.errors import GitTooSlow, InvalidRequest
from shim.host import disk
from shim.host.command import CommandResult
from shim.host.git import git, harmless_settings

DIFF = ("diff", "--no-renames", "--ignore-submodules=dirty")
UNTRACKED_LIMIT = 2000
"""New files that are looked into; a folder that nobody ignored may hold a hundred thousand."""
PATCH_LIMIT_BYTES = 2**20
"""Of one new file; larger ones are counted but not shown, as the UIs could not."""
LOOK_LIMIT_S = 10.0
"""For one git command that looks through the working tree. It waits for ever where a `.gitignore` is a FIFO."""
SNIFF_BYTES = 8000
"""git looks for a NUL in so much of a file to call it binary."""

Status = Literal["added", "deleted", "modified"]
LETTERS: dict[str, Status] = {"A": "added", "D": "deleted"}


@dataclass(frozen=True, slots=True)
class Branches:
    """The branch that is checked out (None when detached) and the one that it will be merged into."""

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
    """The top of the working tree that a directory is in, links resolved."""
    found = await git(directory, "rev-parse", "--show-toplevel")
    return os.fsdecode(found.stdout).rstrip("\n") or None if found.ok else None


async def prefix(directory: str) -> str:
    """Where the directory is below the top: `src/`; empty at the top itself."""
    found = await git(directory, "rev-parse", "--show-prefix")
    return found.text.rstrip("\n") if found.ok else ""


async def ignored_paths(directory: str, paths: list[str]) -> frozenset[str]:
    """Which of these paths git ignores, as they were given; none outside of a repository, or if git takes too long."""
    if not paths:
        return frozenset()
    asked = b"\0".join(os.fsencode(path) for path in paths)
    answer = await git(directory, "check-ignore", "-z", "--stdin", stdin=asked, timeout_s=LOOK_LIMIT_S)
    return frozenset(os.fsdecode(name) for name in answer.stdout.split(b"\0") if name)


async def branches(directory: str) -> Branches:
    """An unborn branch counts as checked out."""
    if await root(directory) is None:
        return Branches()
    head, remote, local, wanted = await asyncio.gather(
        git(directory, "symbolic-ref", "--short", "-q", "HEAD"),
        git(directory, "symbolic-ref", "--short", "-q", "refs/remotes/origin/HEAD"),
        git(directory, "for-each-ref", "--format=%(refname:short)", "refs/heads"),
        git(directory, "config", "--get", "init.defaultBranch"),
    )
    names = local.text.split()
    default = remote.text.strip().removeprefix("origin/") if remote.ok else ""
    if not default:
        default = next((name for name in (wanted.text.strip(), "main", "master") if name in names), "")
    return Branches(head.text.strip() or None, default or None)


@dataclass(frozen=True, slots=True)
class Base:
    """Where a branch began: the branch that it will be merged into, the commit, and how it was found."""

    name: str
    ref: str
    source: Literal["default"] = "default"


async def branch_names(directory: str) -> list[str]:
    """Local branches, the last changed first; none outside of a repository."""
    found = await git(directory, "for-each-ref", "--sort=-committerdate", "--format=%(refname:short)", "refs/heads")
    return found.text.split() if found.ok else []


async def review_base(directory: str) -> Base | None:
    """None on the default branch itself, outside of a repository, and where there is no default branch."""
    found = await branches(directory)
    ref = await _fork_point(directory)
    return None if ref is None or found.default is None else Base(found.default, ref)


async def compare(directory: str, base: str | None, context: int | None = None, *, committed: bool) -> list[Change]:
    """What differs from a revision, with patches. In: `base`, else the review base; `committed`: the last commit is compared
    with it, not the files. Raises InvalidRequest for a base that is no revision."""
    since = await _fork_point(directory) if base is None else await revision(directory, base)
    if not committed or since is None:
        return await _changes(directory, since, patches=True, context=context)
    lines = () if context is None else (f"-U{context}",)
    counts, shown = await asyncio.gather(
        git(directory, *DIFF, "--raw", "--numstat", "-z", since, "HEAD", "--", "."),
        git(directory, *DIFF, "-p", *lines, since, "HEAD", "--", "."),
    )
    found = _parse(counts.stdout, shown.text) if counts.ok and shown.ok else []
    return sorted(map(_printable, found), key=lambda change: change.file.casefold())


async def revision(directory: str, name: str) -> str:
    """The commit that a person's word means. Raises InvalidRequest if it means none."""
    found = await git(directory, "rev-parse", "--verify", "-q", "--end-of-options", f"{name}^{{commit}}")
    if not found.ok:
        raise InvalidRequest(f"There is no revision {name} in {directory}", "Query", ("base",))
    return found.text.strip()


def _parse(counts: bytes, patches: str) -> list[Change]:
    states, lines = parse_raw_numstat(counts)
    texts = split_patch(patches)
    return [
        Change(name, added, deleted, states.get(name, "modified"), texts.get(name)) for name, (added, deleted) in lines.items()
    ]


async def changes(directory: str) -> list[Change]:
    """What differs from the last commit, staged or not, with new files."""
    return await _changes(directory, await _last_commit(directory), patches=False)


async def diff(directory: str, mode: Literal["git", "branch"], context: int | None = None) -> list[Change]:
    """The same with patches. `branch`: since the branch left the default one; empty on the default one itself."""
    base = await (_last_commit(directory) if mode == "git" else _fork_point(directory))
    return await _changes(directory, base, patches=True, context=context)


async def raw_diff(directory: str) -> str:
    """All patches of `diff(directory, "git")` as one text."""
    return "".join(change.patch or "" for change in await diff(directory, "git"))


async def _last_commit(directory: str) -> str | None:
    head = await git(directory, "rev-parse", "--verify", "-q", "HEAD^{commit}")
    if head.ok:
        return head.text.strip()
    # No commit yet: everything is new against the empty tree, whose name depends on the hash in use.
    empty = await git(directory, "hash-object", "-t", "tree", "/dev/null")
    return empty.text.strip() if empty.ok and await root(directory) else None


async def _fork_point(directory: str) -> str | None:
    found = await branches(directory)
    if found.default is None or found.current == found.default:
        return None
    for name in (f"refs/heads/{found.default}", f"refs/remotes/origin/{found.default}"):
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
        _look(directory, "ls-files", "--others", "--exclude-standard", "--full-name", "-z", "--", "."),
    )
    names = [os.fsdecode(name) for name in new.stdout.split(b"\0") if name and not name.endswith(b"/")]
    untracked = await asyncio.to_thread(_untracked_changes, top, names[:UNTRACKED_LIMIT], patches)
    return sorted((_printable(change) for change in tracked + untracked), key=lambda change: change.file.casefold())


async def _tracked_changes(directory: str, base: str, *, patches: bool, context: int | None) -> list[Change]:
    settings = await harmless_settings(directory)
    if settings is None:
        return []
    async with _index_copy(directory) as index:
        found = await _look(directory, *DIFF, "--raw", "--numstat", "-z", base, "--", ".", index=index, settings=settings)
        if not found.ok:
            return []
        lines = () if context is None else (f"-U{context}",)
        patched = (*DIFF, "-p", *lines, base, "--", ".")
        shown = await _look(directory, *patched, index=index, settings=settings) if patches else None
    return _parse(found.stdout, shown.text if shown is not None and shown.ok else "")


async def _look(
    directory: str, *arguments: str, index: str | None = None, settings: Mapping[str, str | None] | None = None
) -> CommandResult:
    """Run a git command that reads the working tree. Raises GitTooSlow."""
    found = await git(directory, *arguments, index=index, settings=settings, timeout_s=LOOK_LIMIT_S)
    if found.timed_out:
        raise GitTooSlow(directory, LOOK_LIMIT_S)
    return found


@contextlib.asynccontextmanager
async def _index_copy(directory: str) -> AsyncGenerator[str | None]:
    """A copy of the index for `git diff`, which writes the index when it finds a file touched but not changed, whatever
    GIT_OPTIONAL_LOCKS says. None if there is no index yet."""
    found = await git(directory, "rev-parse", "--git-path", "index")
    original = Path(directory, os.fsdecode(found.stdout).rstrip("\n"))
    with tempfile.TemporaryDirectory(prefix="shim-git-") as folder:
        yield await asyncio.to_thread(_copy, original, Path(folder, "index"))


def _copy(original: Path, copy: Path) -> str | None:
    try:
        # With its time: git takes files that are not older than the index for possibly changed.
        return str(shutil.copy2(original, copy))
    except OSError:
        return None


def parse_raw_numstat(out: bytes) -> tuple[dict[str, Status], dict[str, tuple[int, int]]]:
    """States and line counts by file, from `git diff --raw --numstat -z`."""
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
    """Patches by file. Content lines never start with `diff`: they have a space, +, - or backslash before them."""
    found: dict[str, str] = {}
    for patch in re.split(r"(?m)^(?=diff --git )", text):
        header = re.match(r"diff --git a/(.*) b/\1\n", patch)
        if header:
            found[header[1]] = patch
    return found


def _untracked_changes(top: str, names: list[str], patches: bool) -> list[Change]:
    found: list[Change] = []
    root = os.path.realpath(top)
    for name in names:
        content = _content(Path(top, name), root)
        if content is None:
            continue
        mode, data, whole = content
        binary = b"\0" in data[:SNIFF_BYTES]
        lines = 0 if binary else data.count(b"\n") + (bool(data) and not data.endswith(b"\n"))
        patch = new_file_patch(name, mode, data, binary=binary) if patches and whole else None
        found.append(Change(name, lines, 0, "added", patch))
    return found


def _content(path: Path, root: str) -> tuple[str, bytes, bool] | None:
    """git's mode, the content up to the limit, and whether that is all; None for what git would not take."""
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
    """What `git diff --no-index /dev/null name` says, without the line of hashes."""
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
    """Names that are no UTF-8 cannot be in JSON."""
    name = change.file.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return change if name == change.file else replace(change, file=name)
