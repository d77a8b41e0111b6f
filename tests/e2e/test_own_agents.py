"""Agents of the person's OpenCode configuration behind real coding agents: chosen by name, and the model sees their prompt."""

from __future__ import annotations

import json

import pytest

from .support.bench import CLAUDE, Bench, bench, nightly, open_watch, turn
from .support.children import wait_for
from .support.wire import Json

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]
SCRIBE, LOOKUP, HELD = "PROMPT-OF-SCRIBE", "PROMPT-OF-LOOKUP", "held by the agent's rule"


def plant(server: Bench) -> None:
    folder = server.place.project / ".opencode" / "agent"
    folder.mkdir(parents=True)
    head = "description: Writes.\nmode: primary\ncolor: '#ff8800'\nsteps: 7\npermission:\n  bash: deny"
    (folder / "scribe.md").write_text(f"---\n{head}\n---\n{SCRIBE}\n")
    (folder / "lookup.md").write_text(
        f"---\ndescription: Looks things up.\nmode: subagent\npermission:\n  bash: deny\n---\n{LOOKUP}\n"
    )


def request_of(server: Bench, prompt: str) -> str:
    """The last request to the model that has this prompt and tools."""
    rows = [row for row in server.model.requests() if row["body"].get("tools") and prompt in json.dumps(row)]
    return json.dumps(rows[-1])


@pytest.mark.parametrize("agent", [CLAUDE, *nightly("codex", "pi", "claude-agent-acp")])
def test_a_primary_agent_is_chosen_by_name(agent: str) -> None:
    with bench(agent, config={"permission": {"bash": "allow"}}) as server:
        server.models()
        plant(server)
        rows = {row["name"]: row for row in server.api.get("/agent")}
        assert (rows["scribe"]["mode"], rows["scribe"]["color"], rows["scribe"]["steps"]) == ("primary", "#ff8800", 7)
        assert (rows["scribe"]["prompt"], rows["lookup"]["mode"]) == (SCRIBE, "subagent")
        watch = open_watch(server)
        turn(server, watch, "[scene:text] say plain", agent="build")
        assert SCRIBE not in request_of(server, "say plain")
        parts = turn(server, watch, "[scene:bash:touch written] say scribe", agent="scribe")
        refused = [] if agent == "claude-agent-acp" else ["error"]  # it does not offer a denied tool to the model
        assert [part["state"]["status"] for part in parts] == refused, parts
        assert not (server.place.project / "written").exists()
        assert SCRIBE in request_of(server, "say scribe")
        assert "at most 7 steps" in request_of(server, "say scribe")
        assert server.api.get(f"/session/{watch.session}/message")[-1]["info"]["agent"] == "scribe"
        parts = turn(server, watch, "[scene:bash:echo written] say again", agent="build")
        last = request_of(server, "say again")
        assert [part["state"]["status"] for part in parts] == ["completed"], (parts, last)
        assert SCRIBE not in last or last.rindex("No agent of the configuration") > last.rindex(SCRIBE)


def test_the_default_agent_counts_with_its_model() -> None:
    own = {"scribe": {"prompt": SCRIBE, "model": "claude/sonnet"}}
    with bench(CLAUDE, config={"agent": own, "default_agent": "scribe"}) as server:
        server.models()
        assert server.api.get("/agent")[0]["name"] == "scribe"
        watch = open_watch(server)
        turn(server, watch, "[scene:text] say one")
        assert SCRIBE in request_of(server, "say one")
        user = server.api.get(f"/session/{watch.session}/message")[0]["info"]
        assert (user["agent"], user["model"]["modelID"]) == ("scribe", "sonnet")


def test_claude_has_the_subagents_and_their_rules_hold() -> None:
    """The subagent may not run commands, which the agent above it may."""
    with bench(CLAUDE, config={"permission": {"bash": "allow"}}) as server:
        server.models()
        plant(server)
        watch = open_watch(server)
        call = {"description": "look", "prompt": "[scene:bash:touch written] say child", "subagent_type": "lookup"}
        turn(server, watch, f"[scene:tool:Agent:{json.dumps(call)}] say one")
        assert "lookup: Looks things up." in request_of(server, "say one")
        wait_for(lambda: server.api.get(f"/session/{watch.session}/children"), 20, "there is no child session")
        (child,) = server.api.get(f"/session/{watch.session}/children")

        def parts() -> list[Json]:
            return [part for row in server.api.get(f"/session/{child['id']}/message") for part in row["parts"]]

        def errors() -> list[str]:
            return [part["state"].get("error", "") for part in parts() if part["type"] == "tool"]

        wait_for(lambda: "".join(errors()), 30, lambda: json.dumps(parts()))
        assert "rule which prevents" in "".join(errors())
        assert not (server.place.project / "written").exists()
        assert any(LOOKUP in json.dumps(row) for row in server.model.requests())
