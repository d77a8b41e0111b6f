"""Keeps spare agents and gives them to sessions.

A spare is a process that is started, initialised and waits, so that a new session's first answer comes at once.

    note_use    a session has started an agent: a spare of this agent and directory is due, when the machine is idle
    note_visit  a client looks at a directory: a spare is due at once, if there is room
    note_open   a person has opened a session without an agent: a spare that continues its conversation is due, if there is room
    take        a session takes the spare of its agent and directory, if nothing that its start depends on has changed
    look        ends spares that are old, out of date, or too many for the memory, starts those that are due, prepares new ones

A spare belongs to nobody: no session, no event, no journal. Decision and bounds: docs/adr/0030-spare-agents.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import Context
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

import structlog

from shim.agents.directory import Agent, AgentDirectory
from shim.agents.sandboxes import bounds, bounds_here
from shim.agents.start_state import StartState, has_login_sign, start_state, working_tree
from shim.host.config.setups import Setups
from shim.host.files.roots import require
from shim.host.git.snapshot import SnapshotError, Snapshots
from shim.host.trust.trust_store import ProjectTrust
from shim.lib.clock import Clock
from shim.lib.errors import AgentError, OutsideRoots
from shim.lib.ids import Ids
from shim.lib.tasks import end_tasks, wait_at_most
from shim.processes.handle import AgentHandle, JudgeHost, OnExit, OnLines, refuse_host
from shim.processes.holder_link import Hold
from universal.codec import Codec, Fact, Output, WriteLine
from universal.events import EventType, ItemData
from universal.items import ItemKind
from universal.launch import Exit, LaunchOptions
from universal.permissions import DirectoryRules
from universal.setup import DirectorySetup

# --- a spare agent ----------------------------------------------------------------------------------------------

HELD_FACTS = 100
"""Maximum facts that a spare keeps for its session. An agent that says more without a prompt is ended."""
NOTES = frozenset({ItemKind.STATUS, ItemKind.SYSTEM})
"""Kinds of items that an agent may report when it starts. All others mean that it works."""


class SpareKey(NamedTuple):
    """What a spare waits for: a new session of an agent in a directory, or one that continues `conversation`."""

    agent: str
    directory: str
    conversation: str = ""


class SpareTape(Protocol):
    """What a spare needs of the tape of an agent on a holder (`shim.sessions.session.tape`)."""

    hold: Hold

    def new_id(self, kind: Literal["item", "permission", "question"]) -> str:
        """The next id of the codec."""
        ...

    def listen(self, codec: Codec) -> None:
        """Note all calls of a codec from here on."""
        ...

    def attach(self, process: AgentHandle) -> None:
        """The process has started."""
        ...


@dataclass(eq=False)
class Spare:
    """One started process with its codec: first nobody's, then a session's.

    Until `take`, it carries out the handshake alone, and keeps the facts for its session. A process that asks, works or fails
    without a prompt is of no use: `on_loss` is called with the reason, once, also if the process ends.
    """

    agent: Agent
    options: LaunchOptions
    codec: Codec
    state: StartState
    tree: str
    _: KW_ONLY
    tape: SpareTape | None = None
    started_ms: int
    on_loss: Callable[[Spare, str], None]
    _is_prepared: bool = False
    _facts: list[Fact] = field(default_factory=list[Fact])
    _handle: AgentHandle | None = None
    _is_lost: bool = False
    _lines: OnLines | None = None
    _exit: OnExit | None = None
    _judge_host: JudgeHost = refuse_host

    @property
    def key(self) -> SpareKey:
        return SpareKey(self.agent.spec.name, self.options.directory, self.options.native_session_id or "")

    @property
    def is_usable(self) -> bool:
        return not self._is_lost and self._handle is not None and self._handle.alive

    @property
    def is_new(self) -> bool:
        """Whether it runs and is still to be prepared."""
        return self.is_usable and not self._is_prepared

    async def start(self, agents: AgentDirectory) -> None:
        """Start the process and its handshake. Raises AgentError."""
        self._handle = await agents.spawn(
            self.agent,
            self.options,
            self.codec,
            self._on_lines,
            self._on_exit,
            hold=None if self.tape is None else self.tape.hold,
            judge_host=lambda address, why: self._judge_host(address, why),
        )
        if self.tape is not None:
            self.tape.attach(self._handle)
        self._carry_out(self.codec.start())

    def prepare(self) -> None:
        """Let the agent load what its first prompt needs, once."""
        self._is_prepared = True
        self._carry_out(self.codec.prepare())

    def take(self, on_lines: OnLines, on_exit: OnExit, judge_host: JudgeHost) -> tuple[AgentHandle, Sequence[Output]]:
        """Give the process to a session: its handle, and the facts so far. Lines and exit go to the session from now on."""
        assert self._handle is not None
        self._lines, self._exit, self._judge_host = on_lines, on_exit, judge_host
        facts, self._facts = self._facts, []
        return self._handle, facts

    async def stop(self) -> None:
        """End the process. `on_loss` is not called."""
        self._is_lost = True
        if self._handle is not None:
            await self._handle.stop()

    def kill(self) -> None:
        if self._handle is not None:
            self._handle.kill()

    def _on_lines(self, lines: list[bytes]) -> Awaitable[None] | None:
        if self._lines is not None:
            return self._lines(lines)
        for line in lines:
            if not self._is_lost:
                self._carry_out(self.codec.receive(line))
        return None

    def _on_exit(self, exit_: Exit) -> None:
        if self._exit is not None:
            self._exit(exit_)
        else:
            self._lose(f"it ended with {exit_.signal or exit_.code}")

    def _carry_out(self, outputs: Sequence[Output]) -> None:
        for output in outputs:
            if isinstance(output, WriteLine):
                try:
                    assert self._handle is not None
                    self._handle.write(output.data)
                except AgentError as error:
                    self._lose(str(error))
            elif isinstance(output, Fact) and _is_note(output) and len(self._facts) < HELD_FACTS:
                self._facts.append(output)
            else:
                self._lose(f"it did something without a prompt: {type(output).__name__}")

    def _lose(self, why: str) -> None:
        if not self._is_lost:
            self._is_lost = True
            log.warning("agent.spare_lost", agent=self.agent.spec.name, directory=self.options.directory, why=why)
            self.on_loss(self, why)


def _is_note(fact: Fact) -> bool:
    is_note = isinstance(fact.data, ItemData) and fact.data.item.kind in NOTES and fact.type is EventType.ITEM_COMPLETED
    return fact.child is None and (is_note or fact.type is EventType.UNPARSED)


# --- free memory ------------------------------------------------------------------------------------------------

MEMINFO = Path("/proc/meminfo")
CGROUP = Path("/sys/fs/cgroup")


def free_bytes(meminfo: Path = MEMINFO, cgroup: Path = CGROUP) -> int | None:
    """Return the memory that programs can still take; None if the system does not tell (no Linux). Blocking, but no disk."""
    try:
        rows = dict(line.split(":", 1) for line in meminfo.read_text().splitlines() if ":" in line)
        free = int(rows["MemAvailable"].split()[0]) * 1024
    except (OSError, ValueError, KeyError, IndexError):
        return None
    in_container = _left_in_container(cgroup)
    return free if in_container is None else min(free, in_container)


def _left_in_container(cgroup: Path) -> int | None:
    """Return what the limit of the control group leaves, counting files in its cache as free; None without a limit."""
    try:
        limit = int((cgroup / "memory.max").read_text())
        used = int((cgroup / "memory.current").read_text())
        rows = dict(line.split() for line in (cgroup / "memory.stat").read_text().splitlines())
        return max(0, limit - used + int(rows.get("inactive_file", 0)))
    except (OSError, ValueError):
        return None


log = structlog.get_logger()

# --- the pool of spares -----------------------------------------------------------------------------------------

LEAST_FREE_BYTES = 1536 * 2**20
"""Free memory that there must be for a spare. An agent takes 100 to 400 MiB."""
UNUSED_MS = 600_000
"""Milliseconds after which a spare that nobody took is ended."""
REFILL_MS = 2_000
"""Milliseconds between the start of a session's agent and that of the next spare, so that the first answer has the processor."""
PREPARE_MS = 2_000
"""Milliseconds after the start of a spare until it loads what its first prompt needs. Claude Code gains nothing from a request
that comes with its handshake."""
CHANGED_MS = 30_000
"""Milliseconds until a spare that was out of date is replaced, since files that change do so again soon."""
MOST_LOSSES = 3
"""Number of spares of one pair that may be lost, or get out of date, one after the other, before no more are started for it."""
OPEN_MS = 2_000
"""Milliseconds until the agent of an opened session is started, so that a look through many sessions starts one at most."""
LOOK_S = 5.0
"""Seconds between looks, at most."""
HISTORIES = 256
"""Number of spares whose history is kept, the last used ones."""
CLOSE_S = 3.0
"""Seconds for spares to end by themselves when the server stops; then they are killed."""


@dataclass(slots=True)
class _History:
    """What is known of a spare that is wanted, or was. `due_ms`: when its next spare may start; None if none is wanted.

    `losses`: spares that died without a session, since one was taken; `changes`: starts that were put off, since the last use;
    `is_unused`: the last spare was ended since nobody took it, so that visits alone start no other.
    """

    due_ms: int | None = None
    losses: int = 0
    changes: int = 0
    is_unused: bool = False


@dataclass(eq=False)
class SpareAgents:
    """All spares of the server. `limit`: how many there may be, 0 for none; a reload changes it.

    In: `snapshots` returns what takes those of a directory, or None; `is_idle` tells whether the machine has time for a start;
    `read_free_bytes` tells the free memory, or None; `new_tape` is for an agent that is to outlive this server.
    """

    agents: AgentDirectory
    _: KW_ONLY
    clock: Clock
    ids: Ids
    limit: int
    trust: ProjectTrust | None
    roots: Sequence[str]
    config_refresh: Callable[[str], Awaitable[None]]
    config_rules: Callable[[str], DirectoryRules]
    setups: Setups
    snapshots: Callable[[str], Snapshots | None]
    is_idle: Callable[[], bool]
    read_free_bytes: Callable[[], int | None] = free_bytes
    new_tape: Callable[[Agent, LaunchOptions], SpareTape | None] | None = None
    _spares: dict[SpareKey, Spare] = field(default_factory=dict[SpareKey, Spare])
    _histories: dict[SpareKey, _History] = field(default_factory=dict[SpareKey, _History])
    _ending: dict[asyncio.Task[None], Spare] = field(default_factory=dict[asyncio.Task[None], Spare])
    _answered: dict[str, bool] = field(default_factory=dict[str, bool])
    """Agents that have answered since the last look (True), or were refused for want of a login (False)."""
    _hidden_logins: set[str] = field(default_factory=set[str])
    """Agents that answer although no sign of their login can be seen."""
    _refused_logins: set[str] = field(default_factory=set[str])
    _looking: asyncio.Lock = field(default_factory=asyncio.Lock)
    _due: asyncio.Event = field(default_factory=asyncio.Event)
    _keeper: asyncio.Task[None] | None = None
    _is_closed: bool = False

    # --- start and stop ---------------------------------------------------------------------------------------

    def start(self) -> None:
        self._keeper = asyncio.create_task(self._keep(), name="spare agents")

    async def close(self) -> None:
        """End all spares: CLOSE_S seconds, then they are killed."""
        self._is_closed = True
        await end_tasks(self._keeper)
        self.drop(None)
        if self._ending:
            await asyncio.wait(self._ending, timeout=CLOSE_S)
        for spare in list(self._ending.values()):
            spare.kill()
        if self._ending:
            await asyncio.wait(self._ending)

    @property
    def count(self) -> int:
        return len(self._spares)

    @property
    def has_room(self) -> bool:
        """Whether a further spare may be wanted without taking another one's place."""
        return len(self._candidates()) < self.limit

    # --- from sessions and clients -------------------------------------------------------------------------------

    def note_use(self, agent: Agent, directory: str) -> None:
        """Note that a session has started this agent there. The next spare is for it, when the machine is idle."""
        if agent.spec.program.spare is None or not self.limit:
            return
        history = self._history(SpareKey(agent.spec.name, directory))
        history.due_ms = self.clock.now_ms() + REFILL_MS
        history.is_unused, history.changes = False, 0
        self._trim()

    def note_answer(self, agent: str, *, is_logged_in: bool) -> None:
        """Note that an agent has answered a prompt, or that it could not, because it is not logged in."""
        self._answered[agent] = is_logged_in

    def note_visit(self, agent: Agent, directory: str) -> None:
        """Note that a client looks at this directory. Takes no other spare's place."""
        key = SpareKey(agent.spec.name, directory)
        if agent.spec.program.spare is None or not self.has_room:
            return
        history = self._history(key)
        if history.due_ms is None and not history.is_unused:
            history.due_ms = self.clock.now_ms()
            self._due.set()

    def note_open(self, agent: Agent, directory: str, conversation: str) -> None:
        """Note that a person has opened a session that would continue this conversation. Takes only an earlier one's place."""
        key = SpareKey(agent.spec.name, directory, conversation)
        for earlier in [earlier for earlier in self._candidates() if earlier.conversation and earlier != key]:
            self._forget(earlier, "another session was opened")
        if agent.spec.program.spare is None or key in self._spares or not self.has_room:
            return
        history = self._history(key)
        if history.due_ms is None and not history.is_unused:
            history.due_ms = self.clock.now_ms() + OPEN_MS

    def forget_conversation(self, agent: str, directory: str, conversation: str) -> None:
        """Note that the agent of this conversation runs now."""
        key = SpareKey(agent, directory, conversation)
        if key in self._histories:
            self._forget(key, "its session has an agent")
            del self._histories[key]

    def renew_conversation(self, agent: str, directory: str, conversation: str) -> None:
        """Note that a conversation has gone on elsewhere: a spare that has read it before starts anew."""
        key = SpareKey(agent, directory, conversation)
        if key in self._spares:
            self._replace(key)

    async def take(self, agent: Agent, options: LaunchOptions) -> Spare | None:
        """Return a spare for a session with these options; it is the session's from now on. None if there is no fitting one."""
        conversation = options.native_session_id or "" if options.resume else ""
        key = SpareKey(agent.spec.name, options.directory, conversation)
        spare = self._spares.get(key)
        is_fitting = options.project_settings and options.resume_at is None
        if spare is None or not spare.is_usable or not is_fitting or options.variables != spare.options.variables:
            return None
        state = await self._state(agent, options.directory)
        if self._spares.get(key) is not spare or not spare.is_usable:
            return None  # another session was quicker, or it has just ended
        if state != spare.state or options.setup != spare.options.setup:
            self._replace(key)
            return None
        if options.bounds != spare.options.bounds or not spare.codec.adopt(options):
            return None
        del self._spares[key]
        self._history(key).losses = 0
        log.info("agent.spare_taken", agent=agent.spec.name, directory=options.directory)
        return spare

    def drop(self, directory: str | None) -> None:
        """End the spares of a directory (None: all); its settings may have changed."""
        for key in [key for key in self._spares if directory in (None, key.directory)]:
            self._end(key, "dropped")

    # --- looking after them ----------------------------------------------------------------------------------------

    async def _keep(self) -> None:
        while True:
            await wait_at_most(self._due.wait(), self._pause_s())
            self._due.clear()
            try:
                await self.look()
            except Exception:  # the loop outlives a fault: spares are a convenience
                log.exception("agent.spares_failed")

    def _pause_s(self) -> float:
        """Seconds until the next look: LOOK_S, or less if a spare is due before."""
        now = self.clock.now_ms()
        due = [
            history.due_ms - now for history in self._histories.values() if history.due_ms is not None and history.due_ms > now
        ]
        due += [max(spare.started_ms + PREPARE_MS - now, 0) for spare in self._spares.values() if spare.is_new]
        return min([LOOK_S, *(ms / 1000 for ms in due)])

    async def look(self) -> None:
        """End spares that are old, out of date, or too many; start those that are due, if the machine is idle."""
        async with self._looking:
            now = self.clock.now_ms()
            await self._learn_logins()
            for key, spare in list(self._spares.items()):
                if now - spare.started_ms >= UNUSED_MS:
                    self._histories[key].is_unused = True
                    self._forget(key, "nobody took it")
                elif not self._has_memory():
                    self._forget(key, "memory is short")
                elif await self._is_out_of_date(spare):
                    if self._spares.get(key) is spare:
                        self._replace(key)
                elif self._spares.get(key) is spare and spare.is_new and now - spare.started_ms >= PREPARE_MS:
                    spare.prepare()
                    log.info("agent.spare_prepared", agent=key.agent, directory=key.directory)
            self._trim()
            for key in self._candidates():
                due_ms = self._histories[key].due_ms
                if key not in self._spares and due_ms is not None and due_ms <= now and self.is_idle():
                    await self._start(key)

    async def _learn_logins(self) -> None:
        """Take over what answers have told about logins. A login whose sign can be seen is one only while it can."""
        answered, self._answered = self._answered, {}
        for name, is_logged_in in answered.items():
            self._hidden_logins.discard(name)
            self._refused_logins.discard(name)
            agent = self.agents.get(name)
            if not is_logged_in:
                self._refused_logins.add(name)
            elif agent is not None and not await asyncio.to_thread(has_login_sign, self.agents, agent):
                self._hidden_logins.add(name)

    async def _state(self, agent: Agent, directory: str) -> StartState | None:
        name = agent.spec.name
        if name in self._refused_logins:
            return None
        return await start_state(self.agents, agent, directory, self.trust, has_answered=name in self._hidden_logins)

    def _setup(self, agent: Agent, directory: str) -> DirectorySetup:
        """The set-up of a directory. Spares start in trusted projects alone."""
        return self.setups.now(directory, agent=agent.spec, with_project=True)

    async def _is_out_of_date(self, spare: Spare) -> bool:
        directory = spare.options.directory
        if self._setup(spare.agent, directory) != spare.options.setup or await self._state(spare.agent, directory) != spare.state:
            return True
        return bool(spare.tree) and await working_tree(directory) != spare.tree

    async def _start(self, key: SpareKey) -> None:
        """Start a spare, unless something forbids it; then it is tried again later, a few times for one use."""
        agent = self.agents.get(key.agent)
        spare = await self._prepare(agent, key) if agent is not None else None
        if self._is_closed or key not in self._histories or self._histories[key].due_ms is None:
            return
        if spare is None or len(self._spares) >= self.limit:
            self._delay(key)
            return
        self._spares[key] = spare
        try:
            # A context of its own: no log line and no trace takes the spare for part of a session.
            await asyncio.create_task(spare.start(self.agents), name=f"spare {key.agent}", context=Context())
        except Exception as error:  # whatever it is, the others are looked after
            log.warning("agent.spare_failed", agent=key.agent, exc_info=not isinstance(error, AgentError))
            self._lose(spare, str(error))
        else:
            log.info("agent.spare_started", agent=key.agent, directory=key.directory)
            await self._take_snapshot(key.directory)
        if self._is_closed and key in self._spares:
            self._end(key, "the server stops")

    async def _prepare(self, agent: Agent, key: SpareKey) -> Spare | None:
        """A spare that is not started yet, with all that its start depends on. None if there may be none."""
        use, directory = agent.spec.program.spare, key.directory
        if use is None or not agent.usable or not self._has_memory():
            return None
        try:
            await require(directory, self.roots)
        except OutsideRoots:
            return None
        if not await asyncio.to_thread(Path(directory).is_dir):
            return None
        await self.config_refresh(directory)
        state = await self._state(agent, directory)
        tree = await working_tree(directory) if use.takes_git else ""
        if state is None or tree is None:
            return None
        setup = self._setup(agent, directory)
        variables: Mapping[str, str] = {}
        if not agent.spec.abilities.setup.reads_own:
            variables = await self.setups.variables(directory, {"cwd": directory}, with_project=True)
        rules = self.config_rules(directory).all
        held, _ = await bounds_here(agent.spec, bounds(agent.spec, rules), self.agents.environment())
        options = LaunchOptions(
            agent.located.path or "",
            directory,
            native_session_id=key.conversation or None,
            resume=bool(key.conversation),
            rules=(*rules, *setup.guard_rules),
            setup=setup,
            bounds=held,
            variables=variables,
        )
        tape = None if self.new_tape is None else self.new_tape(agent, options)
        codec = agent.spec.make(self.ids.new if tape is None else tape.new_id)
        if tape is not None:
            tape.listen(codec)
        return Spare(agent, options, codec, state, tree, tape=tape, started_ms=self.clock.now_ms(), on_loss=self._lose)

    async def _take_snapshot(self, directory: str) -> None:
        """Take a snapshot ahead, so that the one before the first prompt finds a repository and few changes.

        A project's first snapshot takes 0.9 s for 5,000 files, a later one 0.02 s.
        """
        trees = self.snapshots(directory)
        if trees is not None:
            with suppress(SnapshotError):  # the prompt that needs one reports it
                await trees.track(directory)

    def _has_memory(self) -> bool:
        """Whether so much memory is free that a spare takes nobody's. False if the system does not tell."""
        free = self.read_free_bytes()
        return free is not None and free >= LEAST_FREE_BYTES

    # --- the pairs -------------------------------------------------------------------------------------------------

    def _history(self, key: SpareKey) -> _History:
        """The history of a spare, which becomes the last used one."""
        history = self._histories.pop(key, None) or _History()
        self._histories[key] = history
        for old in list(self._histories)[: max(0, len(self._histories) - HISTORIES)]:
            self._forget(old, "too many directories")
            del self._histories[old]
        return history

    def _candidates(self) -> list[SpareKey]:
        """SpareKeys that have a spare or may get one, the last used ones last."""
        return [
            key
            for key, history in self._histories.items()
            if key in self._spares
            or (history.due_ms is not None and history.losses < MOST_LOSSES and history.changes < MOST_LOSSES)
        ]

    def _trim(self) -> None:
        """Give up the spares above the limit, those that were not used for longest."""
        wanted = self._candidates()
        for key in wanted[: max(0, len(wanted) - self.limit)]:
            self._forget(key, "others were used since")

    def _forget(self, key: SpareKey, why: str) -> None:
        """End a spare, and start no other until the next use."""
        self._histories[key].due_ms = None
        if key in self._spares:
            self._end(key, why)

    def _replace(self, key: SpareKey) -> None:
        """End a spare that is out of date, and start another one later."""
        self._end(key, "out of date")
        self._delay(key)

    def _end(self, key: SpareKey, why: str) -> None:
        spare = self._spares.pop(key)
        log.debug("agent.spare_ended", agent=key.agent, directory=key.directory, why=why)
        task = asyncio.get_running_loop().create_task(spare.stop(), name=f"stop spare {key.agent}")
        self._ending[task] = spare
        task.add_done_callback(lambda done: self._ending.pop(done, None))

    def _delay(self, key: SpareKey) -> None:
        """Let some time pass before the next start. After MOST_LOSSES times it waits for its next use."""
        self._histories[key].changes += 1
        self._histories[key].due_ms = self.clock.now_ms() + CHANGED_MS

    def _lose(self, spare: Spare, why: str) -> None:
        """Forget a spare that has failed, and count that."""
        if self._spares.get(spare.key) is not spare:
            return
        self._histories[spare.key].losses += 1
        self._forget(spare.key, why)
