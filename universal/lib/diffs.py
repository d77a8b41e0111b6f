"""Makes, counts and joins unified diffs. Pure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from universal.lib.jsonvalue import text, whole
from universal.lib.paths import relative

PATCH_LIMIT_CHARS = 2**18
"""Maximum patch of one file. A longer one is counted but left out, since the journal keeps patches and all clients get them."""


@dataclass(frozen=True, slots=True)
class FileChange:
    """One change of one file in a turn; `path` absolute, `diff` unified."""

    path: str
    diff: str
    created: bool


@dataclass(frozen=True, slots=True)
class FileDiff:
    """The change of one file: its name relative to the directory, a unified diff, lines added and removed.

    status  "added", "modified" or "deleted"; "" if an imported diff does not say
    extra   fields of an imported diff that this class does not have
    """

    file: str
    patch: str
    additions: int
    deletions: int
    status: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def to_json(self) -> dict[str, Any]:
        """Return the form of the journal and of OpenCode's wire (`SnapshotFileDiff`)."""
        value_json = {
            "file": self.file,
            "patch": self.patch,
            "additions": self.additions,
            "deletions": self.deletions,
            **self.extra,
        }
        if not self.patch and "before" in self.extra:
            del value_json["patch"]
        return {**value_json, "status": self.status} if self.status else value_json

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> FileDiff:
        extra = {k: v for k, v in value.items() if k not in ("file", "patch", "additions", "deletions", "status")}
        counts = whole(value.get("additions")), whole(value.get("deletions"))
        return cls(text(value.get("file")), text(value.get("patch")), *counts, text(value.get("status")), extra)


def unified_diff(path: str, before: str, after: str, *, created: bool = False) -> str:
    """Return a unified diff of two texts, or "" if they are equal. `created`: the file is new."""
    lines = difflib.unified_diff(lines_of(before), lines_of(after), "/dev/null" if created else path, path, n=3)
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def text_before(after: str, diff: str) -> str | None:
    """Return the text that a unified diff was made from, by the text that it leads to. None if the diff does not fit it."""
    lines, out, at, kind = lines_of(after), list[str](), 0, ""
    for head in _HUNK.finditer(diff):
        start = int(head[3]) - (0 if head[4] == ",0" else 1)
        if start < at:
            return None
        out += lines[at:start]
        at, following = start, _HUNK.search(diff, head.end())
        for line in lines_of(diff[head.end() + 1 : following.start() if following else len(diff)]):
            if line[0] == "\\":
                out[-1:] = [out[-1].removesuffix("\n")] if kind == "-" else out[-1:]
                continue
            kind = line[0].strip() or " "
            if kind != "-":
                if at >= len(lines) or lines[at].removesuffix("\n") != line[1:].removesuffix("\n"):
                    return None
                at += 1
            if kind != "+":
                out.append(line[1:] if kind == "-" else lines[at - 1])
    return "".join((*out, *lines[at:]))


def patch_sides(patch: str) -> tuple[str, str]:
    """Return the texts before and after the hunks of a patch. Lines of its head are left out."""
    lines = [line for line in lines_of(patch) if not line.startswith(("--- ", "+++ ", "@@", "\\"))]
    old, new = ("".join(line[1:] for line in lines if line[:1] in (" ", sign)) for sign in "-+")
    return old, new


def lines_of(text: str) -> list[str]:
    """Split a text into lines that keep their newlines. `splitlines` would break at U+2028 and form feeds too."""
    return [line for line in re.split(r"(?<=\n)", text) if line]


def count(diff: str) -> tuple[int, int]:
    """Return (additions, deletions) of a unified diff. Its `---`/`+++` header lines do not count."""
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
    """Return the diff from its first hunk on."""
    start = diff.find("@@")
    return diff[start:] if start >= 0 else ""


def with_index_header(path: str, diff: str) -> str:
    """Return a diff in the form of OpenCode's tools: an `Index:` line, a rule, file headers, hunks. Source: recordings."""
    body = hunks(diff)
    if body and not body.endswith("\n"):
        body += "\n"
    return f"Index: {path}\n{'=' * 67}\n--- {path}\n+++ {path}\n{body}"


_HUNK = re.compile(r"^@@ -(\d+)(,\d+)? \+(\d+)(,\d+)? @@.*$", re.MULTILINE)


def file_diff(name: str, patch: str, additions: int, deletions: int, status: str) -> FileDiff:
    """Return the diff of one file in OpenCode's form, from git's patch. As in OpenCode 1.18.33, a binary file has no patch."""
    binary = bool(re.search(r"^(Binary files .* differ|GIT binary patch)$", patch, re.MULTILINE))
    body = _HUNK.sub(lambda m: f"@@ -{m[1]}{m[2] or ',1'} +{m[3]}{m[4] or ',1'} @@", hunks(patch))
    diff = "" if binary or len(patch) > PATCH_LIMIT_CHARS else f"Index: {name}\n{'=' * 67}\n--- {name}\t\n+++ {name}\t\n{body}"
    return FileDiff(name, diff, additions, deletions, status)


def turn_diff(changes: list[FileChange], base: str) -> tuple[FileDiff, ...]:
    """Return the diffs of a turn, one for each file, in the order of their first changes.

    Hunks of several edits of a file are joined in order. Line numbers of each hunk are those at the time of its edit.
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
