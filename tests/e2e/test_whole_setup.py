"""One set-up of OpenCode with all its parts at once, behind Claude Code, Codex, Pi and an agent of ACP."""

from __future__ import annotations

import json
import os

import pytest

from .support.bench import CLAUDE, bench, open_watch, turn
from .support.places import MODULES
from .support.wire import Json
from .test_own_agents import SCRIBE
from .test_plugins import plant as plant_plugins
from .test_setup import CALLS, LOCAL

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]
WEATHER = {"codex": "mcp:weather"}
"""Agent -> the scene in which the model calls the person's own tool; the others have Claude's names."""


@pytest.mark.parametrize("agent", [CLAUDE, "codex", "pi", "claude-agent-acp"])
def test_the_same_set_up_acts_behind_each_agent(agent: str) -> None:
    """The same MCP tool and own tool are called, the same agent's prompt is seen, and the same guard refuses."""
    path = {"PATH": f"{MODULES / '.bin'}{os.pathsep}{os.environ['PATH']}"}
    own = {"scribe": {"mode": "primary", "prompt": SCRIBE}}
    config = {"mcp": {"near": LOCAL}, "agent": own, "permission": {"bash": "allow", "near_echo": "allow", "weather": "allow"}}
    with bench(agent, config=config, **path) as server:
        server.models()
        plant_plugins(server.place.home / ".config" / "opencode")
        watch = open_watch(server)
        scene = CALLS[agent].format(server="near")
        (echo,) = turn(server, watch, f"[scene:{scene}] say scribe", agent="scribe")
        assert "echo: hello" in echo["state"]["output"], echo
        assert any(SCRIBE in json.dumps(row) for row in server.model.requests())
        scene = WEATHER.get(agent, "tool:mcp__opencode-plugins__weather:{}")
        (weather,) = turn(server, watch, f"[scene:{scene}] say weather", agent="scribe")
        assert "sunny" in weather["state"]["output"], weather
        parts: list[Json] = turn(server, watch, "[scene:bash:touch forbidden] say touch", agent="scribe")
        why = "User refused" if agent == "claude-agent-acp" else "THE-GUARD-SAYS-NO"  # it has words of its own for a refusal
        assert (len(parts), why in json.dumps(parts)) == (1, True), parts
        assert "bash" in (server.place.home / "guard.log").read_text()
        assert not (server.place.project / "forbidden").exists()
