"""Each way that we know for a repository to have git run a program of its choice: it runs with plain git, and never with ours."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from shim.host.git.snapshot import Snapshots
from shim.lib.clock import ManualClock
from tests.http.conftest import GIT_ENVIRONMENT, Place, git

WAIT_S = 20.0
HOOKS = ("post-checkout", "post-index-change", "reference-transaction", "pre-auto-gc", "post-rewrite", "fsmonitor-watchman")
COMMANDS = (
    *("apply", "branch", "cat-file", "check-ignore", "clean", "config", "diff", "for-each-ref", "gc", "hash-object", "init"),
    *("ls-files", "merge-base", "reset", "rev-list", "rev-parse", "show-ref", "status", "symbolic-ref", "worktree"),
)
PATCH = "--- /dev/null\n+++ b/new\n@@ -0,0 +1 @@\n+x\n"


@dataclass(frozen=True, slots=True)
class Repository:
    """A project, and a program that leaves a mark when it runs."""

    project: Path
    evil: Path
    mark: Path

    def set(self, name: str, value: str) -> None:
        git(self.project, "config", "--local", name, value)

    def attributes(self, text: str) -> None:
        (self.project / ".git" / "info").mkdir(exist_ok=True)
        (self.project / ".git" / "info" / "attributes").write_text(text)


Plant = Callable[[Repository], None]


def setting(*names: str, value: str = "{evil}", attributes: str = "") -> Plant:
    def plant(repository: Repository) -> None:
        for name in names:
            repository.set(name, value.format(evil=repository.evil))
        if attributes:
            repository.attributes(attributes)

    return plant


def hooks(repository: Repository, folder: Path | None = None) -> None:
    folder = folder or repository.project / ".git" / "hooks"
    folder.mkdir(exist_ok=True)
    for name in HOOKS:
        (folder / name).write_text(repository.evil.read_text())
        (folder / name).chmod(0o755)


def hooks_path(repository: Repository) -> None:
    hooks(repository, repository.project.parent / "hooks")
    repository.set("core.hooksPath", str(repository.project.parent / "hooks"))


def include_filter(key: str) -> Plant:
    def plant(repository: Repository) -> None:
        file = repository.project.parent / "included"
        git(repository.project.parent, "config", "--file", str(file), "filter.x.clean", str(repository.evil))
        repository.set(key.format(project=repository.project), str(file))
        repository.attributes("* filter=x\n")

    return plant


def worktree_settings(repository: Repository) -> None:
    repository.set("extensions.worktreeConfig", "true")
    git(repository.project, "config", "--worktree", "filter.x.clean", str(repository.evil))
    repository.attributes("* filter=x\n")


def remote(**settings: str) -> Plant:
    """A promisor remote, and an object that is not there: git fetches it when it is looked at."""

    def plant(repository: Repository) -> None:
        repository.set("core.repositoryFormatVersion", "1")
        repository.set("extensions.partialClone", "origin")
        repository.set("remote.origin.promisor", "true")
        repository.set("remote.origin.url", str(repository.project.parent / "nowhere"))
        for name, value in settings.items():
            repository.set(name.replace("__", "."), value.format(evil=repository.evil))
        git(repository.project, "update-ref", "refs/remotes/origin/main", "HEAD")
        for name in ("README.md", "notes.txt"):
            blob = git(repository.project, "rev-parse", f"HEAD:{name}")
            (repository.project / ".git" / "objects" / blob[:2] / blob[2:]).unlink()

    return plant


def aliases(repository: Repository) -> None:
    for command in COMMANDS:
        repository.set(f"alias.{command}", f"!{repository.evil}")


def named_hooks(repository: Repository) -> None:
    for event in HOOKS:
        repository.set("hook.x.event", event)
    repository.set("hook.x.command", str(repository.evil))


def gpg(repository: Repository) -> None:
    for name in ("gpg.program", "gpg.ssh.program", "gpg.x509.program"):
        repository.set(name, str(repository.evil))
    for name in ("commit.gpgSign", "tag.gpgSign", "log.showSignature", "merge.verifySignatures"):
        repository.set(name, "true")


FILTER = "* filter=x\n"
DRIVER = "* diff=x merge=x\n"
VECTORS: dict[str, tuple[Plant, tuple[str, ...]]] = {
    "core.fsmonitor": (setting("core.fsmonitor"), ("status",)),
    "hooks": (hooks, ("checkout", "-q", "--detach")),
    "core.hooksPath": (hooks_path, ("checkout", "-q", "--detach")),
    "hook.NAME.command": (named_hooks, ()),
    "filter.clean": (setting("filter.x.clean", attributes=FILTER), ("diff",)),
    "filter.smudge": (setting("filter.x.smudge", attributes=FILTER), ("checkout", "-f", "README.md")),
    "filter.process": (setting("filter.x.process", attributes=FILTER), ("diff",)),
    "a filter with = in its name": (setting("filter.a=b.clean", attributes="* filter=a=b\n"), ("diff",)),
    "include.path": (include_filter("include.path"), ("diff",)),
    "includeIf": (include_filter("includeIf.gitdir:{project}/.path"), ("diff",)),
    "config.worktree": (worktree_settings, ("diff",)),
    "diff.external": (setting("diff.external"), ("diff",)),
    "diff.NAME.command": (setting("diff.x.command", attributes=DRIVER), ("diff",)),
    "diff.NAME.textconv": (setting("diff.x.textconv", attributes=DRIVER), ("diff",)),
    "merge.NAME.driver": (setting("merge.x.driver", attributes=DRIVER), ()),
    "pagers": (setting("core.pager", "pager.diff", "pager.config", "pager.branch"), ()),
    "editors": (setting("core.editor", "sequence.editor"), ("commit", "--allow-empty")),
    "core.askPass": (setting("core.askPass"), ("credential", "fill")),
    "credential.helper": (setting("credential.helper"), ("credential", "fill")),
    "gpg.program": (gpg, ("commit", "--allow-empty", "-m", "x")),
    "aliases": (aliases, ()),
    "remote.NAME.uploadpack": (remote(remote__origin__uploadpack="{evil}", remote__origin__url="."), ("fetch",)),
    "core.sshCommand": (remote(remote__origin__url="ssh://127.0.0.1:1/x", core__sshCommand="{evil}"), ("fetch",)),
    "core.gitProxy": (remote(remote__origin__url="git://127.0.0.1:1/x", core__gitProxy="{evil}"), ("fetch",)),
    "ext::": (remote(remote__origin__url="ext::{evil}", protocol__ext__allow="always", protocol__allow="always"), ("fetch",)),
    "a remote helper": (remote(remote__origin__vcs="evil", protocol__evil__allow="always"), ("fetch",)),
}
"""Vector -> how it is planted, and the command of plain git that runs it (none if only a terminal or a newer git does)."""


@pytest.fixture
def evil_repository(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    """The project with a changed file. `git-remote-evil` is on PATH."""
    mark = tmp_path / "ran"
    tools = tmp_path / "tools"
    tools.mkdir()
    evil = tools / "git-remote-evil"
    evil.write_text(f"#!/bin/sh\necho ran >> {mark}\nexit 1\n")
    evil.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    (place.project / "README.md").write_text("changed\n")
    return Repository(place.project, evil, mark)


async def use_everything(place: Place, tmp_path: Path) -> None:
    """Each operation of ours that runs git in a repository. A repository that is broken may be refused, with a reason."""

    async def ask(method: str, path: str, **options: Any) -> Any:
        answer = await place.api.request(method, path, **options)
        assert answer.status < 500, (path, answer.status, answer.body)
        return answer.body if answer.status == 200 else {}

    for path in (
        "/project/current",
        "/vcs",
        "/vcs/status",
        "/vcs/diff?mode=git",
        "/vcs/diff/raw",
        "/file?path=.",
        "/file/status",
    ):
        await ask("GET", path)
    for path in ("/vcs/diff?mode=branch", "/api/vcs", "/api/vcs/status", "/api/vcs/diff", "/api/vcs/base", "/api/vcs/branch"):
        await ask("GET", path)
    await ask("POST", "/vcs/apply", json={"patch": PATCH})
    made = await ask("POST", "/experimental/worktree", json={})
    await place.services.worktrees.settle()
    if made:
        await ask("POST", "/experimental/worktree/reset", json={"directory": made["directory"]})
        await ask("DELETE", "/experimental/worktree", json={"directory": made["directory"]})
    project = (await ask("GET", "/project/current"))["id"]
    copies = f"/experimental/project/{project}/copy"
    body = {"strategy": "git_worktree", "directory": str(place.home), "name": "copy"}
    if made := await ask("POST", copies, json=body):
        Path(made["directory"], "README.md").write_text("changed\n")
        for force in (False, True):
            await ask("DELETE", copies, json={"directory": made["directory"], "force": force})
    await ask("POST", f"{copies}/refresh")
    trees = Snapshots(tmp_path / "snapshots", place.home, ManualClock())
    before = await trees.track(place.directory)
    (place.project / "README.md").write_text("changed again\n")
    after = await trees.track(place.directory)
    assert await trees.changed_files(place.directory, before, after) == ["README.md"]
    assert "changed again" in await trees.patch(place.directory, before, after)
    assert [change.file for change in await trees.diff(place.directory, before, after, ["README.md"], 3)] == ["README.md"]
    assert await trees.restore(place.directory, {"README.md": before}) == []
    assert (place.project / "README.md").read_text() == "changed\n"
    await trees.tidy()


@pytest.mark.parametrize("vector", VECTORS)
async def test_no_program_of_the_repository_runs(place: Place, evil_repository: Repository, tmp_path: Path, vector: str) -> None:
    plant, plainly = VECTORS[vector]
    plant(evil_repository)
    evil_repository.mark.unlink(missing_ok=True)
    await use_everything(place, tmp_path)
    assert not evil_repository.mark.exists()
    if plainly:  # else the test would hold nothing
        environment = os.environ | GIT_ENVIRONMENT | {"GIT_TERMINAL_PROMPT": "0"}
        (place.project / "README.md").write_text("changed for git\n")
        url = b"url=http://x@127.0.0.1:1\n\n"
        subprocess.run(
            ["git", *plainly], cwd=place.project, env=environment, input=url, capture_output=True, timeout=WAIT_S, check=False
        )
        assert evil_repository.mark.exists(), "plain git does not run it either"


async def test_a_folder_that_looks_like_a_bare_repository_is_none(place: Place, evil_repository: Repository) -> None:
    """Such a folder can be committed into any repository, settings and all."""
    folder = place.project / "docs"
    git(place.project, "init", "-q", "--bare", str(folder))
    git(folder, "config", "core.bare", "false")
    git(folder, "config", "core.worktree", str(folder))
    git(folder, "config", "core.fsmonitor", str(evil_repository.evil))
    for path in ("/vcs", "/vcs/status", "/vcs/diff?mode=git", "/project/current", "/file?path=."):
        await place.api.get(path, params={"directory": str(folder)}, status=200)
    assert not evil_repository.mark.exists()
    assert (await place.api.get("/vcs", params={"directory": str(folder)}, status=200)).body == {}
