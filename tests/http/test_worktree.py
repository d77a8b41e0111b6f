"""Worktrees and copies of a project, and patches: real git, the wire of a live OpenCode 1.18.33."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.http.conftest import Place, git, repository

WORKTREE = "/experimental/worktree"


def branches(place: Place) -> set[str]:
    return set(git(place.project, "for-each-ref", "--format=%(refname:short)", "refs/heads").split())


async def create(place: Place, **body: Any) -> dict[str, Any]:
    """One whose files are there."""
    async with place.api.stream("/global/event") as events:
        made = (await place.api.post(WORKTREE, body, status=200)).body
        ready = (await events.until("worktree.ready"))[-1]
        assert ready["properties"] == {"name": made["name"], "branch": made["branch"]}
    return made


async def test_life(place: Place) -> None:
    made = await create(place, name="My Feature! x")
    project = (await place.api.get("/project/current", status=200)).body
    assert made == {
        "name": "my-feature-x",
        "branch": "opencode/my-feature-x",
        "directory": str(place.services.settings.data_dir / "worktree" / project["id"] / "my-feature-x"),
    }
    folder = Path(made["directory"])
    assert (folder / "README.md").read_text() == "Hello\n"
    assert project["sandboxes"] == (await place.api.get(WORKTREE, status=200)).body == [made["directory"]]
    assert branches(place) == {"main", made["branch"]}
    again = await create(place, name="my feature x")
    assert again["name"].startswith("my-feature-x-")
    async with place.api.stream("/global/event") as events:
        assert (await place.api.request("DELETE", WORKTREE, json={"directory": made["directory"]}, status=200)).body is True
        seen = await events.until("project.updated")
    assert [e["properties"] for e in seen if e["type"] == "server.instance.disposed"] == [{"directory": made["directory"]}]
    assert place.sessions.disposed == [made["directory"]]
    assert not folder.exists() and branches(place) == {"main", again["branch"]}
    assert (await place.api.get(WORKTREE, status=200)).body == [again["directory"]]
    await place.api.request("DELETE", WORKTREE, json={"directory": made["directory"]}, status=200)


async def test_start_commands_run_in_it(place: Place) -> None:
    project = (await place.api.get("/project/current", status=200)).body
    await place.api.patch(f"/project/{project['id']}", {"commands": {"start": "echo one >> started; false"}}, status=200)
    made = await create(place, startCommand="echo two >> started")
    await place.services.worktrees.settle()
    assert (Path(made["directory"]) / "started").read_text() == "one\ntwo\n"


async def test_reset(place: Place) -> None:
    made = await create(place)
    folder = Path(made["directory"])
    (folder / "README.md").write_text("changed\n")
    git(folder, "commit", "-q", "-a", "-m", "two")
    (folder / "junk").write_text("x")
    await place.api.post(f"{WORKTREE}/reset", {"directory": str(folder)}, status=200)
    assert ((folder / "README.md").read_text(), (folder / "junk").exists()) == ("Hello\n", False)
    assert git(folder, "rev-parse", "HEAD") == git(place.project, "rev-parse", "HEAD")


@pytest.fixture
def submodule(place: Place, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The project has a submodule `sub`, whose repository this is."""
    inner = repository(place.home / "inner", {"a.txt": "a\n"})
    monkeypatch.setenv("GIT_ALLOW_PROTOCOL", "file")
    git(place.project, "submodule", "--quiet", "add", str(inner), "sub")
    git(place.project, "commit", "-q", "-m", "sub")
    return inner


async def test_a_reset_puts_submodules_back_and_runs_no_command_of_theirs(place: Place, submodule: Path) -> None:
    """git would update a submodule by whatever the settings of its repository say, and check it out with its filters."""
    proof = place.home / "ran"
    made = await create(place)
    sub = Path(made["directory"], "sub")
    git(sub.parent, "submodule", "--quiet", "update", "--init")
    for setting in ("core.fsmonitor", "filter.x.smudge", "filter.x.clean", "core.sshCommand"):
        git(sub, "config", setting, f"touch {proof}; cat")
    hook = Path(git(sub, "rev-parse", "--absolute-git-dir"), "hooks", "post-checkout")
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {proof}\n")
    hook.chmod(0o755)
    attributes = hook.parent.parent / "info" / "attributes"
    attributes.parent.mkdir()
    attributes.write_text("* filter=x\n")
    (sub / "a.txt").write_text("changed\n")
    (sub / "junk").write_text("x")
    git(place.project, "config", "submodule.sub.update", f"!touch {proof}")
    proof.unlink(missing_ok=True)
    await place.api.post(f"{WORKTREE}/reset", {"directory": made["directory"]}, status=200)
    assert ((sub / "a.txt").read_text(), (sub / "junk").exists()) == ("a\n", False)
    assert not proof.exists()


async def test_a_reset_fetches_nothing(place: Place, submodule: Path, tmp_path: Path) -> None:
    """Neither a submodule that is not there nor a newer state of the remote."""
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", str(place.project), str(clone))
    async with place.api.stream("/global/event", params={"directory": str(clone)}) as events:
        made = (await place.api.post(WORKTREE, {}, params={"directory": str(clone)}, status=200)).body
        await events.until("worktree.ready")
    before = git(clone, "rev-parse", "refs/remotes/origin/main")
    git(place.project, "commit", "-q", "--allow-empty", "-m", "newer")
    params = {"directory": str(clone)}
    await place.api.post(f"{WORKTREE}/reset", {"directory": made["directory"]}, params=params, status=200)
    assert git(Path(made["directory"]), "rev-parse", "HEAD") == git(clone, "rev-parse", "refs/remotes/origin/main") == before
    assert list(Path(made["directory"], "sub").iterdir()) == []


async def test_a_reset_does_not_follow_a_submodules_place_elsewhere(place: Place, submodule: Path) -> None:
    """A link, or a `.git` that names another repository, in the place of a submodule."""
    made = await create(place)
    sub = Path(made["directory"], "sub")
    (submodule / "a.txt").write_text("precious\n")
    head = git(submodule, "rev-parse", "HEAD")
    git(submodule, "commit", "-q", "-a", "-m", "two")
    (submodule / "a.txt").write_text("more precious\n")
    newer = git(submodule, "rev-parse", "HEAD")
    assert head != newer
    (sub / ".git").write_text(f"gitdir: {submodule}/.git\n")
    await place.api.post(f"{WORKTREE}/reset", {"directory": made["directory"]}, status=200)
    assert git(submodule, "rev-parse", "HEAD") == newer
    (sub / ".git").unlink()
    sub.rmdir()
    sub.symlink_to(submodule)
    await place.api.post(f"{WORKTREE}/reset", {"directory": made["directory"]}, status=200)
    assert git(submodule, "rev-parse", "HEAD") == newer
    assert (submodule / "a.txt").read_text() == "more precious\n"


async def test_only_what_was_made_here_is_touched(place: Place) -> None:
    own = place.home / "own"
    git(place.project, "worktree", "add", "-q", str(own), "-b", "own")
    link = place.services.settings.data_dir / "worktree" / "x" / "link"
    link.parent.mkdir(parents=True)
    link.symlink_to(own)
    for target in (own, place.project, link, place.home):
        removal = await place.api.request("DELETE", WORKTREE, json={"directory": str(target)}, status=400)
        reset = await place.api.post(f"{WORKTREE}/reset", {"directory": str(target)}, status=400)
        assert (removal.body["name"], reset.body["name"]) == ("WorktreeRemoveFailedError", "WorktreeResetFailedError")
    assert (own / "README.md").exists() and place.sessions.disposed == []


async def test_refused(place: Place) -> None:
    outside = {"directory": str(place.home)}
    assert (await place.api.post(WORKTREE, {}, params=outside, status=400)).body["name"] == "WorktreeNotGitError"
    unborn = place.home / "unborn"
    unborn.mkdir()
    git(unborn, "init", "-q")
    answer = await place.api.post(WORKTREE, {}, params={"directory": str(unborn)}, status=400)
    assert answer.body["name"] == "WorktreeCreateFailedError" and "no commit" in answer.body["data"]["message"]


async def test_names_that_no_file_can_have(place: Place) -> None:
    project = (await place.api.get("/project/current", status=200)).body["id"]
    for name in ("/" + "x" * 4000, "/a\0b"):
        await place.api.request("DELETE", WORKTREE, json={"directory": name}, status=200)
        await place.api.post(f"{WORKTREE}/reset", {"directory": name}, status=400)
        body = {"strategy": "git_worktree", "directory": name}
        await place.api.post(f"/experimental/project/{project}/copy", body, status=400)
    await place.api.post(WORKTREE, {"startCommand": "a\0b"}, status=400)


# --- copies


async def test_copies(place: Place) -> None:
    project = (await place.api.get("/project/current", status=200)).body["id"]
    path = f"/experimental/project/{project}/copy"
    body = {"strategy": "git_worktree", "directory": str(place.home), "name": "cc"}
    async with place.api.stream("/event") as events:
        made = [(await place.api.post(path, body, status=200)).body["directory"] for _ in range(2)]
        assert (await events.until("project.directories.updated"))[-1]["properties"] == {"projectID": project}
    assert made == [str(place.home / "cc"), str(place.home / "cc-2")]
    listed = (await place.api.get(f"/project/{project}/directories", status=200)).body
    assert [row["directory"] for row in listed] == [place.directory, *made]
    (place.home / "cc" / "new").write_text("x")
    dirty = await place.api.request("DELETE", path, json={"directory": made[0], "force": False}, status=400)
    assert dirty.body["data"]["forceRequired"] is True
    await place.api.request("DELETE", path, json={"directory": made[0], "force": True}, status=204)
    await place.api.request("DELETE", path, json={"directory": made[1], "force": False}, status=204)
    assert not (place.home / "cc").exists() and not (place.home / "cc-2").exists()


async def test_copies_that_are_refused(place: Place) -> None:
    project = (await place.api.get("/project/current", status=200)).body["id"]
    own = place.home / "own"
    git(place.project, "worktree", "add", "-q", "--detach", str(own))
    path = f"/experimental/project/{project}/copy"
    for body in ({"strategy": "nope", "directory": str(place.home)}, {"strategy": "git_worktree", "directory": "/nosuch"}):
        assert (await place.api.post(path, body, status=400)).body["name"] == "ProjectCopyError"
    for target in (own, place.project, "/nosuch"):
        await place.api.request("DELETE", path, json={"directory": str(target), "force": True}, status=400)
    assert own.exists()
    await place.api.post("/experimental/project/other/copy", {"strategy": "git_worktree", "directory": "/"}, status=400)
    # What was made elsewhere is taken in by a refresh.
    await place.api.post(f"{path}/refresh", status=204)
    assert (await place.api.get(WORKTREE, status=200)).body == [str(own)]


async def test_names(place: Place) -> None:
    path = "/experimental/project/any/copy/generate-name"
    assert (await place.api.post(path, {"context": "Fix the login page, please"}, status=200)).body == {
        "name": "fix-the-login-page"
    }
    assert "-" in (await place.api.post(path, {}, status=200)).body["name"]


# --- patches


async def apply(place: Place, patch: str, **options: Any) -> Any:
    return (await place.api.post("/vcs/apply", {"patch": patch}, **options)).body


async def test_a_patch(place: Place) -> None:
    (place.project / "README.md").write_text("Hello\nmore\n")
    (place.project / "new.txt").write_text("new\n")
    git(place.project, "add", "-N", "new.txt")
    patch = git(place.project, "diff") + "\n"
    git(place.project, "reset", "-q", "--hard")
    (place.project / "sub").mkdir()
    assert await apply(place, patch, params={"directory": str(place.project / "sub")}, status=200) == {"applied": True}
    assert ((place.project / "README.md").read_text(), (place.project / "new.txt").read_text()) == ("Hello\nmore\n", "new\n")
    refused = await apply(place, patch, status=400)
    assert (refused["name"], refused["data"]["reason"]) == ("VcsApplyError", "not-clean")
    assert "README.md" in refused["data"]["message"], "it says what does not fit"


async def test_patches_that_do_not_fit(place: Place) -> None:
    half = "--- a/notes.txt\n+++ b/notes.txt\n@@ -1 +1 @@\n-notes\n+changed\n"
    half += "--- a/README.md\n+++ b/README.md\n@@ -1 +1 @@\n-Other\n+x\n"
    outside = "--- /dev/null\n+++ b/../outside.txt\n@@ -0,0 +1 @@\n+x\n"
    for patch in (half, outside, "", "garbage"):
        assert (await apply(place, patch, status=400))["data"]["reason"] == "not-clean"
    assert (place.project / "notes.txt").read_text() == "notes\n", "all of it or nothing"
    assert not (place.project.parent / "outside.txt").exists()
    body = await apply(place, half, params={"directory": str(place.home)}, status=400)
    assert body["data"]["reason"] == "non-git"
