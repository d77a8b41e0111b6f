"""What permission rules demand of a sandbox."""

from __future__ import annotations

import pytest

from universal.permissions import Rule, rules_from_config
from universal.sandbox import LEVELS, TIGHTER, Bounds, Level, bounds_of, strictest, tighter_of


def bounds(config: object, level: Level = "project") -> Bounds:
    found = bounds_of(level, rules_from_config(config))
    assert found is not None
    return found


def test_the_stricter_level_wins() -> None:
    assert [strictest("auto", level) for level in LEVELS] == list(LEVELS), "any word is stricter than none"
    assert [strictest("off", level) for level in TIGHTER] == list(TIGHTER)
    assert strictest("strict", "project") == "strict"


@pytest.mark.parametrize("level", ["auto", "off"])
def test_without_a_level_there_are_no_bounds(level: Level) -> None:
    assert bounds_of(level, rules_from_config({"edit": "deny"})) is None


@pytest.mark.parametrize(
    ("value", "level"),
    [("strict", "strict"), ("project", "project"), ("off", "auto"), ("Strict", "auto"), (1, "auto"), ([], "auto")],
)
def test_a_level_of_a_project_or_session_is_a_tighter_one_or_none(value: object, level: Level) -> None:
    assert tighter_of(value) == level


@pytest.mark.parametrize("config", [{}, {"edit": "ask", "read": {"*.env": "ask"}, "bash": "deny", "external_directory": "ask"}])
def test_rules_that_no_mount_can_hold_change_nothing(config: object) -> None:
    assert bounds(config) == Bounds("project"), "else the agent would be started again for them"


def test_a_deny_of_paths_counts_with_its_exceptions_in_order() -> None:
    config = {"edit": {"*": "deny", "src/*": "allow"}, "read": {"secrets/*": "deny"}}
    assert bounds(config) == Bounds(
        "project",
        edit=(Rule("edit", "*", "deny"), Rule("edit", "src/*", "allow")),
        read=(Rule("read", "secrets/*", "deny"),),
    )


def test_a_deny_of_everything_counts_for_each_key() -> None:
    found = bounds("deny")
    assert found.edit and found.read and found.web is not None and not found.outside


def test_folders_outside_count_where_a_rule_allows_one() -> None:
    assert bounds({"external_directory": {"*": "ask", "/data/*": "allow"}}).outside[-1] == Rule(
        "external_directory", "/data/*", "allow"
    )
    assert bounds({"external_directory": "deny"}).outside == ()


@pytest.mark.parametrize(
    ("config", "level", "has_network"),
    [
        ({}, "project", True),
        ({}, "strict", False),
        ({"webfetch": "ask"}, "project", False),
        ({"webfetch": {"*": "allow", "https://evil.example/*": "ask"}}, "project", True),
        ({"webfetch": "deny"}, "project", False),
        ({"webfetch": {"*": "deny", "https://docs.example/*": "allow"}}, "project", False),
        ({"webfetch": {"https://evil.example/*": "deny"}}, "project", True),
    ],
)
def test_a_process_has_the_machines_network_unless_a_rule_or_the_level_denies_it(
    config: object, level: Level, has_network: bool
) -> None:
    assert (bounds(config, level).web is None) is has_network
