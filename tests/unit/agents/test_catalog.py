"""Texts of the modes that a person chooses from: with one agent its own, with several what holds for all of them."""

from __future__ import annotations

from itertools import combinations

import pytest

from shim.agents.catalog import SHARED_MODES, modes
from tests.fakes.agents_directory import FakeAgent
from universal.agent_spec import AgentSpec
from universal.registry import agents

SPECS = agents()
TITLES = ("Claude", "Codex", "Pi ", "Amp", "OpenCode", "Gemini", "Qwen", "Copilot", "Mock")


def mode_descriptions(*specs: AgentSpec) -> dict[str, str]:
    return {mode.name: mode.description for mode in modes([FakeAgent(spec, spec.abilities.catalogue) for spec in specs])}


def test_one_agent_describes_its_modes_itself() -> None:
    for spec in SPECS.values():
        found = mode_descriptions(spec)
        assert {mode.id: mode.description for mode in spec.abilities.modes}.items() <= found.items()


@pytest.mark.parametrize(("one", "two"), list(combinations(["claude", "codex", "pi", "mock", "amp"], 2)))
def test_no_mode_that_two_agents_share_is_described_as_the_first_ones(one: str, two: str) -> None:
    specs = SPECS[one], SPECS[two]
    own = [{mode.id: mode.description for mode in spec.abilities.modes} for spec in specs]
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


def test_a_mode_knows_the_agents_that_have_it() -> None:
    specs = SPECS["claude"], SPECS["amp"]
    found = {mode.name: mode.specs for mode in modes([FakeAgent(spec, spec.abilities.catalogue) for spec in specs])}
    for name in ("build", "accept-edits"):
        assert found[name] == tuple(spec for spec in specs if name in {mode.id for mode in spec.abilities.modes})
