"""The check of names finds planted bad names, and leaves good ones alone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tools import naming


def advice(tmp_path: Path, source: str, file: str = "module.py") -> list[str]:
    """What the check says of the names that a file defines."""
    path = tmp_path / file
    path.write_text(source)
    return [line.removeprefix(str(tmp_path)) for line in naming.findings([path])]


@pytest.mark.parametrize(
    ("source", "rule"),
    [
        ("def handed(): ...", "handed"),
        ("def known(): ...", "use a noun or a verb"),
        ("def _got(): ...", "use a noun or a verb"),
        ("class Watched: ...", "use a noun or a verb"),
        ("def running(): ...", "use a noun or a verb"),
        ("def other(): ...", "use a noun or a verb"),
        ("def own_file(): ...", "pronoun"),
        ("class WhatIsLeft: ...", "pronoun"),
        ("def found_in(): ...", "participle"),
        ("def _named_by(): ...", "participle"),
        ("class C:\n    async def first_told(self): ...", "told"),
        ("class EventTeller: ...", "teller"),
        ("def made_error(): ...", "says nothing"),
        ("class KnownModel: ...", "says nothing"),
        ("def _found_agent(): ...", "says nothing"),
        ("class Event2: ...", "opencode1 or opencode2"),
        ("def second_face(): ...", "opencode1 or opencode2"),
        ("def test_what_is_refused(): ...", "subject"),
        ("def test_one_that_hangs(): ...", "subject"),
        ("def test_it(): ...", "subject"),
        ("def test_those_of_others(): ...", "subject"),
        ("def test_an_error_is_told_once(): ...", "told"),
        ("def test_health_of_the_second_wire(): ...", "opencode1 or opencode2"),
    ],
)
def test_a_bad_name_is_found_where_it_is_defined(tmp_path: Path, source: str, rule: str) -> None:
    [line] = advice(tmp_path, source)
    assert line.startswith(f"/module.py:{source.count(chr(10)) + 1}: ")
    assert rule in line


def test_a_module_with_a_bad_name_is_found(tmp_path: Path) -> None:
    assert advice(tmp_path, "", "told.py") == ["/told.py: module told: say who does what instead of told"]


@pytest.mark.parametrize(
    "name",
    [
        "render",
        "stored_record",
        "connection_made",
        "running_server",
        "other_servers",
        "all_sessions",
        "embed",
        "string",
        "recording",
        "pending",
        "__reversed__",
        "test_idle_fires_once_after_abort",
        "test_the_first_event_wins",
        "render_opencode2",
    ],
)
def test_a_good_name_passes(tmp_path: Path, name: str) -> None:
    assert advice(tmp_path, f"def {name}(): ...") == []


def test_each_exception_has_a_reason_and_is_needed() -> None:
    words = {name.rpartition(":")[2] for name in naming.EXCEPTIONS}
    files = [path for path in naming.source_files() if not words.isdisjoint(re.findall(r"\w+", path.read_text("utf-8")))]
    names = {name.text for path in files for name in naming.names_in(path)}
    for name, reason in naming.EXCEPTIONS.items():
        assert len(reason) > 10, name
        assert name.rpartition(":")[2] in names, f"{name} is defined nowhere: remove the exception"
