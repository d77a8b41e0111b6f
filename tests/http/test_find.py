"""Finding texts and files, with a real ripgrep."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from yarl import URL

from shim.host.files import search
from tests.http.conftest import Place, repository


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository with folders, hidden and ignored files."""
    place = repository(
        tmp_path / "project",
        {
            "README.md": "Hello\n",
            "opencode.json": "{}\n",
            "src/app.py": "import os\nhello = 'Hello'\n",
            "src/deep/apple_tree.py": "x\n",
            ".github/ci.yml": "on: push\n",
            ".gitignore": "build\n",
        },
    )
    (place / "build").mkdir()
    (place / "build" / "app.js").write_text("Hello\n")
    return place


async def test_text(place: Place) -> None:
    body = (await place.api.get("/find", params={"pattern": "^Hel+o"}, status=200)).body
    assert body == [
        {
            "path": {"text": "README.md"},
            "lines": {"text": "Hello\n"},
            "line_number": 1,
            "absolute_offset": 0,
            "submatches": [{"match": {"text": "Hello"}, "start": 0, "end": 5}],
        }
    ]


async def test_text_that_is_no_utf8(place: Place) -> None:
    (place.project / "latin").write_bytes(b"caf\xe9 needle\n")
    (place.project / "half").write_bytes(b"\xff" + b"needle")
    texts = [row["lines"]["text"] for row in (await place.api.get("/find", params={"pattern": "needle"}, status=200)).body]
    assert sorted(texts) == ["caf\ufffd needle\n", "\ufffdneedle"]


@pytest.mark.parametrize("pattern", ["-x", "--files", "zzz", "$(touch x)"])
async def test_patterns_are_no_options(place: Place, pattern: str) -> None:
    assert (await place.api.get("/find", params={"pattern": pattern}, status=200)).body == []


async def test_bad_pattern(place: Place) -> None:
    answer = await place.api.get("/find", params={"pattern": "("}, status=400)
    assert "unclosed group" in answer.body["data"]["message"]


@pytest.mark.parametrize("path", ["/find?pattern=a%00", "/api/vcs/diff?mode=branch&base=a%00"])
async def test_no_program_gets_a_nul(place: Place, path: str) -> None:
    async with place.api.raw.get(URL(path, encoded=True)) as answer:
        assert answer.status == 400
        assert "may not contain NUL" in await answer.text()


async def test_many_matches_are_cut(place: Place) -> None:
    (place.project / "many").write_text("match\n" * 5000)
    body = (await place.api.get("/find", params={"pattern": "match"}, status=200)).body
    assert len(body) == search.TEXT_LIMIT


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("READ", ["README.md"]),
        ("readem", ["README.md"]),
        ("app", ["src/app.py", "src/deep/apple_tree.py"]),
        ("src/deep", ["src/deep/", "src/deep/apple_tree.py"]),
        ("src app", ["src/app.py", "src/deep/apple_tree.py"]),
        ("sdat", ["src/deep/apple_tree.py"]),
        ("ci", [".github/ci.yml"]),
        ("app.js", ["src/app.py"]),
        ("zzz", []),
    ],
)
async def test_files(place: Place, query: str, found: list[str]) -> None:
    assert (await place.api.get("/find/file", params={"query": query}, status=200)).body[:2] == found[:2]


async def test_an_empty_query_lists_all_files(place: Place) -> None:
    """Hidden ones last; what git ignores, and `.git`, not at all."""
    body = (await place.api.get("/find/file", params={"query": "", "limit": "50"}, status=200)).body
    assert body == [
        "opencode.json",
        "README.md",
        "src/",
        "src/app.py",
        "src/deep/",
        "src/deep/apple_tree.py",
        ".gitignore",
        ".github/",
        ".github/ci.yml",
    ]


@pytest.mark.parametrize(
    ("params", "found"),
    [
        ({"dirs": "false"}, ["src/app.py", "src/deep/apple_tree.py"]),
        ({"type": "file"}, ["src/app.py", "src/deep/apple_tree.py"]),
        ({"type": "directory"}, ["src/", "src/deep/"]),
        ({"limit": "1"}, ["src/"]),
    ],
)
async def test_kinds(place: Place, params: dict[str, str], found: list[str]) -> None:
    assert (await place.api.get("/find/file", params={"query": "src", **params}, status=200)).body == found


@pytest.mark.parametrize(
    ("path", "params", "message"),
    [
        ("/find", {}, 'Missing key\n  at ["pattern"]'),
        ("/find/file", {}, 'Missing key\n  at ["query"]'),
        ("/find/symbol", {}, 'Missing key\n  at ["query"]'),
        ("/find/file", {"query": "", "limit": "0"}, 'Expected a value greater than or equal to 1, got 0\n  at ["limit"]'),
        ("/find/file", {"query": "", "dirs": "foo"}, 'Expected "true" | "false", got "foo"\n  at ["dirs"]'),
    ],
)
async def test_bad_queries(place: Place, path: str, params: dict[str, str], message: str) -> None:
    answer = await place.api.get(path, params=params, status=400)
    assert answer.body == {"name": "BadRequest", "data": {"message": message, "kind": "Query"}}


async def test_symbols(place: Place) -> None:
    assert (await place.api.get("/find/symbol", params={"query": "x"}, status=200)).body == []


async def test_missing_directory(place: Place) -> None:
    for path, params in (("/find", {"pattern": "x"}), ("/find/file", {"query": "x"})):
        answer = await place.api.get(path, params={**params, "directory": f"{place.directory}/no"}, status=400)
        assert "There is no directory" in answer.body["data"]["message"]


async def test_ripgrep_of_our_package(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing on PATH: the one that is installed beside us."""
    monkeypatch.setenv("PATH", str(place.home))
    assert Path(search.program()).is_file()
    assert (await place.api.get("/find", params={"pattern": "^Hello"}, status=200)).body[0]["path"] == {"text": "README.md"}


# --- ranking, by itself --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "paths", "best"),
    [
        ("main", ["src/domain/x.py", "src/main/x.py", "src/main.py", "main", "remain.py"], ["main", "src/main.py"]),
        ("a.b", ["axb", "a.b"], ["a.b"]),
        ("É", ["é.txt", "e.txt"], ["é.txt"]),
        ("aaaaaaaaaaaaaaaaaaaaaab", ["a" * 200], []),
    ],
)
def test_rank(query: str, paths: list[str], best: list[str]) -> None:
    assert search.rank(query, paths, 10)[: len(best)] == best


def test_folders_of() -> None:
    assert search.folders_of(["a/b/c", "a/d", "x"]) == ["a/b/", "a/"]


def test_names_do_not_take_long() -> None:
    """A hundred thousand paths: bounded by what one keystroke may cost, with room for slow machines."""
    paths = [f"packages/p{number % 100}/src/module_{number}/index.ts" for number in range(100_000)]
    began = os.times().user
    assert search.rank("p7 module 99907", paths, 10)
    assert search.rank("p7 " * 4000, paths, 10)
    assert os.times().user - began < 5


async def test_of_a_long_query_the_beginning_counts(place: Place) -> None:
    (place.project / ("x" * search.QUERY_LIMIT)).touch()
    query = "x" * (search.QUERY_LIMIT + 5000)
    assert (await place.api.get("/find/file", params={"query": query}, status=200)).body == ["x" * search.QUERY_LIMIT]
