"""Compares the events of agents' recordings with a recording of OpenCode 2 itself, of the same scene.

`journals(name)` plays a recording of an agent and gives the journal of each session. `Native` is a recording of OpenCode 2 (build
July); `wire_events` and `kinds` bring both into one form: only what belongs to sessions, pieces of one text as one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from shim.faces.opencode2.dialects import DIALECTS
from tests.support.opencode2_fold import ENDS
from tests.support.recordings import ROOT, has_commands, names
from tests.support.replays import play
from tests.support.two_faces import second_of
from universal.events import UniversalEvent

Wire = dict[str, Any]
SECOND = ROOT.parent / "opencode2"
NATIVE = SECOND / "v2-20260717"
STREAM = "/api/event"
OURS = ("session.", "permission.", "form.")
"""How the types of what belongs to a session begin."""


# --- of agents ------------------------------------------------------------------------------------------------


def of_agents() -> list[str]:
    """Recordings of agents that hold our commands, and those of the mock."""
    return [*filter(has_commands, names()), *names("mock")]


async def journals(name: str) -> list[list[UniversalEvent]]:
    """The journal of each session, the main one first."""
    played = play(name)
    return [list(await played.store.events(state.id)) for state in played.states.values()]


# --- of OpenCode 2 --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Native:
    """A recorded scene of July's build."""

    rows: tuple[Wire, ...]

    def events(self) -> Iterator[Wire]:
        """What came on `/api/event`."""
        for row in self.rows:
            if row["dir"] == "sse" and row.get("stream") == STREAM and "data" in row:
                yield row["data"]

    def messages(self) -> Iterator[Wire]:
        """What GET answered of messages."""
        for row in self.rows:
            body = row.get("body") if row["dir"] == "http" and row.get("phase") == "response" else None
            data = body.get("data") if isinstance(body, dict) else None
            for one in data if isinstance(data, list) else ():
                if isinstance(one, dict) and str(one.get("id")).startswith("msg_") and "admittedSeq" not in one:
                    yield one


def native_scenes() -> list[str]:
    """All of them."""
    return [path.stem for path in sorted(NATIVE.glob("*.jsonl"))]


@cache
def native(scene: str) -> Native:
    """One scene."""
    return Native(tuple(json.loads(line) for line in (NATIVE / f"{scene}.jsonl").read_text("utf-8").split("\n") if line))


# --- of both --------------------------------------------------------------------------------------------------


def wire_events(journal: Sequence[UniversalEvent], agent: str, dialect: str = "v2_july") -> list[Wire]:
    """A journal as it is told in a dialect."""
    speaks = DIALECTS[dialect]
    made = [speaks.event(event) for event in second_of(journal, agent)[1]]
    return [event.wire() for event in made if event is not None]


def kinds(events: Iterable[Wire], leave_out: Iterable[str] = ()) -> list[list[str]]:
    """The types of one session's events, in order, for each execution; `session.text.delta*` for any pieces of one text.

    Of two sessions that are told at once, those of the first. An execution is what comes up to its end.
    """
    seen: list[str] = []
    executions: list[list[str]] = []
    main: str | None = None
    out = set(leave_out)
    for event in events:
        kind, data = event["type"], event["data"]
        session = data.get("sessionID") or data.get("form", {}).get("sessionID")
        if not kind.startswith(OURS) or kind in out:
            continue
        main = main or session
        if session != main:
            continue
        kind = f"{kind}*" if kind.endswith(".delta") else kind
        if not (kind.endswith("*") and seen and seen[-1] == kind):
            seen.append(kind)
        if kind in ENDS:
            executions.append(seen)
            seen = []
    return executions
