"""A recording of Claude Code as clients see it: played to the codec, and through the branch of each of its sessions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from shim.clock import ManualClock
from shim.sessions.branch import Branch
from shim.store.memory import MemoryStore
from tests.support.branches import bare, begin, show
from tests.support.claude_replay import Replay
from tests.support.recordings import load
from tests.support.scripted import Recorder
from universal.codec import Fact, Output
from universal.events import EventType
from universal.turn import Hand, Input

DIRECTORY = "/home/user/project"


@dataclass(slots=True)
class Seen(Replay):
    """A replay whose outputs also go through branches: the journal, the projection and the stream of each session."""

    clock: ManualClock = field(default_factory=ManualClock)
    store: MemoryStore = field(default_factory=MemoryStore)
    hub: Recorder = field(default_factory=Recorder)
    branches: dict[str | None, Branch] = field(default_factory=dict)

    async def begin(self) -> Seen:
        await self.store.open()
        self._open(None, {})
        return self

    def _open(self, key: str | None, meta: dict[str, Any]) -> Branch:
        branch = bare(f"ses_{len(self.branches):026d}", "claude", self.store, self.hub, self.clock)
        begin(branch, DIRECTORY, **meta)
        self.branches[key] = branch
        self.machines[key] = branch.machine
        return branch

    def take(self, outputs: list[Output]) -> None:
        for output in outputs:
            if isinstance(output, Fact) and output.type is EventType.SESSION_STARTED:
                if output.child is not None:
                    self.outputs.append(output)
                    child = self._open(output.child, {})
                    self.branches[None].status("child", call_id=output.child, session_id=child.id)
                continue
            if isinstance(output, Fact):
                self.branches[output.child].fact(output)
            Replay.take(self, [output])

    def apply(self, child: str | None, input_: Input, key: str = "") -> None:
        branch = self.branches[child]
        if input_ is Input.PROMPT:
            show(branch, key, "prompt")
        for effect in branch.apply(input_, key):
            self.effects.append((child, effect))
            if isinstance(effect, Hand):
                branch.status("prompt", state="handed", item_id=effect.key, agent="claude", carried=[])


async def seen(version: str, scene: str) -> Seen:
    """Played to its end."""
    replay = await Seen().begin()
    replay.play(load("claude", version, scene))
    return replay
