"""OpenCode's permission rules: which of an agent's requests a person is asked about. Pure.

A rule is `{permission, pattern, action}`. The last rule that matches decides; a request with several patterns
(`echo hi && rm x`) is denied if one of them is, and allowed only if all are. No rule: the agent asked, so a
person is asked. `always` adds allow rules for the project directory, kept in memory as in OpenCode.
Source: OpenCode's documentation of permissions; recordings `perm_*`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Literal, TypeAlias

from universal.jsonvalue import obj

Action: TypeAlias = Literal["allow", "ask", "deny"]
Rule: TypeAlias = dict[str, str]


@lru_cache(maxsize=2048)
def _pieces(pattern: str) -> tuple[tuple[re.Pattern[str], int], ...]:
    """What stands between the `*`s, each with its length. One regular expression of all would try every way to place them: a
    repository writes the pattern, an agent the text, and the server would stand still."""
    pieces = pattern.split("*")
    return tuple((re.compile("".join("." if c == "?" else re.escape(c) for c in one), re.DOTALL), len(one)) for one in pieces)


def matches(pattern: str, text: str) -> bool:
    """Wildcard match of the whole text: `*` any characters, `?` one; `git *` also means a bare `git`."""
    return _fits(pattern, text) or (pattern.endswith(" *") and _fits(pattern[:-2], text))


def _fits(pattern: str, text: str) -> bool:
    (first, _), *rest = _pieces(pattern)
    found = first.match(text)
    if found is None or not rest:
        return found is not None and found.end() == len(text)
    *middle, (last, length) = rest
    for piece, _ in middle:  # the first place of each leaves most room for the next
        found = piece.search(text, found.end())
        if found is None:
            return False
    start = len(text) - length
    return start >= found.end() and last.fullmatch(text, start) is not None


def from_config(permission: Any) -> list[Rule]:
    """Rules of a config's `permission`: `"allow"`, or `{tool: action | {pattern: action}}`, in order."""
    if isinstance(permission, str):
        return [{"permission": "*", "pattern": "*", "action": permission}]
    rules: list[Rule] = []
    for name, value in obj(permission).items():
        if isinstance(value, str):
            rules.append({"permission": name, "pattern": "*", "action": value})
        else:
            rules += [{"permission": name, "pattern": pattern, "action": str(action)} for pattern, action in obj(value).items()]
    return rules


def decide(permission: str, patterns: Sequence[str], rules: Iterable[Rule]) -> Action | None:
    """What the rules say of a request; None if they say nothing."""
    relevant = [r for r in rules if matches(r["permission"], permission)]
    verdicts = {_last(pattern, relevant) for pattern in patterns or ("*",)}
    if "deny" in verdicts:
        return "deny"
    if verdicts == {"allow"}:
        return "allow"
    return "ask" if "ask" in verdicts else None


def _last(pattern: str, rules: Sequence[Rule]) -> str | None:
    return next((r["action"] for r in reversed(rules) if matches(r["pattern"], pattern)), None)
