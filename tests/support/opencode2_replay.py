"""Compares the events of agents' recordings with recordings of OpenCode 2's own builds, of the same scenes.

`journals(name)` plays a recording of an agent and gives the journal of each session. `Native` is a recording of one build;
`wire_events` and `kinds` bring both into one form: only what belongs to sessions, pieces of one text as one. `Comparison` holds
the order and the fields of our events against a build's, but for the rows of its table of differences.
"""

from __future__ import annotations

import tomllib
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cache
from pathlib import Path
from typing import Any

from shim.dev.record.packs import read_rows, recordings_in
from shim.faces.opencode2.dialects import Dialect
from tests.support.july_dialect import V2_JULY
from tests.support.opencode2_fold import ENDS
from tests.support.recordings import ROOT, is_ours, names
from tests.support.replay import play
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
    return [*filter(is_ours, names()), *names("mock")]


async def journals(name: str) -> list[list[UniversalEvent]]:
    """The journal of each session, the main one first."""
    played = play(name)
    return [list(await played.store.events(state.id)) for state in played.states.values()]


# --- of OpenCode 2 --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Native:
    """A recorded scene of one build."""

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


def native_scenes(build: Path = NATIVE) -> list[str]:
    """All scenes of a build, July's if none is named."""
    return [path.stem for path in recordings_in(build)]


@cache
def native(scene: str, build: Path = NATIVE) -> Native:
    """One scene."""
    return Native(tuple(read_rows(build / f"{scene}.jsonl")))


# --- of both --------------------------------------------------------------------------------------------------


def wire_events(journal: Sequence[UniversalEvent], agent: str, dialect: Dialect = V2_JULY) -> list[Wire]:
    """A journal as it is told in a dialect."""
    made = [dialect.event(event) for event in second_of(journal, agent)[1]]
    return [event.wire() for event in made if event is not None]


def kinds(
    events: Iterable[Wire], leave_out: Iterable[str] = (), *, ours: tuple[str, ...] = OURS, begins: str | None = None
) -> list[list[str]]:
    """The types of one session's events, in order, for each execution; `session.text.delta*` for any pieces of one text.

    Of two sessions that are told at once, those of the first. An execution is what comes up to its end or, where a build tells
    no end, what follows an event of the type `begins`.
    """
    executions: list[list[str]] = []
    seen: list[str] | None = [] if begins is None else None
    main: str | None = None
    out = set(leave_out)
    for event in events:
        kind, data = event["type"], event["data"]
        session = data.get("sessionID") or data.get("form", {}).get("sessionID")
        if not kind.startswith(ours) or kind in out:
            continue
        main = main or session
        if session != main:
            continue
        if kind == begins:
            seen = []
            executions.append(seen)
        if seen is None:
            continue
        kind = f"{kind}*" if kind.endswith(".delta") else kind
        if not (kind.endswith("*") and seen and seen[-1] == kind):
            seen.append(kind)
        if begins is None and kind in ENDS:
            executions.append(seen)
            seen = []
    return executions


# --- the comparison -------------------------------------------------------------------------------------------

RECORDINGS: dict[str, tuple[str, ...]] = {
    "text": ("mock/echo", "claude/2.1.332/text"),
    "reason": ("mock/think", "claude/2.1.332/reason"),
    "slow_bash": ("mock/tool", "claude/2.1.332/slow_bash"),
    "permission_once": ("mock/permission", "claude/2.1.332/bash_once"),
    "permission_always": ("mock/permission_always", "claude/2.1.332/bash_always"),
    "permission_reject": ("mock/permission_reject", "claude/2.1.332/bash_reject"),
    "permission_edit": ("claude/2.1.332/read_edit",),
    "read_edit": ("mock/edit_existing", "claude/2.1.330/read_edit_bypass"),
    "parallel": ("mock/parallel", "claude/2.1.332/parallel"),
    "question": ("mock/question_one", "claude/2.1.330/question"),
    "question_cancel": ("mock/question_reject", "claude/2.1.330/question_reject"),
    "fail_tool": ("mock/failtool", "claude/2.1.332/fail_tool"),
    "error": ("mock/error", "claude/2.1.332/error"),
    "hang_interrupt": ("mock/hang", "claude/2.1.332/abort_text"),
    "interrupt_tool": ("mock/tool_interrupted", "claude/2.1.332/abort_tool", "claude/2.1.330/interrupt_tool"),
    "three_turns": ("mock/remember", "claude/2.1.332/three_turns"),
    "bash": ("mock/tool", "claude/2.1.330/bash"),
    "wait": ("mock/tool", "claude/2.1.330/bash"),
    "bad_tool": ("mock/failtool",),
    "error_401": ("mock/error", "claude/2.1.330/error_401"),
}
"""A scene that every build was recorded in -> recordings of agents in which the same happens."""
Scenes = Mapping[tuple[str, int], tuple[str, ...]]


def all_scenes(**more: tuple[str, ...]) -> dict[tuple[str, int], tuple[str, ...]]:
    """(scene, its first execution; of `three_turns` the third) -> recordings: those of `RECORDINGS` and more of one build."""
    return {(scene, 2 if scene == "three_turns" else 0): recordings for scene, recordings in (RECORDINGS | more).items()}


OPEN = frozenset({"input", "structured", "metadata", "answer", "delta", "providerState", "state.input"})
"""Fields whose own fields are the tool's, or names."""


def paths(value: Any, at: str = "") -> Iterator[str]:
    """The fields of a value: `info.time.created`, `content[tool].state`."""
    if isinstance(value, dict):
        for key, inner in value.items():
            path = f"{at}.{key}" if at else key
            yield path
            if key not in OPEN:
                yield from paths(inner, path)
    elif isinstance(value, list):
        for inner in value:
            kind = inner.get("type", "") if isinstance(inner, dict) else ""
            yield from paths(inner, f"{at}[{kind}]")


class Shapes:
    """Of each kind of thing: fields that some have, and those that all have."""

    def __init__(self) -> None:
        self.some: dict[str, set[str]] = defaultdict(set)
        self.all: dict[str, set[str]] = {}

    def see(self, kind: str, value: Any) -> None:
        """Add a thing of this kind."""
        fields = set(paths(value))
        self.some[kind] |= fields
        self.all[kind] = self.all.get(kind, fields) & fields

    def see_wire(self, events: Iterable[Mapping[str, Any]], messages: Iterable[Mapping[str, Any]], ours: tuple[str, ...]) -> None:
        """Add what a client gets: events whose types begin so, and messages."""
        for event in events:
            if event["type"].startswith(ours):
                self.see(event["type"], event)
        for message in messages:
            self.see(f"message {message['type']}", message)


@dataclass(frozen=True)
class Comparison:
    """Ours beside one build of OpenCode 2.

    build         folder of the build's recordings
    table         the differences on purpose, in `compat_fixtures/opencode2`; a row that is not needed fails
    scenes        (scene, which of its executions) -> recordings of agents in which the same happens, in their execution of that
                  number, or the last one that they have
    ours          how the types of the events begin that are compared
    executions    the types of events of each execution, as `kinds` gives them
    our_events    our events of a recording of an agent
    """

    build: Path
    table: str
    scenes: Scenes
    ours: tuple[str, ...]
    executions: Callable[[Iterable[Wire]], list[list[str]]]
    our_events: Callable[[str], Awaitable[list[Wire]]]

    def rows(self, kind: str) -> tuple[Wire, ...]:
        """Differences on purpose, of the kind `order` or `shape`."""
        return _rows(SECOND / self.table).get(kind, ())

    async def _differences(self, scene: str, number: int, name: str) -> list[tuple[str, str]]:
        """What a recording lacks and has more than the scene, at its place: ("lacks" or "more", type)."""
        theirs = self.executions(native(scene, self.build).events())[number]
        executions = self.executions(await self.our_events(name))
        ours = executions[min(number, len(executions) - 1)]
        found: list[tuple[str, str]] = []
        for tag, a, b, c, d in SequenceMatcher(None, theirs, ours, autojunk=False).get_opcodes():
            if tag != "equal":
                found += [("lacks", kind) for kind in theirs[a:b]] + [("more", kind) for kind in ours[c:d]]
        return found

    def _excuses(self, scene: str, name: str, how: str, kind: str) -> list[int]:
        """Numbers of the rows that allow a difference."""
        agent = name.split("/")[0]
        return [
            number
            for number, row in enumerate(self.rows("order"))
            if scene in row["scenes"] and agent in row["agents"] and kind in row.get(how, ())
        ]

    async def check_order(self, scene: str, number: int) -> None:
        """Our events of a scene come in the build's order."""
        for name in self.scenes[(scene, number)]:
            differences = await self._differences(scene, number, name)
            left = [(how, kind) for how, kind in differences if not self._excuses(scene, name, how, kind)]
            assert left == [], (name, left)

    async def check_order_rows(self) -> None:
        """Each scene, agent and type of each row about the order is needed."""
        needed: set[tuple[int, str, str]] = set()
        for scene, number, name in ((*key, name) for key, recordings in self.scenes.items() for name in recordings):
            for how, kind in await self._differences(scene, number, name):
                for row in self._excuses(scene, name, how, kind):
                    needed |= {(row, "scenes", scene), (row, "agents", name.split("/")[0]), (row, how, kind)}
        said = {(at, key, one) for at, row in enumerate(self.rows("order")) for key in row if key != "why" for one in row[key]}
        assert said - needed == set(), said - needed

    def native_shapes(self) -> Shapes:
        """The shapes of all that the build was recorded with."""
        shapes = Shapes()
        for scene in native_scenes(self.build):
            recording = native(scene, self.build)
            events = ({key: value for key, value in event.items() if key != "metadata"} for event in recording.events())
            shapes.see_wire(events, recording.messages(), self.ours)
        return shapes

    def check_shapes(self, ours: Shapes) -> None:
        """A field that the build always tells is told; one that it never tells is not; both but for the rows."""
        theirs = self.native_shapes()
        found = {(kind, "unseen", "") for kind in ours.some if kind not in theirs.some}
        found |= {(kind, "untold", "") for kind in theirs.some if kind not in ours.some}
        for kind in ours.some.keys() & theirs.some.keys():
            found |= {(kind, "lacks", path) for path in theirs.all[kind] - ours.all[kind]}
            found |= {(kind, "more", path) for path in ours.some[kind] - theirs.some[kind]}
        rows = self.rows("shape")
        said = {(kind, row["how"], path) for row in rows for kind in row["kinds"] for path in row.get("fields", [""])}
        assert found - said == set()
        assert said - found == set(), "rows that are not needed"

    def check_reasons(self) -> None:
        """Each row has a reason of its own."""
        reasons = [row["why"] for kind in ("order", "shape") for row in self.rows(kind)]
        assert reasons
        assert all(reason.endswith(".") for reason in reasons)
        assert len(reasons) == len(set(reasons))


@cache
def _rows(table: Path) -> dict[str, tuple[Wire, ...]]:
    return {kind: tuple(rows) for kind, rows in tomllib.loads(table.read_text("utf-8")).items()}
