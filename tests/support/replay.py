"""A recording played to a codec as a session would, through the journal and the projection of its state.

One session, without subagents. Agents differ in how their recorded lines become commands of ours: `commands` of a
subclass. Everything that came out is kept, and the turn machine of the state is driven by the signals.
"""

from __future__ import annotations

import json
import signal as signals
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Literal

from shim.clock import ManualClock
from shim.sessions.session_state import SessionState
from shim.store.memory import MemoryStore
from tests.support.both import check_second
from tests.support.oracle import check_event, check_response
from tests.support.recordings import Recording, Row
from tests.support.scripted import Recorder
from tests.support.session_states import bare, begin, show
from tests.support.views import view
from universal.codec import Codec, Exit, Fact, IdFactory, LaunchOptions, Output, Prompt, Signal, WriteLine
from universal.events import EventType
from universal.items import Item, ItemKind, ItemRole, ItemStatus
from universal.turn import DispatchPrompt, Effect, Ended, Input, Started

DIRECTORY = "/home/user/project"


def counting() -> IdFactory:
    """item_1, permission_1, question_1, item_2 ..."""
    numbers = {kind: count(1) for kind in ("item", "permission", "question")}

    def make(kind: Literal["item", "permission", "question"]) -> str:
        return f"{kind}_{next(numbers[kind])}"

    return make


def encode(msg: Any) -> bytes:
    """A recorded message as the line that it was."""
    return (msg if isinstance(msg, str) else json.dumps(msg, ensure_ascii=False)).encode()


@dataclass(slots=True)
class Played:
    """A codec at work and everything that came out of it. Call `begin` first."""

    agent: str
    codec: Codec
    outputs: list[Output] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    idle_items: list[Fact] = field(default_factory=list)
    """Facts about messages and tools that came while no turn ran: nobody would see them."""
    stderr: str = ""
    prompts: int = 0
    clock: ManualClock = field(default_factory=ManualClock)
    store: MemoryStore = field(default_factory=MemoryStore)
    hub: Recorder = field(default_factory=Recorder)
    state: SessionState = field(init=False)

    async def begin(self) -> Played:
        """Opens the session."""
        await self.store.open()
        self.state = self._new_state(self.hub)
        begin(self.state, DIRECTORY)
        return self

    def _new_state(self, hub: Recorder) -> SessionState:
        return bare(f"ses_{0:026d}", self.agent, self.store, hub, self.clock)

    # --- playing --------------------------------------------------------------------------------------

    def play(self, recording: Recording) -> Played:
        """The whole recording, to the end of its process."""
        self.launch(recording)
        for place, row in enumerate(recording.rows):
            self.before(row, recording.rows[place:])
            if row.direction == "in":
                self.command(row)
            elif row.direction == "out":
                self.receive(encode(self.ours(row.msg)))
            elif row.direction == "err":
                self.stderr += str(row.msg) + "\n"
            elif row.direction == "sig":
                self.signalled(row)
            elif row.direction == "exit":
                number = signals.Signals[row.msg["signal"]].value if "signal" in row.msg else None
                self.take(self.codec.eof(Exit(code=row.msg.get("code"), signal=number, stderr=self.stderr)))
                self.apply(Input.EXIT)
        return self

    def launch(self, recording: Recording) -> None:
        """How the process was started."""
        self.codec.launch(LaunchOptions(binary=self.agent, directory=DIRECTORY))
        self.take(self.codec.start())

    def before(self, row: Row, rest: tuple[Row, ...]) -> None:
        """Whatever is due before this row."""

    def command(self, row: Row) -> None:
        """A recorded line to the agent, as a command of ours."""

    def signalled(self, row: Row) -> None:
        """What was done to the process."""

    def ours(self, msg: Any) -> Any:
        """A recorded line with our ids in it."""
        return msg

    def receive(self, line: bytes) -> None:
        """One line of the agent."""
        self.take(self.codec.receive(line))

    def prompt(self, text: str, **more: Any) -> list[Output]:
        """A prompt of the recording."""
        self.prompts += 1
        key = f"prompt_{self.prompts}"
        self.apply(Input.PROMPT, key)
        outputs = self.codec.send(Prompt(key=key, text=text, **more))
        self.take(outputs)
        return outputs

    def take(self, outputs: list[Output]) -> None:
        """Outputs of the codec, as the session acts on them."""
        for output in outputs:
            self.outputs.append(output)
            if isinstance(output, Fact):
                if output.type is EventType.SESSION_STARTED:
                    continue
                self._note_idle(output)
                self.state.fact(output)
            elif isinstance(output, Signal):
                self.apply(output.input, output.key)
            elif isinstance(output, WriteLine):
                self.written_line(json.loads(output.data))

    def written_line(self, msg: dict[str, Any]) -> None:
        """The codec has written this."""

    def _note_idle(self, fact: Fact) -> None:
        if fact.type not in (EventType.ITEM_STARTED, EventType.ITEM_DELTA, EventType.ITEM_COMPLETED):
            return
        item = getattr(fact.data, "item", None)
        if item is not None and (item.kind in (ItemKind.STATUS, ItemKind.SYSTEM) or item.role is ItemRole.USER):
            return
        if not self.state.machine.busy:
            self.idle_items.append(fact)

    def apply(self, input_: Input, key: str = "") -> None:
        """One input of the turn machine."""
        if input_ is Input.PROMPT:
            show(self.state, key, "prompt")
        for effect in self.state.apply(input_, key):
            self.effects.append(effect)
            if isinstance(effect, DispatchPrompt):
                self.state.status("prompt", state="handed", item_id=effect.key, agent=self.agent, carried=[])

    # --- what came of it ------------------------------------------------------------------------------

    def facts(self, type_: EventType | None = None) -> list[Fact]:
        """Facts, by type."""
        return [out for out in self.outputs if isinstance(out, Fact) and type_ in (None, out.type)]

    def items(self, kind: ItemKind) -> list[Item]:
        """Completed items of a kind."""
        return [fact.data.item for fact in self.facts(EventType.ITEM_COMPLETED) if fact.data.item.kind is kind]

    def statuses(self, label: str) -> list[Item]:
        """Completed status items with this label."""
        return [item for item in self.items(ItemKind.STATUS) if item.content[0].label == label]

    def texts(self) -> list[str]:
        """Texts of the assistant's messages, in order."""
        messages = [item for item in self.items(ItemKind.MESSAGE) if item.role is ItemRole.ASSISTANT]
        return ["".join(part.text for part in item.content if part.type == "text") for item in messages]

    def turns(self) -> list[tuple[str, str]]:
        """(origin, reason) of each turn."""
        origins = [effect.origin for effect in self.effects if isinstance(effect, Started)]
        reasons = [effect.reason for effect in self.effects if isinstance(effect, Ended)]
        assert len(origins) == len(reasons)
        return list(zip(origins, reasons, strict=True))

    def signals(self) -> list[Signal]:
        """What the turn machine was told."""
        return [out for out in self.outputs if isinstance(out, Signal)]

    def written(self) -> list[Any]:
        """What we wrote to the agent."""
        return [json.loads(out.data) for out in self.outputs if isinstance(out, WriteLine)]

    def cards(self) -> list[tuple[str, str]]:
        """(tool, status) of the tool cards that clients show."""
        parts = [p for m in view(self.state.session).messages.values() for p in m.wire()["parts"]]
        return [(p["tool"], p["state"]["status"]) for p in parts if p["type"] == "tool"]


# --- what holds for every recording -----------------------------------------------------------------------


def check_everything_is_known(played: Played) -> None:
    """Nothing unparsed; and every fact says what it came from."""
    assert [fact.data for fact in played.facts(EventType.UNPARSED)] == []
    assert [name for name in played.codec.counters() if name.startswith("unparsed")] == []
    assert all(fact.raw is not None for fact in played.facts() if not fact.synthetic)


def check_items(played: Played) -> None:
    """Started, then completed once; texts are the sum of their deltas; a result for each whole call."""
    started: dict[str, Item] = {}
    completed: dict[str, Item] = {}
    deltas: dict[tuple[str, int, str], str] = {}
    for fact in played.facts():
        if fact.type is EventType.ITEM_STARTED:
            assert fact.data.item.item_id not in started
            started[fact.data.item.item_id] = fact.data.item
        elif fact.type is EventType.ITEM_DELTA:
            assert fact.data.item_id in started
            assert fact.data.item_id not in completed
            key = (fact.data.item_id, fact.data.part_index, fact.data.part_type)
            deltas[key] = deltas.get(key, "") + fact.data.delta
        elif fact.type is EventType.ITEM_COMPLETED:
            item = fact.data.item
            assert item.item_id not in completed
            completed[item.item_id] = item
            speaks = item.kind is ItemKind.MESSAGE and item.role is ItemRole.ASSISTANT
            assert not (speaks or item.kind is ItemKind.TOOL_CALL) or item.item_id in started
    assert started.keys() <= completed.keys()
    said = {
        (item.item_id, index, part.type): part.text
        for item in completed.values()
        if item.kind is ItemKind.MESSAGE and item.role is ItemRole.ASSISTANT
        for index, part in enumerate(item.content)
    }
    assert said == {key: text for key, text in deltas.items() if key[2] in ("text", "reasoning")}
    assert all(said.values())
    calls, results = played.items(ItemKind.TOOL_CALL), played.items(ItemKind.TOOL_RESULT)
    messages = {item.item_id for item in started.values() if item.kind is ItemKind.MESSAGE}
    assert all(item.parent_id in messages for item in calls + results)
    whole = [item.native_item_id for item in calls if item.status is ItemStatus.COMPLETED]
    assert sorted(whole) == sorted(item.content[0].call_id for item in results)
    assert len(set(whole)) == len(whole)


def check_asks(played: Played) -> None:
    """Each ask is resolved once."""
    for kind, requested, resolved in (
        ("permission_id", EventType.PERMISSION_REQUESTED, EventType.PERMISSION_RESOLVED),
        ("question_id", EventType.QUESTION_REQUESTED, EventType.QUESTION_RESOLVED),
    ):
        asked = [getattr(fact.data, kind) for fact in played.facts(requested)]
        assert asked == [getattr(fact.data, kind) for fact in played.facts(resolved)]
        assert len(set(asked)) == len(asked)


def check_turns(played: Played) -> None:
    """Turns begin and end once, one at a time, and nothing is said outside of them."""
    assert not played.state.machine.busy
    ends = [type(effect) for effect in played.effects if isinstance(effect, (Started, Ended))]
    assert ends == [Started, Ended] * (len(ends) // 2)
    assert played.idle_items == []


async def check_clients(played: Played) -> None:
    """Every event is what OpenCode's document allows; folded, they are what HTTP answers; a rebuilt session is the same."""
    for number, event in enumerate(played.hub.events):
        check_event({"id": f"evt_{number:026d}", "type": event.type, "properties": event.properties})
    fold = played.hub.folds[played.state.id]
    fold.check()
    live = view(played.state.session)
    http = [m.wire() for m in live.messages.values()]
    check_response("session.messages", 200, http)
    check_response("session.get", 200, live.info)
    assert fold.wire() == http
    assert (fold.info, fold.todos, fold.diffs, fold.status) == (live.info, live.todos, live.diffs, live.status)
    assert fold.idles == len([effect for effect in played.effects if isinstance(effect, Ended)])
    rebuilt = played._new_state(Recorder())
    rebuilt.load(await played.store.events(played.state.id))
    assert [m.wire() for m in view(rebuilt.session).messages.values()] == http
    assert (view(rebuilt.session).info, view(rebuilt.session).todos) == (live.info, live.todos)
    check_second(await played.store.events(played.state.id), played.agent, live)
