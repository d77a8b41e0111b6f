"""Branch and changes. The repositories are real, and so is git."""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from shim.host.git import vcs
from tests.http.conftest import Place, git, repository

ANSWER_LIMIT_S = 10.0
"""For one request whose git command is stopped after a fraction of a second."""


def rows(body: list[dict[str, Any]]) -> list[tuple[str, int, int, str]]:
    return [(row["file"], row["additions"], row["deletions"], row["status"]) for row in body]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository with every kind of change."""
    place = repository(
        tmp_path / "project",
        {"README.md": "Hello\n", "gone.txt": "x\n", "src/a.py": "a = 1\n", "src/é.txt": "1\n", ".gitignore": "*.log\n"},
    )
    (place / "README.md").write_text("Hello\nmore")
    (place / "gone.txt").unlink()
    git(place, "mv", "src/a.py", "src/b.py")
    (place / "src/é.txt").write_text("2\n")
    (place / "new file").write_text("1\n2\n3")
    (place / "empty").touch()
    (place / "data.bin").write_bytes(b"\0\1")
    (place / "link").symlink_to("README.md")
    (place / "run").write_text("#!/bin/sh\n")
    (place / "run").chmod(0o755)
    (place / "a.log").write_text("ignored\n")
    os.mkfifo(place / "pipe")
    return place


CHANGES = [
    ("data.bin", 0, 0, "added"),
    ("empty", 0, 0, "added"),
    ("gone.txt", 0, 1, "deleted"),
    ("link", 1, 0, "added"),
    ("new file", 3, 0, "added"),
    ("README.md", 1, 0, "modified"),
    ("run", 1, 0, "added"),
    ("src/a.py", 0, 1, "deleted"),
    ("src/b.py", 1, 0, "added"),
    ("src/é.txt", 1, 1, "modified"),
]


async def test_status(place: Place) -> None:
    assert rows((await place.api.get("/vcs/status", status=200)).body) == CHANGES


async def test_diff(place: Place) -> None:
    body = (await place.api.get("/vcs/diff", params={"mode": "git"}, status=200)).body
    assert rows(body) == CHANGES
    patches = {row["file"]: row["patch"] for row in body}
    assert patches["README.md"].endswith("@@ -1 +1,2 @@\n Hello\n+more\n\\ No newline at end of file\n")
    assert patches["new file"].endswith("@@ -0,0 +1,3 @@\n+1\n+2\n+3\n\\ No newline at end of file\n")
    assert patches["data.bin"].endswith("Binary files /dev/null and b/data.bin differ\n")
    assert "new file mode 100755" in patches["run"] and "new file mode 120000" in patches["link"]
    assert "-1\n+2\n" in patches["src/é.txt"]


async def test_raw_diff_applies(place: Place, tmp_path: Path) -> None:
    """Text files, links and deletions; git itself says whether the patch is one."""
    (place.project / "data.bin").unlink()
    answer = await place.api.get("/vcs/diff/raw", status=200)
    assert answer.headers["Content-Type"] == "text/x-diff; charset=utf-8"
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", str(place.project), str(clone))
    subprocess.run(["git", "apply", "-"], cwd=clone, input=answer.body, text=True, check=True)
    for name in ("README.md", "new file", "src/b.py", "src/é.txt"):
        assert (clone / name).read_bytes() == (place.project / name).read_bytes()
    assert not (clone / "gone.txt").exists() and (clone / "link").is_symlink() and os.access(clone / "run", os.X_OK)


async def test_touched_is_not_changed(place: Place) -> None:
    """Neither texts nor binary files, whose line counts could not tell."""
    git(place.project, "add", "-A")
    git(place.project, "commit", "-q", "-m", "all")
    for name in ("README.md", "data.bin"):
        os.utime(place.project / name, (1_000_000_000, 1_000_000_000))
    assert (await place.api.get("/vcs/status", status=200)).body == []
    assert (await place.api.get("/vcs/diff", params={"mode": "git"}, status=200)).body == []


async def test_context(place: Place) -> None:
    (place.project / "README.md").write_text("0\nHello\n1\n")
    body = (await place.api.get("/vcs/diff", params={"mode": "git", "context": "0"}, status=200)).body
    patch = next(row["patch"] for row in body if row["file"] == "README.md")
    assert "\n Hello" not in patch


async def test_status_covers_only_the_directory(place: Place) -> None:
    """Paths stay those of the repository for git's routes; for `/file/status` they are the directory's."""
    params = {"directory": f"{place.directory}/src"}
    assert [row[0] for row in rows((await place.api.get("/vcs/status", params=params, status=200)).body)] == [
        "src/a.py",
        "src/b.py",
        "src/é.txt",
    ]
    body = (await place.api.get("/file/status", params=params, status=200)).body
    assert body[0] == {"path": "a.py", "added": 0, "removed": 1, "status": "deleted"}


async def test_branches(place: Place) -> None:
    assert (await place.api.get("/vcs", status=200)).body == {"branch": "main", "default_branch": "main"}
    git(place.project, "checkout", "-q", "-b", "feature/x")
    assert (await place.api.get("/vcs", status=200)).body == {"branch": "feature/x", "default_branch": "main"}
    git(place.project, "checkout", "-q", "--detach")
    assert (await place.api.get("/vcs", status=200)).body == {"default_branch": "main"}


async def test_default_branch_of_the_remote(place: Place, tmp_path: Path) -> None:
    git(place.project, "branch", "-m", "trunk")
    assert (await place.api.get("/vcs", status=200)).body == {"branch": "trunk"}
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", str(place.project), str(clone))
    git(clone, "checkout", "-q", "-b", "mine")
    answer = await place.api.get("/vcs", params={"directory": str(clone)}, status=200)
    assert answer.body == {"branch": "mine", "default_branch": "trunk"}


async def test_diff_of_a_branch(place: Place) -> None:
    """Since it left the default one: its commits, and what is not committed yet."""
    params = {"mode": "branch"}
    assert (await place.api.get("/vcs/diff", params=params, status=200)).body == []
    git(place.project, "checkout", "-q", "-b", "feature")
    git(place.project, "add", "new file")
    git(place.project, "commit", "-q", "-m", "two")
    found = rows((await place.api.get("/vcs/diff", params=params, status=200)).body)
    assert ("new file", 3, 0, "added") in found and ("README.md", 1, 0, "modified") in found
    assert "new file" not in [row[0] for row in rows((await place.api.get("/vcs/status", status=200)).body)]


@pytest.mark.parametrize("path", ["/file/status", "/vcs/status", "/vcs/diff?mode=git", "/vcs/diff/raw"])
async def test_a_fifo_as_gitignore_is_an_error_that_says_what_to_do(
    place: Place, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setattr(vcs, "LOOK_LIMIT_S", 0.2)
    (place.project / ".gitignore").unlink()
    os.mkfifo(place.project / ".gitignore")
    answer = await asyncio.wait_for(place.api.get(path, status=400), ANSWER_LIMIT_S)
    assert "FIFO" in answer.body["data"]["message"] and str(place.project) in answer.body["data"]["message"]


async def test_a_folder_is_listed_beside_a_fifo_as_gitignore(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vcs, "LOOK_LIMIT_S", 0.2)
    (place.project / ".gitignore").unlink()
    os.mkfifo(place.project / ".gitignore")
    answer = await asyncio.wait_for(place.api.get("/file?path=.", status=200), ANSWER_LIMIT_S)
    assert {"README.md", "a.log"} <= {row["name"] for row in answer.body}
    assert not any(row["ignored"] for row in answer.body)


async def test_unborn_branch(place: Place) -> None:
    git(place.home, "init", "-q", "-b", "trunk")
    (place.home / "staged").write_text("1\n")
    git(place.home, "add", "staged")
    (place.home / "new").write_text("1\n")
    params = {"directory": str(place.home)}
    assert (await place.api.get("/vcs", params=params, status=200)).body == {"branch": "trunk"}
    assert rows((await place.api.get("/vcs/status", params=params, status=200)).body) == [
        ("new", 1, 0, "added"),
        ("staged", 1, 0, "added"),
    ]


async def test_merge_conflict(place: Place) -> None:
    git(place.project, "checkout", "-q", "-f", ".")
    git(place.project, "checkout", "-q", "-b", "other")
    (place.project / "README.md").write_text("other\n")
    git(place.project, "commit", "-q", "-a", "-m", "other")
    git(place.project, "checkout", "-q", "main")
    (place.project / "README.md").write_text("main\n")
    git(place.project, "commit", "-q", "-a", "-m", "main")
    with pytest.raises(subprocess.CalledProcessError):
        git(place.project, "merge", "other")
    found = rows((await place.api.get("/vcs/status", status=200)).body)
    assert ("README.md", 4, 0, "modified") in found


async def test_a_repository_cannot_run_programs(place: Place) -> None:
    """Settings of a repository that someone else made."""
    proof = place.home / "ran"
    command = f"touch {proof}"
    (place.project / ".gitattributes").write_text("* diff=evil filter=evil\n")
    for key in ("core.fsmonitor", "diff.external", "diff.evil.command", "diff.evil.textconv", "core.pager"):
        git(place.project, "config", key, command)
    (place.project / "README.md").write_text("touched, so that git reads it\n")
    for path in ("/vcs", "/vcs/status", "/vcs/diff?mode=git", "/vcs/diff/raw", "/file?path=."):
        await place.api.get(path, status=200)
    assert not proof.exists()


@pytest.mark.parametrize("kind", ["clean", "process"])
@pytest.mark.parametrize("name", ["evil", "a=b", "filter.x.clean"])
async def test_a_repository_cannot_run_filters(place: Place, kind: str, name: str) -> None:
    """A filter is run when git compares a file that was touched. It may be named so that `-c` would take it for another one."""
    proof = place.home / "ran"
    (place.project / ".gitattributes").write_text(f"* filter={name}\n")
    git(place.project, "config", f"filter.{name}.{kind}", f"touch {proof}; cat")
    git(place.project, "config", f"filter.{name}.required", "true")
    (place.project / "README.md").write_text("touched\n")
    found = rows((await place.api.get("/vcs/status", status=200)).body)
    assert "README.md" in {row[0] for row in found}
    for path in ("/vcs/diff?mode=git", "/vcs/diff/raw", "/file/status"):
        await place.api.get(path, status=200)
    await place.api.post("/vcs/apply", {"patch": "--- /dev/null\n+++ b/new\n@@ -0,0 +1 @@\n+x\n"}, status=200)
    assert not proof.exists()


async def test_filters_of_the_person_run(place: Place) -> None:
    """As those of LFS: git compares what they make of a file."""
    (place.project / ".gitattributes").write_text("*.up filter=up\n")
    settings = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "filter.up.clean", "GIT_CONFIG_VALUE_0": "tr a-z A-Z"}
    (place.project / "x.up").write_text("text\n")
    with pytest.MonkeyPatch.context() as patch:
        for key, value in settings.items():
            patch.setenv(key, value)
        git(place.project, "add", ".")
        git(place.project, "config", "filter.other.clean", "false")
        (place.project / "x.up").write_text("changed\n")
        assert "+CHANGED" in (await place.api.get("/vcs/diff/raw", status=200)).body


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({}, 'Missing key\n  at ["mode"]'),
        ({"mode": "x"}, 'Expected "git" | "branch", got "x"\n  at ["mode"]'),
        ({"mode": "git", "context": "-1"}, 'Expected a value greater than or equal to 0, got -1\n  at ["context"]'),
    ],
)
async def test_bad_queries(place: Place, params: dict[str, str], message: str) -> None:
    answer = await place.api.get("/vcs/diff", params=params, status=400)
    assert answer.body["data"] == {"message": message, "kind": "Query"}
