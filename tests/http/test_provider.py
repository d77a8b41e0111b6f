"""Providers, agents and commands: what a client can choose from. The answers that TUI and web UI do not start without."""

from __future__ import annotations

import json
from typing import Any

import pytest

from shim.agents.catalog import SHARED_MODES
from tests.fakes.agents_directory import FakeAgents, claude, codex, silent
from tests.http.conftest import Place


@pytest.fixture
def agents() -> FakeAgents:
    """Three, one of which has told nothing yet."""
    return FakeAgents(claude(), codex(), silent())


async def test_providers_are_the_installed_agents(place: Place) -> None:
    body = (await place.api.get("/provider", status=200)).body
    assert [(one["id"], one["name"], list(one["models"])) for one in body["all"]] == [
        ("claude", "Claude Code", ["default", "opus/4.1"]),
        ("codex", "Codex", ["gpt"]),
    ]
    assert body["default"] == {"claude": "default", "codex": "gpt"}
    assert body["connected"] == ["claude", "codex"]


async def test_config_providers_are_the_same(place: Place) -> None:
    providers = (await place.api.get("/provider", status=200)).body
    configured = (await place.api.get("/config/providers", status=200)).body
    assert configured == {"providers": providers["all"], "default": providers["default"]}


async def test_a_model_says_what_it_can(place: Place) -> None:
    body = (await place.api.get("/provider", status=200)).body
    rich = body["all"][0]["models"]["default"]
    assert (rich["providerID"], rich["limit"], rich["capabilities"]["reasoning"]) == (
        "claude",
        {"context": 200_000, "output": 64_000},
        True,
    )
    assert rich["variants"] == {"low": {"reasoningEffort": "low"}, "high": {"reasoningEffort": "high"}}
    assert rich["capabilities"]["input"] == {"text": True, "audio": False, "image": True, "video": False, "pdf": True}
    poor = body["all"][1]["models"]["gpt"]
    assert (poor["limit"], poor["variants"], poor["capabilities"]["attachment"]) == ({"context": 0, "output": 0}, {}, False)
    # The agent takes images, this model of it does not.
    assert body["all"][0]["models"]["opus/4.1"]["capabilities"]["input"]["image"] is False


async def test_the_answer_is_small(place: Place) -> None:
    """The web UI asks three to five times a page."""
    body = await (await place.api.raw.get("/provider")).read()
    assert len(body) < 3000


async def test_agents_take_keys(place: Place) -> None:
    told = (await place.api.get("/provider/auth", status=200)).body
    assert told["claude"] == [{"type": "api", "label": "API key (ANTHROPIC_API_KEY)"}]


# --- agents ----------------------------------------------------------------------------------------------


async def test_agents_of_the_configuration_are_listed_with_what_has_no_effect(place: Place) -> None:
    scribe = {"prompt": "Write.", "model": "claude/sonnet", "color": "#ff8800", "mode": "primary", "temperature": 0.5}
    agents = {"scribe": scribe, "helper": {"mode": "subagent", "description": "Helps."}}
    (place.project / "opencode.json").write_text(json.dumps({"agent": agents, "permission": "allow"}))
    rows = {row["name"]: row for row in (await place.api.get("/agent", status=200)).body}
    assert list(rows)[2] == "scribe"
    assert (rows["scribe"]["prompt"], rows["scribe"]["color"], rows["scribe"]["native"]) == ("Write.", "#ff8800", False)
    assert (rows["helper"]["mode"], rows["helper"]["description"]) == ("subagent", "Helps.")
    codex = rows["scribe"]["options"]["setup"]["withoutEffect"]["codex"]
    assert codex == ["subagents (`agent`)", "`temperature`"]
    assert rows["build"]["options"]["setup"]["withoutEffect"]["codex"] == ["subagents (`agent`)"]


async def test_configuration_stands_as_written_and_the_truth_beside_it(place: Place) -> None:
    """Clients edit what `/config` answers. What of it acts with an agent is said elsewhere (docs/setup.md)."""
    servers = {"one": {"type": "remote", "url": "http://localhost:9", "oauth": {"scope": "x"}}}
    agents = {"explore": {"prompt": "Look."}, "title": {"disable": True}, "scribe": {"mode": "primary", "top_p": 0.5}}
    values: dict[str, object] = {"lsp": True, "small_model": "a/b", "mcp": servers, "agent": agents}
    (place.project / "opencode.json").write_text(json.dumps({**values, "compaction": {}}))
    shown = (await place.api.get("/config", status=200)).body
    assert {key: shown[key] for key in values} == values
    rows = {row["name"]: row for row in (await place.api.get("/agent", status=200)).body}
    missing = rows["build"]["options"]["setup"]["withoutEffect"]["claude"]
    assert missing == ["MCP servers (`mcp`)", "`lsp`", "`small_model`", "`mcp.one.oauth`", "`agent.explore`"]
    assert rows["scribe"]["options"]["setup"]["withoutEffect"]["claude"] == [*missing, "`top_p`"]
    assert (await place.api.get("/mcp", status=200)).body == {}, "no agent has told of it"
    assert (await place.api.get("/lsp", status=200)).body == []
    assert (await place.api.get("/find/symbol?query=a", status=200)).body == []


async def test_modes_of_all_agents(place: Place) -> None:
    rows = (await place.api.get("/agent", status=200)).body
    assert [row["name"] for row in rows] == ["build", "plan", "accept-edits", "full-access", "general"]
    assert {row["name"]: row["mode"] for row in rows} == {
        "build": "primary",
        "plan": "primary",
        "accept-edits": "primary",
        "full-access": "primary",
        "general": "subagent",
    }
    descriptions = {row["name"]: row["description"] for row in rows}
    # Claude and Codex describe it differently; the third agent has told nothing yet, and has no modes.
    assert descriptions["build"] == f"{SHARED_MODES['build']} (Claude Code, Codex)"
    assert descriptions["plan"] == "Plans. (Claude Code)"
    assert descriptions["full-access"] == "Everything. (Codex)"


async def test_default_agent_of_the_config_leads(place: Place) -> None:
    (place.project / "opencode.json").write_text('{"default_agent": "accept-edits"}')
    rows = (await place.api.get("/agent", status=200)).body
    assert [row["name"] for row in rows][:2] == ["accept-edits", "build"]


async def test_skills_of_the_project_are_listed(place: Place) -> None:
    assert (await place.api.get("/skill", status=200)).body == []
    file = place.project / ".opencode" / "skills" / "deploy" / "SKILL.md"
    file.parent.mkdir(parents=True)
    file.write_text("---\nname: deploy\ndescription: d\n---\nPush it.\n")
    [row] = (await place.api.get("/skill", status=200)).body
    assert row == {"name": "deploy", "description": "d", "location": str(file), "content": row["content"]}
    assert row["content"].strip() == "Push it."


class TestNoAgent:
    """Nothing is installed: clients must start all the same, to show what is missing."""

    @pytest.fixture
    def agents(self) -> FakeAgents:
        return FakeAgents()

    async def test_answers(self, place: Place) -> None:
        assert (await place.api.get("/provider", status=200)).body == {"all": [], "default": {}, "connected": []}
        assert [row["name"] for row in (await place.api.get("/agent", status=200)).body] == ["build"]
        assert [row["name"] for row in (await place.api.get("/command", status=200)).body] == ["init", "review"]


# --- commands ----------------------------------------------------------------------------------------------


async def test_commands_of_agents_and_of_the_person(place: Place) -> None:
    folder = place.project / ".opencode" / "command" / "sub"
    folder.mkdir(parents=True)
    (folder / "go.md").write_text("---\ndescription: Goes\nagent: plan\nsubtask: true\n---\nGo to $2 and $1: $ARGUMENTS\n")
    (place.project / "opencode.json").write_text('{"command": {"review": {"template": "mine"}}}')
    rows: list[dict[str, Any]] = (await place.api.get("/command", status=200)).body
    assert rows[0] | {"template": ""} == {
        "name": "init",
        "source": "command",
        "template": "",
        "hints": ["$ARGUMENTS"],
        "description": "guided AGENTS.md setup",
    }
    assert rows[1:] == [
        {"name": "review", "source": "command", "template": "mine", "hints": []},
        {
            "name": "sub/go",
            "source": "command",
            "template": "Go to $2 and $1: $ARGUMENTS",
            "hints": ["$1", "$2", "$ARGUMENTS"],
            "description": "Goes",
            "agent": "plan",
            "subtask": True,
        },
        {
            "name": "claude:init",
            "source": "command",
            "template": "/init $ARGUMENTS",
            "hints": ["$ARGUMENTS"],
            "description": "Sets up CLAUDE.md",
        },
        {
            "name": "claude:review",
            "source": "command",
            "template": "/review $ARGUMENTS",
            "hints": ["[number]"],
            "description": "Reviews a pull request",
        },
        {
            "name": "codex:init",
            "source": "command",
            "template": "/init $ARGUMENTS",
            "hints": ["$ARGUMENTS"],
            "description": "Sets up AGENTS.md",
        },
    ]
