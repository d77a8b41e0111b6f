"""A recording that `opencode-shim record` made, played to a new codec through the journal and the projection.

It holds the commands that were given (`do`), so nothing is guessed. Ids of our requests may have changed since: the n-th
request of a kind is the n-th of that kind in the recording, and its recorded answer is the answer to ours.
"""

from __future__ import annotations

import json
import signal as signals
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from shim.clock import ManualClock
from shim.record.driver import counting, is_own
from shim.record.report import request_of
from shim.sessions.session_state import SessionState
from shim.store.memory import MemoryStore
from tests.support.both import check_second
from tests.support.oracle import check_event, check_response
from tests.support.recordings import ROOT
from tests.support.scripted import Recorder
from tests.support.session_states import bare, begin, show
from tests.support.views import view
from universal import host
from universal.codec import (
    AgentSpec,
    Attachment,
    CheckingCodec,
    Codec,
    Exit,
    Fact,
    HostedCodec,
    Interrupt,
    LaunchOptions,
    Output,
    PermissionReply,
    Prompt,
    QuestionReply,
    Signal,
    ToolCheck,
    WriteLine,
)
from universal.events import EventType, PermissionData, QuestionData
from universal.host import HostAnswer
from universal.items import Item, ItemKind, ItemRole, ItemStatus
from universal.registry import agents
from universal.turn import DispatchPrompt, Effect, Ended, Input, InterruptAgent, Started

DIRECTORY = "/home/user/project"
Wire = dict[str, Any]
ITEMS = (EventType.ITEM_STARTED, EventType.ITEM_DELTA, EventType.ITEM_COMPLETED)


def recordings() -> list[str]:
    """All of them, as paths below compat_fixtures/agents without the ending."""
    found = [p for p in sorted(ROOT.glob("**/*.jsonl")) if p.parent.parent != ROOT / "mock" and p.parent != ROOT / "mock"]
    return [str(path.relative_to(ROOT))[: -len(".jsonl")] for path in found if is_own(path)]


@cache
def _specs() -> dict[str, AgentSpec]:
    return agents()


@dataclass(slots=True)
class OwnReplay:
    """The codec at work, a state for each session (None: the main one), and the stream of their events."""

    agent: str
    codec: Codec
    outputs: list[Output] = field(default_factory=list)
    effects: list[tuple[str | None, Effect]] = field(default_factory=list)
    states: dict[str | None, SessionState] = field(default_factory=dict)
    idle_items: list[Fact] = field(default_factory=list)
    """Facts about messages and tools that came while no turn of their session ran: nobody would see them."""
    clock: ManualClock = field(default_factory=ManualClock)
    store: MemoryStore = field(default_factory=MemoryStore)
    hub: Recorder = field(default_factory=Recorder)
    prompts: dict[str, Prompt] = field(default_factory=dict)
    said: list[Wire] = field(default_factory=list)
    """What was written, as it was recorded."""
    _ours: dict[str, list[Any]] = field(default_factory=dict)
    """Kind of request -> ids of ours that have no recorded one yet."""
    _names: dict[str, Any] = field(default_factory=dict)
    """Recorded id of a request, as JSON -> ours."""
    _recorded: set[str] = field(default_factory=set)
    stderr: str = ""

    # --- playing --------------------------------------------------------------------------------------

    async def play(self, head: Wire, rows: list[Wire]) -> OwnReplay:
        """The whole recording, to the end of its process."""
        await self.store.open()
        self._open(None)
        launch = head["launch"]
        self.codec.launch(LaunchOptions(binary=head["cmd"][0], directory=DIRECTORY, **launch))
        self.take(self.codec.start())
        for row in rows:
            self.row(row["dir"], row["msg"])
        return self

    def row(self, direction: str, msg: Any) -> None:
        """One row of the recording."""
        match direction:
            case "do":
                self._do(dict(msg))
            case "in":
                self._pair(msg)
            case "out":
                line = self._as_ours(msg)
                if line is not None:
                    self.take(self.codec.receive(line))
            case "err":
                self.stderr += str(msg)
            case "exit":
                number = signals.Signals[msg["signal"]].value if "signal" in msg else None
                self.take(self.codec.eof(Exit(code=msg.get("code"), signal=number, stderr=self.stderr)))
                for child in list(self.states):
                    self.apply(child, Input.EXIT)

    def _pair(self, msg: Any) -> None:
        """A line that was written then: whose answer is whose."""
        self.said.append(msg)
        request = request_of(msg) if isinstance(msg, dict) else None
        if request is None or request[0] is None:
            return
        self._recorded.add(json.dumps(request[0]))
        waiting = self._ours.get(request[1])
        if waiting:
            self._names[json.dumps(request[0])] = waiting.pop(0)

    def _as_ours(self, msg: Any) -> bytes | None:
        """A line of the agent with our id in it; None for the answer to a request that we do not make any more."""
        if not isinstance(msg, dict):
            return str(msg).encode()
        place = msg["response"] if msg.get("type") == "control_response" else msg
        key = "request_id" if place is not msg else "id"
        answer = place is not msg or ("id" in msg and "method" not in msg and msg.get("type", "response") == "response")
        id_ = json.dumps(place.get(key))
        if answer and id_ in self._recorded:
            if id_ not in self._names:
                return None
            place = {**place, key: self._names[id_]}
            msg = {**msg, "response": place} if key == "request_id" else place
        return json.dumps(msg, ensure_ascii=False).encode()

    def _do(self, msg: Wire) -> None:
        match msg.pop("command"):
            case "prompt":
                attachments = tuple(Attachment(**row) for row in msg.pop("attachments", ()))
                self.prompts[msg["key"]] = Prompt(**msg, attachments=attachments)
                self.apply(None, Input.PROMPT, msg["key"])
            case "abort":
                self.apply(None, Input.ABORT)
            case "permission":
                self.take(self.codec.send(PermissionReply(**msg)))
            case "question":
                self.take(self.codec.send(QuestionReply(**msg)))
            case "host":
                answer: HostAnswer = getattr(host, msg.pop("answer"))(**msg)
                assert isinstance(self.codec, HostedCodec)
                self.take(self.codec.hosted(answer))

    # --- as the session does --------------------------------------------------------------------------

    def take(self, outputs: list[Output]) -> None:
        """Outputs of the codec, as the session acts on them."""
        for output in outputs:
            self.outputs.append(output)
            if isinstance(output, Fact):
                self._fact(output)
            elif isinstance(output, Signal):
                if output.child is not None and output.aborted:
                    self.apply(output.child, Input.ABORT)
                self.apply(output.child if output.child in self.states else None, output.input, output.key)
            elif isinstance(output, WriteLine):
                request = request_of(json.loads(output.data))
                if request is not None and request[0] is not None:
                    self._ours.setdefault(request[1], []).append(request[0])
            elif isinstance(output, ToolCheck) and isinstance(self.codec, CheckingCodec):  # no rule concerns it
                data = output.request.data
                assert isinstance(data, PermissionData)
                self.take(self.codec.proceed(data.permission_id))

    def _fact(self, fact: Fact) -> None:
        if fact.type is EventType.SESSION_STARTED:
            if fact.child is not None:
                child = self._open(fact.child)
                call = (getattr(fact.data, "metadata", None) or {}).get("call_id", fact.child)
                self.states[None].status("child", call_id=call, session_id=child.id)
            return
        state = self.states[fact.child]
        item = getattr(fact.data, "item", None)
        aside = item is not None and (item.kind in (ItemKind.STATUS, ItemKind.SYSTEM) or item.role is ItemRole.USER)
        if fact.type in ITEMS and not aside and not state.machine.busy:
            self.idle_items.append(fact)
        state.fact(fact)

    def apply(self, child: str | None, input_: Input, key: str = "") -> None:
        """One input of a session's turn machine."""
        state = self.states[child]
        if input_ is Input.PROMPT:
            show(state, key, self.prompts[key].text)
        for effect in state.apply(input_, key):
            self.effects.append((child, effect))
            if isinstance(effect, DispatchPrompt):
                state.status("prompt", state="handed", item_id=effect.key, agent=self.agent, carried=[])
                self.take(self.codec.send(self.prompts[effect.key]))
            elif isinstance(effect, InterruptAgent) and child is None:
                self.take(self.codec.send(Interrupt()))

    def _open(self, key: str | None) -> SessionState:
        session_id = f"ses_{len(self.states):026d}"
        state = self.state(session_id, self.hub)
        begin(state, DIRECTORY)
        self.states[key] = state
        return state

    def state(self, session_id: str, hub: Recorder) -> SessionState:
        """A session over this replay's journal."""
        return bare(session_id, self.agent, self.store, hub, self.clock)

    # --- what came of it ------------------------------------------------------------------------------

    def facts(self, type_: EventType | None = None) -> list[Fact]:
        """Facts of all sessions, by type."""
        return [out for out in self.outputs if isinstance(out, Fact) and type_ in (None, out.type)]

    def signals(self) -> list[Signal]:
        """What the turn machines were told."""
        return [out for out in self.outputs if isinstance(out, Signal)]

    def turns(self, child: str | None = None) -> list[str]:
        """How each turn of a session ended."""
        return [effect.reason for key, effect in self.effects if key == child and isinstance(effect, Ended)]


async def replay(name: str) -> OwnReplay:
    """One recording, played to its end. `name`: see `recordings`."""
    head, *rows = [json.loads(line) for line in (ROOT / f"{name}.jsonl").read_text("utf-8").split("\n") if line]
    spec = _specs()[head["agent"]]
    return await OwnReplay(head["agent"], spec.make(counting())).play(head, rows)


# --- what holds for every recording -----------------------------------------------------------------------


def check_everything_is_known(played: OwnReplay) -> None:
    """Nothing unparsed."""
    assert [fact.data for fact in played.facts(EventType.UNPARSED)] == []
    assert [name for name in played.codec.counters() if name.startswith("unparsed")] == []


def check_items(played: OwnReplay) -> None:
    """Started, then completed once; texts are the sum of their deltas; one result for each whole call."""
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
            assert fact.data.item.item_id not in completed
            completed[fact.data.item.item_id] = fact.data.item
    assert started.keys() <= completed.keys()
    said = {
        (item.item_id, index, part.type): part.text
        for item in completed.values()
        if item.kind is ItemKind.MESSAGE and item.role is ItemRole.ASSISTANT
        for index, part in enumerate(item.content)
    }
    assert said == {key: text for key, text in deltas.items() if key[2] in ("text", "reasoning")}
    calls = [item for item in completed.values() if item.kind is ItemKind.TOOL_CALL]
    results = [item for item in completed.values() if item.kind is ItemKind.TOOL_RESULT]
    whole = [item.content[0].call_id for item in calls if item.status is ItemStatus.COMPLETED]
    assert sorted(whole) == sorted(item.content[0].call_id for item in results)


def check_asks(played: OwnReplay) -> None:
    """Each ask is resolved once."""
    for kind, data, requested in (
        ("permission_id", PermissionData, EventType.PERMISSION_REQUESTED),
        ("question_id", QuestionData, EventType.QUESTION_REQUESTED),
    ):
        asks = [fact for fact in played.facts() if isinstance(fact.data, data)]
        asked = [getattr(fact.data, kind) for fact in asks if fact.type is requested]
        assert sorted(asked) == sorted(getattr(fact.data, kind) for fact in asks if fact.type is not requested)
        assert len(set(asked)) == len(asked)


def check_turns(played: OwnReplay) -> None:
    """Turns begin and end once, one at a time, and nothing is said outside of them."""
    for key, state in played.states.items():
        assert not state.machine.busy
        ends = [type(e) for k, e in played.effects if k == key and isinstance(e, (Started, Ended))]
        assert ends == [Started, Ended] * (len(ends) // 2)
    assert played.idle_items == []


async def check_clients(played: OwnReplay) -> None:
    """Every event is what OpenCode's document allows; folded, they are what HTTP answers; a rebuilt session is the same."""
    for number, event in enumerate(played.hub.events):
        check_event({"id": f"evt_{number:026d}", "type": event.type, "properties": event.properties})
    for key, state in played.states.items():
        fold = played.hub.folds[state.id]
        fold.check()
        live = view(state.session)
        http = [m.wire() for m in live.messages.values()]
        check_response("session.messages", 200, http)
        check_response("session.get", 200, live.info)
        assert fold.wire() == http
        assert (fold.info, fold.todos, fold.diffs, fold.status) == (live.info, live.todos, live.diffs, live.status)
        assert fold.idles == len([e for k, e in played.effects if k == key and isinstance(e, Ended)])
        rebuilt = played.state(state.id, Recorder())
        journal = await played.store.events(state.id)
        rebuilt.load(journal)
        assert [m.wire() for m in view(rebuilt.session).messages.values()] == http
        check_second(journal, played.agent, live)
