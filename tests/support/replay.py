"""The replay engine: plays a recording to its codec as a session would, through the journal and the projection.

A recording holds the commands of the session (`do`). The turn machine of each session is driven by the codec's signals, and
everything that came out is kept. Ids of our requests may have changed since: the n-th request of a kind is the n-th of that kind
in the recording, and its recorded answer is the answer to ours.
"""

from __future__ import annotations

import json
import signal as signals
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from shim.dev.record.driver import counting_ids
from shim.dev.record.report import request_of
from shim.lib.clock import ManualClock
from shim.sessions.session.session_state import SessionState
from shim.store.memory import MemoryStore
from tests.support.opencode1_views import view
from tests.support.recordings import Recording, Row, read
from tests.support.scripted_model import Recorder
from tests.support.session_states import bare, begin, show
from universal import host
from universal.agents import kit
from universal.agents.acp.ends import HISTORY
from universal.agents.acp.spec import custom_spec
from universal.codec import (
    Attachment,
    Fact,
    Interrupt,
    Output,
    PermissionReply,
    Prompt,
    QuestionReply,
    SetTimer,
    Signal,
    Stop,
    ToolCheck,
    WriteLine,
)
from universal.events import EventType, PermissionData, UnparsedData
from universal.host import HostAnswer
from universal.items import Item, ItemKind, ItemRole
from universal.launch import Exit, LaunchOptions
from universal.registry import agents
from universal.turn import DispatchPrompt, Effect, Input, InterruptAgent, TurnEnd, TurnStart

DIRECTORY = "/home/user/project"
ITEMS = (EventType.ITEM_STARTED, EventType.ITEM_DELTA, EventType.ITEM_COMPLETED)
UNSEEN = (ItemKind.STATUS, ItemKind.SYSTEM)
"""Items that are no part of a turn."""
Wire = dict[str, Any]
Child = str | Literal["any"] | None
"""A subagent's key, None for the main session, or "any"."""


def play(name: str) -> Replay:
    """One recording by its name (`recordings.read`), played to its end."""
    recording = read(name)
    return Replay(recording.agent, codec_of(recording.agent)).play(recording)


def codec_of(agent: str) -> Any:
    """A new codec of an agent, whose ids are item_1, permission_1, question_1, item_2 ...

    An unknown name is an ACP agent of the person's own.
    """
    return (agents().get(agent) or custom_spec(agent, (agent,), None, {})).make(counting_ids())


def encode(msg: Any) -> bytes:
    """A recorded message as the line that it was."""
    return (msg if isinstance(msg, str) else json.dumps(msg, ensure_ascii=False)).encode()


def open_store() -> MemoryStore:
    """A store in memory that is open. Its `open` never waits, so this needs no event loop."""
    store = MemoryStore()
    with suppress(StopIteration):
        store.open().send(None)
    return store


@dataclass
class Replay:
    """A codec at work, the state of each session (None: the main one), and the stream of their events."""

    agent: str
    codec: Any
    outputs: list[Output] = field(default_factory=list)
    effects: list[tuple[str | None, Effect]] = field(default_factory=list)
    states: dict[str | None, SessionState] = field(default_factory=dict)
    idle_items: list[Fact] = field(default_factory=list)
    """Facts about messages and tools that came while no turn of their session ran: nobody would see them."""
    prompts_by_key: dict[str, Prompt] = field(default_factory=dict)
    stderr: str = ""
    clock: ManualClock = field(default_factory=ManualClock)
    store: MemoryStore = field(default_factory=open_store)
    hub: Recorder = field(default_factory=Recorder)
    timers: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Key of a timer of the codec -> seconds of the recording at which it was set and runs out."""
    now_s: float = 0.0
    recorded: list[Wire] = field(default_factory=list)
    """What was written to the agent in the recording."""
    _ours: dict[str, list[Any]] = field(default_factory=dict)
    """Kind of request -> ids of ours that have no recorded one yet."""
    _names: dict[str, Any] = field(default_factory=dict)
    """Recorded id of a request, as JSON -> ours."""
    _at_once: list[str] = field(default_factory=list)
    """Keys of prompts that were written while a turn ran, so that the agent queued them itself."""
    _metadata: dict[str, Wire] = field(default_factory=dict)
    """Key of a prompt -> what its item keeps beside the text."""
    _is_over: bool = False
    """Whether the codec has stopped the agent, so that what it still says does not count."""
    _asked: set[str] = field(default_factory=set)
    """Recorded ids of requests, as JSON."""

    def __post_init__(self) -> None:
        self.open(None)

    # --- rows -----------------------------------------------------------------------------------------

    def play(self, recording: Recording) -> Self:
        """The whole recording, to the end of its process."""
        self.codec.launch(LaunchOptions(binary=recording.argv[0], directory=DIRECTORY, **recording.launch))
        self.take(self.codec.start())
        for row in recording.rows:
            self.now_s = row.at_s
            self.run_timers(is_next_in=row.direction == "in")
            self.row(row)
        return self

    def run_timers(self, *, is_next_in: bool = False, is_given: bool = False) -> None:
        """Run timers that are due.

        A prompt that waits for the end of a turn when the recording gives it or writes something has waited in the recording too.
        That holds for the waits after a sign of an end; longer ones ask the agent or give it up.
        """
        is_waiting = bool(self.state.machine.queue)
        for key, (set_s, due_s) in list(self.timers.items()):
            is_awaited = is_waiting and due_s - set_s <= kit.END_S and (is_next_in or (is_given and set_s < self.now_s))
            is_due = due_s <= self.now_s or is_awaited or (is_next_in and key == HISTORY)
            if is_due and key != kit.HANDSHAKE and self.timers.pop(key, None) is not None:
                self.take(self.codec.on_timer(key))

    def row(self, row: Row) -> None:
        """One row of the recording."""
        match row.direction:
            case "do":
                self._do(dict(row.msg))
            case "in":
                self._note_request(row.msg)
            case "out":
                line = self._as_ours(row.msg)
                if line is not None:
                    self.hear(line)
            case "err":
                self.stderr += str(row.msg)
            case "exit":
                signal = row.msg.get("signal")
                number = signals.Signals[signal].value if isinstance(signal, str) else signal
                self.exit(row.msg.get("code"), number)

    def _do(self, msg: Wire) -> None:
        match msg.pop("command"):
            case "prompt" | "steer" as command:
                attachments = tuple(Attachment(**row) for row in msg.pop("attachments", ()))
                at_once, metadata = msg.pop("at_once", False), msg.pop("metadata", None)
                prompt = Prompt(**msg, attachments=attachments)
                self._at_once += [prompt.key] * at_once
                if metadata is not None:
                    self._metadata[prompt.key] = metadata
                self.give(prompt)
                if at_once:
                    self.take(self.codec.send(prompt))
                elif command == "steer":
                    self.apply(None, Input.OFFERED, prompt.key)
                    self.take(self.codec.steer(prompt))
            case "abort":
                self.apply(None, Input.ABORT)
            case "permission":
                self.take(self.codec.send(PermissionReply(**msg)))
            case "question":
                self.take(self.codec.send(QuestionReply(**msg)))
            case "host":
                answer: HostAnswer = getattr(host, msg.pop("answer"))(**msg)
                self.take(self.codec.on_host_answer(answer))

    def _note_request(self, msg: Any) -> None:
        """A line that was written then: whose answer is whose."""
        self.recorded.append(msg)
        request = request_of(msg) if isinstance(msg, dict) else None
        if request is None or request[0] is None:
            return
        self._asked.add(json.dumps(request[0]))
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
        if answer and id_ in self._asked:
            if id_ not in self._names:
                return None
            place = {**place, key: self._names[id_]}
            msg = {**msg, "response": place} if key == "request_id" else place
        return encode(msg)

    def hear(self, line: bytes) -> None:
        """A line of the recording comes in."""
        self.receive(line)

    def written_line(self, msg: Wire) -> None:
        """The codec has written this."""
        request = request_of(msg)
        if request is not None and request[0] is not None:
            self._ours.setdefault(request[1], []).append(request[0])

    def show_prompt(self, prompt: Prompt) -> None:
        """A person's prompt is put into the journal."""
        show(self.states[None], prompt.key, prompt.text, self._metadata.get(prompt.key))

    def dispatch(self, prompt: Prompt) -> None:
        """The turn machine hands a prompt over."""
        if prompt.key not in self._at_once:
            self.take(self.codec.send(prompt))

    def interrupt(self) -> None:
        """The turn machine wants the agent interrupted."""
        self.take(self.codec.send(Interrupt()))

    # --- as a session does ----------------------------------------------------------------------------

    def receive(self, line: bytes) -> None:
        """One line of the agent."""
        if not self._is_over:
            self.take(self.codec.receive(line))

    def prompt(self, text: str, **more: Any) -> None:
        """A prompt of the person; keys are prompt_1, prompt_2 ..."""
        self.give(Prompt(key=f"prompt_{len(self.prompts_by_key) + 1}", text=text, **more))

    def give(self, prompt: Prompt) -> None:
        """A prompt of the person. The codec gets it when the turn machine hands it over."""
        self.prompts_by_key[prompt.key] = prompt
        self.apply(None, Input.PROMPT, prompt.key)
        self.run_timers(is_given=True)

    def exit(self, code: int | None, signal: int | None = None) -> None:
        """The process has ended."""
        self.take(self.codec.eof(Exit(code=code, signal=signal, stderr=self.stderr)))
        for child in list(self.states):
            self.apply(child, Input.EXIT)

    def take(self, outputs: list[Output]) -> None:
        """Outputs of the codec, as the session acts on them."""
        self._is_over = self._is_over or any(isinstance(output, Stop) for output in outputs)
        for output in outputs:
            self.outputs.append(output)
            if isinstance(output, Fact):
                self.fact(output)
            elif isinstance(output, Signal):
                if output.child is not None and output.aborted:
                    self.apply(output.child, Input.ABORT)
                self.apply(output.child, output.input, output.key)
            elif isinstance(output, WriteLine):
                self.written_line(json.loads(output.data))
            elif isinstance(output, ToolCheck):
                self.check(output)
            elif isinstance(output, SetTimer):
                self.timers.pop(output.key, None)
                if output.after_s is not None:
                    self.timers[output.key] = (self.now_s, self.now_s + output.after_s)

    def check(self, check: ToolCheck) -> None:
        """A call waits for our rules. None concerns it."""
        data = check.request.data
        assert isinstance(data, PermissionData)
        self.take(self.codec.proceed(data.permission_id))

    def fact(self, fact: Fact) -> None:
        """A fact belongs to a session; the first one of a subagent opens that."""
        if fact.type is EventType.SESSION_STARTED:
            if fact.child is not None:
                metadata = fact.data.metadata or {}
                child = self.open(fact.child)
                self.states[None].status("child", call_id=metadata.get("call_id", fact.child), session_id=child.id)
            return
        state = self.states[fact.child]
        item = getattr(fact.data, "item", None)
        unseen = item is not None and (item.kind in UNSEEN or item.role is ItemRole.USER)
        if fact.type in ITEMS and not unseen and not state.machine.busy:
            self.idle_items.append(fact)
        self.keep(state, fact)

    def keep(self, state: SessionState, fact: Fact) -> None:
        """A fact goes into a session's journal."""
        state.fact(fact)

    def apply(self, child: str | None, input_: Input, key: str = "") -> None:
        """One input of a session's turn machine."""
        state = self.states[child]
        if input_ is Input.PROMPT:
            self.show_prompt(self.prompts_by_key[key])
        elif input_ is Input.TAKEN:
            state.status("prompt", state="handed", item_id=key, agent=self.agent, carried=[])
        for effect in state.apply(input_, key):
            self.effects.append((child, effect))
            if isinstance(effect, DispatchPrompt):
                state.status("prompt", state="handed", item_id=effect.key, agent=self.agent, carried=[])
                self.dispatch(self.prompts_by_key[effect.key])
            elif isinstance(effect, InterruptAgent) and child is None:
                self.interrupt()

    def open(self, key: str | None) -> SessionState:
        """A new session."""
        state = self.unread(f"ses_{len(self.states):026d}", self.hub)
        begin(state, DIRECTORY)
        self.states[key] = state
        return state

    def unread(self, session_id: str, hub: Recorder) -> SessionState:
        """A session over this replay's store, which has read nothing of it."""
        return bare(session_id, self.agent, self.store, hub, self.clock)

    # --- what came of it ------------------------------------------------------------------------------

    @property
    def state(self) -> SessionState:
        """The main session."""
        return self.states[None]

    @property
    def children(self) -> list[str]:
        """Keys of the subagents' sessions."""
        return [key for key in self.states if key is not None]

    def facts(self, type_: EventType | None = None, child: Child = "any") -> list[Fact]:
        """Facts, by type and session."""
        found = [out for out in self.outputs if isinstance(out, Fact) and type_ in (None, out.type)]
        return [fact for fact in found if child in ("any", fact.child)]

    def items(self, kind: ItemKind, child: Child = "any") -> list[Item]:
        """Completed items of a kind."""
        facts = self.facts(EventType.ITEM_COMPLETED, child)
        return [fact.data.item for fact in facts if fact.data.item.kind is kind]

    def statuses(self, label: str) -> list[Item]:
        """Completed status items with this label."""
        return [item for item in self.items(ItemKind.STATUS) if item.content[0].label == label]

    def texts(self, role: ItemRole = ItemRole.ASSISTANT, child: Child = None) -> list[str]:
        """Texts of the messages of a session, in order."""
        messages = [item for item in self.items(ItemKind.MESSAGE, child) if item.role is role]
        return ["".join(part.text for part in item.content if part.type == "text") for item in messages]

    def signals(self, child: Child = None) -> list[Signal]:
        """What the codec told the turn machine of a session."""
        return [out for out in self.outputs if isinstance(out, Signal) and child in ("any", out.child)]

    def turns(self, child: str | None = None) -> list[tuple[str, str]]:
        """(origin, reason) of each turn of a session."""
        mine = [effect for key, effect in self.effects if key == child]
        origins = [effect.origin for effect in mine if isinstance(effect, TurnStart)]
        reasons = [effect.reason for effect in mine if isinstance(effect, TurnEnd)]
        assert len(origins) == len(reasons)
        return list(zip(origins, reasons, strict=True))

    def written_lines(self) -> list[Any]:
        """What we wrote to the agent."""
        return [json.loads(out.data) for out in self.outputs if isinstance(out, WriteLine)]

    def unparsed_lines(self) -> list[UnparsedData]:
        """Lines that no rule knew."""
        return [fact.data for fact in self.facts(EventType.UNPARSED)]

    def tool_parts(self, child: str | None = None) -> list[dict[str, Any]]:
        """The tool parts of a session, as clients get them."""
        parts = [p for m in view(self.states[child].session).messages.values() for p in m.wire()["parts"]]
        return [p for p in parts if p["type"] == "tool"]

    def cards(self, child: str | None = None) -> list[tuple[str, str]]:
        """(tool, status) of the tool cards that clients show."""
        return [(part["tool"], part["state"]["status"]) for part in self.tool_parts(child)]
