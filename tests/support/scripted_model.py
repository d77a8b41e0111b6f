"""Sessions without processes: a scripted agent whose output the test writes.

`ScriptedAgents` is the directory of agents; each spawn gives a `ScriptedAgent`, on which a test calls `says(...)` with
codec outputs, `exits(...)`; `commands` is what it was told. Everything between is the real code.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from shim.faces.opencode1._generated.operations import OPENCODE_VERSION
from shim.faces.opencode1.events import events_of
from shim.faces.opencode1.wire_event import OpenCodeEvent
from shim.host.config.opencode_config import OpenCodeConfig
from shim.lib.clock import ManualClock
from shim.lib.errors import AgentError, AgentGone
from shim.lib.ids import Ids
from shim.lib.settings import Settings
from shim.processes.handle import JudgeHost, refuse_host
from shim.sessions.feed import ChangeFeed, SessionChanges
from shim.sessions.index.manager import SessionManager
from shim.sessions.prompts.prompt_request import PromptRequest
from shim.sessions.prompts.submit import submit
from shim.sessions.session.dependencies import SessionDeps
from shim.store.base import Store
from shim.store.memory import MemoryStore
from tests.support.opencode1_fold import Fold
from tests.support.specs import change
from universal.agent_spec import AgentAbilities, AgentFolder, AgentProgram, AgentRules, AgentSpec, Capabilities, HeldCalls
from universal.codec import (
    Catalogue,
    Codec,
    Command,
    Fact,
    Mode,
    Model,
    Output,
    PermissionReply,
    Prompt,
    QuestionReply,
    Signal,
    Stop,
    ToolCheck,
    WriteLine,
)
from universal.events import (
    ErrorData,
    EventType,
    ItemData,
    ItemDeltaData,
    PermissionData,
    Question,
    QuestionData,
    QuestionOption,
    SessionStartedData,
)
from universal.host import HostAnswer
from universal.items import Item, ItemKind, ItemRole, ItemStatus, TextPart, ToolCallPart, ToolResultPart
from universal.launch import Exit, LaunchOptions, LaunchSpec
from universal.permissions import DirectoryRules, Enforcement, Rule
from universal.sandbox import Level, SandboxUse
from universal.session.values import Text
from universal.turn import Input


class ScriptedCodec(Codec):
    """Commands are kept; lines are indices into what the test wants to be said."""

    catalogue = None

    def __init__(self, name: str, agent: ScriptedAgent) -> None:
        self.name = name
        self.agent = agent
        self.native_session_id: str | None = None

    @property
    def mode(self) -> str:
        return self.agent.mode

    @property
    def has_conversation(self) -> bool:
        return self.agent.has_conversation

    def live_work(self) -> list[str]:
        return self.agent.live_work

    def on_timer(self, key: str) -> list[Output]:
        return self.agent.timers.pop(key, [])

    def proceed(self, permission_id: str) -> list[Output]:
        self.agent.proceeded.append(permission_id)
        self.agent.asked.pop(permission_id, None)
        return []

    def on_host_answer(self, answer: HostAnswer) -> list[Output]:
        self.agent.host_answers.append(answer)
        return []

    @property
    def may_steer(self) -> bool:
        return self.agent.steers

    def steer(self, prompt: Prompt) -> list[Output]:
        self.agent.offers.append(prompt)
        return [WriteLine(b"{}")]

    def recall(self, key: str) -> list[Output]:
        self.agent.recalled.append(key)
        return [WriteLine(b"{}")] if self.agent.gives_back else []

    def launch(self, options: LaunchOptions) -> LaunchSpec:
        return LaunchSpec(("scripted",), options.directory)

    def start(self) -> list[Output]:
        return []

    def send(self, command: Command) -> list[Output]:
        if isinstance(command, Prompt) and self.agent.restarts:
            return [Stop("other rules", again=True)]
        self.agent.commands.append(command)
        out: list[Output] = [WriteLine(b"{}")]
        if isinstance(command, PermissionReply) and command.permission_id in self.agent.asked:
            data = PermissionData(permission_id=command.permission_id, action="x", status=command.decision)
            out.append(
                Fact(EventType.PERMISSION_RESOLVED, data, synthetic=True, child=self.agent.asked.pop(command.permission_id))
            )
        if isinstance(command, QuestionReply) and command.question_id in self.agent.asked:
            status: Literal["answered", "rejected"] = "answered" if command.answers is not None else "rejected"
            answers = tuple(tuple(a) for a in command.answers) if command.answers is not None else None
            question = QuestionData(question_id=command.question_id, prompt="", options=(), status=status, answers=answers)
            out.append(
                Fact(EventType.QUESTION_RESOLVED, question, synthetic=True, child=self.agent.asked.pop(command.question_id))
            )
        return out

    def receive(self, line: bytes) -> list[Output]:
        return [self.agent.script[int(line)]]

    def eof(self, exit_: Exit) -> list[Output]:
        return self.agent.dying

    def counters(self) -> Mapping[str, int]:
        return {}


@dataclass
class ScriptedAgent:
    """One process that is none."""

    options: LaunchOptions
    on_lines: Callable[[list[bytes]], Awaitable[None] | None]
    on_exit: Callable[[Exit], None]
    judge_host: JudgeHost = refuse_host
    """What the proxy of its sandbox asks."""
    commands: list[Command] = field(default_factory=list)
    proceeded: list[str] = field(default_factory=list)
    """Checked calls that no rule concerns."""
    host_answers: list[HostAnswer] = field(default_factory=list)
    mode: str = ""
    steers: bool = False
    """Whether it takes in prompts while it works."""
    gives_back: bool = True
    offers: list[Prompt] = field(default_factory=list)
    """Prompts that it was given while it worked."""
    recalled: list[str] = field(default_factory=list)
    script: list[Output] = field(default_factory=list)
    dying: list[Output] = field(default_factory=list)
    asked: dict[str, str | None] = field(default_factory=dict)
    has_conversation: bool = True
    """Whether its conversation was found, if it is to resume one."""
    live_work: list[str] = field(default_factory=list)
    """What it does in the background."""
    timers: dict[str, list[Output]] = field(default_factory=dict)
    """What the codec says when a timer has run out."""
    alive: bool = True
    killed: bool = False
    interrupted: bool = False
    stopped: bool = False
    restarts: bool = False
    """The next prompt needs another process."""
    pid: int | None = None
    stderr: str = ""
    numbers: int = 0
    unread: list[bytes] = field(default_factory=list)
    reading: asyncio.Future[None] | None = None
    """Waits until the session takes lines again, and delivers those that came meanwhile. None: it never had to wait."""

    def write(self, data: bytes) -> None:
        if not self.alive:
            raise AgentGone("gone")

    def interrupt(self) -> None:
        self.interrupted = True

    def kill(self) -> None:
        self.killed = True
        self.exits(signal=9)

    async def stop(self) -> None:
        self.stopped = True
        self.exits()

    def exits(self, code: int | None = 0, signal: int | None = None, stderr: str = "") -> None:
        if self.alive:
            self.alive = False
            self.on_exit(Exit(None if signal else code, signal, stderr))

    def says(self, *outputs: Output) -> None:
        """Deliver outputs as lines of the agent."""
        start = len(self.script)
        self.script += outputs
        self.unread += [str(n).encode() for n in range(start, len(self.script))]
        if (self.reading is None or self.reading.done()) and (pause := self._deliver()) is not None:
            self.reading = asyncio.ensure_future(self._read_on(pause))

    def _deliver(self) -> Awaitable[None] | None:
        lines, self.unread = self.unread, []
        return self.on_lines(lines)

    async def _read_on(self, pause: Awaitable[None] | None) -> None:
        while pause is not None:
            await pause
            pause = self._deliver() if self.unread else None

    def last_words(self, *outputs: Output) -> None:
        """What the codec will say of its exit."""
        self.dying += outputs

    @property
    def prompts(self) -> list[str]:
        """Texts of the prompts that it was handed."""
        return [c.text for c in self.commands if isinstance(c, Prompt)]

    # --- words ------------------------------------------------------------------------------------------

    def new(self, prefix: str = "itm") -> str:
        self.numbers += 1
        return f"{prefix}_s{id(self) % 10000}_{self.numbers}"

    def text(self, text: str, child: str | None = None, finish: str = "stop") -> None:
        """A whole step of text."""
        id_ = self.begin(child=child)
        self.delta(id_, text, child=child)
        self.complete(id_, text, child=child, finish=finish)

    def begin(self, child: str | None = None) -> str:
        id_ = self.new()
        item = Item(item_id=id_, kind=ItemKind.MESSAGE, role=ItemRole.ASSISTANT, status=ItemStatus.IN_PROGRESS)
        self.says(Fact(EventType.ITEM_STARTED, ItemData(item=item), child=child))
        return id_

    def delta(self, id_: str, text: str, child: str | None = None, index: int = 0) -> None:
        self.says(Fact(EventType.ITEM_DELTA, ItemDeltaData(item_id=id_, delta=text, part_index=index), child=child))

    def complete(self, id_: str, text: str, child: str | None = None, finish: str = "stop") -> None:
        usage = {"input": 10, "output": 5, "reasoning": 0, "cache_read": 1, "cache_write": 0}
        item = Item(
            item_id=id_,
            kind=ItemKind.MESSAGE,
            role=ItemRole.ASSISTANT,
            status=ItemStatus.COMPLETED,
            content=(TextPart(text=text),),
            metadata={"usage": usage, "finish": finish},
        )
        self.says(Fact(EventType.ITEM_COMPLETED, ItemData(item=item), child=child))

    def call(
        self, message: str, call_id: str, name: str = "bash", child: str | None = None, arguments: str = '{"command": "ls"}'
    ) -> None:
        part = ToolCallPart(name=name, arguments=arguments, call_id=call_id)
        item = Item(
            item_id=self.new(),
            parent_id=message,
            kind=ItemKind.TOOL_CALL,
            role=ItemRole.TOOL,
            status=ItemStatus.IN_PROGRESS,
            content=(part,),
        )
        self.says(Fact(EventType.ITEM_STARTED, ItemData(item=item), child=child))
        self.says(
            Fact(EventType.ITEM_COMPLETED, ItemData(item=item.model_copy(update={"status": ItemStatus.COMPLETED})), child=child)
        )

    def result(self, call_id: str, output: str = "ok", child: str | None = None, *, failed: bool = False) -> None:
        item = Item(
            item_id=self.new(),
            kind=ItemKind.TOOL_RESULT,
            role=ItemRole.TOOL,
            status=ItemStatus.FAILED if failed else ItemStatus.COMPLETED,
            content=(ToolResultPart(call_id=call_id, output=output),),
        )
        self.says(Fact(EventType.ITEM_COMPLETED, ItemData(item=item), child=child))

    def ask(self, call_id: str, tool: str = "bash", child: str | None = None, **given: Any) -> str:
        id_ = self.new("per")
        self.asked[id_] = child
        meta = {"tool": tool, "call_id": call_id, "input": given or {"command": "ls"}}
        data = PermissionData(permission_id=id_, action=tool, status="requested", metadata=meta)
        self.says(Fact(EventType.PERMISSION_REQUESTED, data, child=child))
        return id_

    def check(self, call_id: str, tool: str = "bash", child: str | None = None, **given: Any) -> str:
        """A call that it would make without asking."""
        id_ = self.new("per")
        self.asked[id_] = child
        meta = {"tool": tool, "call_id": call_id, "input": given or {"command": "ls"}}
        data = PermissionData(permission_id=id_, action=tool, status="requested", metadata=meta)
        self.says(ToolCheck(Fact(EventType.PERMISSION_REQUESTED, data, child=child)))
        return id_

    def replies(self) -> list[tuple[str, str]]:
        """Each answer to a permission: its id and the decision."""
        return [(c.permission_id, c.decision) for c in self.commands if isinstance(c, PermissionReply)]

    def question(self, call_id: str = "q1") -> str:
        id_ = self.new("que")
        self.asked[id_] = None
        options = (QuestionOption(label="Red"), QuestionOption(label="Blue"))
        data = QuestionData(
            question_id=id_,
            prompt="Which?",
            options=("Red", "Blue"),
            status="requested",
            questions=(Question(question="Which?", header="Colour", options=options),),
            metadata={"call_id": call_id},
        )
        self.says(Fact(EventType.QUESTION_REQUESTED, data))
        return id_

    def child(self, key: str) -> None:
        self.says(
            Fact(
                EventType.SESSION_STARTED,
                SessionStartedData(metadata={"call_id": key, "title": "look", "agent": "general"}),
                child=key,
            ),
            Signal(Input.ACTIVITY, child=key),
        )

    def take_in(self, place: int = -1) -> None:
        """It has taken in one of its offers."""
        self.says(Signal(Input.TAKEN, key=self.offers[place].key))

    def give_back(self, place: int = -1) -> None:
        """It does not have one of its offers any more."""
        self.says(Signal(Input.RETURNED, key=self.offers[place].key))

    def end_turn(self, **metadata: Any) -> None:
        self.says(Signal(Input.DONE, metadata=metadata or None))

    def fail_turn(self, message: str = "bad request", code: str | None = None, **details: Any) -> None:
        error = {"message": message, "code": code}
        self.says(
            Fact(EventType.ERROR, ErrorData(message=message, code=code, details=details or None)),
            Signal(Input.FAILED, error=error),
        )

    def abort_turn(self) -> None:
        self.says(Signal(Input.FAILED, aborted=True))


@dataclass(frozen=True)
class Place:
    path: str | None = "/bin/scripted"
    why: str = ""


@dataclass(frozen=True)
class ScriptedAgentOffer:
    spec: AgentSpec
    located: Place
    catalogue: Catalogue


HELD = Enforcement("its checks")


class ScriptedAgents:
    """Agents `one` and `two`; `spawned` lists every process, `fail` makes the next spawns fail."""

    def __init__(self) -> None:
        self.spawned: list[ScriptedAgent] = []
        self.fail: str | None = None
        self.variables: dict[str, str] = {}
        self.gate: asyncio.Event | None = None
        self._pending: list[ScriptedAgent] = []
        modes = (Mode("build", "works", "b"), Mode("plan", "plans", "p"))
        catalogue = Catalogue(models=(Model("m1", "M1", variants=("low", "high")), Model("m2", "M2")), default_model="m1")
        self._agents = {
            name: ScriptedAgentOffer(
                AgentSpec(
                    name,
                    name,
                    self._maker(name),
                    AgentProgram((name,), env_override="X"),
                    AgentAbilities(Capabilities(), modes, Catalogue()),
                    AgentRules(HELD),
                ),
                Place(),
                catalogue,
            )
            for name in ("one", "two")
        }

    def _maker(self, name: str) -> Callable[[Any], Any]:
        def make(_ids: Any) -> Any:
            agent = ScriptedAgent(LaunchOptions("", "/"), lambda _: None, lambda _: None)
            self._pending.append(agent)
            return ScriptedCodec(name, agent)

        return make

    def usable(self) -> Sequence[ScriptedAgentOffer]:
        return list(self._agents.values())

    async def available(self) -> Sequence[ScriptedAgentOffer]:
        return self.usable()

    async def offer(self, name: str) -> ScriptedAgentOffer | None:
        return self._agents.get(name)

    def default(self) -> ScriptedAgentOffer:
        return self._agents["one"]

    def title_of(self, name: str) -> str:
        return name

    def get(self, name: str) -> ScriptedAgentOffer | None:
        return self._agents.get(name)

    def limit(self, name: str, enforcement: Enforcement) -> None:
        """Which rules the agent can be held to."""
        agent = self._agents[name]
        self._agents[name] = replace(agent, spec=change(agent.spec, enforcement=enforcement))

    def enclose(self, name: str, level: Level, shown: tuple[str, ...] = ()) -> None:
        """The agent runs in a sandbox, which holds denies of the keys `shown`."""
        agent = self._agents[name]
        self._agents[name] = replace(agent, spec=change(agent.spec, sandbox=SandboxUse(level, shown=shown)))

    def add_mode(self, name: str, mode: str) -> None:
        """The agent has a mode of this name itself."""
        agent = self._agents[name]
        self._agents[name] = replace(agent, spec=change(agent.spec, modes=(*agent.spec.abilities.modes, Mode(mode, "", mode))))

    def hold_calls(self, name: str, calls: HeldCalls) -> None:
        """The agent's calls wait for the server (`AgentRules.held_calls`)."""
        agent = self._agents[name]
        self._agents[name] = replace(agent, spec=change(agent.spec, held_calls=calls))

    def give_rules(self, name: str, rules: tuple[Rule, ...], folder: AgentFolder) -> None:
        """The default rules of an agent, and the folder that they are for."""
        agent = self._agents[name]
        self._agents[name] = replace(agent, spec=change(agent.spec, defaults=rules, own_folder=folder))

    @property
    def rule_files(self) -> tuple[str, ...]:
        """Files of the agents that hold rules."""
        return ()

    def note_limits(self, name: str, models: Iterable[Model], directory: str) -> None:
        """Limits that an agent has told."""

    def environment(self) -> Mapping[str, str]:
        return {"PATH": "/usr/bin:/bin", **self.variables}

    async def spawn(
        self, agent: Any, options: LaunchOptions, codec: Any, on_lines: Any, on_exit: Any, *, judge_host: JudgeHost
    ) -> ScriptedAgent:
        if self.gate is not None:
            await self.gate.wait()
        if self.fail is not None:
            raise AgentError(self.fail)
        made: ScriptedAgent = codec.agent
        made.options, made.on_lines, made.on_exit = options, on_lines, on_exit
        made.judge_host = judge_host
        codec.native_session_id = options.native_session_id or f"native-{len(self.spawned) + 1}"
        self.spawned.append(made)
        return made


class Recorder:
    """The hub of a test: all OpenCode 1 events of `changes`, and a fold per session."""

    def __init__(self) -> None:
        self.events: list[OpenCodeEvent] = []
        self.folds: dict[str, Fold] = {}
        self.awaited: list[tuple[str, asyncio.Event]] = []
        self.changes = ChangeFeed()
        self.changes.observe(self.emit)

    async def until(self, text: str) -> None:
        """Wait for an event that holds this text; bounded."""
        seen = asyncio.Event()
        self.awaited.append((text, seen))
        async with asyncio.timeout(10):
            await seen.wait()

    def burst(self) -> AbstractContextManager[None]:
        return nullcontext()

    def emit(self, change: SessionChanges) -> None:
        for event in events_of(change):
            self.publish(event)

    def publish(self, event: OpenCodeEvent) -> None:
        self.events.append(event)
        for wanted, seen in self.awaited:
            if wanted in str(event.properties):
                seen.set()
        id_ = event.properties.get("sessionID")
        if id_ is not None:
            self.folds.setdefault(id_, Fold(id_)).feed(event.type, event.properties)

    def kinds(self, session_id: str) -> list[str]:
        return [e.type for e in self.events if e.properties.get("sessionID") == session_id]


@dataclass(frozen=True)
class Project:
    id: str = "global"
    worktree: str = "/"


@dataclass
class World:
    """A manager with everything around it."""

    manager: SessionManager
    agents: ScriptedAgents
    hub: Recorder
    store: Store
    clock: ManualClock
    rules: list[Rule]
    config: OpenCodeConfig | None = None
    """The configuration of each directory."""

    def session(self, **more: Any) -> str:
        return self.manager.create("/p", Project(), **more).id

    async def settle(self) -> None:
        """Let tasks that are ready run; bounded."""
        for _ in range(20):
            await asyncio.sleep(0)

    @property
    def agent(self) -> ScriptedAgent:
        """The newest process."""
        return self.agents.spawned[-1]


def world(store: Store | None = None, *, abort_timeout_s: float = 5.0) -> World:
    """A fresh one; `abort_timeout_s` small for tests of agents that do not stop."""
    clock = ManualClock()
    agents, hub, rules = ScriptedAgents(), Recorder(), list[Rule]()
    kept = store if store is not None else MemoryStore()
    deps = SessionDeps(
        clock,
        Ids(clock),
        kept,
        hub.changes,
        agents,
        lambda *_: DirectoryRules(tuple(rules)),
        Settings(abort_timeout_s=abort_timeout_s),
        session_version=OPENCODE_VERSION,
        config_now=lambda _: made.config,
    )
    made = World(SessionManager(deps), agents, hub, kept, clock, rules)
    return made


def body(text: str = "hello", **more: object) -> PromptRequest:
    return PromptRequest(parts=[Text("", text)], **more)  # type: ignore[arg-type]


async def ask(w: World, session: str, text: str = "hello", **more: object) -> str:
    message = await submit(w.manager, session, body(text, **more))
    await w.settle()
    return message
