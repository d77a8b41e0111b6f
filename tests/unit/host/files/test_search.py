"""Files that a search would show although a rule forbids them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shim.host.files import search
from shim.host.files.search import forbidden_below
from universal.permissions import Access, Policy, Rule
from universal.tools.accesses import Place


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("a.txt", ".env", "src/secrets/key", "src/b.txt", "node_modules/x/.env", ".git/.env"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    return tmp_path


def below(folder: Path, *patterns: str, walks: tuple[str, ...] = (".",), allow: tuple[str, ...] = ()) -> list[str]:
    place = Place(str(folder), resolve=os.path.realpath)
    walked = tuple(str(folder / name) for name in walks)
    access = Access("read", (), (), hidden=True, implied=True, bases=(str(folder),), walks=walked)
    rules = [*(Rule("read", one, "deny") for one in patterns), *(Rule("read", one, "allow") for one in allow)]
    return sorted(forbidden_below(access, place, Policy(config=(Rule("*", "*", "allow"), *rules))))


def test_files_that_a_rule_names_are_found_and_no_others(folder: Path) -> None:
    assert below(folder, "*.env", "**/secrets/*") == [".env", "src/secrets/key"]
    assert below(folder, f"{folder}/src/secrets/*", walks=("src",)) == ["src/secrets/key"]
    assert below(folder, "./src/../.env") == []  # no name of a file
    assert below(folder, "*.env", walks=("src",)) == below(folder) == below(folder, "*") == []
    assert below(folder, "*.env", allow=(".env",)) == []


def test_a_folder_with_too_many_files_is_asked_about(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "WALK_LIMIT", 1)
    assert below(folder, "*.pem") == ["*.pem"]
    assert below(folder) == []
