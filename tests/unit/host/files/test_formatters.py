"""Which formatters a directory has. The list and its order are those of OpenCode 1.18.33 (`GET /formatter`)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shim.host.config.config_reader import Source
from shim.host.config.opencode_config import OpenCodeConfig
from shim.host.files.formatters import FormattedFile, Formatters

PERSONAL = Source("opencode.json", "personal", {"formatter": True})


def formatters(setting: Any, path: Path) -> Formatters:
    return Formatters(lambda _: OpenCodeConfig({"formatter": setting}), {"PATH": str(path)})


def program(path: Path, name: str) -> None:
    path.mkdir(parents=True, exist_ok=True)
    (path / name).write_text("#!/bin/sh\n")
    (path / name).chmod(0o755)


def names_of(made: Formatters, directory: Path, *, with_project: bool = True) -> set[str]:
    return {row.name for row in made.rows(str(directory), with_project=with_project) if row.argv}


@pytest.mark.parametrize("setting", [None, False])
def test_there_are_none_unless_the_configuration_says_so(setting: Any, tmp_path: Path) -> None:
    assert formatters(setting, tmp_path).rows(str(tmp_path), with_project=True) == []


def test_a_built_in_one_counts_where_its_program_is_and_the_project_uses_it(tmp_path: Path) -> None:
    project, bin_ = tmp_path / "project" / "deep", tmp_path / "bin"
    (project.parent / ".git").mkdir(parents=True)
    project.mkdir()
    made = formatters(True, bin_)
    assert names_of(made, project) == set()
    for name in ("gofmt", "ruff", "clang-format"):
        program(bin_, name)
    assert names_of(made, project) == {"gofmt"}
    (project.parent / "pyproject.toml").write_text("[tool.ruff]\n")
    (project / ".clang-format").write_text("")
    assert names_of(made, project) == {"gofmt", "ruff", "clang-format"}
    (row,) = made.rows(str(project), ".go", with_project=True)
    assert row.argv == (str(bin_ / "gofmt"), "-w", "$FILE")


def test_a_program_of_the_project_counts_only_with_the_project(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "package.json").write_text(json.dumps({"devDependencies": {"prettier": "3"}}))
    program(tmp_path / "node_modules" / ".bin", "prettier")
    made = Formatters(lambda _: OpenCodeConfig({"formatter": True}, sources=(PERSONAL,)), {"PATH": ""})
    assert names_of(made, tmp_path) == {"prettier"}
    assert names_of(made, tmp_path, with_project=False) == set()


def test_a_table_changes_adds_and_disables(tmp_path: Path) -> None:
    for name in ("gofmt", "shfmt"):
        program(tmp_path, name)
    own = {
        "gofmt": {"disabled": True},
        "shfmt": {"extensions": [".mine"]},
        "new": {"command": ["x", "$FILE"], "extensions": [".x"]},
    }
    more = {"new": {"command": ["x", "$FILE"], "extensions": [".x"]}, "ruff": {"disabled": True}}
    made = formatters({**own, **more}, tmp_path)
    rows = {row.name: row for row in made.rows(str(tmp_path), with_project=True)}
    assert rows["shfmt"].extensions == (".mine",)
    assert rows["new"].argv == ("x", "$FILE")
    assert {"gofmt", "ruff", "uv"} & rows.keys() == set(), "OpenCode takes `uv` away with `ruff`"
    assert "rustfmt" in rows


async def test_a_file_is_formatted_by_one_after_the_other_and_a_failure_shows_once(tmp_path: Path) -> None:
    told: list[str] = []
    add = ["sh", "-c", 'echo "$WORD" >> "$0"', "$FILE"]
    setting = {
        "one": {"command": add, "extensions": [".x"], "environment": {"WORD": "one"}},
        "bad": {"command": ["sh", "-c", "echo why >&2; exit 1"], "extensions": [".x"]},
        "two": {"command": add, "extensions": [".x"], "environment": {"WORD": "two"}},
    }
    made = Formatters(lambda _: OpenCodeConfig({"formatter": setting}), {"PATH": ""}, lambda _, words: told.append(words))
    (tmp_path / "a.x").write_text("text\r\n")
    await made.format(str(tmp_path), "a.x", with_project=True)
    formatted = await made.format(str(tmp_path), "a.x", with_project=True)
    assert formatted == FormattedFile("text\r\none\ntwo\n", "text\r\none\ntwo\none\ntwo\n")
    assert await made.format(str(tmp_path), "a.y", with_project=True) is None
    assert [("bad" in words, "why" in words) for words in told] == [(True, True)]
