"""Where things are: the server, directories, projects, worktrees, files, repositories, the configuration."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from shim.faces.opencode2._generated.operations import OPERATIONS
from shim.faces.opencode2.unsupported_operations import UNSUPPORTED
from tests.http.conftest import Place, git, repository


async def data(place: Place, path: str, /, **params: str) -> Any:
    body = (await place.api.get(path, params=params, status=200)).body
    assert body["location"] == {"directory": params.get("location[directory]", place.directory)}
    return body["data"]


# --- the server -----------------------------------------------------------------------------------------------


async def test_info(place: Place) -> None:
    info = (await place.api.get("/api/info", status=200)).body
    assert (info["version"], info["pid"]) == ("2.1.2", os.getpid())
    assert info["urls"] == [str(place.api.raw.make_url("")).rstrip("/")]
    assert info["paths"]["home"] == str(place.home)
    assert info["capabilities"] == {"persistentPty": False}


async def test_the_document_has_what_is_served_with_the_payloads_of_events(place: Place) -> None:
    document = (await place.api.get("/openapi.json", status=200)).body
    shown = {row["operationId"] for item in document["paths"].values() for row in item.values()}
    assert shown == set(OPERATIONS) - set(UNSUPPORTED)
    stream = document["paths"]["/api/event"]["get"]["responses"]["200"]["content"]["text/event-stream"]["schema"]
    assert stream == {"$ref": "#/components/schemas/V2Event"}
    text = document["components"]["schemas"]["Event.session.text.delta"]["properties"]["data"]["properties"]
    assert text["delta"] == {"type": "string"}
    assert document["openapi"] == "3.1.0"


async def test_unsupported_operations_say_why(place: Place) -> None:
    for name, row in UNSUPPORTED.items():
        operation = OPERATIONS[name]
        path = operation.path.replace("{ptyID}", "pty_1").replace("{sessionID}", "ses_1").replace("{", "").replace("}", "")
        answer = await place.api.request(operation.method, path, status=501)
        assert (answer.body["operation"], row.reason in answer.body["message"]) == (name, True)


# --- directories ----------------------------------------------------------------------------------------------


async def test_a_directory_and_its_project(place: Place) -> None:
    (place.project / "src").mkdir()
    folder = str(place.project / "src")
    project = (await place.api.get("/project/current", status=200)).body
    expected = {"id": project["id"], "directory": place.directory, "canonical": place.directory}
    for options in (
        {"params": {"location[directory]": folder}},
        {"headers": {"x-opencode-directory": folder.replace("/", "%2F")}},
    ):
        answer = await place.api.get("/api/location", status=200, **options)
        assert answer.body == {"directory": folder, "project": expected}
    assert (await place.api.get("/api/location", status=200)).body["directory"] == place.directory


async def test_a_directory_that_is_not_there(place: Place) -> None:
    for path in ("/api/location", "/api/agent", "/api/config"):
        answer = await place.api.get(path, params={"location[directory]": "/nosuch/place"}, status=404)
        assert answer.body["_tag"] == "LocationNotFoundError"
        assert answer.body["location"] == {"directory": "/nosuch/place"}


async def test_reload_asks_agents_again(place: Place) -> None:
    await place.api.post("/api/location/reload", status=204)
    assert place.services.agents.asked == ["claude"]  # pyright: ignore - the fake's


async def test_loaded_directories_and_their_end(place: Place) -> None:
    assert (await place.api.get("/api/debug/location", status=200)).body == []
    made = (await place.api.post("/api/pty", {"command": "cat"}, status=200)).body["data"]
    assert (await place.api.get("/api/debug/location", status=200)).body == [{"directory": place.directory}]
    await place.api.delete("/api/debug/location", status=204)
    assert (await place.api.get("/api/debug/location", status=200)).body == []
    await place.api.get(f"/api/pty/{made['id']}", status=404)
    assert place.sessions.disposed == [place.directory]


# --- projects and worktrees -----------------------------------------------------------------------------------


async def test_projects(place: Place) -> None:
    rows = (await place.api.get("/api/project", status=200)).body
    assert [row["canonical"] for row in rows] == [place.directory]
    assert rows[0]["time"]["active"] == rows[0]["time"]["updated"]
    changed = (
        await place.api.patch(f"/api/project/{rows[0]['id']}", {"name": "mine", "icon": {"color": "red"}}, status=200)
    ).body
    assert (changed["name"], changed["icon"]) == ("mine", {"color": "red"})
    refused = await place.api.patch(f"/api/project/{rows[0]['id']}", {"canonical": "/else"}, status=400)
    assert refused.body["field"] == "canonical"
    assert (await place.api.patch("/api/project/none", {"name": "x"}, status=404)).body["_tag"] == "ProjectNotFoundError"


async def test_worktrees(place: Place, tmp_path: Path) -> None:
    id_ = (await place.api.get("/api/location", status=200)).body["project"]["id"]
    main = {"directory": place.directory}
    assert (await place.api.get("/api/worktree", params={"projectID": id_}, status=200)).body == [main]
    made = (
        await place.api.post("/api/worktree", {"projectID": id_, "name": "x", "branch": "mine", "from": "HEAD"}, status=200)
    ).body
    await place.services.worktrees.settle()
    assert git(Path(made["directory"]), "branch", "--show-current") == "mine"
    assert (Path(made["directory"]) / "README.md").read_text() == "Hello\n"
    beside = tmp_path / "beside"
    other = (await place.api.post("/api/worktree", {"projectID": id_, "directory": str(beside)}, status=200)).body
    assert other == {"directory": str(beside)}
    rows = (await place.api.get("/api/worktree", params={"projectID": id_}, status=200)).body
    assert rows[0] == main and {row["directory"] for row in rows[1:]} == {made["directory"], str(beside)}
    assert all(row["strategy"] == "git_worktree" for row in rows[1:])
    for place_ in (made["directory"], str(beside)):
        (Path(place_) / "new.txt").write_text("new")
        body = {"projectID": id_, "directory": place_, "force": False}
        refused = (await place.api.request("DELETE", "/api/worktree", json=body, status=400)).body
        assert refused["data"]["forceRequired"] is True
        await place.api.request("DELETE", "/api/worktree", json={**body, "force": True}, status=204)
        assert not Path(place_).exists()
    assert "mine" in git(place.project, "branch", "--list", "mine")
    await place.api.post("/api/worktree/refresh", {"projectID": id_}, status=204)
    assert (await place.api.get("/api/worktree", params={"projectID": id_}, status=200)).body == [main]


@pytest.mark.parametrize(
    "body", [{"branch": "main"}, {"from": "nosuch"}, {"branch": "b", "directory": "/tmp/x"}, {"directory": "/nosuch/parent/x"}]
)
async def test_worktrees_that_cannot_be(place: Place, body: dict[str, str]) -> None:
    id_ = (await place.api.get("/api/location", status=200)).body["project"]["id"]
    refused = (await place.api.post("/api/worktree", {"projectID": id_, **body}, status=400)).body
    assert (refused["_tag"], bool(refused["data"]["message"])) == ("WorktreeError", True)
    assert (await place.api.post("/api/worktree", {"projectID": "none"}, status=404)).body["_tag"] == "ProjectNotFoundError"


async def test_a_worktree_that_is_not_ours_stays(place: Place, tmp_path: Path) -> None:
    id_ = (await place.api.get("/api/location", status=200)).body["project"]["id"]
    git(place.project, "worktree", "add", "-q", str(tmp_path / "theirs"))
    await place.api.post("/api/worktree/refresh", {"projectID": id_}, status=204)
    rows = (await place.api.get("/api/worktree", params={"projectID": id_}, status=200)).body
    assert str(tmp_path / "theirs") in {row["directory"] for row in rows}
    body = {"projectID": id_, "directory": str(tmp_path / "theirs"), "force": True}
    await place.api.request("DELETE", "/api/worktree", json=body, status=400)
    assert (tmp_path / "theirs" / "README.md").exists()


# --- files ----------------------------------------------------------------------------------------------------


async def test_listing(place: Place, tmp_path: Path) -> None:
    (place.project / "src").mkdir()
    (place.project / "src" / "a.py").touch()
    rows = await data(place, "/api/fs/list")
    assert {"path": "src/", "type": "directory"} in rows and {"path": "README.md", "type": "file"} in rows
    assert await data(place, "/api/fs/list", path="src") == [{"path": "src/a.py", "type": "file"}]
    assert await data(place, "/api/fs/list", path=str(place.project / "src")) == [{"path": "src/a.py", "type": "file"}]
    (tmp_path / "aside").mkdir()
    (tmp_path / "aside" / "b.txt").touch()
    for path in ("../aside", str(tmp_path / "aside")):
        assert await data(place, "/api/fs/list", path=path) == [{"path": "../aside/b.txt", "type": "file"}]
    await place.api.get("/api/fs/list", params={"path": "nosuch"}, status=400)


async def test_finding(place: Place) -> None:
    (place.project / "src").mkdir()
    (place.project / "src" / "a.py").touch()
    assert await data(place, "/api/fs/find", query="src") == [
        {"path": "src/", "type": "directory"},
        {"path": "src/a.py", "type": "file"},
    ]
    assert await data(place, "/api/fs/find", query="src", type="file", limit="1") == [{"path": "src/a.py", "type": "file"}]
    assert (await place.api.get("/api/fs/find", status=400)).body["message"] == 'Missing key\n  at ["query"]'


async def test_reading_is_confined(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place.project / "a b").mkdir()
    (place.project / "a b" / "ü.bin").write_bytes(b"\0\xff")
    (tmp_path / "secret").write_text("secret")
    (place.project / "out").symlink_to(tmp_path / "secret")
    (place.project / "page.html").write_text("<script>")
    response = await place.api.raw.get("/api/fs/read/a%20b/%C3%BC.bin")
    assert (response.status, response.content_type, await response.read()) == (200, "application/octet-stream", b"\0\xff")
    response = await place.api.raw.get("/api/fs/read/README.md")
    assert (response.content_type, await response.text()) == ("text/markdown", "Hello\n")
    assert response.headers["Content-Security-Policy"] == "sandbox"
    for name in ("page.html", "evil.xml", "evil.xhtml", "evil.svg", "evil.xsl", "evil.mml", "evil.js", "evil.mjs", "evil"):
        (place.project / name).write_text("<script xmlns='http://www.w3.org/1999/xhtml'>alert(1)</script>")
        monkeypatch.setattr("mimetypes.guess_type", lambda _: ("text/xml", None))  # a machine without /etc/mime.types
        assert (await place.api.raw.get(f"/api/fs/read/{name}")).content_type == "text/plain", name
        monkeypatch.undo()
        assert (await place.api.raw.get(f"/api/fs/read/{name}")).content_type in ("text/plain", "application/octet-stream"), name
    for path in ("out", "nosuch", "a%20b", "x%00y"):
        answer = await place.api.get(f"/api/fs/read/{path}", status=404)
        assert answer.body["_tag"] == "FileNotFoundError", path


async def test_writing(place: Place, tmp_path: Path) -> None:
    for path in ("new/deep.bin", str(tmp_path / "elsewhere.bin")):
        answer = await place.api.request("POST", "/api/experimental/fs/write", params={"path": path}, data=b"\0\1", status=200)
        assert Path(answer.body["data"]["path"]).read_bytes() == b"\0\1"
    (place.project / "new" / "deep.bin").chmod(0o755)
    await place.api.request("POST", "/api/experimental/fs/write", params={"path": "new/deep.bin"}, data=b"", status=200)
    assert (place.project / "new" / "deep.bin").stat().st_mode & 0o777 == 0o755
    await place.api.request("POST", "/api/experimental/fs/write", params={"path": "new"}, data=b"x", status=400)
    await place.api.request("POST", "/api/experimental/fs/write", data=b"x", status=400)


# --- repositories ---------------------------------------------------------------------------------------------


async def test_the_repository(place: Place) -> None:
    assert await data(place, "/api/vcs") == {"provider": "git", "branch": {"current": "main", "default": "main"}}
    assert await data(place, "/api/vcs/base") is None
    assert await data(place, "/api/vcs/status") == []
    git(place.project, "checkout", "-q", "-b", "feature/x")
    (place.project / "notes.txt").write_text("changed\n")
    git(place.project, "commit", "-qam", "two")
    (place.project / "new.txt").write_text("1\n2\n")
    base = await data(place, "/api/vcs/base")
    assert (base["name"], base["ref"]) == ("main", git(place.project, "rev-parse", "main"))
    assert await data(place, "/api/vcs/status") == [{"file": "new.txt", "additions": 2, "deletions": 0, "status": "added"}]
    assert set(await data(place, "/api/vcs/branch")) == {"main", "feature/x"}
    assert await data(place, "/api/vcs/branch", search="FEAT", limit="1") == ["feature/x"]
    assert [row["file"] for row in await data(place, "/api/vcs/diff", mode="working")] == ["new.txt"]
    assert [row["file"] for row in await data(place, "/api/vcs/diff", mode="branch")] == ["new.txt", "notes.txt"]
    committed = await data(place, "/api/vcs/diff", mode="committed", context="0")
    assert [(row["file"], row["status"]) for row in committed] == [("notes.txt", "modified")]
    assert "+changed" in committed[0]["patch"]
    assert [row["file"] for row in await data(place, "/api/vcs/diff", mode="committed", base="HEAD~1")] == ["notes.txt"]
    assert await data(place, "/api/vcs/diff", mode="committed", base="HEAD") == []


@pytest.mark.parametrize(
    ("params", "field"), [({}, None), ({"mode": "git"}, "mode"), ({"mode": "branch", "base": "--x"}, "base")]
)
async def test_diffs_that_cannot_be(place: Place, params: dict[str, str], field: str | None) -> None:
    assert (await place.api.get("/api/vcs/diff", params=params, status=400)).body.get("field", "mode") == (field or "mode")


async def test_a_new_repository(place: Place, tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    params = {"location[directory]": str(tmp_path / "plain")}
    assert await data(place, "/api/vcs", **params) == {"branch": {}}
    await place.api.post("/api/vcs/init", params={**params, "provider": "hg"}, status=501)
    await place.api.post("/api/vcs/init", params=params, status=204)
    assert (tmp_path / "plain" / ".git").is_dir()
    await place.api.post("/api/vcs/init", params=params, status=409)
    assert (await data(place, "/api/vcs", **params))["provider"] == "git"


# --- the configuration ----------------------------------------------------------------------------------------


async def test_the_configuration_in_the_words_of_2(place: Place) -> None:
    config = {
        "model": "claude/default",
        "autoupdate": False,
        "snapshot": False,
        "permission": {"bash": {"rm *": "deny"}, "edit": "allow"},
        "agent": {"review": {"prompt": "Review.", "model": "claude/opus", "variant": "high", "disable": True}},
        "mcp": {"fs": {"type": "local", "command": ["mcp-fs"], "enabled": False}, "off": {"enabled": False}},
        "plugin": ["a", ["b", {"x": 1}]],
        "compaction": {"auto": True, "reserved": 5, "preserve_recent_tokens": 7},
        "skills": {"paths": ["./s"], "urls": ["https://x.example"]},
    }
    (place.project / "opencode.json").write_text(json.dumps(config))
    entries = (await place.api.get("/api/config", status=200)).body
    assert [row["type"] for row in entries] == ["directory", "document", "document"]
    info = entries[-1]["info"]
    assert (info["model"], info["update"], info["snapshots"]) == ("claude/default", "disable", False)
    assert info["permissions"] == [
        {"action": "shell", "resource": "rm *", "effect": "deny"},
        {"action": "edit", "resource": "*", "effect": "allow"},
    ]
    assert info["agents"] == {"review": {"model": "claude/opus#high", "system": "Review.", "disabled": True}}
    assert info["mcp"]["servers"]["fs"] == {"type": "local", "command": ["mcp-fs"], "disabled": True}
    assert info["plugins"] == ["a", {"package": "b", "options": {"x": 1}}]
    assert info["compaction"] == {"auto": True, "keep": {"tokens": 7}, "buffer": 5}
    assert info["skills"] == ["./s", "https://x.example"]


async def test_the_shell_is_written(place: Place) -> None:
    await place.api.patch("/api/experimental/config", {"shell": "/bin/sh"}, status=204)
    entries = (await place.api.get("/api/config", status=200)).body
    assert entries[1]["info"]["shell"] == "/bin/sh"
    await place.api.patch("/api/experimental/config", {"shell": None}, status=204)
    assert "shell" not in (await place.api.get("/api/config", status=200)).body[1]["info"]
    await place.api.patch("/api/experimental/config", {}, status=400)
    Path(entries[1]["path"]).write_text("{ broken")
    await place.api.patch("/api/experimental/config", {"shell": "/bin/sh"}, status=400)
    assert any(row["path"] == "/bin/sh" for row in (await place.api.get("/api/config/shell", status=200)).body)


async def test_projects_of_others_do_not_mix(place: Place, tmp_path: Path) -> None:
    other = repository(tmp_path / "other", {"x.txt": "x"})
    await data(place, "/api/vcs", **{"location[directory]": str(other)})
    rows = (await place.api.get("/api/project", status=200)).body
    assert {row["canonical"] for row in rows} == {place.directory, str(other)}
