"""What a person chooses from: agents, models, providers, commands, skills, integrations with their keys, MCP servers, plugins.

Every answer is held against the wire's schema by the client.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from shim.agents.plugins import BrokenPlugin
from tests.fakes.agents_directory import FakeAgents, claude, codex, silent
from tests.http.conftest import Place
from universal.agents.claude.spec import CLAUDE

KEY = "sk-very-secret-123"


@pytest.fixture
def agents() -> FakeAgents:
    return FakeAgents(claude(), codex(), silent())


async def data(place: Place, path: str) -> Any:
    body = (await place.api.get(path, status=200)).body
    assert body["location"] == {"directory": place.directory}
    return body["data"]


async def test_agents_are_modes(place: Place) -> None:
    (place.project / "opencode.json").write_text(
        json.dumps({"permission": {"bash": {"rm *": "deny"}, "edit": "ask"}, "default_agent": "plan"})
    )
    rows = await data(place, "/api/agent")
    assert [row["id"] for row in rows] == ["plan", "build", "accept-edits", "full-access", "general"]
    assert [row["mode"] for row in rows] == ["primary"] * 4 + ["subagent"]
    assert rows[0]["permissions"] == [
        {"action": "shell", "resource": "rm *", "effect": "deny"},
        {"action": "edit", "resource": "*", "effect": "ask"},
    ]
    assert (await place.api.get("/api/agent/build", status=200)).body["data"] == rows[1]


async def test_models_are_those_of_agents(place: Place) -> None:
    rows = {f"{row['providerID']}/{row['id']}": row for row in await data(place, "/api/model")}
    assert list(rows) == ["claude/default", "claude/opus/4.1", "codex/gpt"]
    assert rows["claude/default"]["capabilities"]["input"] == ["text", "image", "pdf"]
    assert [one["id"] for one in rows["claude/default"]["variants"]] == ["low", "high"]
    assert rows["claude/default"]["limit"] == {"context": 200_000, "output": 64_000}
    assert rows["codex/gpt"]["variants"] == []


@pytest.mark.parametrize(
    ("config", "expected"),
    [({}, ("claude", "default")), ({"model": "codex/gpt"}, ("codex", "gpt")), ({"model": "gone/x"}, ("claude", "default"))],
)
async def test_the_default_model(place: Place, config: dict[str, Any], expected: tuple[str, str]) -> None:
    (place.project / "opencode.json").write_text(json.dumps(config))
    found = await data(place, "/api/model/default")
    assert (found["providerID"], found["id"]) == expected


async def test_providers_name_their_integration(place: Place) -> None:
    rows = await data(place, "/api/provider")
    assert [row["id"] for row in rows] == ["claude", "codex"]
    integrations = {row["id"] for row in await data(place, "/api/integration")}
    assert {row["integrationID"] for row in rows} <= integrations
    assert (await place.api.get("/api/provider/codex", status=200)).body["data"] == rows[1]


@pytest.mark.parametrize(
    ("path", "tag"),
    [
        ("/api/agent/nobody", "AgentNotFoundError"),
        ("/api/provider/nobody", "ProviderNotFoundError"),
        ("/api/integration/nobody", "IntegrationNotFoundError"),
    ],
)
async def test_unknown_ids_are_not_found(place: Place, path: str, tag: str) -> None:
    assert (await place.api.get(path, status=404)).body["_tag"] == tag


async def test_commands_have_no_templates(place: Place) -> None:
    (place.project / "opencode.json").write_text(
        json.dumps({"command": {"hello": {"template": "say hello", "description": "d"}}})
    )
    rows = await data(place, "/api/command")
    assert rows[:3] == [
        {"name": "init", "description": "guided AGENTS.md setup"},
        {"name": "review", "description": "review changes [commit|branch|pr], defaults to uncommitted"},
        {"name": "hello", "description": "d"},
    ]
    assert {row["name"] for row in rows[3:]} == {"claude:init", "claude:review", "codex:init"}


async def test_skills_are_read_where_agents_look(place: Place) -> None:
    assert await data(place, "/api/skill") == []
    for folder, name in ((place.project / ".claude", "near"), (place.home / ".claude", "near"), (place.home / ".agents", "far")):
        place_ = folder / "skills" / name
        place_.mkdir(parents=True)
        (place_ / "SKILL.md").write_text(f"---\nname: {name}\ndescription: from {folder.parent.name}\n---\nDo it.\n")
    (place.project / ".claude" / "skills" / "empty").mkdir()
    rows = await data(place, "/api/skill")
    assert [(row["id"], row["description"], row["content"]) for row in rows] == [
        ("far", "from home", "Do it."),
        ("near", "from project", "Do it."),
    ]
    assert rows[1]["path"] == str(place.project / ".claude/skills/near/SKILL.md")


# --- keys -----------------------------------------------------------------------------------------------------


async def test_a_key_is_taken_and_never_shown(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    before = (await place.api.get("/api/integration/claude", status=200)).body["data"]
    assert before["connections"] == []
    assert before["methods"] == [
        {"type": "key", "label": "API key (ANTHROPIC_API_KEY)"},
        {"type": "env", "names": ["ANTHROPIC_API_KEY"]},
    ]
    await place.api.post("/api/integration/claude/connect/key", {"key": f" {KEY} ", "label": "mine"}, status=204)
    assert place.services.agents.keys.environment(CLAUDE) == {"ANTHROPIC_API_KEY": KEY}
    after = (await place.api.get("/api/integration/claude", status=200)).body["data"]
    assert after["connections"] == [{"type": "credential", "id": "claude", "label": "API key", "method": "key"}]
    await place.api.post("/api/credential/claude/activate", status=204)
    for path in ("/api/integration", "/api/provider", "/api/model", "/api/config", "/openapi.json"):
        assert KEY not in json.dumps((await place.api.get(path, status=200)).body)
    await place.api.delete("/api/credential/claude", status=204)
    assert (await place.api.get("/api/integration/claude", status=200)).body["data"] == before
    assert place.services.agents.keys.environment(CLAUDE) == {}
    captured = capsys.readouterr()
    assert KEY not in captured.out + captured.err


async def test_a_key_of_the_environment_is_a_connection(place: Place) -> None:
    found = (await place.api.get("/api/integration/openai", status=200)).body["data"]
    assert found["connections"] == [{"type": "env", "name": "OPENAI_API_KEY"}]


async def test_keys_that_cannot_be_kept(place: Place) -> None:
    for body in ({"key": ""}, {"key": [KEY]}, {}):
        refused = (await place.api.post("/api/integration/claude/connect/key", body, status=400)).body
        assert (refused["field"], KEY in refused["message"]) == ("key", False)
    await place.api.post("/api/integration/mock/connect/key", {"key": KEY}, status=404)
    await place.api.post("/api/credential/claude/activate", status=404)
    await place.api.delete("/api/credential/claude", status=204)
    for method, path in (("GET", "/api/credential"), ("POST", "/api/credential"), ("PATCH", "/api/credential/claude")):
        refused = (await place.api.request(method, path, status=501)).body
        assert refused["_tag"] == "UnsupportedError" and refused["message"]


# --- what agents bring ------------------------------------------------------------------------------------------


async def test_plugins_are_packages(place: Place, agents: FakeAgents) -> None:
    agents.packages = {"own": "shim-own-agent"}
    agents.broken = (BrokenPlugin("other", "shim-other", "it cannot be loaded."),)
    rows = await data(place, "/api/plugin")
    assert [(row["id"], row["source"]["target"], row["state"]) for row in rows] == [
        ("own", "shim-own-agent", {"status": "active"}),
        ("other", "shim-other", {"status": "failed", "error": "it cannot be loaded."}),
    ]


@pytest.mark.parametrize("path", ["/api/mcp", "/api/mcp/resource", "/api/reference", "/api/websearch/provider"])
async def test_lists_that_agents_own_are_empty(place: Place, path: str) -> None:
    empty: Any = {"resources": [], "templates": []} if path.endswith("resource") else []
    assert await data(place, path) == empty
