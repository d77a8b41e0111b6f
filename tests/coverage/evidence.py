"""What a recording shows, whatever its agent and its form: universal facts, and what OpenCode clients get of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Any

from shim.sessions.session.session_state import SessionState
from tests.support.opencode1_views import view
from tests.support.recordings import read
from tests.support.replay import Replay, codec_of
from universal.codec import Catalogue, Fact, Output, Prompt, Signal
from universal.events import EventType
from universal.items import Item, ItemKind, ItemRole

Wire = dict[str, Any]


@dataclass(frozen=True)
class Evidence:
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


@cache
def look(name: str) -> Evidence:
    """One recording, by its path below compat_fixtures/agents; played once."""
    recording = read(name)
    played = Replay(recording.agent, codec_of(recording.agent)).play(recording)
    return Evidence(
        name=name,
        outputs=tuple(played.outputs),
        reasons=tuple(reason for _, reason in played.turns()),
        written=tuple(row.msg for row in recording.rows if row.direction == "in"),
        prompts=tuple(played.prompts_by_key.values()),
        resumed=recording.launch.get("resume", "continue" in recording.argv),
        native_session_id=played.codec.native_session_id,
        catalogue=played.codec.catalogue,
        **_face(list(played.states.values()), played.hub),
    )
