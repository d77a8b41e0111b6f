"""Chooses the files of a snapshot, and makes room for files to restore. Blocking: call it in a thread.

Invariant: it changes nothing outside of the project. It skips a path with a symbolic link among its folders.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable
from pathlib import Path


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


def free(directory: str, names: Iterable[str]) -> tuple[list[str], list[str]]:
    """Sort names into (writable, sentences about blocked ones). Other files in their place must not be lost."""
    base = Path(directory)
    good: list[str] = []
    blocked: list[str] = []
    for name in names:
        path = base / name
        link = _link_above(base, path)
        if link:
            blocked.append(f"{name} was not put back: {link} is a symbolic link.")
        elif path.is_dir() and not path.is_symlink() and any(path.iterdir()):
            blocked.append(f"{name} was not put back: a folder with other files has that name.")
        elif file := next((p for p in path.parents if p.is_relative_to(base) and p.is_file()), None):
            blocked.append(f"{name} was not put back: {file.relative_to(base)} is a file now.")
        else:
            good.append(name)
    return good, blocked


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
