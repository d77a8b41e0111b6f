"""Sentences for people hold words, and of names in code only those of settings."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from shim.lib.settings import Settings
from tests.unit.test_layout import nodes_of

ROOT = Path(__file__).resolve().parents[2]
SQL = ("SELECT ", "INSERT ", "UPDATE ", "DELETE ", "CREATE ")
NAME = re.compile(r"(?<![`\w.\"'/{$-])[a-z]+(?:_[a-z]+)+(?![`\w\"'/}=-])")
WORDS = 4


def names_in_sentences(source: str) -> Iterator[str]:
    """Names like `shown_call` in the texts of a module that look like sentences; docstrings are not for people who use it."""
    nodes = nodes_of(source)
    docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(text := node.value, str) and id(node) not in docstrings:
            is_sentence = len(text.split()) >= WORDS and text.rstrip().endswith((".", ":", "!", "?")) and "\n" not in text
            if is_sentence and not text.startswith(SQL):
                yield from NAME.findall(text)


def test_a_sentence_names_only_settings() -> None:
    modules = [path for folder in ("shim", "universal") for path in (ROOT / folder).rglob("*.py")]
    found = {name: path for path in modules for name in names_in_sentences(path.read_text("utf-8"))}
    assert {name: path.name for name, path in found.items() if name not in Settings.model_fields} == {}
    assert "max_agents" in found


def test_a_name_in_a_sentence_is_found() -> None:
    assert list(names_in_sentences('def f():\n    """Has a_name in it, for us."""\n    return "No image was shown_call."')) == [
        "shown_call"
    ]
