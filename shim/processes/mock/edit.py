"""Changes files for the mock's scene `edit`, its only real effect. Blocks, so run it in a thread."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from pathlib import Path

MAX_BYTES = 1 << 20
"""Maximum size of a file that the mock edits."""


class EditRefused(Exception):
    """The mock does not change this file. The text says why."""


@dataclass(frozen=True, slots=True)
class Edit:
    """A prepared change. `before` is None for a new file. `old` occurs exactly once, and `new` replaces it."""

    path: Path
    before: str | None
    after: str
    old: str
    new: str
    diff: str


def lines_of(content: str) -> list[str]:
    """Split text into lines that keep their `\\n`. Other line separators of Unicode do not end a line."""
    return re.findall(r"[^\n]*\n|[^\n]+", content)


def unified_diff(name: str, before: str | None, after: str) -> str:
    """Return a unified diff for `git apply` and `patch`. `before` is None for a new file."""
    source = "/dev/null" if before is None else f"a/{name}"
    diff = difflib.unified_diff(lines_of(before or ""), lines_of(after), source, f"b/{name}")
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in diff)


def prepare(directory: Path, name: str) -> Edit:
    """Prepare one more line for a file, or a new file of one line. Changes nothing. Raises EditRefused."""
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
    """Return the shortest run of last lines that occurs only once, as an editing tool needs it."""
    lines = lines_of(content)
    for start in range(len(lines) - 1, -1, -1):
        tail = "".join(lines[start:])
        if content.find(tail) == content.rfind(tail):
            return tail
    return content


def apply(edit: Edit) -> None:
    """Make the change. Raises EditRefused if the file has changed since `prepare` or cannot be written."""
    try:
        now = edit.path.read_bytes().decode(errors="replace") if edit.path.exists() else None
        if now != edit.before:
            raise EditRefused(f"{edit.path.name} has changed since it was read.")
        edit.path.parent.mkdir(parents=True, exist_ok=True)
        edit.path.write_bytes(edit.after.encode())
    except OSError as error:
        raise EditRefused(f"{edit.path.name} cannot be written: {error.strerror}.") from None
