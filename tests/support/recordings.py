"""Recordings of real agents: `AGENT/VERSION/SCENE` and `mock/SCENE` of `compat_fixtures/agents` (`shim.dev.record.packs`).

The first line is {cmd, env, agent, version, scene, launch}; then one line per message, {t, dir, msg}: `do` what our session did,
`in` what was written to the agent, `out` what it said, `err` its stderr, `sig` what was done to the process, `exit` {code} or
{signal}. `native` has the messages that a native OpenCode server answered in the end.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, overload

import pytest

from shim.dev.record.driver import is_own
from shim.dev.record.packs import read_rows, read_text, recordings_below

ROOT = Path(__file__).parents[2] / "compat_fixtures" / "agents"
VERSION = re.compile(r"[-/](\d+(?:\.\d+)+)$")
"""At the end of a folder of recordings. `-again` or `-powers` behind it makes a program of its own."""
OPENCODE2 = "opencode2/"
"""Beginning of the names of recordings of OpenCode 2's server, which stand beside those of agents: `opencode2/BUILD/SCENE`."""


@dataclass(frozen=True, slots=True)
class Row:
    """One message. `at_s` seconds since the start of the process."""

    direction: str
    msg: Any
    at_s: float


def _rows_of(name: str) -> tuple[Row, ...]:
    return tuple(Row(row["dir"], row["msg"], row.get("t", 0.0)) for row in read_rows(path_of(name))[1:])


class RowsOnDisk(Sequence[Row]):
    """The rows of a recording, read anew each time: tests hold hundreds of recordings from the start, and change rows."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __iter__(self) -> Iterator[Row]:
        return iter(_rows_of(self._name))

    def __len__(self) -> int:
        return len(_rows_of(self._name))

    @overload
    def __getitem__(self, place: int) -> Row: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[Row, ...]: ...
    def __getitem__(self, place: int | slice) -> Row | tuple[Row, ...]:
        return _rows_of(self._name)[place]


@dataclass(frozen=True, slots=True)
class Recording:
    """One process of an agent, from its start to its end. `agent` is the folder, or the name in the registry if it is known."""

    agent: str
    version: str
    scene: str
    argv: tuple[str, ...]
    environment: dict[str, str]
    rows: Sequence[Row]
    launch: Mapping[str, Any] = field(default_factory=dict)
    """How our codec was launched; empty if that was not recorded."""

    def __str__(self) -> str:
        return f"{self.version}/{self.scene}"

    def agent_messages(self) -> list[Any]:
        """What the agent said."""
        return [row.msg for row in self.rows if row.direction == "out"]


def path_of(name: str) -> Path:
    """The path of a recording, by the one below compat_fixtures/agents without the ending."""
    if name.startswith(OPENCODE2):
        return ROOT.parent / "opencode2" / "agent" / f"{name.removeprefix(OPENCODE2)}.jsonl"
    return ROOT / f"{name}.jsonl"


@cache
def is_ours(name: str) -> bool:
    """Whether `opencode-shim record` made it."""
    return is_own(path_of(name))


def names(agent: str = "") -> list[str]:
    """All recordings of an agent, or of all of them but the mock."""
    return [name for name in _all_names() if (name.startswith(f"{agent}/") if agent else not name.startswith("mock/"))]


@cache
def _all_names() -> tuple[str, ...]:
    """Looks at the folders once: a dozen files of tests ask while tests are collected."""
    found = [path for path in recordings_below(ROOT) if path.parent.name != "universal"]
    return tuple(str(path.relative_to(ROOT))[: -len(".jsonl")] for path in found)


@cache
def newest_versions() -> frozenset[str]:
    """The folders of recordings without those of earlier versions of the same program."""
    newest: dict[str, tuple[tuple[int, ...], str]] = {}
    for folder in {name.rpartition("/")[0] for name in _all_names()}:
        found = VERSION.search(folder)
        version = tuple(int(number) for number in found[1].split(".")) if found else ()
        program = folder[: found.start()] if found else folder
        newest[program] = max(newest.get(program, ((), "")), (version, folder))
    return frozenset(folder for _, folder in newest.values())


def is_newest(name: str) -> bool:
    """Whether a recording is of the newest version of its program that was recorded."""
    return name.rpartition("/")[0] in newest_versions()


def older_is_slow(value: object, is_older: bool) -> Any:
    """A value of a parameter. `make test` plays recordings of the newest versions, `make test-slow` those of earlier ones."""
    return pytest.param(value, marks=pytest.mark.slow) if is_older else value


def read(name: str) -> Recording:
    """One recording, whatever its form."""
    scene = name.rpartition("/")[2]
    about = json.loads(read_text(path_of(name)).partition("\n")[0])
    return Recording(
        agent=about["agent"],
        version=name.split("/")[1] if name.count("/") == 2 else "",
        scene=scene,
        argv=tuple(about.get("cmd", ())),
        environment=about.get("env", {}),
        rows=RowsOnDisk(name),
        launch=about.get("launch", {}),
    )


def load(agent: str, version: str, scene: str) -> Recording:
    """One recording."""
    return read(f"{agent}/{version}/{scene}")


def load_all(agent: str) -> list[Recording]:
    """All recordings of an agent by an earlier recorder, oldest version first."""
    return [read(name) for name in names(agent) if not is_ours(name)]
