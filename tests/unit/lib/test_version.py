"""Which build this is, from the package's own file or from the checkout."""

from __future__ import annotations

import json
import subprocess
from datetime import date
from pathlib import Path

import pytest

from shim.lib.version import Build, Release, read_build

COMMIT = "0123456789abcdef0123456789abcdef01234567"
ABSENT = Path("absent")


def test_a_built_package_names_its_commit_and_its_releases(tmp_path: Path) -> None:
    file = tmp_path / "build.json"
    file.write_text(json.dumps({"commit": COMMIT, "modified": True, "releases": [{"version": "1.2.3", "date": "2026-10-01"}]}))
    build = read_build("1.2.3", file, tmp_path)
    assert build == Build("1.2.3", COMMIT, True, (Release("1.2.3", date(2026, 10, 1)),))
    assert str(build) == "1.2.3 (012345678, modified)"
    assert build.age_days(date(2026, 10, 31)) == 30


def git(folder: Path, *words: str) -> str:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "init.defaultBranch=main")
    return subprocess.run(["git", *identity, *words], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


@pytest.mark.parametrize("state", ["branch", "packed", "detached", "worktree"])
def test_a_checkout_names_its_commit(tmp_path: Path, state: str) -> None:
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    git(checkout, "init", "--quiet")
    git(checkout, "commit", "--quiet", "--allow-empty", "--message", "first")
    if state == "packed":
        git(checkout, "pack-refs", "--all")
    elif state == "detached":
        git(checkout, "checkout", "--quiet", "--detach")
    elif state == "worktree":
        git(checkout, "worktree", "add", "--quiet", "-b", "other", str(tmp_path / "other"))
        checkout = tmp_path / "other"
    assert read_build("1.2.3", ABSENT, checkout).commit == git(checkout, "rev-parse", "HEAD")


def test_without_a_repository_only_the_version_is_shown(tmp_path: Path) -> None:
    build = read_build("1.2.3", ABSENT, tmp_path)
    assert str(build) == "1.2.3"
    assert build.age_days(date(2026, 10, 31)) is None
