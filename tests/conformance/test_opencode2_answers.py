"""What a server of the build of July answered at its start, asked of us in its dialect: the same status, types and keys.

Source: recording `endpoints` of v2-20260717 (compat_fixtures/opencode2/answers.jsonl; of long lists the first item, texts cut).
What sessions answer has tests of its own.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.conformance.test_native_answers import differences
from tests.http.conftest import Place
from tests.support.july_dialect import part_of
from tests.support.universal import ROOT

pytestmark = pytest.mark.usefixtures("july")
FIXTURES = ROOT / "compat_fixtures" / "opencode2"
ROWS = [json.loads(line) for line in (FIXTURES / "answers.jsonl").read_text().splitlines()]

LEFT_OUT = {
    ("/api/health", "/version"): "`/api/info` has it for clients of 2.x; 1.18's document has only `healthy`",
    ("/api/health", "/pid"): "with it the web UI of 1.18 leaves the protocol that it is served in",
    ("/api/command", "/data/0/template"): "templates stay on the server, as in 2.0; who sends a command names it",
    ("/api/agent", "/data/0/permissions"): "rules of the config hold for all modes; what a mode allows is the agent's",
    ("/api/plugin", "/data"): "native is made of plugins; ours are packages that bring agents",
    ("/api/model", "/data/0/settings"): "where an agent finds its models is its own business",
    ("/api/model/default", "/data/settings"): "the same",
    ("/api/provider", "/data/0/settings"): "the same",
    ("/api/provider/scripted", "/data/settings"): "the same",
    ("/api/integration", "/data/0/methods/0/id"): "native's first one logs in by OAuth, which agents do by themselves",
    ("/api/integration", "/data/0/methods/0/prompts"): "the same",
}
"""(path, where) of what native has and we have not, with the reason."""
OURS = {"/api/provider/scripted": "/api/provider/claude"}
"""The name of native's thing -> of ours."""


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['path']}{row['params'] or ''}")
async def test_same_shape(place: Place, row: dict[str, Any]) -> None:
    params = {**row["params"], "dialect": row["dialect"], "location[directory]": place.directory}
    (place.project / "opencode.json").write_text("{}")
    path = OURS.get(row["path"], row["path"])
    if path == "/api/debug/location":
        await place.api.post("/api/pty", {"command": "cat"}, status=200)
    answer = await place.api.get(path, params=params, status=row["status"])
    if row["status"] == 400:
        assert {key: answer.body[key] for key in row["body"]} == row["body"]
        return
    found = [
        one
        for one in differences(path, row["body"], part_of(path, answer.body))
        if (row["path"], one.split(":")[0]) not in LEFT_OUT
    ]
    assert found == []


@pytest.mark.parametrize(("path", "where"), LEFT_OUT)
def test_exceptions_are_needed(path: str, where: str) -> None:
    """An exception for what native does not have is stale."""
    bodies = [row["body"] for row in ROWS if row["path"] == path]
    assert bodies
    for step in where.strip("/").split("/"):
        bodies = [body[int(step) if isinstance(body, list) else step] for body in bodies]
