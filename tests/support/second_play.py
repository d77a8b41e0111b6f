"""Recordings of agents beside those of OpenCode 2 itself: what both streams say of the same scene.

`journals(name)` plays a recording of an agent and gives the journal of each session. `Native` is a recording of OpenCode 2 (build
J); `told` and `kinds` bring both into one form: only what belongs to sessions, pieces of one text as one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from shim.faces.opencode2.dialects import DIALECTS
from shim.record.driver import counting
from tests.support.both import second_of
from tests.support.claude_seen import seen
from tests.support.fold2 import ENDS
from tests.support.own_replay import OwnReplay, replay
from tests.support.recordings import ROOT
from universal.agents.mock.codec import MockCodec
from universal.codec import Exit, Fact, PermissionReply, Prompt, QuestionReply
from universal.events import PermissionData, QuestionData, UniversalEvent
from universal.turn import Input

Wire = dict[str, Any]
SECOND = ROOT.parent / "opencode2"
NATIVE = SECOND / "v2-20260717"
STREAM = "/api/event"
OURS = ("session.", "permission.", "form.")
"""How the types of what belongs to a session begin."""
DECISIONS = {"once": "accept", "always": "accept_for_session", "reject": "reject"}


# --- of agents ------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class MockReplay(OwnReplay):
    """A recording of the mock, whose commands are lines that were written to it."""

    asks: dict[str, str] = field(default_factory=dict)

    def row(self, direction: str, msg: Any) -> None:
        if direction == "in" and isinstance(msg, dict):
            self._command(msg)
        elif direction == "out":
            line = json.dumps(msg).encode() if isinstance(msg, dict) else str(msg).encode()
            self.take(self.codec.receive(line))
        elif direction == "exit":
            self.take(self.codec.eof(Exit(code=msg["code"], signal=msg["signal"])))
            for child in list(self.states):
                self.apply(child, Input.EXIT)

    def _command(self, msg: Wire) -> None:
        match msg["type"]:
            case "prompt":
                self.prompts[msg["run"]] = Prompt(msg["run"], msg["text"], mode=msg.get("mode"))
                self.apply(None, Input.PROMPT, msg["run"])
            case "interrupt":
                self.apply(None, Input.ABORT)
            case "permission_reply":
                reply = PermissionReply(self.asks[msg["id"]], DECISIONS[msg["decision"]], msg.get("message"))  # type: ignore[arg-type] - the table's values
                self.take(self.codec.send(reply))
            case "question_reply":
                self.take(self.codec.send(QuestionReply(self.asks[msg["id"]], msg["answers"])))
            case _:
                pass

    def _fact(self, fact: Fact) -> None:
        data = fact.data
        if isinstance(data, PermissionData) and isinstance(fact.raw, dict):
            self.asks.setdefault(fact.raw["id"], data.permission_id)
        elif isinstance(data, QuestionData) and isinstance(fact.raw, dict):
            self.asks.setdefault(fact.raw["id"], data.question_id)
        super(MockReplay, self)._fact(fact)


def mock_scenes() -> list[str]:
    """Recordings of the mock, as `mock/SCENE`."""
    return [f"mock/{path.stem}" for path in sorted((ROOT / "mock").glob("*.jsonl"))]


async def played(name: str) -> OwnReplay:
    """A recording of an agent, played to its end."""
    if not name.startswith("mock/"):
        return await replay(name)
    _, *rows = [json.loads(line) for line in (ROOT / f"{name}.jsonl").read_text("utf-8").split("\n") if line]
    launch: Wire = {"cmd": ["mock"], "launch": {}}
    told = [
        {"dir": row["dir"], "msg": row.get("msg", row.get("text", {"code": row.get("code"), "signal": row.get("signal")}))}
        for row in rows
    ]
    return await MockReplay("mock", MockCodec(counting())).play(launch, told)


EARLIER = ("claude/2.1.197/", "claude/2.1.330/")
"""Recordings that were made in another form."""


async def journals(name: str) -> list[list[UniversalEvent]]:
    """The journal of each session, the main one first."""
    play = await seen(*name.split("/")[1:]) if name.startswith(EARLIER) else await played(name)
    return [list(await play.store.events(state.id)) for state in play.states.values()]


# --- of OpenCode 2 --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Native:
    """A recorded scene of build J."""

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


def told(journal: Sequence[UniversalEvent], agent: str, dialect: str = "J") -> list[Wire]:
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
