"""OpenCode's permission rules: which action applies to a request. Pure.

A rule is `{permission, pattern, action}`. The last rule that matches decides. A request with several patterns
(`echo hi && rm x`) is denied if one of them is, and allowed only if all are.
Source: OpenCode's documentation of permissions; recordings `perm_*` of OpenCode 1.18.33.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, TypeAlias

from universal.frozen import frozen
from universal.jsonvalue import arr, obj, text

Action: TypeAlias = Literal["allow", "ask", "deny"]


@frozen
class Rule:
    """One rule. `permission` and `pattern` are wildcard patterns: `*` matches any characters, `?` one."""

    permission: str
    pattern: str
    action: Action

    def to_json(self) -> dict[str, str]:
        """The form of OpenCode's documents: `{permission, pattern, action}`."""
        return {"permission": self.permission, "pattern": self.pattern, "action": self.action}


DEFAULT_RULES: tuple[Rule, ...] = (
    Rule("external_directory", "*", "ask"),
    Rule("doom_loop", "*", "ask"),
    Rule("read", "*.env", "ask"),
    Rule("read", "*.env.*", "ask"),
    Rule("read", "*.env.example", "allow"),
)
"""OpenCode 1.18.33's own defaults (recording `endpoints`, GET /agent), less its `*: allow`: without a rule the agent decides."""


def rules_from_json(value: Any) -> tuple[Rule, ...]:
    """Rules of a session's `permission`, a list of `{permission, pattern, action}`. An unknown action becomes `ask`."""
    rows = [obj(row) for row in arr(value)]
    return tuple(Rule(text(row.get("permission")), text(row.get("pattern"), "*"), _action(row.get("action"))) for row in rows)


def rules_from_config(permission: Any) -> tuple[Rule, ...]:
    """Rules of a config's `permission`: `"allow"`, or `{name: action | {pattern: action}}`, in order."""
    if isinstance(permission, str):
        return (Rule("*", "*", _action(permission)),)
    rules: list[Rule] = []
    for name, value in obj(permission).items():
        rows: Mapping[str, Any] = {"*": value} if isinstance(value, str) else obj(value)
        rules += [Rule(name, pattern, _action(action)) for pattern, action in rows.items()]
    return tuple(rules)


def _action(value: Any) -> Action:
    match value:
        case "allow" | "deny":
            return value
        case _:
            return "ask"


def decide(permission: str, patterns: Sequence[str], rules: Iterable[Rule]) -> Action | None:
    """The action for a request, or None if no rule matches all that it asks for."""
    relevant = [rule for rule in rules if matches(rule.permission, permission)]
    verdicts = {_last_match(pattern, relevant) for pattern in patterns or ("*",)}
    if "deny" in verdicts:
        return "deny"
    if verdicts == {"allow"}:
        return "allow"
    return "ask" if "ask" in verdicts else None


def _last_match(pattern: str, rules: Sequence[Rule]) -> Action | None:
    return next((rule.action for rule in reversed(rules) if matches(rule.pattern, pattern)), None)


def matches(pattern: str, subject: str) -> bool:
    """Wildcard match of the whole subject: `*` any characters, `?` one; `git *` also means a bare `git`."""
    return _matches_whole(pattern, subject) or (pattern.endswith(" *") and _matches_whole(pattern[:-2], subject))


@lru_cache(maxsize=2048)
def _pieces(pattern: str) -> tuple[tuple[re.Pattern[str], int], ...]:
    """The expressions between the `*`s, each with its length.

    One expression for the whole pattern would try every way to place the `*`s. A repository writes the pattern and an agent
    the subject, so together they could stop the server.
    """
    pieces = pattern.split("*")
    return tuple(
        (re.compile("".join("." if c == "?" else re.escape(c) for c in piece), re.DOTALL), len(piece)) for piece in pieces
    )


def _matches_whole(pattern: str, subject: str) -> bool:
    (first, _), *rest = _pieces(pattern)
    found = first.match(subject)
    if found is None or not rest:
        return found is not None and found.end() == len(subject)
    *middle, (last, length) = rest
    for piece, _ in middle:  # the first place of each leaves most room for the next
        found = piece.search(subject, found.end())
        if found is None:
            return False
    start = len(subject) - length
    return start >= found.end() and last.fullmatch(subject, start) is not None
