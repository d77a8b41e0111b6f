"""Unified diffs: counting and putting together. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from universal.jsonvalue import text, whole

PATCH_LIMIT_CHARS = 2**18
"""Of one file. Longer ones are counted but not shown: they are kept in the journal, and sent to all clients."""


@dataclass(frozen=True, slots=True)
class FileChange:
    """One change of one file in a turn; `path` absolute, `diff` unified."""

    path: str
    diff: str
    created: bool


@dataclass(frozen=True, slots=True)
class FileDiff:
    """What became of one file: its name relative to the directory, a unified diff, lines added and removed.

    status  "added", "modified" or "deleted"; "" where an imported diff does not say
    extra   fields of an imported diff that have no place of their own
    """

    file: str
    patch: str
    additions: int
    deletions: int
    status: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def to_json(self) -> dict[str, Any]:
        """As in the journal, and on OpenCode's wire (`SnapshotFileDiff`)."""
        made = {"file": self.file, "patch": self.patch, "additions": self.additions, "deletions": self.deletions, **self.extra}
        if not self.patch and "before" in self.extra:
            del made["patch"]
        return {**made, "status": self.status} if self.status else made

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> FileDiff:
        """Read `to_json` back."""
        extra = {k: v for k, v in value.items() if k not in ("file", "patch", "additions", "deletions", "status")}
        counts = whole(value.get("additions")), whole(value.get("deletions"))
        return cls(text(value.get("file")), text(value.get("patch")), *counts, text(value.get("status")), extra)


def count(diff: str) -> tuple[int, int]:
    """(additions, deletions) of a unified diff; its `---`/`+++` header lines do not count."""
    added = removed = 0
    in_hunk = False
    for line in diff.splitlines():
        if line.startswith("@@"):
            in_hunk = True
        elif in_hunk and line.startswith("+"):
            added += 1
        elif in_hunk and line.startswith("-"):
            removed += 1
    return added, removed


def hunks(diff: str) -> str:
    """The diff from its first hunk on."""
    start = diff.find("@@")
    return diff[start:] if start >= 0 else ""


def indexed(path: str, diff: str) -> str:
    """The form OpenCode's tools give: an `Index:` line, a rule, file headers, hunks (checked against recordings)."""
    body = hunks(diff)
    if body and not body.endswith("\n"):
        body += "\n"
    return f"Index: {path}\n{'=' * 67}\n--- {path}\n+++ {path}\n{body}"


def relative(path: str, base: str) -> str:
    """`path` relative to `base` when it lies below it, else as it is."""
    try:
        return str(PurePosixPath(path).relative_to(base))
    except ValueError:
        return path


_HUNK = re.compile(r"^@@ -(\d+)(,\d+)? \+(\d+)(,\d+)? @@.*$", re.MULTILINE)


def file_diff(name: str, patch: str, additions: int, deletions: int, status: str) -> FileDiff:
    """The diff of one file, in native OpenCode's form, from git's patch of it (a binary file has none; found by trying)."""
    binary = bool(re.search(r"^(Binary files .* differ|GIT binary patch)$", patch, re.MULTILINE))
    body = _HUNK.sub(lambda m: f"@@ -{m[1]}{m[2] or ',1'} +{m[3]}{m[4] or ',1'} @@", hunks(patch))
    shown = "" if binary or len(patch) > PATCH_LIMIT_CHARS else f"Index: {name}\n{'=' * 67}\n--- {name}\t\n+++ {name}\t\n{body}"
    return FileDiff(name, shown, additions, deletions, status)


def turn_diff(changes: list[FileChange], base: str) -> tuple[FileDiff, ...]:
    """The diffs of a turn: one for each file, in order of its first change.

    Several edits of one file are joined hunk after hunk: each is true for the moment at which it was made.
    """
    grouped: dict[str, list[FileChange]] = {}
    for change in changes:
        grouped.setdefault(change.path, []).append(change)
    out: list[FileDiff] = []
    for path, group in grouped.items():
        name = relative(path, base)
        body = "".join(h if (h := hunks(c.diff)).endswith("\n") or not h else h + "\n" for c in group)
        added, removed = count(body)
        status = "added" if group[0].created else "modified"
        patch = f"Index: {name}\n{'=' * 67}\n--- {name}\t\n+++ {name}\t\n{body}"
        out.append(FileDiff(name, patch, added, removed, status))
    return tuple(out)
