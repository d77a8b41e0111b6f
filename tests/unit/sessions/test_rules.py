"""Permission rules: matching, order, several patterns."""

from __future__ import annotations

import pytest

from shim.sessions.rules import decide, from_config, matches


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("*", "anything at\nall", True),
        ("git *", "git status", True),
        ("git *", "git", True),
        ("git *", "gitk", False),
        ("src/*.py", "src/a/b.py", True),
        ("?.txt", "a.txt", True),
        ("?.txt", "ab.txt", False),
        ("a+b", "a+b", True),
        ("a+b", "aab", False),
    ],
)
def test_wildcards(pattern: str, text: str, expected: bool) -> None:
    assert matches(pattern, text) is expected


def rule(permission: str, pattern: str, action: str) -> dict[str, str]:
    return {"permission": permission, "pattern": pattern, "action": action}


def test_no_rule_says_nothing() -> None:
    assert decide("bash", ["ls"], []) is None
    assert decide("bash", ["ls"], [rule("edit", "*", "allow")]) is None


def test_the_last_match_decides() -> None:
    rules = [rule("bash", "*", "deny"), rule("bash", "git *", "allow")]
    assert decide("bash", ["git log"], rules) == "allow"
    assert decide("bash", ["rm x"], rules) == "deny"
    assert decide("bash", ["git log"], [*rules, rule("*", "*", "ask")]) == "ask"


def test_every_pattern_must_be_allowed_and_one_denial_is_enough() -> None:
    rules = [rule("bash", "echo *", "allow"), rule("bash", "rm *", "deny")]
    assert decide("bash", ["echo a", "echo b"], rules) == "allow"
    assert decide("bash", ["echo a", "rm b"], rules) == "deny"
    assert decide("bash", ["echo a", "ls"], rules) is None


def test_config_forms() -> None:
    assert from_config("allow") == [rule("*", "*", "allow")]
    assert from_config({"edit": "ask", "bash": {"*": "ask", "git *": "allow"}}) == [
        rule("edit", "*", "ask"),
        rule("bash", "*", "ask"),
        rule("bash", "git *", "allow"),
    ]
    assert from_config(None) == []
