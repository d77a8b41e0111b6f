"""`make load` and `make soak` end in time and tell the truth, whatever a row does."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from tests.bench import load, soak

MOST_S = 480


def sleeper(result: load.Result) -> None:
    while True:
        result.rest += 1


def fail(result: load.Result) -> None:
    raise RuntimeError("the readers | could not\nconnect")


def succeed(result: load.Result) -> None:
    result.took, result.peak, result.seen = [0.001] * 98 + [0.2, 0.3], 2**27, "all is well"


def test_all_rows_together_are_bounded() -> None:
    assert sum(row.bound_s for row in load.ROWS.values()) < MOST_S


def test_a_page_is_written_whatever_rows_do() -> None:
    began = time.monotonic()
    rows = [load.Row("endless", sleeper, 1), load.Row("broken", fail, 1), load.Row("sound", succeed, 1)]
    page = load.page([load.run(row) for row in rows])
    assert time.monotonic() - began < 10
    assert "| endless | | | | | | | | 0.0 | NOT FINISHED within 1 s |" in page
    assert "FAILED: RuntimeError: the readers / could not connect" in page
    assert "1 of 3 rows were finished" in page
    assert "missed by: sound (201.0 ms)" in page
    tables = [line for line in page.splitlines() if line.startswith("|")]
    assert {line.count("|") for line in tables} == {11}


def test_there_is_no_such_row(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["load", "--rows", "long,lengthy"])
    with pytest.raises(SystemExit):
        load.main()
    assert "there is no row lengthy; there are streaming," in capsys.readouterr().err


def looks(**growth: float) -> list[soak.Look]:
    """Ten minutes, a look in each; what grows by so much a minute, and what scatters."""
    first = soak.Look(0.0, 100 * 2**20, 15, 10, 0, 5, 400_000, 1, 10 * 2**20, 0)
    made: list[soak.Look] = []
    for minute in range(10):
        scatter = minute % 2
        grown = {name: int(getattr(first, name) + by * minute) for name, by in growth.items()}
        made.append(replace(first, **{"at_s": minute * 60.0, "files": 15 + scatter, "tasks": 5 + scatter, **grown}))
    return made


@pytest.mark.parametrize(("growth", "found"), [
    ({}, set()),
    ({"rss": 2**20}, {"rss"}),
    ({"rss": 2**17}, set()),
    ({"blocks": 5000}, {"blocks"}),
    ({"files": 1, "tasks": 1}, {"files", "tasks"}),
    ({"children": 1}, {"children"}),
    ({"holders": 1, "disk": 2**20}, {"holders", "disk"}),
])  # fmt: skip
def test_growth_is_distinguished_from_scatter(growth: dict[str, float], found: set[str]) -> None:
    assert set(soak.excess_growth(looks(**growth))) == found
    assert soak.excess_growth(looks(**growth)[:2]) == {}
