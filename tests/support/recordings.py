"""Recordings of real agents: `compat_fixtures/agents/AGENT/VERSION/SCENE.jsonl`.

The first line is {cmd, env, agent, version, scene}; then one line per message, {t, dir, msg}: `in` what was written to
the agent, `out` what it said, `err` its stderr, `sig` what was done to the process, `exit` {code} or {signal}.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shim.record.driver import is_own

ROOT = Path(__file__).parents[2] / "compat_fixtures" / "agents"


@dataclass(frozen=True, slots=True)
class Row:
    """One message. `at_s` seconds since the start of the process."""

    direction: str
    msg: Any
    at_s: float


@dataclass(frozen=True, slots=True)
class Recording:
    """One process of an agent, from its start to its end."""

    agent: str
    version: str
    scene: str
    argv: tuple[str, ...]
    environment: dict[str, str]
    rows: tuple[Row, ...]

    def __str__(self) -> str:
        return f"{self.version}/{self.scene}"

    def said(self) -> list[Any]:
        """What the agent said."""
        return [row.msg for row in self.rows if row.direction == "out"]


def load(agent: str, version: str, scene: str) -> Recording:
    """One recording."""
    head, *lines = (ROOT / agent / version / f"{scene}.jsonl").read_text("utf-8").split("\n")
    about = json.loads(head)
    rows = [json.loads(line) for line in lines if line]
    return Recording(
        agent=agent,
        version=version,
        scene=scene,
        argv=tuple(about["cmd"]),
        environment=about["env"],
        rows=tuple(Row(row["dir"], row["msg"], row["t"]) for row in rows),
    )


def load_all(agent: str) -> list[Recording]:
    """All recordings of an agent of the first form, oldest version first. Newer ones: `own_replay`."""
    found = [path for path in sorted(ROOT.glob(f"{agent}/*/*.jsonl")) if not is_own(path)]
    return [load(agent, path.parent.name, path.stem) for path in found]
