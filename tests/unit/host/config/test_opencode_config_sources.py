"""Every source and form of permission rules that OpenCode reads, against what OpenCode 1.18.33 makes of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shim.host.config.opencode_config import ConfigFiles
from tests.support.permission_sources import ALLOW, DENY, Place, directory, environment, pairs, singles
from universal.permissions import Action, combine, decide

NATIVE = json.loads((Path(__file__).parents[4] / "compat_fixtures" / "permission_sources.json").read_text())
PROJECT = ("root", "opencode.json", ".opencode", "agent", "mode")
"""Beginnings of the names of sources that a repository holds."""


def action_of(folder: Path, *puts: tuple[Place, str]) -> Action | None:
    env = {name: value for place, action in puts for name, value in place.put(folder, action).items()}
    config = ConfigFiles(folder / "home", environment(folder) | env).load(str(directory(folder)))
    assert not config.has_unread_rules, config.problems
    return decide("bash", ("ls",), combine(config.personal_rules(), config.project_rules()))


@pytest.mark.parametrize("place", list(singles()), ids=lambda place: place.name)
def test_a_denial_counts_from_each_source_in_each_form(tmp_path: Path, place: Place) -> None:
    assert action_of(tmp_path, (place, DENY)) == DENY


@pytest.mark.parametrize(("denies", "allows"), list(pairs()), ids=lambda place: place.name)
def test_two_sources_are_merged_as_opencode_does_or_more_strictly(tmp_path: Path, denies: Place, allows: Place) -> None:
    native = NATIVE["pairs"][f"{denies.name} | {allows.name}"]
    is_of_one = denies.source.startswith(PROJECT) == allows.source.startswith(PROJECT)
    assert action_of(tmp_path, (denies, DENY), (allows, ALLOW)) == (native if is_of_one else DENY)


def test_native_denies_in_each_form() -> None:
    """What OpenCode itself does not understand is a string for OPENCODE_PERMISSION."""
    assert {name for name, action in NATIVE["singles"].items() if action != DENY} == {"OPENCODE_PERMISSION: permission *"}
    assert NATIVE["singles"].keys() == {place.name for place in singles()}
