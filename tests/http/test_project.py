"""Projects: which repository a directory belongs to."""

from __future__ import annotations

import os
import shutil
from typing import Any

import pytest

from shim.faces.opencode1 import host
from shim.host.git.projects import Projects
from shim.lib.clock import ManualClock
from tests.http.conftest import Place, git, repository


async def current(place: Place, directory: object) -> dict[str, Any]:
    return (await place.api.get("/project/current", params={"directory": str(directory)}, status=200)).body


async def test_repository(place: Place) -> None:
    root = git(place.project, "rev-list", "--max-parents=0", "HEAD")
    body = (await place.api.get("/project/current", status=200)).body
    assert body == {
        "id": root,
        "worktree": place.directory,
        "vcs": "git",
        "time": {"created": body["time"]["created"], "updated": body["time"]["created"]},
        "sandboxes": [],
    }
    assert (await place.api.get("/project", status=200)).body == [body]


async def test_folder_of_it(place: Place) -> None:
    (place.project / "src").mkdir()
    assert await current(place, place.project / "src") == await current(place, place.project)


async def test_outside_of_git(place: Place) -> None:
    body = await current(place, place.home)
    assert (body["id"], body["worktree"], "vcs" in body) == ("global", "/", False)


async def test_without_a_commit(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shim.host.git.projects.LOOK_AGAIN_S", 0.0)
    folder = place.home / "unborn"
    folder.mkdir()
    git(folder, "init", "-q")
    body = await current(place, folder)
    assert (body["id"], body["worktree"], body["vcs"]) == ("global", str(folder), "git")
    # With its first commit it becomes a project of its own, also without a restart.
    git(folder, "commit", "-q", "--allow-empty", "-m", "one")
    assert (await current(place, folder))["id"] == git(folder, "rev-parse", "HEAD")


async def test_a_missing_repository_is_looked_for_again_after_a_while(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = place.home / "later"
    folder.mkdir()
    monkeypatch.setattr("shim.host.git.projects.LOOK_AGAIN_S", 60.0)
    assert "vcs" not in await current(place, folder)
    git(folder, "init", "-q")
    assert "vcs" not in await current(place, folder)
    place.services.projects.forget(str(folder))
    assert (await current(place, folder))["vcs"] == "git"


async def test_several_roots(place: Place) -> None:
    """The least one of those that HEAD has, as native takes it."""
    git(place.project, "checkout", "-q", "--orphan", "other")
    git(place.project, "commit", "-q", "--allow-empty", "-m", "other root")
    git(place.project, "merge", "-q", "--allow-unrelated-histories", "-m", "both", "main")
    roots = git(place.project, "rev-list", "--max-parents=0", "HEAD").split()
    assert (len(roots), (await current(place, place.project))["id"]) == (2, min(roots))


async def test_clones_and_worktrees_are_one_project(place: Place) -> None:
    clone, worktree = place.home / "clone", place.home / "tree"
    git(place.home, "clone", "-q", str(place.project), str(clone))
    git(place.project, "worktree", "add", "-q", str(worktree))
    first = await current(place, place.project)
    assert (await current(place, clone))["id"] == first["id"]
    last = await current(place, worktree)
    assert (last["worktree"], last["sandboxes"]) == (place.directory, [str(clone), str(worktree)])
    places = (await place.api.get(f"/project/{first['id']}/directories", status=200)).body
    assert places == [
        {"directory": place.directory},
        {"directory": str(clone)},
        {"directory": str(worktree), "strategy": "git_worktree"},
    ]
    assert (await place.api.get("/experimental/worktree", status=200)).body == [str(clone), str(worktree)]
    path = (await place.api.get("/path", params={"directory": str(clone)}, status=200)).body
    assert path["worktree"] == str(clone)
    shutil.rmtree(clone)
    places = (await place.api.get(f"/project/{first['id']}/directories", status=200)).body
    assert [one["directory"] for one in places] == [place.directory, str(worktree)]


async def test_a_moved_repository_takes_its_project_along(place: Place) -> None:
    before = await current(place, place.project)
    moved = place.home / "moved"
    place.project.rename(moved)
    after = await current(place, moved)
    assert (after["id"], after["worktree"], after["sandboxes"]) == (before["id"], str(moved), [])


async def test_another_repository_at_the_same_place(place: Place) -> None:
    before = await current(place, place.project)
    shutil.rmtree(place.project)
    repository(place.project, {"other": "x"})
    await place.api.post("/instance/dispose", status=200)
    assert (await current(place, place.project))["id"] != before["id"]


async def test_an_empty_git_folder_is_no_repository(place: Place) -> None:
    """Codex's sandbox makes one in its working directory, and in /tmp, while a command runs; git does not take it for one."""
    folder = place.project / "src"
    (folder / ".git").mkdir(parents=True)
    assert await current(place, folder) == await current(place, place.project)
    alone = place.home / "alone"
    (alone / ".git").mkdir(parents=True)
    assert (await current(place, alone))["worktree"] == "/"


async def test_an_update_with_empty_objects_adds_no_empty_fields(place: Place) -> None:
    """OpenCode's document has both fields as optional."""
    id_ = (await current(place, place.project))["id"]
    body = (await place.api.patch(f"/project/{id_}", {"icon": {}, "commands": {}}, status=200)).body
    assert {"icon", "commands"}.isdisjoint(body)


async def test_an_update_changes_only_the_fields_that_it_names(place: Place) -> None:
    id_ = (await current(place, place.project))["id"]
    async with place.api.stream("/global/event") as events:
        await place.api.patch(f"/project/{id_}", {"icon": {"color": "pink"}}, status=200)
        body = (await place.api.patch(f"/project/{id_}", {"name": "n", "icon": {"url": "u"}}, status=200)).body
        event = (await events.until(lambda e: e["type"] == "project.updated" and "name" in e["properties"]))[-1]
    assert (body["name"], body["icon"]) == ("n", {"color": "pink", "url": "u"})
    assert event["properties"] == body
    assert await current(place, place.project) == body


async def test_update_of_an_unknown_project(place: Place) -> None:
    answer = await place.api.patch("/project/nosuch", {"name": "x"}, status=404)
    assert answer.body == {"_tag": "ProjectNotFoundError", "projectID": "nosuch", "message": "Project not found: nosuch"}


async def test_directories_of_an_unknown_project(place: Place) -> None:
    assert (await place.api.get("/project/nosuch/directories", status=200)).body == []


async def test_init_git(place: Place) -> None:
    body = (await place.api.post("/project/git/init", params={"directory": str(place.home)}, status=200)).body
    assert (body["id"], body["worktree"], body["vcs"]) == ("global", str(place.home), "git")
    assert (place.home / ".git").is_dir()
    # In a repository already: nothing happens.
    (place.project / "src").mkdir()
    await place.api.post("/project/git/init", params={"directory": f"{place.directory}/src"}, status=200)
    assert not (place.project / "src" / ".git").exists()


async def test_init_git_where_it_cannot(place: Place) -> None:
    answer = await place.api.post("/project/git/init", params={"directory": str(place.home / "missing")}, status=400)
    assert "git init failed" in answer.body["data"]["message"]


async def test_projects_survive_a_restart(place: Place) -> None:
    before = await current(place, place.project)
    again = Projects(place.services.store, ManualClock(start_ms=9_000_000_000_000))
    assert list(map(host.project, await again.list_all())) == [before]
    assert host.project(await again.current(place.directory)) == before


async def test_nothing_is_written_into_the_repository(place: Place) -> None:
    """Native keeps the id in a file of its own in `.git`, and git itself would refresh the index."""
    os.utime(place.project / "README.md", (1_000_000_000, 1_000_000_000))  # the index does not know it so

    def state() -> dict[str, tuple[int, int]]:
        files = [path for path in place.project.rglob("*") if path.is_file()]
        return {str(path): (path.stat().st_mtime_ns, path.stat().st_size) for path in files}

    before = state()
    await current(place, place.project)
    for path in ("/vcs", "/vcs/status", "/vcs/diff?mode=git", "/file?path=.", "/file/status"):
        await place.api.get(path, status=200)
    assert state() == before


@pytest.mark.parametrize("missing", [True, False])
async def test_without_git(place: Place, monkeypatch: pytest.MonkeyPatch, missing: bool) -> None:
    """git is not installed, or the directory is not there: everything is empty, nothing fails."""
    directory = str(place.home / "missing") if missing else place.directory
    if not missing:
        monkeypatch.setenv("PATH", str(place.home))
    params = {"directory": directory}
    assert (await current(place, directory))["id"] == "global"
    assert (await place.api.get("/vcs", params=params, status=200)).body == {}
    assert (await place.api.get("/vcs/status", params=params, status=200)).body == []
    assert (await place.api.get("/vcs/diff", params=params | {"mode": "git"}, status=200)).body == []
    assert (await place.api.get("/vcs/diff", params=params | {"mode": "branch"}, status=200)).body == []
    assert (await place.api.get("/vcs/diff/raw", params=params, status=200)).body is None
    assert (await place.api.get("/file/status", params=params, status=200)).body == []
