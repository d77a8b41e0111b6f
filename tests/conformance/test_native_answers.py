"""What a real OpenCode 1.18.33 answered, asked of us in the same surroundings: the same status, types and keys.

Source: recording `endpoints` (answers cut where they were long).
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.http.conftest import Place, git
from tests.support.oracle import FIXTURES

ROWS = [json.loads(line) for line in (FIXTURES / "native" / "answers.jsonl").read_text().splitlines()]

NAMED_THINGS = frozenset({"models", "default", "variants", "provider", "command", "agent", "mode", "options"})
"""Objects whose keys are names of things, which are others with us; the things themselves are compared."""

LEFT_OUT = {
    ("/provider", "family"): "the agent does not say which family a model is of",
    ("/config/providers", "family"): "the agent does not say which family a model is of",
    ("/provider", "input"): "optional: a limit of what goes in alone, which only some of native's models have",
    ("/provider", "env"): "no variable of the environment connects an agent",
    ("/agent", "permission"): "rules of the config hold for all modes, what a mode allows is the agent's",
}
"""(path, key) of what native has and we do not, or have empty, with the reason; key "" for the whole answer."""

EQUAL = frozenset({"/global/health", "/vcs", "/find", "/file/content", "/find/symbol", "/experimental/console"})
"""Where the whole answer must be the same, not only its shape."""

FIRST = {"User-Agent": "opencode/1.18.33"}

NOT_OURS = frozenset({"/session", "/session/status", "/permission", "/question", "/experimental/session"})
"""Answered by the sessions, which are fakes here; their own tests hold them against recordings."""

REFUSED = frozenset({"/experimental/workspace/adapter"})
"""Not served: there is no control plane here. Which operations are refused is held by tests/http/test_workspace.py."""


@pytest.mark.parametrize(
    "row", [row for row in ROWS if row["path"] not in NOT_OURS | REFUSED], ids=lambda row: f"{row['path']}{row.get('query', '')}"
)
async def test_same_shape(place: Place, row: dict[str, Any]) -> None:
    native_config = next(row["body"] for row in ROWS if row["path"] == "/config")
    (place.project / "opencode.json").write_text(json.dumps(native_config))
    git(place.project, "add", "-A")
    git(place.project, "commit", "-q", "-m", "config")
    # Clients of 1.x say who they are: at /api OpenCode 2 has other forms.
    answer = await place.api.get(row["path"], params=row.get("query", {}), status=row["status"], headers=FIRST)
    if row["path"] in EQUAL:
        assert answer.body == row["body"]
    assert list(differences(row["path"], row["body"], answer.body)) == []


def differences(path: str, native: Any, ours: Any, where: str = "") -> list[str]:
    """Where our answer lacks something of native's, or has it with another type."""
    if type(native) is not type(ours) and not (isinstance(native, int | float) and isinstance(ours, int | float)):
        return [f"{where}: {json.dumps(ours)[:80]} instead of {json.dumps(native)[:80]}"]
    if isinstance(native, dict):
        return _of_objects(path, native, ours, where)
    if isinstance(native, list):
        if native and not ours:
            return [] if (path, where.rsplit("/", 1)[-1]) in LEFT_OUT else [f"{where}: empty"]
        return differences(path, native[0], ours[0], f"{where}/0") if native and ours else []
    return []


def _of_objects(path: str, native: dict[str, Any], ours: dict[str, Any], where: str) -> list[str]:
    if where.rsplit("/", 1)[-1] in NAMED_THINGS:
        return differences(path, next(iter(native.values())), next(iter(ours.values())), f"{where}/*") if native and ours else []
    found: list[str] = []
    for key, value in native.items():
        if key in ours:
            found += differences(path, value, ours[key], f"{where}/{key}")
        elif (path, key) not in LEFT_OUT:
            found.append(f"{where}/{key}: missing")
    return found


def test_differences_are_found() -> None:
    """The comparison itself."""
    native = {"a": 1, "models": {"x": {"id": "x"}}, "list": [{"k": None}]}
    assert differences("/p", native, native) == []
    assert differences("/p", native, {"a": "1", "models": {"y": {}}, "list": []}) == [
        '/a: "1" instead of 1',
        "/models/*/id: missing",
        "/list: empty",
    ]


@pytest.mark.parametrize(("path", "key"), LEFT_OUT)
def test_exceptions_are_needed(path: str, key: str) -> None:
    """An exception for what native does not have is stale."""
    texts = [json.dumps(row["body"]) for row in ROWS if row["path"] == path]
    assert texts and (not key or any(f'"{key}"' in text for text in texts))
