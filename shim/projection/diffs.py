"""Unified diffs: counting and putting together. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Literal

PATCH_LIMIT_CHARS = 2**18
"""Of one file. Longer ones are counted but not shown: they are kept in the journal, and sent to all clients."""


@dataclass(frozen=True, slots=True)
class FileChange:
    """One change of one file in a turn; `path` absolute, `diff` unified."""

    path: str
    diff: str
    created: bool


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


def file_diff(name: str, patch: str, additions: int, deletions: int, status: str) -> dict[str, Any]:
    """`SnapshotFileDiff` of one file, in native's form, from git's patch of it (a binary file has none; found by trying)."""
    binary = bool(re.search(r"^(Binary files .* differ|GIT binary patch)$", patch, re.MULTILINE))
    body = _HUNK.sub(lambda m: f"@@ -{m[1]}{m[2] or ',1'} +{m[3]}{m[4] or ',1'} @@", hunks(patch))
    shown = "" if binary or len(patch) > PATCH_LIMIT_CHARS else f"Index: {name}\n{'=' * 67}\n--- {name}\t\n+++ {name}\t\n{body}"
    return {"file": name, "patch": shown, "additions": additions, "deletions": deletions, "status": status}


def turn_diff(changes: list[FileChange], base: str) -> list[dict[str, Any]]:
    """`SnapshotFileDiff[]` of a turn: one entry per file, in order of its first change.

    Several edits of one file are joined hunk after hunk: each is true for the moment at which it was made.
    """
    grouped: dict[str, list[FileChange]] = {}
    for change in changes:
        grouped.setdefault(change.path, []).append(change)
    out: list[dict[str, Any]] = []
    for path, group in grouped.items():
        name = relative(path, base)
        body = "".join(h if (h := hunks(c.diff)).endswith("\n") or not h else h + "\n" for c in group)
        added, removed = count(body)
        status: Literal["added", "modified"] = "added" if group[0].created else "modified"
        patch = f"Index: {name}\n{'=' * 67}\n--- {name}\t\n+++ {name}\t\n{body}"
        out.append({"file": name, "patch": patch, "additions": added, "deletions": removed, "status": status})
    return out
