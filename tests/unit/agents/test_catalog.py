"""Texts of the modes that a person chooses from: with one agent its own, with several what holds for all of them."""

from __future__ import annotations

from itertools import combinations

import pytest

from shim.agents.catalog import SHARED_MODES, modes
from tests.fakes.agents_directory import FakeAgent
from universal.codec import AgentSpec, Enforcement
from universal.registry import agents

SPECS = agents()
TITLES = ("Claude", "Codex", "Pi ", "Amp", "OpenCode", "Gemini", "Qwen", "Copilot", "Mock")


def mode_descriptions(*specs: AgentSpec) -> dict[str, str]:
    return {row["name"]: row["description"] for row in modes([FakeAgent(spec, spec.default_catalogue) for spec in specs])}


def test_one_agent_describes_its_modes_itself() -> None:
    for spec in SPECS.values():
        found = mode_descriptions(spec)
        assert {mode.id: mode.description for mode in spec.modes}.items() <= found.items()


@pytest.mark.parametrize(("one", "two"), list(combinations(["claude", "codex", "pi", "mock", "amp"], 2)))
def test_no_mode_that_two_agents_share_is_described_as_the_first_ones(one: str, two: str) -> None:
    specs = SPECS[one], SPECS[two]
    own = [{mode.id: mode.description for mode in spec.modes} for spec in specs]
    for name, words in mode_descriptions(*specs).items():
        if name in own[0] and name in own[1] and own[0][name] != own[1][name]:
            assert words == SHARED_MODES[name]
            assert not any(title in words for title in TITLES)


def test_a_mode_of_some_agents_names_them() -> None:
    found = mode_descriptions(SPECS["claude"], SPECS["codex"], SPECS["mock"])
    assert found["auto"].endswith(" (Claude Code)")
    assert found["bypass"].endswith(" (Claude Code, Codex)")
    assert "(" not in found["build"]
    assert "(" not in found["plan"]


def test_a_mode_tells_who_enforces_the_rules_of_each_agent_that_has_it() -> None:
    specs = SPECS["claude"], SPECS["amp"]
    rows = {row["name"]: row for row in modes([FakeAgent(spec, spec.default_catalogue) for spec in specs])}
    assert rows["build"]["options"]["enforcement"] == {
        "claude": {"by": "a hook before every call", "missing": {}},
        "amp": {"by": SPECS["amp"].enforcement.by, **gaps_of(SPECS["amp"].enforcement)},
    }
    assert set(rows["accept-edits"]["options"]["enforcement"]) == {
        spec.name for spec in specs if "accept-edits" in mode_ids(spec)
    }


def gaps_of(enforcement: Enforcement) -> dict[str, object]:
    return {"missing": dict(enforcement.missing), "partial": enforcement.partial, "noAsks": enforcement.no_asks}


def mode_ids(spec: AgentSpec) -> set[str]:
    return {mode.id for mode in spec.modes}
