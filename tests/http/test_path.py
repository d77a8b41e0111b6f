"""`GET /path`: where things are, for every way of naming a directory."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest

from tests.http.conftest import Place


async def test_server_directory(place: Place) -> None:
    answer = await place.api.get("/path", status=200)
    assert answer.body == {
        "home": str(place.home),
        "state": str(place.home.parent / "data"),
        "config": str(place.home / ".config" / "opencode"),
        "worktree": place.directory,
        "directory": place.directory,
    }


@pytest.mark.parametrize(
    ("params", "headers"),
    [
        ({"directory": "{}"}, {}),
        ({"location[directory]": "{}"}, {}),
        ({}, {"x-opencode-directory": "{}"}),
        ({}, {"x-opencode-directory": "%{}"}),
        ({"directory": "{}"}, {"x-opencode-directory": "/elsewhere"}),
        ({"directory": "{}/"}, {}),
        ({"directory": "../ö ther"}, {}),
    ],
)
async def test_named_directory(place: Place, params: dict[str, str], headers: dict[str, str]) -> None:
    """Outside of git the worktree is `/`, as native says; `%` stands for the encoded header of newer clients."""
    other = place.project.parent / "ö ther"
    other.mkdir()

    def fill(text: str) -> str:
        return quote(str(other), safe="") if text == "%{}" else text.format(other)

    answer = await place.api.get(
        "/path",
        params={key: fill(value) for key, value in params.items()},
        headers={key: fill(value) for key, value in headers.items()},
        status=200,
    )
    assert (answer.body["directory"], answer.body["worktree"]) == (str(other), "/")


async def test_folder_of_a_repository(place: Place) -> None:
    (place.project / "src").mkdir()
    answer = await place.api.get("/path", params={"directory": f"{place.directory}/src"}, status=200)
    assert (answer.body["directory"], answer.body["worktree"]) == (f"{place.directory}/src", place.directory)


async def test_missing_directory_is_accepted(place: Place, tmp_path: Path) -> None:
    answer = await place.api.get("/path", params={"directory": str(tmp_path / "missing")}, status=200)
    assert answer.body["worktree"] == "/"


async def test_nul_is_refused(place: Place) -> None:
    answer = await place.api.get("/path", params={"directory": "/a\0b"}, status=400)
    assert answer.body["data"]["kind"] == "Query"


@pytest.mark.parametrize("directory", ["/" + "a" * 3000, "/" + "é" * 200, "/a" * 2000])
async def test_directories_that_no_disk_has(place: Place, directory: str) -> None:
    for path in ("/path", "/project", "/session", "/vcs", "/file?path=."):
        answer = await place.api.get(path, headers={"x-opencode-directory": quote(directory)}, status=400)
        assert "too long: at most 3840 bytes, and 255 in each name" in answer.body["data"]["message"]
