"""The servers under test, as child processes: the scripted model, ours, and a native `opencode serve`."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path
from typing import Any

from shim.dev.record.homes import OPENCODE_ENV
from universal.lib.jsonvalue import obj

from .agents import AGENTS, agents_environment, native_config
from .children import Child
from .places import CURRENT, REPO, Place, program

START_S = 60
URL = re.compile(r"https?://127\.0\.0\.1:(\d+)")


class Model:
    """The scripted model; `requests()` is what agents have asked it."""

    def __init__(self, place: Place) -> None:
        self.requests_path = place.log("model-requests")
        self.child = Child(["scripted", "0", str(self.requests_path)], place.root, place.env(), place.log("model"), is_fork=True)
        self.port = int(self.child.wait_log(lambda log: re.search(r"listening on (\d+)", log), START_S).group(1))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def requests(self) -> list[dict[str, Any]]:
        if not self.requests_path.exists():
            return []
        return [json.loads(line) for line in self.requests_path.read_text().splitlines()]

    def steps(self) -> int:
        """How many steps of turns agents have asked for. A request for a title offers no tools."""
        return sum(bool(obj(request["body"]).get("tools")) for request in self.requests())

    def close(self) -> None:
        self.child.close()


def configuration_file(place: Place) -> Path:
    """The person's OpenCode configuration, which native OpenCode and we read alike."""
    return place.home / ".config" / "opencode" / "opencode.json"


def configure(place: Place, config: dict[str, object]) -> None:
    """Write the person's OpenCode configuration, in place of what it held."""
    file = configuration_file(place)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(config))


class Native:
    """`opencode serve` on the place's project. `config` is merged into opencode.json (outside of the project)."""

    def __init__(
        self, place: Place, model: Model | None = None, *, version: str = CURRENT, config: dict[str, object] | None = None
    ) -> None:
        self.place = place
        configure(place, {**(native_config(model.url) if model is not None else {}), **(config or {})})
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

    agent      one of `AGENTS`, the default; `also`: more of them
    name       that of its log, for several servers on one place
    settings   more environment (SHIM_*), and what the agent inherits. Without SHIM_SPARE_AGENTS no agent runs but those of
               sessions, so that tests can count them
    is_fork    as `Child`; never with SHIM_SANDBOX, since attacks look at the server in /proc
    """

    def __init__(
        self,
        place: Place,
        *,
        agent: str = "mock",
        also: tuple[str, ...] = (),
        model: Model | None = None,
        port: int = 0,
        args: tuple[str, ...] = (),
        command: str = "serve",
        name: str = "shim",
        is_fork: bool = True,
        **settings: str,
    ) -> None:
        self.place, self.command = place, command
        env = {"SHIM_SPARE_AGENTS": "0", **agents_environment(place, model.url if model is not None else None, (agent, *also))}
        env |= settings
        self.provider = AGENTS[agent].provider
        argv = [
            str(REPO / ".venv" / "bin" / "opencode-shim"), command, "--hostname", "127.0.0.1", "--port", str(port),
            "--directory", str(place.project), "--data-dir", str(place.home / "data"), "--default-agent", self.provider, *args,
        ]  # fmt: skip
        log = place.log(name)
        before = len(log.read_text("utf-8", "replace")) if log.exists() else 0
        forks = is_fork and "SHIM_SANDBOX" not in settings
        self.child = Child(argv, place.project, place.env(**env), log, signal.SIGINT, is_fork=forks)  # agents end too
        self.port = int(self.child.wait_log(lambda text: URL.search(text, before), START_S).group(1))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def close(self) -> None:
        self.child.close()
