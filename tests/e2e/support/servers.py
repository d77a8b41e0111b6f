"""The servers under test, as child processes: the scripted model, ours, and a native `opencode serve`."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from .children import Child
from .places import CLAUDE_ENV, OPENCODE_ENV, REPO, Place, program

START_S = 60
URL = re.compile(r"https?://127\.0\.0\.1:(\d+)")


class Model:
    """The scripted model; `requests()` is what agents have asked it."""

    def __init__(self, place: Place) -> None:
        self.requests_path = place.log("model-requests")
        script = Path(__file__).with_name("model.py")
        argv = [sys.executable, str(script), "0", str(self.requests_path)]
        self.child = Child(argv, place.root, place.env(), place.log("model"))
        self.port = int(self.child.wait_log(lambda log: re.search(r"listening on (\d+)", log), START_S).group(1))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def requests(self) -> list[dict[str, object]]:
        if not self.requests_path.exists():
            return []
        return [json.loads(line) for line in self.requests_path.read_text().splitlines()]

    def close(self) -> None:
        self.child.close()


def configure(place: Place, config: dict[str, object]) -> None:
    """Writes the person's OpenCode configuration, which native OpenCode and we read alike."""
    file = place.home / ".config" / "opencode" / "opencode.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(config))


def native_config(model_url: str) -> dict[str, object]:
    """OpenCode's configuration with the scripted model as its only one."""
    limits = {"context": 100000, "output": 8000}
    model = {"name": "Scripted", "reasoning": True, "tool_call": True, "attachment": True, "limit": limits}
    options = {"baseURL": f"{model_url}/v1", "apiKey": "x"}
    provider = {"npm": "@ai-sdk/openai-compatible", "name": "Scripted", "options": options, "models": {"scripted": model}}
    return {"model": "scripted/scripted", "small_model": "scripted/scripted", "provider": {"scripted": provider}}


class Native:
    """`opencode serve` on the place's project. `config` is merged into opencode.json (outside of the project)."""

    def __init__(self, place: Place, model: Model, *, version: str = "1.18.33", config: dict[str, object] | None = None) -> None:
        self.place = place
        configure(place, {**native_config(model.url), **(config or {})})
        argv = [program(f"opencode-{version}"), "serve", "--port", "0"]
        self.child = Child(argv, place.project, place.env(**OPENCODE_ENV), place.log("native"))
        found = self.child.wait_log(lambda log: re.search(r"listening on \S*:(\d+)", log), START_S)
        self.port = int(found.group(1))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def close(self) -> None:
        self.child.close()


class Shim:
    """`opencode-shim serve` on the place's project, with the data kept in the place, so that it can be started again.

    agent      "mock", or "claude-VERSION"
    settings   more environment (SHIM_*), and what the agent inherits
    """

    def __init__(
        self,
        place: Place,
        *,
        agent: str = "mock",
        model: Model | None = None,
        port: int = 0,
        args: tuple[str, ...] = (),
        command: str = "serve",
        **settings: str,
    ) -> None:
        self.place, self.agent = place, agent
        env = dict(CLAUDE_ENV)
        if model is not None:
            env |= {"ANTHROPIC_BASE_URL": model.url, "CLAUDE_CONFIG_DIR": str(place.home / ".claude")}
        claude = program(agent) if agent.startswith("claude-") else str(place.home / "no-such-claude")
        env |= {"SHIM_CLAUDE_BIN": claude, **settings}
        self.provider = agent.partition("-")[0]
        argv = [
            str(REPO / ".venv" / "bin" / "opencode-shim"), command, "--hostname", "127.0.0.1", "--port", str(port),
            "--directory", str(place.project), "--data-dir", str(place.home / "data"), "--default-agent", self.provider, *args,
        ]  # fmt: skip
        log = place.log("shim")
        before = len(log.read_text("utf-8", "replace")) if log.exists() else 0
        self.child = Child(argv, place.project, place.env(**env), log)
        self.port = int(self.child.wait_log(lambda text: URL.search(text, before), START_S).group(1))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def close(self) -> None:
        self.child.close()
