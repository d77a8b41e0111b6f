"""The files of the mock's `edit`: the only thing that it really does. Blocking; run it in a thread."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from pathlib import Path

MAX_BYTES = 1 << 20
"""Larger files are refused."""


class EditRefused(Exception):
    """The mock does not touch this file; the text says why."""


@dataclass(frozen=True, slots=True)
class Edit:
    """A change that can be made: `before` is None for a new file. `old` occurs exactly once, `new` takes its place."""

    path: Path
    before: str | None
    after: str
    old: str
    new: str
    diff: str


def lines_of(content: str) -> list[str]:
    """Lines with their `\\n`; other line separators of Unicode are no line ends in files."""
    return re.findall(r"[^\n]*\n|[^\n]+", content)


def unified_diff(name: str, before: str | None, after: str) -> str:
    """A unified diff as `git apply` and `patch` take it; no `before` means a new file."""
    source = "/dev/null" if before is None else f"a/{name}"
    diff = difflib.unified_diff(lines_of(before or ""), lines_of(after), source, f"b/{name}")
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in diff)


def prepare(directory: Path, name: str) -> Edit:
    """One more line for the file, or a new file of one line. Changes nothing. Raises Refused."""
    try:
        root = directory.resolve()
        path = (root / name).resolve()
        if not path.is_relative_to(root) or path == root:
            raise EditRefused(f"{name} is not inside of {root}; the mock changes nothing outside of it.")
        if path.exists() and not path.is_file():
            raise EditRefused(f"{name} is not a file.")
        if path.exists() and path.stat().st_size > MAX_BYTES:
            raise EditRefused(f"{name} is larger than {MAX_BYTES} bytes.")
        before = path.read_bytes().decode() if path.exists() else None
    except UnicodeDecodeError:
        raise EditRefused(f"{name} is not UTF-8 text.") from None
    except (OSError, ValueError) as error:
        raise EditRefused(f"{name} cannot be read: {error}.") from None
    relative = path.relative_to(root).as_posix()
    if before is None:
        after = "Line 1, written by the mock.\n"
        return Edit(path, None, after, "", after, unified_diff(relative, None, after))
    end = "\r\n" if "\r\n" in before else "\n"
    count = len(lines_of(before)) + 1
    glue = "" if not before or before.endswith("\n") else end
    added = f"{glue}Line {count}, written by the mock.{end}"
    old = _tail(before)
    return Edit(path, before, before + added, old, old + added, unified_diff(relative, before, before + added))


def _tail(content: str) -> str:
    """The shortest run of last lines that occurs only once: what an editing tool asks for."""
    lines = lines_of(content)
    for start in range(len(lines) - 1, -1, -1):
        tail = "".join(lines[start:])
        if content.find(tail) == content.rfind(tail):
            return tail
    return content


def apply(edit: Edit) -> None:
    """Make the change. Raises Refused when the file is not what it was, or cannot be written."""
    try:
        now = edit.path.read_bytes().decode(errors="replace") if edit.path.exists() else None
        if now != edit.before:
            raise EditRefused(f"{edit.path.name} has changed since it was read.")
        edit.path.parent.mkdir(parents=True, exist_ok=True)
        edit.path.write_bytes(edit.after.encode())
    except OSError as error:
        raise EditRefused(f"{edit.path.name} cannot be written: {error.strerror}.") from None
