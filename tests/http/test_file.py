"""Folders and files of the project, and nothing outside of it."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import pytest

from tests.http.conftest import Place, git


async def test_listing(place: Place) -> None:
    (place.project / "src" / "deep").mkdir(parents=True)
    (place.project / "src" / "a.py").touch()
    (place.project / "build").mkdir()
    (place.project / "x.log").touch()
    (place.project / ":(top)").touch()
    (place.project / ".gitignore").write_text("build/\n*.log\n")
    body = (await place.api.get("/file", params={"path": "."}, status=200)).body
    assert [(row["name"], row["path"], row["type"], row["ignored"]) for row in body] == [
        (".git", ".git/", "directory", False),
        ("build", "build/", "directory", True),
        ("src", "src/", "directory", False),
        (".gitignore", ".gitignore", "file", False),
        (":(top)", ":(top)", "file", False),
        ("notes.txt", "notes.txt", "file", False),
        ("README.md", "README.md", "file", False),
        ("x.log", "x.log", "file", True),
    ]
    assert body[2]["absolute"] == f"{place.directory}/src"
    for path in ("src", "src/", f"{place.directory}/src"):
        inner = (await place.api.get("/file", params={"path": path}, status=200)).body
        assert [row["path"] for row in inner] == ["src/deep/", "src/a.py"]


@pytest.mark.parametrize("path", ["", ".", "/"])
async def test_project_picker(place: Place, path: str) -> None:
    """The web UI lists any folder by naming it as the directory; `/` is below no project."""
    (place.home / "thing").mkdir()
    answer = await place.api.get("/file", params={"path": path, "directory": str(place.home)})
    if path == "/":
        assert answer.status == 400
    else:
        assert [row["path"] for row in answer.body] == ["thing/"]


@pytest.mark.parametrize("path", ["nosuch", "README.md"])
async def test_no_folder(place: Place, path: str) -> None:
    answer = await place.api.get("/file", params={"path": path}, status=400)
    assert answer.body["data"]["message"].startswith(f"Cannot list {path}: ")


@pytest.mark.parametrize(
    ("name", "data", "expected"),
    [
        ("a.txt", b"  one\ntwo\n", {"type": "text", "content": "one\ntwo"}),
        ("a.svg", b"<svg/>", {"type": "text", "content": "<svg/>"}),
        ("empty", b"", {"type": "text", "content": ""}),
        ("latin", b"caf\xe9", {"type": "text", "content": "caf\ufffd"}),
        ("bom", b"\xef\xbb\xbfx", {"type": "text", "content": "x"}),
        ("utf16", "ä€".encode("utf-16"), {"type": "text", "content": "ä€"}),
        ("x.png", b"\x89PNG", {"type": "binary", "encoding": "base64", "mimeType": "image/png"}),
        ("x.bin", b"\0\1", {"type": "binary", "encoding": "base64", "mimeType": "application/octet-stream"}),
        ("x.pdf", b"%PDF\0", {"type": "binary", "encoding": "base64", "mimeType": "application/pdf"}),
    ],
)
async def test_content(place: Place, name: str, data: bytes, expected: dict[str, str]) -> None:
    (place.project / name).write_bytes(data)
    body = (await place.api.get("/file/content", params={"path": name}, status=200)).body
    if expected["type"] == "binary":
        assert base64.b64decode(body.pop("content")) == data
    assert body == expected


async def test_deleted_file_is_empty(place: Place) -> None:
    """As native: a viewer may show a file that was just deleted."""
    assert (await place.api.get("/file/content", params={"path": "nosuch.txt"}, status=200)).body == {
        "type": "text",
        "content": "",
    }


async def test_outside(place: Place) -> None:
    """By `..`, absolutely, through links of files and of folders, encoded, and with a NUL."""
    secret = place.home / "secret"
    secret.write_text("secret")
    (place.home.parent / "project-too").mkdir()
    (place.home.parent / "project-too" / "x").write_text("secret")
    (place.project / "link").symlink_to(secret)
    (place.project / "folder").symlink_to(place.home)
    (place.project / "loop").symlink_to("loop")
    for path in (
        "../home/secret",
        "src/../../home/secret",
        str(secret),
        "link",
        "folder/secret",
        "../project-too/x",
        f"{place.directory}-too/x",
        "/etc/passwd",
        "README.md\0.png",
    ):
        answer = await place.api.get("/file/content", params={"path": path}, status=400)
        assert "secret" not in answer.body["data"]["message"].replace(path, "")
    for path in ("..", "folder", "/"):
        await place.api.get("/file", params={"path": path}, status=400)
    await place.api.get("/file/content", params={"path": "loop"})
    assert (await place.api.raw.get("/file/content?path=%2e%2e%2fhome%2fsecret")).status == 400


async def test_links_inside(place: Place) -> None:
    (place.project / "link").symlink_to("README.md")
    assert (await place.api.get("/file/content", params={"path": "link"}, status=200)).body["content"] == "Hello"


async def test_directory_may_be_a_link(place: Place, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(place.project)
    answer = await place.api.get("/file/content", params={"path": "README.md", "directory": str(tmp_path / "link")}, status=200)
    assert answer.body["content"] == "Hello"


async def test_special_files_are_refused(place: Place) -> None:
    """A pipe without a writer would hold whoever opens it."""
    os.mkfifo(place.project / "pipe")
    (place.project / "src").mkdir()
    for path in ("pipe", "src", ".", ""):
        await place.api.get("/file/content", params={"path": path}, status=400)


async def test_too_large(place: Place) -> None:
    with (place.project / "large").open("wb") as file:
        file.truncate(17 * 2**20)
    answer = await place.api.get("/file/content", params={"path": "large"}, status=400)
    assert "16 MiB" in answer.body["data"]["message"]


async def test_names_that_are_no_text(place: Place) -> None:
    os.close(os.open(os.fsencode(place.project) + b"/caf\xe9", os.O_CREAT | os.O_WRONLY))
    names = [row["name"] for row in (await place.api.get("/file", params={"path": ""}, status=200)).body]
    assert "caf\ufffd" in names
    assert "caf\ufffd" in [row["file"] for row in (await place.api.get("/vcs/status", status=200)).body]
    assert "caf\ufffd" in (await place.api.get("/find/file", params={"query": "caf"}, status=200)).body


async def test_status_of_a_clean_repository(place: Place) -> None:
    assert (await place.api.get("/file/status", status=200)).body == []
    git(place.project, "rm", "-q", "notes.txt")
    assert (await place.api.get("/file/status", status=200)).body == [
        {"path": "notes.txt", "added": 0, "removed": 1, "status": "deleted"}
    ]
