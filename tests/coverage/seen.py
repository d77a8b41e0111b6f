"""What a recording shows, whatever its agent and its form: universal facts, and what OpenCode clients get of them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from shim.record.driver import counting, is_own
from shim.sessions.session_state import SessionState
from tests.support import own_replay
from tests.support.amp_replay import AmpReplay
from tests.support.recordings import ROOT, load
from tests.support.views import view
from universal.agents.mock.codec import MockCodec
from universal.codec import Catalogue, Fact, Output, Prompt, Signal
from universal.events import EventType, PermissionData, QuestionData
from universal.items import Item, ItemKind, ItemRole
from universal.turn import Ended

Wire = dict[str, Any]
MOCK_REPLIES = {"once": "accept", "always": "accept_for_session", "reject": "reject"}


@dataclass(frozen=True)
class Seen:
    """One recording, played.

    reasons    how each turn of the main session ended          resumed   whether the process went on with a conversation
    written    what was written to the agent                    events    (type, properties) that clients were sent
    parts      the parts of all messages of all sessions, as HTTP answers them
    """

    name: str
    outputs: tuple[Output, ...]
    reasons: tuple[str, ...]
    written: tuple[Any, ...]
    events: tuple[tuple[str, Wire], ...]
    parts: tuple[Wire, ...]
    prompts: tuple[Prompt, ...] = ()
    resumed: bool = False
    native_session_id: str | None = None
    catalogue: Catalogue | None = None
    sessions: int = 1
    infos: tuple[Wire, ...] = field(default=(), repr=False)

    def facts(self, *types: EventType) -> list[Fact]:
        return [out for out in self.outputs if isinstance(out, Fact) and (not types or out.type in types)]

    def signals(self) -> list[Signal]:
        return [out for out in self.outputs if isinstance(out, Signal)]

    def items(self, kind: ItemKind) -> list[Item]:
        """Completed items."""
        return [f.data.item for f in self.facts(EventType.ITEM_COMPLETED) if f.data.item.kind is kind]

    def answers(self) -> list[Item]:
        """The assistant's messages."""
        return [item for item in self.items(ItemKind.MESSAGE) if item.role is ItemRole.ASSISTANT]

    def texts(self) -> list[str]:
        return ["".join(part.text for part in item.content if part.type == "text") for item in self.answers()]

    def statuses(self, label: str) -> list[Item]:
        return [item for item in self.items(ItemKind.STATUS) if item.content[0].label == label]

    def kinds(self) -> set[str]:
        """Types of the events that clients were sent."""
        return {type_ for type_, _ in self.events}

    def of(self, type_: str, tool: str = "") -> list[Wire]:
        """Parts of a type, and of a tool."""
        return [part for part in self.parts if part["type"] == type_ and (not tool or part.get("tool") == tool)]


def _face(states: list[SessionState], hub: Any) -> dict[str, Any]:
    messages = [m.wire() for state in states for m in view(state.session).messages.values()]
    return {
        "events": tuple((event.type, event.properties) for event in hub.events),
        "parts": tuple(part for message in messages for part in message["parts"]),
        "infos": tuple(message["info"] for message in messages),
        "sessions": len(states),
    }


def _of_own(name: str, played: own_replay.OwnReplay, *, resumed: bool) -> Seen:
    return Seen(
        name=name,
        outputs=tuple(played.outputs),
        reasons=tuple(played.turns()),
        written=tuple(played.said),
        prompts=tuple(played.prompts.values()),
        resumed=resumed,
        native_session_id=played.codec.native_session_id,
        catalogue=played.codec.catalogue,
        **_face(list(played.states.values()), played.hub),
    )


async def _amp(version: str, scene: str) -> Seen:
    played = AmpReplay()
    await played.begin()
    recording = load("amp", version, scene)
    played.play(recording)
    return Seen(
        name=f"amp/{version}/{scene}",
        outputs=tuple(played.outputs),
        reasons=tuple(effect.reason for effect in played.effects if isinstance(effect, Ended)),
        written=tuple(row.msg for row in recording.rows if row.direction == "in"),
        resumed="continue" in recording.argv,
        native_session_id=played.codec.native_session_id,
        **_face([played.state], played.hub),
    )


async def _mock(scene: str) -> Seen:
    """The mock's own form: its lines to us and ours to it; ours become the commands that they were."""
    rows = [json.loads(line) for line in (ROOT / "mock" / f"{scene}.jsonl").read_text("utf-8").split("\n")[1:] if line]
    played = own_replay.OwnReplay("mock", MockCodec(counting()))
    asks: dict[str, str] = {}
    plain: list[Wire] = []
    await played.play({"cmd": ["mock"], "launch": {}}, [])
    for row in rows:
        if row["dir"] == "in":
            plain = _mock_command(row["msg"], asks)
        elif row["dir"] == "exit":
            plain = [{"dir": "exit", "msg": {"code": row["code"]}}]
        else:
            plain = [{"dir": "out", "msg": row.get("msg", row.get("text"))}]
        for one in plain:
            played.row(one["dir"], one["msg"])
        for fact in played.facts(
            EventType.PERMISSION_REQUESTED,
        ) + played.facts(EventType.QUESTION_REQUESTED):
            data = fact.data
            if isinstance(data, (PermissionData, QuestionData)):
                asks[fact.raw["id"]] = data.permission_id if isinstance(data, PermissionData) else data.question_id
    return _of_own(f"mock/{scene}", played, resumed=False)


def _mock_command(msg: Wire, asks: dict[str, str]) -> list[Wire]:
    match msg["type"]:
        case "prompt":
            done = {"command": "prompt", "key": msg["run"], "text": msg["text"]}
            done |= {key: msg[key] for key in ("mode", "model", "variant") if key in msg}
        case "interrupt":
            done = {"command": "abort"}
        case "permission_reply":
            done = {"command": "permission", "permission_id": asks[msg["id"]], "decision": MOCK_REPLIES[msg["decision"]]}
        case "question_reply":
            done = {"command": "question", "question_id": asks[msg["id"]], "answers": msg["answers"]}
        case _:
            return []
    return [{"dir": "in", "msg": msg}, {"dir": "do", "msg": done}]


_PLAYED: dict[str, Seen] = {}


async def look(name: str) -> Seen:
    """One recording, by its path below compat_fixtures/agents; played once."""
    if name not in _PLAYED:
        _PLAYED[name] = await _look(name)
    return _PLAYED[name]


async def _look(name: str) -> Seen:
    agent, _, rest = name.partition("/")
    if agent == "mock":
        return await _mock(rest)
    if agent == "amp":
        return await _amp(*rest.split("/"))
    return _of_own(name, await own_replay.replay(name), resumed=_head(name)["launch"]["resume"])


@cache
def _head(name: str) -> Wire:
    path = ROOT / f"{name}.jsonl"
    assert is_own(path), f"{name} is no recording of `opencode-shim record`"
    with path.open(encoding="utf-8") as file:
        return json.loads(file.readline())
