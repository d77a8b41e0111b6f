"""Every cell of the matrix in docs/coverage.md: what has a tick there holds here, in each of the recordings that it names.

And the predicates can fail: in recordings that do not have the thing, they do not hold.
"""

from __future__ import annotations

import inspect
from importlib import import_module

import pytest

from shim.dev.record.packs import recordings_in
from tests.coverage.cells import COLUMNS, POWERS, WIRES, Cell, Power, Wires, played_agents
from tests.coverage.evidence import Evidence, look
from tests.coverage.features import FEATURES
from tests.support.recordings import ROOT
from tools import coverage
from universal.registry import agents

CELLS = [(agent, feature) for agent in COLUMNS for feature in FEATURES if COLUMNS[agent].cell(feature) is not None]
ALWAYS = {"text", "deltas", "lifecycle", "usage", "cost"}
"""What even a plain answer shows, of one agent or another."""
SAME = (
    "deltas",
    "reasoning",
    "permissions",
    "questions",
    "interrupt",
    "resume",
    "subagents",
    "todos",
    "usage",
    "mcp",
)
"""Rows that are capabilities by the same name. (Those of images and files speak of the protocol, not of the text in a prompt.)"""
PLAIN = ("claude/2.1.332/text", "codex/0.166.0/text", "opencode/1.18.32/text", "pi/1.5.2/text", "mock/echo")


@pytest.mark.parametrize(("agent", "feature"), CELLS, ids=lambda name: name)
def test_a_cell(agent: str, feature: str) -> None:
    cell = COLUMNS[agent].cell(feature)
    assert cell is not None
    assert bool(cell.recordings) != bool(cell.why), "recordings that show it, or the reason why there are none"
    for name in cell.recordings:
        assert FEATURES[feature].holds(look(name)), f"{name} does not show: {FEATURES[feature].means}"


@pytest.mark.parametrize("feature", [name for name in FEATURES if name not in ALWAYS])
def test_a_plain_answer_does_not_show_it(feature: str) -> None:
    for name in PLAIN:
        assert not FEATURES[feature].holds(look(name)), name


@pytest.mark.parametrize("feature", sorted(ALWAYS - {"lifecycle"}))
def test_a_refused_request_does_not_show_it(feature: str) -> None:
    """A turn of which the model's answer was an error: nothing is said, nothing is spent."""
    assert not FEATURES[feature].holds(look("codex/0.166.0/error"))


def test_a_session_without_an_idle_does_not_show_its_lifecycle() -> None:
    cut = Evidence("cut", (), ("completed", "completed"), (), (), (), native_session_id="n")
    assert not FEATURES["lifecycle"].holds(cut)


@pytest.mark.parametrize("agent", sorted(COLUMNS.keys() & agents().keys()))
def test_an_agents_abilities_agree_with_the_table(agent: str) -> None:
    """`/v1/agents` and docs/coverage.md do not contradict each other."""
    can = agents()[agent].abilities.capabilities
    cells = {name: cell for name in SAME if (cell := COLUMNS[agent].cell(name)) is not None}
    assert {name: bool(cell.recordings) for name, cell in cells.items()} == {name: getattr(can, name) for name in cells}


def test_no_cell_names_what_is_not_there() -> None:
    assert {feature for column in COLUMNS.values() for feature in column.differs} <= FEATURES.keys()
    for column in COLUMNS.values():
        for folder in column.folders:
            assert recordings_in(ROOT / folder) or list(ROOT.glob(f"{folder}/*")), folder


@pytest.mark.parametrize("power", POWERS, ids=lambda power: power.title)
def test_each_tick_beside_the_turns_is_a_test_with_the_agent(power: Power) -> None:
    assert not power.tests.keys() & power.lacks.keys()
    for agent, test in power.tests.items():
        assert agent in played_agents(test), f"{test} does not run {agent}"


@pytest.mark.parametrize("row", WIRES, ids=lambda row: row.title)
def test_each_wire_of_a_power_is_a_test_that_speaks_it(row: Wires) -> None:
    for sign, cell in (("", row.opencode1), ("/api", row.opencode2), ("/v1", row.v1)):
        file, _, name = cell.partition("::")
        if not name:
            assert cell.endswith("."), f"{row.title}: why has {sign} none?"
            continue
        module = import_module(f"tests.{file.replace('/', '.')}")
        test = getattr(module, name)
        parameters = [mark.args for mark in getattr(test, "pytestmark", [])]
        helpers = [
            value for key, value in vars(module).items() if inspect.isfunction(value) and f"{key}(" in inspect.getsource(test)
        ]
        said = repr(parameters) + "".join(map(inspect.getsource, (test, *helpers)))
        assert sign in said, f"{cell} does not speak {sign}"


def test_a_cell_that_fails_has_no_tick() -> None:
    held = coverage.symbol(Cell(("x",)), holds=True)
    assert [held, coverage.symbol(Cell(("x",)), holds=False), coverage.symbol(None, holds=False)] == ["✓", "✗", "·"]
    assert coverage.symbol(Cell(why="it has none"), holds=False) == "–"


def test_the_readme_has_this_table() -> None:
    files = coverage.render_files()
    stale = [str(path.relative_to(coverage.ROOT)) for path, words in files.items() if path.read_text("utf-8") != words]
    assert stale == [], "run `make gen`"
