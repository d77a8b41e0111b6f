"""One set-up of OpenCode with all its parts at once: native OpenCode, and Claude Code, Codex, Pi and others behind us."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from .support.bench import CLAUDE, TURN_S, bench, nightly, open_watch, turn
from .support.children import wait_for
from .support.places import CURRENT, MODULES, Place
from .support.servers import Model, Native
from .support.wire import Api, Json, tools
from .test_formatters import UPPER
from .test_own_agents import SCRIBE
from .test_plugins import plant as plant_plugins
from .test_setup import CALLS, LOCAL, remote_server

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]
NATIVE = "native"
WEATHER = {"codex": "mcp:weather", NATIVE: "mcp:weather", "opencode": "mcp:weather"}
"""Agent -> the scene in which the model calls the person's own tool; the others have Claude's names."""
INSTRUCTION, SKILL = "MARK-OF-THE-INSTRUCTIONS", "MARK-OF-THE-SKILL"
OWN_WORDS = {"claude-agent-acp": "User refused"}
"""Agents with words of their own for a call that the guard refuses."""


@dataclass(frozen=True)
class Subject:
    """A server with the set-up. `turn`: sends a prompt to the agent `scribe`, and gives the tool parts of its turn."""

    place: Place
    model: Model
    turn: Callable[[str], list[Json]]


def config(url: str) -> dict[str, object]:
    rules = {"bash": {"*": "allow", "touch held": "deny"}}
    return {
        "mcp": {"near": LOCAL, "far": {"type": "remote", "url": url}},
        "agent": {"scribe": {"mode": "primary", "prompt": SCRIBE, "permission": rules}},
        "instructions": ["rules/*.md"],
        "formatter": {"upper": {"command": [sys.executable, "-c", UPPER, "$FILE"], "extensions": [".txt"]}},
        "permission": {"near_*": "allow", "far_*": "allow", "weather": "allow", "edit": "allow"},
    }


def plant(place: Place) -> None:
    folder = place.home / ".config" / "opencode"
    plant_plugins(folder)
    for file, words in (
        (place.project / "rules" / "a.md", INSTRUCTION),
        (folder / "skills" / "deploy" / "SKILL.md", f"---\nname: deploy\ndescription: {SKILL}\n---\nText.\n"),
    ):
        file.parent.mkdir(parents=True)
        file.write_text(words)
    skip_install(folder)


def skip_install(folder: Path) -> None:
    """Have OpenCode find `@opencode-ai/plugin` installed, which it fetches from npm before it loads plugins: half a minute."""
    (folder / "node_modules").mkdir()
    lock = {"packages": {"": {"dependencies": {"@opencode-ai/plugin": CURRENT}}}}
    (folder / "package-lock.json").write_text(json.dumps(lock))


@contextmanager
def open_native(values: dict[str, object]) -> Iterator[Subject]:
    place = Place.make()
    model = Model(place)
    plant(place)
    server = Native(place, model, config=values)
    api = Api(server.url, place.project)
    try:
        session = api.session()

        def play(prompt: str) -> list[Json]:
            before = len(api.messages(session))
            body = {"parts": [{"type": "text", "text": prompt}], "agent": "scribe"}
            assert api.call("POST", f"/session/{session}/message", body, timeout_s=TURN_S)[0] == 200
            return tools(api.messages(session)[before:])

        yield Subject(place, model, play)
    finally:
        server.close()
        model.close()
        place.remove()


@contextmanager
def open_ours(agent: str, values: dict[str, object]) -> Iterator[Subject]:
    path = {"PATH": f"{MODULES / '.bin'}{os.pathsep}{os.environ['PATH']}"}
    with bench(agent, config=values, **path) as server:
        server.models()
        plant(server.place)
        watch = open_watch(server)
        yield Subject(server.place, server.model, lambda prompt: turn(server, watch, prompt, agent="scribe"))


@pytest.mark.parametrize("agent", [CLAUDE, *nightly(NATIVE, "codex", "pi", "claude-agent-acp", "opencode")])
def test_the_same_set_up_acts_behind_each_agent(agent: str) -> None:
    """The same tools are called, the same words reach the model, the same guard and rule refuse, the same formatter runs."""
    with remote_server() as (url, asked), open_native(config(url)) if agent == NATIVE else open_ours(agent, config(url)) as it:
        scene = CALLS["opencode" if agent == NATIVE else agent].format(server="near")
        (echo,) = it.turn(f"[scene:{scene}] say scribe")
        assert "echo: hello" in echo["state"]["output"], echo
        request = json.dumps(
            next(row for row in it.model.requests() if row["body"].get("tools") and "say scribe" in json.dumps(row))
        )
        assert [mark for mark in (SCRIBE, INSTRUCTION, SKILL) if mark not in request] == [], request
        wait_for(lambda: asked, TURN_S, "the remote server is not asked")
        (weather,) = it.turn(f"[scene:{WEATHER.get(agent, 'tool:mcp__opencode-plugins__weather:{}')}] say weather")
        assert (weather["tool"], "sunny" in weather["state"]["output"]) == ("weather", True), weather
        (part,) = it.turn("[scene:bash:echo it is $OF_PLUGIN] say env")
        assert "it is SESSION-SHELL" in part["state"]["output"], part
        parts = it.turn("[scene:bash:touch forbidden] say touch")
        assert (len(parts), OWN_WORDS.get(agent, "THE-GUARD-SAYS-NO") in json.dumps(parts)) == (1, True), parts
        assert "bash" in (it.place.home / "guard.log").read_text()
        parts = it.turn("[scene:bash:touch held] say touch")
        assert [part["state"]["status"] for part in parts] == ["error"], parts
        assert [name for name in ("forbidden", "held") if (it.place.project / name).exists()] == []
        it.turn("[scene:write] say write")
        new = it.place.project / "new.txt"
        wait_for(lambda: new.read_text() == "ALPHA\nBETA\n", TURN_S, lambda: new.read_text())
