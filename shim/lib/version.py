"""Reads the version and commit of this opencode-shim, and the releases in its changelog.

A built package has `build.json` (written by `hatch_build.py`). In a checkout, it reads the commit from `.git`, without git.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import date
from functools import cache
from importlib import metadata
from pathlib import Path

from universal.lib.jsonvalue import arr, obj, text

PACKAGE = "opencode-shim"
BUILD_FILE = Path(__file__).resolve().parents[1] / "build.json"
CHECKOUT = Path(__file__).resolve().parents[2]
COMMIT = re.compile(r"[0-9a-f]{40,64}")
COMMIT_CHARS = 9
"""Number of characters of a commit that are shown."""
OLD_AFTER_DAYS = 180
"""Age in days from which the server suggests to look for a newer release."""


@dataclass(frozen=True, slots=True)
class Release:
    """A released version and its date."""

    version: str
    day: date


@dataclass(frozen=True, slots=True)
class Build:
    """The running build. `commit` is "" if unknown; `modified`: files differed from the commit at build time."""

    version: str
    commit: str = ""
    modified: bool = False
    releases: tuple[Release, ...] = ()

    def __str__(self) -> str:
        changed = ", modified" if self.modified else ""
        return f"{self.version} ({self.commit[:COMMIT_CHARS]}{changed})" if self.commit else self.version

    def age_days(self, today: date) -> int | None:
        """Return the days since this version's release; None if the changelog has no date."""
        days = [release.day for release in self.releases if release.version == self.version]
        return (today - days[0]).days if days else None


@cache
def build() -> Build:
    """Return the build of this process."""
    return read_build(metadata.version(PACKAGE), BUILD_FILE, CHECKOUT)


def read_build(version: str, file: Path, checkout: Path) -> Build:
    """Read the build from `file`; without the file, from the checkout's `.git`."""
    try:
        info = obj(json.loads(file.read_text("utf-8")))
    except (OSError, ValueError):
        return Build(version, _head_commit(checkout))
    releases = tuple(
        Release(text(entry.get("version")), date.fromisoformat(text(entry.get("date"))))
        for entry in map(obj, arr(info.get("releases")))
    )
    return Build(version, text(info.get("commit")), info.get("modified") is True, releases)


def _head_commit(checkout: Path) -> str:
    """Return the commit of HEAD, "" outside of a repository. A worktree's `.git` is a file that names its folder."""
    try:
        git = checkout / ".git"
        if git.is_file():
            git = checkout / git.read_text().removeprefix("gitdir:").strip()
        head = (git / "HEAD").read_text().strip()
        if COMMIT.fullmatch(head):
            return head
        name = head.removeprefix("ref:").strip()
        common = git / (git / "commondir").read_text().strip() if (git / "commondir").exists() else git
        for folder in (git, common):
            if (folder / name).is_file():
                return (folder / name).read_text().strip()
        lines = (common / "packed-refs").read_text().splitlines()
        return next((line.split()[0] for line in lines if line.endswith(f" {name}")), "")
    except OSError:
        return ""
