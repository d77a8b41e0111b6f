"""SECURITY.md names tests that exist, and a test for every promise."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
TEXT = (REPO / "SECURITY.md").read_text("utf-8")
NAMED = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", TEXT)


def missing_tests(named: list[tuple[str, str]]) -> list[str]:
    """Of these files and functions, those that are not there."""
    found: list[str] = []
    for file, test in named:
        path = REPO / file
        if not path.is_file() or (test and test not in functions_of(path)):
            found.append(f"{file}::{test}")
    return found


@cache
def functions_of(path: Path) -> frozenset[str]:
    """The names of all functions of a file; many rows name the same file."""
    nodes = ast.walk(ast.parse(path.read_text("utf-8")))
    return frozenset(node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def test_every_test_that_is_named_exists() -> None:
    assert len(NAMED) > 30
    assert missing_tests(NAMED) == []


def test_a_missing_test_is_found() -> None:
    assert missing_tests([("tests/unit/test_security_doc.py", "test_nothing"), ("tests/none.py", "")]) == [
        "tests/unit/test_security_doc.py::test_nothing",
        "tests/none.py::",
    ]


def test_every_promise_has_a_test() -> None:
    promises = TEXT.split("## What is promised")[1].split("## ")[0]
    rows = [row for row in promises.splitlines() if row.startswith("| ")][1:]
    assert len(rows) > 15
    for row in rows:
        assert re.search(r"`tests/[\w/]+\.py::\w+`", row), row
