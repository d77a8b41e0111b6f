"""The allow-list of directories: every way to name one, sessions that lie elsewhere, attached files."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from os import PathLike
from pathlib import Path
from urllib.parse import quote

import pytest
from yarl import URL

from shim.host.files import roots
from shim.store.memory import MemoryStore
from tests.http.conftest import repository
from tests.support.live import Live, live


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret.txt").write_text("the secret")
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "link").symlink_to(folder)
    (tmp_path / "project" / "inside.txt").write_text("not secret")
    (tmp_path / "project-too").mkdir()
    return folder


async def test_directories_outside_are_refused_however_they_are_named(tmp_path: Path, outside: Path) -> None:
    root = tmp_path / "project"
    async with live(tmp_path, roots=(root,)) as server:
        await server.api.get("/path", status=200)
        await server.api.get("/path", params={"directory": str(root / "new")}, status=200)
        for elsewhere in (outside, root / ".." / "outside", root / "link", tmp_path / "project-too", Path("/"), tmp_path):
            for options in (
                {"params": {"directory": str(elsewhere)}},
                {"headers": {"x-opencode-directory": quote(str(elsewhere), safe="")}},
                {"headers": {"x-opencode-directory": str(elsewhere)}},
            ):
                answer = await server.api.get("/path", status=403, **options)
                assert answer.body["name"] == "ForbiddenError"
                assert str(root) + " " not in answer.body["data"]["message"]
                await server.api.post("/session", {}, status=403, **options)
            params = {"location[directory]": str(elsewhere)}
            await server.api.get("/api/fs/list", params=params, status=403)
        await server.api.get("/event", params={"directory": str(outside)}, status=403)


async def test_sessions_from_before_that_lie_elsewhere_are_out_of_reach(tmp_path: Path, outside: Path) -> None:
    store = MemoryStore()
    async with live(tmp_path, store=store) as server:
        params = {"directory": str(outside)}
        session = (await server.api.post("/session", {}, params=params, status=200)).body["id"]
    async with live(tmp_path, store=store, roots=(tmp_path / "project",)) as server:
        body = {"parts": [{"type": "text", "text": "hello"}]}
        await server.api.post(f"/session/{session}/prompt_async", body, status=403)
        await server.api.post(f"/session/{session}/shell", {"command": "ls", "agent": "build"}, status=403)
        await server.api.get(f"/session/{session}/message", status=403)
        await server.api.get("/session/ses_0000000000000000000000000/message", status=404)


@pytest.mark.parametrize("limited", [False, True])
async def test_attached_files(tmp_path: Path, outside: Path, limited: bool) -> None:
    root = tmp_path / "project"
    async with live(tmp_path, roots=(root,) if limited else ()) as server:
        session = await server.session()
        for place, hidden in (
            (root / "inside.txt", False),
            (outside / "secret.txt", limited),
            (root / "link" / "secret.txt", limited),
            (root / ".." / "outside" / "secret.txt", limited),
        ):
            part = {"type": "file", "mime": "text/plain", "filename": "f", "url": f"file://{place}"}
            answer = await server.api.post(f"/session/{session}/message", {"parts": [part], "noReply": True}, status=200)
            told = str((await server.messages(session))[-1])
            assert ("outside of the directories" in told) is hidden, (place, answer.body)
            assert ("secret" in told.replace("secret.txt", "")) is not hidden


async def test_lists_hide_what_lies_outside(tmp_path: Path, outside: Path) -> None:
    store = MemoryStore()
    async with live(tmp_path, store=store) as server:
        hidden = (await server.api.post("/session", {}, params={"directory": str(outside)}, status=200)).body["id"]
        shown = await server.session()
        assert {hidden, shown} <= await listed_ids(server)
    async with live(tmp_path, store=store, roots=(tmp_path / "project",)) as server:
        found = await listed_ids(server)
        assert shown in found
        assert hidden not in found


async def test_shared_pages_of_what_lies_outside_are_not_there(tmp_path: Path, outside: Path) -> None:
    store = MemoryStore()
    async with live(tmp_path, store=store) as server:
        session = (await server.api.post("/session", {}, params={"directory": str(outside)}, status=200)).body["id"]
        shared = (await server.api.post(f"/session/{session}/share", status=200)).body["share"]["url"]
        async with server.api.raw.get(URL(shared).path) as answer:
            assert answer.status == 200
    async with (
        live(tmp_path, store=store, roots=(tmp_path / "project",)) as server,
        server.api.raw.get(URL(shared).path) as answer,
    ):
        assert answer.status == 404


async def listed_ids(server: Live) -> set[str]:
    """Ids in all lists of sessions."""
    rows = [
        *(await server.api.get("/session", params={"scope": "project"}, status=200)).body,
        *(await server.api.get("/experimental/session", status=200)).body,
        *(await server.api.get("/api/session", status=200)).body["data"],
    ]
    async with server.api.raw.get("/v1/sessions") as answer:
        rows += [{"id": row["openCodeSessionId"]} for row in (await answer.json())["sessions"]]
    return {row["id"] for row in rows}


async def test_terminals_start_inside(tmp_path: Path, outside: Path) -> None:
    root = tmp_path / "project"
    (root / "below").mkdir()
    async with live(tmp_path, roots=(root,)) as server:
        for cwd in (str(outside), "../outside", str(root / "link"), "link", "/"):
            body = {"command": "/bin/sh", "cwd": cwd}
            assert (await server.api.post("/pty", body, status=403)).body["name"] == "ForbiddenError"
        for cwd in (None, str(root), str(root / "below")):
            made = (await server.api.post("/pty", {"command": "/bin/sh", **({"cwd": cwd} if cwd else {})}, status=200)).body
            await server.api.delete(f"/pty/{made['id']}", status=200)


async def test_projects_outside_are_neither_listed_nor_worked_in(tmp_path: Path, outside: Path) -> None:
    root = tmp_path / "project"
    for folder in (root, outside):
        repository(folder, {"a.txt": f"{folder}\n"})
    store = MemoryStore()
    async with live(tmp_path, store=store) as server:
        hidden = (await server.api.get("/project/current", params={"directory": str(outside)}, status=200)).body["id"]
    async with live(tmp_path, store=store, roots=(root,)) as server:
        own = (await server.api.get("/project/current", status=200)).body["id"]
        for path in ("/project", "/api/project"):
            found = {row["id"] for row in (await server.api.get(path, status=200)).body}
            assert own in found
            assert hidden not in found
        assert (await server.api.get(f"/project/{hidden}/directories", status=200)).body == []
        await server.api.get("/api/worktree", params={"projectID": hidden}, status=404)
        copy = {"strategy": "git_worktree", "directory": str(outside), "name": "copy"}
        await server.api.post(f"/experimental/project/{own}/copy", copy, status=403)
        for place, name in ((outside / "copy", None), (root, "beside")):
            body = {"projectID": own, "directory": str(place), **({"name": name} if name else {})}
            await server.api.post("/api/worktree", body, status=403)
    assert sorted(path.name for path in outside.iterdir()) == [".git", "a.txt", "secret.txt"]
    assert not (tmp_path / "beside").exists()


async def test_a_patch_does_not_leave_the_root_for_the_rest_of_its_repository(tmp_path: Path, outside: Path) -> None:
    repository(tmp_path, {"above.txt": "1\n"})
    patch = "--- a/above.txt\n+++ b/above.txt\n@@ -1 +1 @@\n-1\n+2\n"
    async with live(tmp_path, roots=(tmp_path / "project",)) as server:
        await server.api.post("/vcs/apply", {"patch": patch}, status=403)
    assert (tmp_path / "above.txt").read_text() == "1\n"


async def test_a_session_outside_is_not_extended_by_a_document(tmp_path: Path, outside: Path) -> None:
    store = MemoryStore()
    async with live(tmp_path, store=store) as server:
        session = (await server.api.post("/session", {}, params={"directory": str(outside)}, status=200)).body["id"]
        document = (await server.api.get(f"/session/{session}/export", status=200)).body
    async with live(tmp_path, store=store, roots=(tmp_path / "project",)) as server:
        await server.api.post("/session/import", document, status=403)


async def test_links_are_not_followed_on_the_event_loop(tmp_path: Path, outside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    within = roots.within
    on_loop: list[str] = []
    in_thread: list[str] = []

    def recorded_check(path: str, allowed: Iterable[str | PathLike[str]]) -> bool:
        try:
            asyncio.get_running_loop()
            on_loop.append(path)
        except RuntimeError:
            in_thread.append(path)
        return within(path, allowed)

    async with live(tmp_path, roots=(tmp_path / "project",)) as server:
        session = (await server.api.post("/session", {}, status=200)).body["id"]
        monkeypatch.setattr(roots, "within", recorded_check)
        body = {"parts": [{"type": "text", "text": "hello"}]}
        await server.api.post(f"/session/{session}/prompt_async", body, status=204)
        for path in ("/session", "/experimental/session", "/project", "/api/session", f"/session/{session}/message"):
            await server.api.get(path, status=200)
        await server.api.get("/path", params={"directory": str(outside)}, status=403)
    assert in_thread and on_loop == []
