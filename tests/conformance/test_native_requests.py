"""What was asked of a real OpenCode 1.18.33, asked of us in the same order: the same status, and the same shape of the answer.

The mock answers instead of the scripted model, so what is in a conversation differs; what it is made of does not.
Differences are data with reasons: `shapes.toml`, beside the recordings.
Source: 24 scenes of recordings of 1.18.33, with shapes instead of answers: `native/requests.jsonl.xz`.
"""

from __future__ import annotations

import asyncio
import json
import lzma
import re
import tomllib
from fnmatch import fnmatchcase
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from shim.faces.opencode1 import routes as opencode1
from shim.faces.opencode1._generated.operations import OPERATIONS
from shim.http.operation import collect
from tests.http.conftest import git
from tests.support.live import Live, live
from tests.support.oracle import FIXTURES, oracle
from tests.support.shapes import differences, merge, shape

ROWS = [json.loads(line) for line in lzma.decompress((FIXTURES / "native" / "requests.jsonl.xz").read_bytes()).splitlines()]
SCENES = {scene: list(rows) for scene, rows in groupby(ROWS, key=lambda row: row["scene"])}
KNOWN: list[dict[str, Any]] = tomllib.loads((FIXTURES / "native" / "shapes.toml").read_text())["difference"]
WAIT_S = 20.0
POLL_S = 0.02
DELAY_FACTOR = 0.1
"""Of the mock: what is busy in a recording must be busy here for some requests."""
WORDS = {
    "text": "echo hi",
    "read_edit": "edit README.md",
    "slow_bash": "slow 30",
    "bash": "permission",
    "question": "question 1",
    "error": "error",
    "hang": "hang",
}
"""Scene of the scripted model -> word of the mock."""
MODEL: dict[str, Any] = {"model": "mock/mock", "small_model": "mock/mock", "provider": {"scripted": {"name": "Scripted"}}}
COMMANDS: dict[str, Any] = {
    "command": {
        "hello": {"template": "echo hello $1 and $ARGUMENTS", "description": "say hello", "agent": "build"},
        "sub": {"template": "echo in a subtask $ARGUMENTS", "description": "a subtask", "subtask": True, "agent": "general"},
    }
}
MOCK = {"scripted": "mock"}
"""The provider and model of the recordings -> ours."""
NOT_ASKED = {"event.subscribe", "global.event", "pty.connect", "project.directories", "tui.control.next"}
"""Streams; a request that waits until somebody else answers; and one that the recordings do not ask. Own tests hold them."""
ID = re.compile(r"\b(?:ses|msg|prt|per|que|pty)_[0-9A-Za-z]{20,}")


class Player:
    """Asks one scene's requests of us; knows which of our ids stands for which of native's."""

    def __init__(self, served: Live) -> None:
        self.served = served
        self.ids: dict[str, str] = {}

    async def ask(self, row: dict[str, Any]) -> tuple[int, Any]:
        """Our answer to one request."""
        await self._until(row.get("after"))
        options: dict[str, Any] = {"params": {key: MOCK.get(value, value) for key, value in row.get("query", {}).items()}}
        if "raw" in row:
            options |= {"data": row["raw"].encode(), "headers": {"Content-Type": row["type"]}}
        elif row.get("body") is not None:
            options["json"] = self._with_our_ids(row["body"], await self._open(json.dumps(row["body"]) + row["path"]))
        path = self._with_our_ids(row["path"], await self._open(row["path"]))
        answer = await self.served.api.request(row["method"], path, **options)
        self._learn(row, answer.body)
        return answer.status, answer.body

    def _learn(self, row: dict[str, Any], body: Any) -> None:
        for pointer, native in row.get("ids", ()):
            found = body
            for step in pointer.split("/")[1:]:
                found = found.get(step) if isinstance(found, dict) else None
            if isinstance(found, str):
                self.ids[native] = found
        if "messages" in row and isinstance(body, list):
            for role in ("user", "assistant"):
                theirs = [one for one in row["messages"] if one[0] == role]
                for native, ours in zip(theirs, [one for one in body if one["info"]["role"] == role], strict=False):
                    self.ids.setdefault(native[1], ours["info"]["id"])
                    for kind, part in native[2]:
                        same = [one["id"] for one in ours["parts"] if one["type"] == kind]
                        if same:
                            self.ids.setdefault(part, same[0])

    async def _open(self, text: str) -> dict[str, str]:
        """An id of a request that native told by an event only is that of the one that waits here."""
        unknown = {id_ for id_ in ID.findall(text) if id_ not in self.ids and not re.search("_0{12}", id_)}
        for prefix, path in (("per", "/permission"), ("que", "/question")):
            for id_ in sorted(one for one in unknown if one.startswith(prefix)):
                waiting = (await self.served.api.get(path)).body
                if waiting:
                    self.ids[id_] = waiting[0]["id"]
        return self.ids

    def _with_our_ids(self, value: Any, ids: dict[str, str]) -> Any:
        if isinstance(value, str):
            scene = re.match(r"\[scene:(\w+)", value)
            return WORDS[scene[1]] if scene else ID.sub(lambda found: ids.get(found[0], found[0]), value)
        if isinstance(value, list):
            return [self._with_our_ids(inner, ids) for inner in value]
        if isinstance(value, dict):
            return {
                key: MOCK.get(inner, inner)
                if key in ("providerID", "modelID") and isinstance(inner, str)
                else self._with_our_ids(inner, ids)
                for key, inner in value.items()
            }
        return value

    async def _until(self, event: str | None) -> None:
        """As the recorder waited: for the end of the turn, for a request to a person."""
        async with asyncio.timeout(WAIT_S):
            while event is not None:
                path = {"permission.asked": "/permission", "question.asked": "/question"}.get(event, "/session/status")
                found = (await self.served.api.get(path)).body
                if bool(found) == (event != "session.idle"):
                    return
                await asyncio.sleep(POLL_S)


def operation_of(row: dict[str, Any]) -> str:
    """The operation that a request asks, or METHOD PATH of what is none."""
    return oracle().operation_of(row["method"], row["path"]) or f"{row['method']} {row['path']}"


def answer_differences(row: dict[str, Any], status: int, body: Any) -> list[str]:
    """How our answer differs from native's, in the words of `shapes.toml`."""
    return [f"status {row['status']} {status}"] if status != row["status"] else list(differences(row["shape"], shape(body)))


def explains(known: dict[str, Any], operation: str, difference: str) -> bool:
    """Whether a row of `shapes.toml` is about this difference. [*] in it is the star itself: an element of any kind."""
    return known["operation"] == operation and fnmatchcase(difference, known["difference"])


@pytest.mark.parametrize("scene", SCENES)
async def test_same_requests(tmp_path: Path, scene: str) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "README.md").write_text("Hello\n")
    (project / "opencode.json").write_text(json.dumps(COMMANDS if scene == "command" else MODEL))
    git(project, "init", "-q", "-b", "main")
    git(project, "add", ".")
    git(project, "commit", "-q", "-m", "first")
    found: set[tuple[str, str]] = set()
    async with live(tmp_path, delay_factor=DELAY_FACTOR) as served:
        player = Player(served)
        for row in SCENES[scene]:
            answer = await player.ask(row)
            found |= {(operation_of(row), difference) for difference in answer_differences(row, *answer)}
    here = [known for known in KNOWN if scene in known["scenes"]]
    assert {one for one in found if not any(explains(known, *one) for known in here)} == set(), "differences without a row"
    assert [known for known in here if not any(explains(known, *one) for one in found)] == [], "rows that nothing needs"


def test_every_operation_is_asked() -> None:
    """Every operation of sessions, and every GET that is served, but streams and those that native's recordings do not have."""
    both = ROWS + [json.loads(line) for line in (FIXTURES / "native" / "answers.jsonl").read_text().splitlines()]
    asked = {operation_of(row) for row in both}
    sessions = {name for name in OPERATIONS if name.startswith(("session.", "part.", "permission.", "question."))}
    reads = {one.id for one in collect(opencode1.MODULES) if one.id in OPERATIONS and OPERATIONS[one.id].method == "GET"}
    reads = {name for name in reads if not OPERATIONS[name].path.startswith("/api/")}  # OpenCode 2 has tests of its own
    assert (sessions | reads) - asked == NOT_ASKED


def test_explanations_are_whole() -> None:
    """Each says why, for a scene that is played: there it has to be needed."""
    for row in KNOWN:
        assert row["scenes"] and set(row["scenes"]) <= SCENES.keys(), row
        assert len(row["reason"]) > 20, row


def test_a_difference_is_seen() -> None:
    native = shape({"id": "a", "n": 1, "parts": [{"type": "text", "text": "x"}, {"type": "tool", "tool": "x"}]})
    ours = shape({"id": 5, "m": 1, "parts": [{"type": "text"}]})
    assert sorted(differences(native, ours)) == ["!/id str num", "+/m", "-/n", "-/parts/text/text"]
    assert merge({"a": "str"}, {"b": "num"}) == {"a": "str", "b": "num"}


def test_an_explanation_is_for_its_place_alone() -> None:
    known = {"operation": "app.agents", "difference": "-/[*]/prompt"}
    assert explains(known, "app.agents", "-/*/prompt")
    assert not explains(known, "app.agents", "-/primary/prompt")
    assert not explains(known, "app.agents", "-/*/name")
    assert not explains(known, "app.skills", "-/*/prompt")
