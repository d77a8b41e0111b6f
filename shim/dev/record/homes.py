"""Makes a fresh home and project for a scene, with configurations that lead an agent to the scripted model.

The person's configuration and login are neither read nor changed. `TARGETS` has the agents that can be recorded. The end-to-end
tests configure their agents in the same way, with `sealed_environment` and the parts of configurations below.
Source: docs/agents-wire.md; the agents' own documentation of their configuration.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

from shim.host.git.vcs import git
from shim.lib.errors import ShimError
from universal.agents.acp.profiles import CARDS, RECORD
from universal.registry import agents

DEAD_PROXY = "http://127.0.0.1:9"
"""A proxy address where nothing listens, so that connections to other machines fail at once."""
FILES = {"README.md": "Hello\n", "notes.txt": "one\ntwo\nthree\n", "secret.txt": "The word is magenta.\n"}
MCP_SERVER = Path(__file__).with_name("mcp_server.py")

Env: TypeAlias = dict[str, str]


def sealed_environment(home: Path, path: str) -> Env:
    """Return an environment with this home, its `.tmp`, no network, and only `path` of the person's own."""
    base = {"HOME": str(home), "TMPDIR": str(home / ".tmp"), "PATH": path}
    base |= {"SHELL": "/bin/bash", "USER": "user", "LANG": "C.UTF-8", "TERM": "dumb", "GIT_CONFIG_NOSYSTEM": "1"}
    base |= dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), DEAD_PROXY)
    return base | dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost")


@dataclass(frozen=True, slots=True)
class Place:
    """A home with a project, below a scratch directory that is removed at the end."""

    root: Path

    @classmethod
    async def make(cls, parent: Path | None = None) -> Place:
        """Create a place in `parent` or the temporary folder, with a git repository of `FILES`. Raises ShimError without git."""
        place = cls(await asyncio.to_thread(lambda: Path(tempfile.mkdtemp(prefix="shim-record-", dir=parent)).resolve()))
        for path in (place.project, place.home / ".tmp"):
            path.mkdir(parents=True)
        for name, text in FILES.items():
            (place.project / name).write_text(text)
        identity = ("-c", "user.name=user", "-c", "user.email=user@localhost", "-c", "commit.gpgsign=false")
        for arguments in (("init", "-q", "-b", "main"), ("add", "."), (*identity, "commit", "-q", "-m", "first")):
            result = await git(str(place.project), *arguments)
            if not result.ok:
                why = result.stderr.decode("utf-8", "replace").strip()
                raise ShimError(f"Recording needs git, for the project that the agent works in: {why}")
        return place

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def project(self) -> Path:
        return self.home / "project"

    def environment(self, more: Mapping[str, str]) -> Env:
        """Return the agent's environment: this home, no network, and only PATH of the person's own."""
        return {**sealed_environment(self.home, os.environ.get("PATH", os.defpath)), **more}

    def write(self, name: str, text: str) -> None:
        """Write a file below the home."""
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def remove(self) -> None:
        """Remove the scratch directory, also if a process still uses it."""
        shutil.rmtree(self.root, ignore_errors=True)


Prepare: TypeAlias = Callable[[Place, str], Env]
"""Writes an agent's configuration. In: place, URL of the scripted model. Out: further variables for the agent."""


@dataclass(frozen=True, slots=True)
class Target:
    """An agent that can be recorded.

    `package` on npm, or on PyPI if it wants a `python`, and its `program`; `folder` of recordings; `model` and `mode` of
    prompts; `lacks`: missing feature -> reason.
    `plan`: further variables with which it believes in an account with a plan.
    `turn_s`: seconds that a step of a scene may take, if the agent needs more than others for its start; 0 for the usual ones.
    """

    prepare: Prepare
    package: str
    program: str
    folder: str = ""
    model: str | None = None
    mode: str = "build"
    lacks: Mapping[str, str] = field(default_factory=dict[str, str])
    plan: Mapping[str, str] = field(default_factory=dict[str, str])
    python: str = ""
    turn_s: float = 0.0


KEY = "sk-scripted"
"""An API key. The scripted model takes any, but agents need one."""

CLAUDE_ENV: Mapping[str, str] = {
    "ANTHROPIC_API_KEY": "sk-ant-scripted",
    "DISABLE_TELEMETRY": "1",
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_ERROR_REPORTING": "1",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "ENABLE_TOOL_SEARCH": "0",  # all tools are offered at once, so that the scripted model can call them
}
"""Variables that keep Claude Code from using the network. ANTHROPIC_BASE_URL and CLAUDE_CONFIG_DIR are set too."""
CLAUDE_PLAN: Mapping[str, str] = {"ANTHROPIC_API_KEY": "", "CLAUDE_CODE_OAUTH_TOKEN": "sk-ant-oat01-scripted"}
"""Variables with which Claude Code believes in an account with a plan: only then it tells its limits."""


def _claude(place: Place, url: str) -> Env:
    servers = {"scripted": {"type": "stdio", "command": sys.executable, "args": [str(MCP_SERVER)]}}
    place.write(".claude/.claude.json", json.dumps({"mcpServers": servers, "hasCompletedOnboarding": True}))
    variables = {"ANTHROPIC_BASE_URL": url, "CLAUDE_CONFIG_DIR": str(place.home / ".claude")}
    return {**CLAUDE_ENV, **variables, "CLAUDE_CODE_ENABLE_TODO_TOOLS": "1"}


CODEX_TOML = """model = "gpt-5.5"
model_provider = "scripted"
check_for_update_on_startup = false
suppress_unstable_features_warning = true
[analytics]
enabled = false
[model_providers.scripted]
name = "Scripted"
base_url = "{url}/v1"
wire_api = "responses"
[features]
default_mode_request_user_input = true
multi_agent_v2 = true
[tools.update_plan]
enabled = true
[projects.{project}]
trust_level = "trusted"
"""
CODEX_MCP_TOML = """[mcp_servers.scripted]
command = {python}
args = [{server}]
"""


def codex_toml(project: Path, url: str) -> str:
    """Codex's configuration with the scripted model as its only one, and a trusted project."""
    return CODEX_TOML.format(url=url, project=json.dumps(str(project)))


def _codex(place: Place, url: str) -> Env:
    server = CODEX_MCP_TOML.format(python=json.dumps(sys.executable), server=json.dumps(str(MCP_SERVER)))
    place.write(".codex/config.toml", codex_toml(place.project, url) + server)
    return {"CODEX_HOME": str(place.home / ".codex"), "OPENAI_API_KEY": KEY, "CODEX_API_KEY": KEY}


PI_ENV: Mapping[str, str] = {"PI_OFFLINE": "1", "PI_TELEMETRY": "0", "PI_SKIP_VERSION_CHECK": "1"}
"""Variables that keep Pi from using the network."""
PI_SETTINGS: Mapping[str, str] = {"defaultProvider": "scripted", "defaultModel": "scripted"}
_PI_LIMITS = {"contextWindow": 200000, "maxTokens": 16000}
PI_MODEL: Mapping[str, object] = {
    "id": "scripted",
    "name": "Scripted",
    "reasoning": True,
    "input": ["text", "image"],
    "cost": {"input": 3, "output": 15, "cacheRead": 0.3, "cacheWrite": 3.75},
    **_PI_LIMITS,
}


def pi_models(url: str, *models: Mapping[str, object]) -> dict[str, object]:
    """Pi's `models.json`, with the scripted model's server as its only provider."""
    return {"providers": {"scripted": {"baseUrl": f"{url}/v1", "api": "openai-completions", "apiKey": KEY, "models": models}}}


def _pi(place: Place, url: str) -> Env:
    plain = {"id": "plain", "name": "Plain", "reasoning": False, "input": ["text"], **_PI_LIMITS}
    place.write(".pi/agent/models.json", json.dumps(pi_models(url, PI_MODEL, plain)))
    place.write(".pi/agent/settings.json", json.dumps(PI_SETTINGS))
    server = {"command": sys.executable, "args": [str(MCP_SERVER)], "exposure": "direct"}
    place.write(".pi/agent/mcp.json", json.dumps({"mcpServers": {"scripted": server}}))
    return dict(PI_ENV)


OPENCODE_ENV: Mapping[str, str] = {
    "OPENCODE_DISABLE_AUTOUPDATE": "1",
    "OPENCODE_DISABLE_MODELS_FETCH": "1",
    "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
    "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
}
"""Variables that keep an OpenCode process, server or client, from using the network."""
OPENCODE_MODEL: Mapping[str, object] = {
    "name": "Scripted",
    "reasoning": True,
    "tool_call": True,
    "attachment": True,
    "limit": {"context": 100000, "output": 8000},
}


def opencode_config(url: str, models: Mapping[str, Mapping[str, object]]) -> dict[str, object]:
    """OpenCode's configuration with the scripted model's server as its only provider. `models`: further models by id.

    With `$schema`, which OpenCode writes into a configuration that has none: to us, its settings would have changed then.
    """
    options = {"baseURL": f"{url}/v1", "apiKey": KEY}
    provider = {"npm": "@ai-sdk/openai-compatible", "name": "Scripted", "options": options, "models": models}
    config: dict[str, object] = {"$schema": "https://opencode.ai/config.json", "provider": {"scripted": provider}}
    return {**config, "model": "scripted/scripted", "small_model": "scripted/scripted"}


def _opencode(place: Place, url: str) -> Env:
    more = {"modalities": {"input": ["text", "image"], "output": ["text"]}, "cost": {"input": 3, "output": 15}}
    model = {**OPENCODE_MODEL, **more}
    config = {
        **opencode_config(url, {"scripted": model, "plain": {**model, "name": "Plain", "reasoning": False}}),
        "permission": {"edit": "ask", "bash": "ask"},
        "mcp": {"scripted": {"type": "local", "command": [sys.executable, str(MCP_SERVER)], "enabled": True}},
    }
    place.write(".config/opencode/opencode.json", json.dumps(config))
    return dict(OPENCODE_ENV)


def lead_by_card(agent: str, home: Path, project: Path, url: str) -> Env:
    """Write an agent's files as its card says, and return its variables. They lead it to the scripted model at `url`."""
    record = CARDS[agent][RECORD]
    words = {"{url}": url, "{project}": str(project), "{python}": sys.executable, "{mcp}": str(MCP_SERVER)}

    def fill(text: str) -> str:
        for word, value in words.items():
            text = text.replace(word, value)
        return text

    for name, text in record.get("files", {}).items():
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(fill(text), "utf-8")
    return {name: fill(value) for name, value in record.get("env", {}).items()}


def _target(agent: str, prepare: Prepare, folder: str = "", **more: Any) -> Target:
    spec = agents()[agent]
    return Target(prepare, spec.program.npm[0], spec.program.binaries[0], folder, lacks=spec.abilities.all_lacks, **more)


def _by_card(agent: str) -> Target:
    spec, record = agents()[agent], CARDS[agent][RECORD]
    return Target(
        lambda place, url: lead_by_card(agent, place.home, place.project, url),
        package=record.get("pypi") or spec.program.npm[0],
        program=spec.program.binaries[0],
        folder=f"acp/{agent}-",
        mode=record.get("mode", "build"),
        lacks={"plan": "The protocol has no word for limits of a plan.", **spec.abilities.all_lacks},
        python=record.get("python", ""),
        turn_s=record.get("turn_s", 0.0),
    )


TARGETS: Mapping[str, Target] = {
    "claude": _target("claude", _claude, plan=CLAUDE_PLAN),
    "codex": _target("codex", _codex, model="gpt-5.5"),
    "opencode": _target("opencode", _opencode),
    "pi": _target("pi", _pi),
    "claude-agent-acp": _target("claude-agent-acp", _claude, "acp/claude-agent-acp-"),
    "codex-acp": _target("codex-acp", _codex, "acp/codex-acp-", mode="read-only"),
    # The program is `opencode`, which is installed already.
    "opencode-acp": Target(
        _opencode,
        agents()["opencode"].program.npm[0],
        "opencode",
        "acp/opencode-",
        lacks=agents()["opencode-acp"].abilities.all_lacks,
    ),
    "pi-acp": _target("pi-acp", _pi, "acp/pi-acp-"),
    "kilo-serve": replace(_by_card("kilo"), folder="", lacks=agents()["kilo-serve"].abilities.all_lacks),
    **{name: _by_card(name) for name, card in CARDS.items() if RECORD in card},
}
"""Name in the registry -> the agent's target."""

CANNOT: Mapping[str, str] = {name: spec.program.unrecorded for name, spec in agents().items() if spec.program.unrecorded}
"""Agents that cannot be recorded, and why."""


URL_HERE = "{url}"
"""Placeholder for the scripted model's URL, in the variables and files that a person gives for an agent."""
FOREIGN_ENV: Mapping[str, str] = {
    "OPENAI_BASE_URL": "{url}/v1",
    "OPENAI_API_BASE": "{url}/v1",
    "OPENAI_API_KEY": KEY,
    "ANTHROPIC_BASE_URL": "{url}",
    "ANTHROPIC_API_KEY": KEY,
}
"""Variables by which most agents find a model. An agent without a target gets them all."""


def foreign(program: str, environment: Mapping[str, str], home: Path | None = None) -> Target:
    """The target of an agent that has none. `home`: files for its home. In both, `{url}` stands for the model's URL."""

    def prepare(place: Place, url: str) -> Env:
        if home is not None:
            for path in sorted(entry for entry in home.rglob("*") if entry.is_file()):
                place.write(str(path.relative_to(home)), path.read_text("utf-8").replace(URL_HERE, url))
        variables = {**FOREIGN_ENV, **environment}
        return {name: value.replace(URL_HERE, url) for name, value in variables.items()}

    return Target(prepare, "", program)


def target(name: str) -> Target:
    """Return the target of an agent. Raises ShimError, which says why it cannot be recorded and which agents can."""
    entry = TARGETS.get(name)
    if entry is None:
        why = CANNOT.get(name, "It is not known how it is led to the scripted model.")
        raise ShimError(f"{name} cannot be recorded. {why} Agents that can: {', '.join(TARGETS)}.")
    return entry
