"""The agent `heron` (`tests/fakes/heron.py`), a real process that can wait for a session, and what it was asked."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.plugin_example.opencode_shim_parrot import PARROT, ParrotCodec
from tests.support.specs import change
from universal.agent_spec import AgentSpec, LoginSigns, ProjectSettingsUse, SpareUse
from universal.agents.mock.spec import MOCK
from universal.codec import Output
from universal.launch import LaunchOptions

PROGRAM = Path(__file__).resolve().parent.parent / "fakes" / "heron.py"
BODY: dict[str, Any] = {"model": {"providerID": "heron", "modelID": "grey"}}
KEY = "HERON_KEY"


class HeronCodec(ParrotCodec):
    """A parrot's codec that serves every session without rules of its own."""

    name = "heron"

    def launch(self, options: LaunchOptions) -> Any:
        self.rules = options.rules
        return super().launch(options)

    def receive(self, line: bytes) -> Any:
        self.native_session_id = "heron-session"
        return super().receive(line)

    def adopt(self, options: LaunchOptions) -> bool:
        return options.rules == self.rules

    def prepare(self) -> list[Output]:
        self.preparations = getattr(self, "preparations", 0) + 1
        return []


HERON = change(
    PARROT,
    name="heron",
    title="Heron",
    make=HeronCodec,
    binaries=("heron",),
    env_override="SHIM_HERON_BIN",
    key_variables=(KEY,),
    login_signs=LoginSigns((KEY,)),
    project_settings=ProjectSettingsUse(("claude",), leaves_out=True),
    spare=SpareUse("Nothing.", ("CLAUDE.md", ".claude"), ("~/.heron",), takes_git=True),
)


def herons() -> dict[str, AgentSpec]:
    """All agents of a server under test."""
    return {"heron": HERON, "mock": MOCK}


@dataclass(frozen=True)
class HeronProcess:
    """A process that was started in a project. Discoveries, which begin in the home, do not count."""

    pid: int
    directory: str
    key: str


def install(home: Path) -> dict[str, str]:
    """Put the program into a home; the environment in which it is found and logged in."""
    folder = home / ".local" / "bin"
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "heron"
    program.write_text(f"#!{sys.executable} -IS\n{PROGRAM.read_text()}")
    program.chmod(0o755)
    return {"PATH": "/usr/bin:/bin", "HOME": str(home), KEY: "k"}


def processes(home: Path) -> list[HeronProcess]:
    """The processes that were started in projects, in order."""
    file = home / "herons"
    rows = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    return [HeronProcess(**row) for row in rows if row["directory"] != str(home)]
