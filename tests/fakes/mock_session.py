"""A session in small around the mock: program -> codec -> turn machines, without server, store or projection.

It does what a session does with outputs: facts are kept, signals go to the turn machine (of the subagent, if it is
its), effects are carried out. All waits are bounded.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import orjson

from shim.dev.record.driver import counting_ids
from shim.processes.inprocess import InProcessAgent, Program
from shim.processes.mock.agent import mock_program
from universal.agents.mock.codec import MockCodec
from universal.codec import (
    Attachment,
    Command,
    Fact,
    Interrupt,
    Output,
    PermissionReply,
    Prompt,
    QuestionReply,
    SetTimer,
    Signal,
    WriteLine,
)
from universal.events import EventType, ItemData, ItemDeltaData, PermissionData, QuestionData
from universal.items import Item, ItemKind, ItemRole, ItemStatus, ReasoningPart, TextPart, ToolResultPart
from universal.launch import Exit, LaunchOptions
from universal.setup import NO_SETUP
from universal.turn import DispatchPrompt, Effect, Input, InterruptAgent, KillAgent, TurnEnd, TurnMachine, TurnStart

WAIT_S = 5.0
Reply = Callable[[Fact], Command | None]


def accept(fact: Fact) -> Command | None:
    """Say yes to everything, and take the first option of each question (the first two, where several may be taken)."""
    if isinstance(fact.data, PermissionData):
        return PermissionReply(fact.data.permission_id, "accept")
    if isinstance(fact.data, QuestionData):
        answers = [[o.label for o in q.options[: 2 if q.multiple else 1]] for q in fact.data.questions]
        return QuestionReply(fact.data.question_id, answers)
    return None


def always(fact: Fact) -> Command | None:
    """Say yes for good."""
    return PermissionReply(fact.data.permission_id, "accept_for_session") if isinstance(fact.data, PermissionData) else None


def reject(message: str | None = None) -> Reply:
    """Say no to everything."""

    def reply(fact: Fact) -> Command | None:
        if isinstance(fact.data, PermissionData):
            return PermissionReply(fact.data.permission_id, "reject", message)
        return QuestionReply(fact.data.question_id, None) if isinstance(fact.data, QuestionData) else None

    return reply


@dataclass
class MockSession:
    """One session. `reply` answers what is asked (None: nobody does); `interrupt_at`: abort after so many lines."""

    directory: Path
    reply: Reply | None = accept
    interrupt_at: int | None = None
    program: Program = field(default_factory=lambda: mock_program(delay_factor=0))
    mode: str | None = None
    facts: list[Fact] = field(default_factory=list)
    outputs: list[Output] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    traffic: list[tuple[str, bytes]] = field(default_factory=list)
    exit: Exit | None = None

    def __post_init__(self) -> None:
        self.codec = MockCodec(counting_ids())
        self.machines: dict[str | None, TurnMachine] = {None: TurnMachine()}
        self.prompts: dict[str, Prompt] = {}
        self._lines = 0
        self._changed = asyncio.Event()

    # --- running ---------------------------------------------------------------------------------------

    def start(self, native_session_id: str | None = None) -> None:
        """Launch the agent; with an id it resumes that conversation."""
        options = LaunchOptions("", str(self.directory), native_session_id=native_session_id, resume=bool(native_session_id))
        spec = self.codec.launch(options)
        self.agent = InProcessAgent.spawn(self.program, spec, {}, on_lines=self._on_lines, on_exit=self._on_exit)
        self._process(self.codec.start())

    def prompt(self, text: str, attachments: Sequence[Attachment] = (), **fields: Any) -> None:
        """Accept a prompt."""
        key = f"prompt_{len(self.prompts) + 1}"
        self.prompts[key] = Prompt(key, text, attachments, mode=self.mode, **fields)
        self._record("prompt", self.prompts[key])
        self.apply(Input.PROMPT, key)

    def apply(self, input_: Input, key: str = "", child: str | None = None) -> None:
        """An input for a turn machine, and what follows from it."""
        effects = self.machines[child].apply(input_, key)
        if child is None:
            self.effects += effects
        for effect in effects:
            if isinstance(effect, DispatchPrompt):
                self._process(self.codec.send(self.prompts[effect.key]))
            elif isinstance(effect, InterruptAgent) and child is None:
                self._process(self.codec.send(Interrupt()))
            elif isinstance(effect, KillAgent):
                self.agent.kill()

    def send(self, command: Command) -> None:
        """A command for the agent."""
        self._process(self.codec.send(command))

    async def until(self, predicate: Callable[[], bool]) -> None:
        """Wait for something to become true."""
        async with asyncio.timeout(WAIT_S):
            while not predicate():
                self._changed.clear()
                await self._changed.wait()

    async def idle(self, turns: int = 1) -> None:
        """Wait until so many turns have ended."""
        await self.until(lambda: sum(isinstance(e, TurnEnd) for e in self.effects) >= turns)

    async def stop(self) -> None:
        """End the agent."""
        await self.agent.stop()

    def _on_lines(self, lines: list[bytes]) -> None:
        for line in lines:
            self.traffic.append(("out", line))
            self._process(self.codec.receive(line))
            if b'"type":"hello"' not in line:
                self._lines += 1
                if self._lines == self.interrupt_at:
                    self._record("abort")
                    self.apply(Input.ABORT)
        self._changed.set()

    def _on_exit(self, exit_: Exit) -> None:
        assert self.exit is None, "on_exit twice"
        self.exit = exit_
        self._process(self.codec.eof(exit_))
        for child in self.machines:
            self.apply(Input.EXIT, child=child)
        self._changed.set()

    def _process(self, outputs: Iterable[Output]) -> None:
        for output in outputs:
            match output:
                case WriteLine(data=data):
                    self.traffic.append(("in", data))
                    self.agent.write(data)
                case Signal():
                    self.outputs.append(output)
                    self.apply(output.input, output.key, output.child)
                case Fact():
                    self.outputs.append(output)
                    self._fact(output)
                case SetTimer():
                    pass  # an agent that plays a scene answers at once
                case _:
                    raise AssertionError(output)

    def _fact(self, fact: Fact) -> None:
        self.facts.append(fact)
        if fact.type is EventType.SESSION_STARTED:
            self.machines[fact.child] = TurnMachine()
        command = self.reply(fact) if self.reply is not None and _asks(fact) else None
        if command is not None:
            self._record("permission" if isinstance(command, PermissionReply) else "question", command)
            self._process(self.codec.send(command))

    def _record(self, name: str, command: Prompt | PermissionReply | QuestionReply | None = None) -> None:
        """A command of the session, as a recording has it."""
        fields = asdict(command) if command is not None else {}
        set_fields = {key: value for key, value in fields.items() if (value and value != NO_SETUP) or key == "answers"}
        row = {"command": name, **set_fields}
        self.traffic.append(("do", orjson.dumps(row)))

    # --- looking ---------------------------------------------------------------------------------------

    @property
    def lines(self) -> int:
        """Lines of the agent so far, greetings not counted."""
        return self._lines

    @property
    def ends(self) -> list[str]:
        """The reasons of the turns that have ended."""
        return [e.reason for e in self.effects if isinstance(e, TurnEnd)]

    @property
    def starts(self) -> list[str]:
        """Who began the turns."""
        return [e.origin for e in self.effects if isinstance(e, TurnStart)]

    def of(self, type_: EventType, child: str | None = None) -> list[Any]:
        """The data of all facts of one type, of the session itself or of one subagent."""
        return [f.data for f in self.facts if f.type is type_ and f.child == child]

    def items(self, kind: ItemKind, child: str | None = None) -> list[Item]:
        """Completed items of one kind."""
        return [d.item for d in self.of(EventType.ITEM_COMPLETED, child) if d.item.kind is kind]

    def text(self, child: str | None = None) -> str:
        """What it said: the text of all its messages, one per line."""
        messages = [m for m in self.items(ItemKind.MESSAGE, child) if m.role is ItemRole.ASSISTANT]
        return "\n".join("".join(p.text for p in m.content if isinstance(p, TextPart)) for m in messages)

    def outputs_of_tools(self, child: str | None = None) -> list[str]:
        """What the tools gave back."""
        results = self.items(ItemKind.TOOL_RESULT, child)
        return [p.output for item in results for p in item.content if isinstance(p, ToolResultPart)]

    def native(self, direction: str) -> list[dict[str, Any]]:
        """The lines of one direction that are JSON."""
        return [orjson.loads(line) for d, line in self.traffic if d == direction and line.startswith(b"{")]


def _asks(fact: Fact) -> bool:
    return fact.type in (EventType.PERMISSION_REQUESTED, EventType.QUESTION_REQUESTED)


# --- laws ------------------------------------------------------------------------------------------------


def check_turns(session: MockSession) -> None:
    """Each turn ended once, before the next began, and nothing is busy any more."""
    seen = [(type(e).__name__, e.turn) for e in session.effects if isinstance(e, (TurnStart, TurnEnd))]
    turns = session.machines[None].turn
    assert seen == [(kind, turn) for turn in range(1, turns + 1) for kind in ("TurnStart", "TurnEnd")]
    assert not [child for child, machine in session.machines.items() if machine.busy]


def check_items(session: MockSession, *, left_open: Mapping[str, str] | None = None) -> None:
    """Items: started once, completed once, in that order; parts are their deltas; asks are resolved."""
    open_: dict[str, Item] = {}
    done: set[str] = set()
    pieces: dict[str, dict[int, tuple[str, str]]] = defaultdict(dict)
    asks: set[str] = set()
    for fact in session.facts:
        data = fact.data
        if fact.type is EventType.ITEM_STARTED and isinstance(data, ItemData):
            assert data.item.item_id not in open_ and data.item.item_id not in done
            open_[data.item.item_id] = data.item
        elif isinstance(data, ItemDeltaData):
            assert data.item_id in open_, "a delta for an item that is not open"
            before = pieces[data.item_id].get(data.part_index, (data.part_type, ""))
            assert before[0] == data.part_type
            pieces[data.item_id][data.part_index] = (data.part_type, before[1] + data.delta)
        elif isinstance(data, ItemData):
            item = data.item
            assert item.item_id not in done
            open_.pop(item.item_id, None)
            done.add(item.item_id)
            _check_parts(item, pieces.get(item.item_id, {}))
        elif isinstance(data, PermissionData):
            (asks.add if data.status == "requested" else asks.remove)(data.permission_id)
        elif isinstance(data, QuestionData):
            (asks.add if data.status == "requested" else asks.remove)(data.question_id)
    assert not asks
    assert not open_, [i.kind for i in open_.values()]
    calls = {f.data.item.native_item_id for f in session.facts if _is(f, ItemKind.TOOL_CALL)}
    results = {f.data.item.native_item_id for f in session.facts if _is(f, ItemKind.TOOL_RESULT)}
    assert calls >= results


def _is(fact: Fact, kind: ItemKind) -> bool:
    return isinstance(fact.data, ItemData) and fact.data.item.kind is kind


def _check_parts(item: Item, pieces: Mapping[int, tuple[str, str]]) -> None:
    if item.kind is ItemKind.MESSAGE and item.role is ItemRole.ASSISTANT:  # prompts are whole
        assert pieces == {
            n: ("text" if isinstance(p, TextPart) else "reasoning", p.text)
            for n, p in enumerate(item.content)
            if isinstance(p, (TextPart, ReasoningPart))
        }
    elif item.kind is ItemKind.TOOL_RESULT and item.status is ItemStatus.COMPLETED and pieces:
        result = item.content[0]
        assert isinstance(result, ToolResultPart) and pieces == {0: ("tool_output", result.output)}
