"""The real agents that the tests drive: how each is found, and what is written into its home so that it asks the scripted model.

A home is only of the place, so nothing of the person's own configuration or login is seen or changed. Configurations are those of
`opencode-shim record` (shim/dev/record/homes.py), without its MCP server, second model and rules.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from shim.dev.record.homes import (
    CLAUDE_ENV,
    MCP_SERVER,
    OPENCODE_ENV,
    OPENCODE_MODEL,
    PI_ENV,
    PI_MODEL,
    PI_SETTINGS,
    codex_toml,
    lead_by_card,
    opencode_config,
    pi_models,
)
from universal.agents.acp.profiles import CARDS, RECORD

from .places import ADOPTED, LILDAX, NODE, Place, program

Env = dict[str, str]
Prepare = Callable[[Place, str], Env]
"""(place, URL of the scripted model) -> what the agent inherits; it writes the agent's configuration."""


@dataclass(frozen=True)
class AgentSetup:
    """One agent. `provider` is its name in the registry, `program` one of `PROGRAMS`; `mode` that of prompts, if not `build`."""

    provider: str
    program: str | None
    prepare: Prepare
    mode: str | None = None

    @property
    def variable(self) -> str:
        """The environment variable that names its program to the server."""
        return f"SHIM_{self.provider.upper().replace('-', '_')}_BIN"


def _prepare_nothing(_place: Place, _url: str) -> Env:
    return {}


def _claude(place: Place, url: str) -> Env:
    return {**CLAUDE_ENV, "ANTHROPIC_BASE_URL": url, "CLAUDE_CONFIG_DIR": str(place.home / ".claude")}


def _codex(place: Place, url: str) -> Env:
    _write(place.home / ".codex" / "config.toml", codex_toml(place.project, url))
    return {}


def _pi(place: Place, url: str) -> Env:
    folder = place.home / ".pi" / "agent"
    _write(folder / "models.json", json.dumps(pi_models(url, PI_MODEL)))
    _write(folder / "settings.json", json.dumps({**PI_SETTINGS, "retry": {"baseDelayMs": 300}}))
    if ADOPTED[0] == "pi":  # its tools are called from scripts, which is Pi's own way since 1.5
        server = {"command": sys.executable, "args": [str(MCP_SERVER)]}
        _write(folder / "mcp.json", json.dumps({"mcpServers": {"scripted": server}}))
    return dict(PI_ENV)


def _opencode(place: Place, url: str) -> Env:
    file = place.home / ".config" / "opencode" / "opencode.json"
    _write(file, json.dumps({**native_config(url), **(json.loads(file.read_text()) if file.exists() else {})}))
    return dict(OPENCODE_ENV)


def _card_setup(agent: str) -> AgentSetup:
    return AgentSetup(agent, None, lambda place, url: lead_by_card(agent, place.home, place.project, url))


LILDAX_SCRIPT = """#!/bin/sh
XDG_STATE_HOME=$(mktemp -d "$HOME/.tmp/state-XXXXXX")
export XDG_STATE_HOME
mkdir -p "$XDG_STATE_HOME/opencode"
printf %s "$OPENCODE_SERVER_PASSWORD" > "$XDG_STATE_HOME/opencode/password"
exec {program} "$@"
"""
"""Starts the preview of OpenCode 2, which takes its password from a file of its state and from no variable."""


def _opencode2(place: Place, url: str) -> Env:
    script = place.home / "opencode2"
    _write(script, LILDAX_SCRIPT.format(program=LILDAX))
    script.chmod(0o755)
    return {**_opencode(place, url), "SHIM_OPENCODE2_BIN": str(script)}


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def native_config(model_url: str) -> dict[str, object]:
    """OpenCode's configuration with the scripted model as its only one."""
    return opencode_config(model_url, {"scripted": OPENCODE_MODEL})


AGENTS: Mapping[str, AgentSetup] = {
    "mock": AgentSetup("mock", None, _prepare_nothing),
    "claude": AgentSetup("claude", "claude", _claude),
    "claude-2.1.197": AgentSetup("claude", "claude-2.1.197", _claude),
    "codex": AgentSetup("codex", "codex", _codex),
    "pi": AgentSetup("pi", "pi", _pi),
    "opencode": AgentSetup("opencode", "opencode", _opencode),
    "opencode2": AgentSetup("opencode2", None, _opencode2),
    "claude-agent-acp": AgentSetup("claude-agent-acp", "claude-agent-acp", _claude),
    "opencode-acp": AgentSetup("opencode-acp", "opencode", _opencode),
    "codex-acp": AgentSetup("codex-acp", None, _codex, "read-only"),
    "pi-acp": AgentSetup("pi-acp", None, _pi),
    **{name: _card_setup(name) for name, card in CARDS.items() if RECORD in card},
    "kilo-serve": replace(_card_setup("kilo"), provider="kilo-serve"),
}
"""By the name that tests give to `bench`. Those without a program are run only where `make adopt` brings it.

In its own default mode codex-acp lets a model decide, which the scripted one does not understand.
"""


def agents_environment(place: Place, model_url: str | None, names: Iterable[str]) -> Env:
    """The environment of a server that has these agents, and of the person's usual ones no other. Writes their homes."""
    env: Env = {"SHIM_CLAUDE_BIN": str(place.home / "no-such-claude")}
    for name in names:
        agent = AGENTS[name]
        if agent.provider == ADOPTED[0]:
            env[agent.variable] = ADOPTED[1]
        elif agent.program is not None:
            env[agent.variable] = program(agent.program)
        if model_url is not None:
            env |= agent.prepare(place, model_url)
    env["PATH"] = os.pathsep.join([str(NODE), place.env()["PATH"]])
    return env
