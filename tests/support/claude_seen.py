"""A recording of Claude Code as clients see it: played to the codec, and through the state of each of its sessions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from shim.clock import ManualClock
from shim.sessions.session_state import SessionState
from shim.store.memory import MemoryStore
from tests.support.claude_replay import Replay
from tests.support.recordings import load
from tests.support.scripted import Recorder
from tests.support.session_states import bare, begin, show
from universal.codec import Fact, Output
from universal.events import EventType
from universal.turn import DispatchPrompt, Input

DIRECTORY = "/home/user/project"


@dataclass(slots=True)
class Seen(Replay):
    """A replay whose outputs also go through states: the journal, the projection and the stream of each session."""

    clock: ManualClock = field(default_factory=ManualClock)
    store: MemoryStore = field(default_factory=MemoryStore)
    hub: Recorder = field(default_factory=Recorder)
    states: dict[str | None, SessionState] = field(default_factory=dict)

    async def begin(self) -> Seen:
        await self.store.open()
        self._open(None, {})
        return self

    def _open(self, key: str | None, meta: dict[str, Any]) -> SessionState:
        state = bare(f"ses_{len(self.states):026d}", "claude", self.store, self.hub, self.clock)
        begin(state, DIRECTORY, **meta)
        self.states[key] = state
        self.machines[key] = state.machine
        return state

    def take(self, outputs: list[Output]) -> None:
        for output in outputs:
            if isinstance(output, Fact) and output.type is EventType.SESSION_STARTED:
                if output.child is not None:
                    self.outputs.append(output)
                    child = self._open(output.child, {})
                    self.states[None].status("child", call_id=output.child, session_id=child.id)
                continue
            if isinstance(output, Fact):
                self.states[output.child].fact(output)
            Replay.take(self, [output])

    def apply(self, child: str | None, input_: Input, key: str = "") -> None:
        state = self.states[child]
        if input_ is Input.PROMPT:
            show(state, key, "prompt")
        for effect in state.apply(input_, key):
            self.effects.append((child, effect))
            if isinstance(effect, DispatchPrompt):
                state.status("prompt", state="handed", item_id=effect.key, agent="claude", carried=[])


async def seen(version: str, scene: str) -> Seen:
    """Played to its end."""
    replay = await Seen().begin()
    replay.play(load("claude", version, scene))
    return replay
