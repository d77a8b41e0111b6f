"""What the store keeps of an agent on a holder, so that the next server can go on with its turn.

    calls   each call of the codec that is no line of the agent, in order, with its place among the lines
    row     how far the agent's lines are taken in, the turn machine, and who holds the agent

Both are written with the events that came of them: from the first change on, until the loop's next round, nothing is committed
(`GroupWriter.is_grouping`), and the rows of all changed tapes come last. So a commit is a state between two steps of the loop.
Lines that are pieces of text change no row: their events tell how far the agent was heard (`lost_turns.replay_pieces`).

A line for the agent is sent after the commit (`Hold.commit`). A replay of the calls and lines gives the same codec, since codecs
are pure and their ids hang on a counter (`new_id`). Numbers of lines, outputs and written lines tell whether it did.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Protocol, cast, runtime_checkable

import structlog
from pydantic import TypeAdapter

from shim.agents.directory import Agent
from shim.agents.spares.spare_agents import SpareTape
from shim.lib.clock import Clock
from shim.lib.errors import StoreError
from shim.lib.ids import tied_id
from shim.processes.handle import AgentHandle
from shim.processes.held_process import HeldProcess, NumberedLine, sweep
from shim.processes.holder_link import Hold, HolderStart
from shim.sessions.session.session_journal import SessionJournal
from shim.store.writer import GroupWriter
from universal.codec import Codec, Interrupt, Output, PermissionReply, Prompt, QuestionReply, WriteLine
from universal.host import CommandEnded, CommandOutput, HostDone
from universal.launch import LaunchOptions
from universal.lib.jsonvalue import JsonObject
from universal.setup import NO_SETUP, TOOLS_SERVER, DirectorySetup, McpServer

log = structlog.get_logger()

ROWS = "tapes"
"""Namespace of the store: session -> row."""
LEASE_S = 15 * 60
"""Seconds that a working agent goes on without a server."""
READ_S = 1.0
"""Longest time by which a start waits for lines of agents that were taken up."""
LIMIT_CALLS = 5_000
"""Calls of one process that are kept. A longer conversation ends with its server."""
CALLS = (
    "launch",
    "adopt",
    "prepare",
    "start",
    "send",
    "steer",
    "rename",
    "recall",
    "proceed",
    "on_timer",
    "background",
    "change_setup",
    "on_host_answer",
)
"""Calls of a codec that change it."""
KINDS = (
    Prompt,
    PermissionReply,
    QuestionReply,
    Interrupt,
    LaunchOptions,
    DirectorySetup,
    HostDone,
    CommandOutput,
    CommandEnded,
    str,
)
ARGUMENTS = {kind.__name__: kind for kind in KINDS}


_SERVERS: TypeAdapter[tuple[McpServer, ...]] = TypeAdapter(tuple[McpServer, ...])


@cache
def _adapter(name: str) -> TypeAdapter[Any]:
    return TypeAdapter(ARGUMENTS[name])


def calls_of(session_id: str) -> str:
    """The namespace of a session's calls: number -> call."""
    return f"tape {session_id}"


def read_call(call: JsonObject, notes: Sequence[bytes] = ()) -> tuple[str, list[Any]]:
    """A stored call: the method's name, and its arguments. In: the holder's notes. Raises ValueError, IndexError."""
    args = [_adapter(name).validate_python(value) for name, value in call["args"]]
    if (number := call.get("servers")) is not None:
        servers = _SERVERS.validate_json(notes[int(number)])
        args = [_with_servers(value, servers) for value in args]
    return str(call["call"]), args


@runtime_checkable
class TapeStore(Protocol):
    """What tapes need of a store."""

    groups: GroupWriter
    """The writer, which can hold rows together."""

    def set_values(self, values: Iterable[tuple[str, str, Any]]) -> None:
        """As `Store.set_value`, for several, all or none. In: namespace, key and value of each."""
        ...

    async def flush(self, session_id: str | None = None) -> None:
        """As `Store.flush`."""
        ...


class Tape:
    """The tape of one session's agent, or of one that waits for a session: its id is "" then, and nothing is stored.

    In: `state`, what the row says of the session. `lines`, `outputs` and `writes` count what the codec has taken and given.
    """

    def __init__(
        self, tapes: Tapes, session_id: str, state: Callable[[], JsonObject | None], row: JsonObject | None = None
    ) -> None:
        token, secret = secrets.token_hex(8), secrets.token_hex(32)
        folder = tapes.folder / token
        if row is not None:
            folder, secret, token = Path(row["folder"]), row["secret"], row["token"]
        self.session_id = session_id
        self.hold = Hold(folder, secret, token, self._commit, tapes.starts)
        self.state = state
        self.process: HeldProcess | None = None
        self.began_ms = int(row["began_ms"]) if row is not None else tapes.clock.now_ms()
        self.ids = self.lines = self.outputs = self.writes = self.calls = 0
        self.due: dict[int, bytes] | None = None
        """During a replay: the lines that were written, by their numbers."""
        self.notes: list[bytes] = []
        """MCP servers of set-ups, which may have secrets: the holder has them in its memory, and no file does."""
        self.is_exact = True
        """Whether another server could go on."""
        self.is_over = False
        self.is_touched = False
        """Whether the row is to be written at the loop's next round."""
        self.new_calls: list[tuple[str, JsonObject]] = []
        """Calls that are stored with the next row, and their numbers."""
        self._tapes = tapes
        self._lease_s = -1
        self._short_lease: asyncio.Task[None] | None = None
        self._within = False

    def new_id(self, kind: str) -> str:
        """The next id of the codec."""
        self.ids += 1
        return tied_id(kind, self.began_ms, self.ids, self.hold.token)

    def listen(self, codec: Codec) -> None:
        """Note all calls of a codec from here on."""
        codec_methods: Any = codec
        codec_methods.receive = partial(self._receive, codec.receive)
        for name in CALLS:
            if (method := getattr(codec, name, None)) is not None:
                setattr(codec_methods, name, partial(self._call, name, method))

    def _receive(self, receive: Callable[[bytes], list[Output]], line: bytes) -> list[Output]:
        """Take a line in. `SessionAgent.receive` touches the tape for all but pieces of text."""
        self.lines += 1
        self._within = True
        try:
            outputs = receive(line)
        finally:
            self._within = False
        for output in outputs:
            if type(output) is WriteLine:
                return self._number(outputs)
        self.outputs += len(outputs)
        return outputs

    def _call(self, name: str, method: Callable[..., Any], *args: Any) -> Any:
        if self._within:  # a codec calls itself
            return method(*args)
        if self.due is None:
            self._keep(name, args)
        self._within = True
        try:
            outputs = method(*args)
        finally:
            self._within = False
        self.touch()
        return self._number(cast("list[Output]", outputs)) if isinstance(outputs, list) else outputs

    def _keep(self, name: str, args: Sequence[Any]) -> None:
        servers: tuple[McpServer, ...] = ()
        values: list[list[Any]] = []
        for arg in args:
            if isinstance(arg, LaunchOptions):
                arg = replace(arg, environment={}, variables={})
            setup = arg if isinstance(arg, DirectorySetup) else getattr(arg, "setup", None) or NO_SETUP
            if setup.servers:
                servers, arg = setup.servers, _with_servers(arg, ())
            if setup.has_shim or (servers and any(server.name == TOOLS_SERVER for server in servers)):
                self.give_up("this server runs tools of it")
            kind = type(arg).__name__
            values.append([kind, _adapter(kind).dump_python(arg, mode="json")])
        if self.calls >= LIMIT_CALLS:
            self.give_up("it is too long")
        if not self.is_exact:
            return
        self.calls += 1
        call: JsonObject = {"at": self.lines, "call": name, "args": values}
        if servers:
            call["servers"] = self._note(_SERVERS.dump_json(servers))
        self.new_calls.append((str(self.calls), call))

    def _note(self, data: bytes) -> int:
        """Keep secrets in the memory of the holder. Out: the number of the note."""
        if data not in self.notes:
            self.notes.append(data)
            if self.process is not None and not self.process.note(data):
                self.give_up("its holder keeps no secrets, or no more of them")
        return self.notes.index(data)

    def attach(self, process: AgentHandle) -> None:
        """The process has started, or is taken up with its notes. One that is on no holder ends with this server."""
        if not isinstance(process, HeldProcess):
            return
        self.process = process
        for data in self.notes[len(process.notes) :]:
            if not process.note(data):
                self.give_up("its holder keeps no secrets, or no more of them")
        if not self.session_id:
            self.renew_lease(is_busy=False)

    def adopt(self, session_id: str) -> None:
        """A session takes the agent that has waited: from here on all is stored."""
        self.session_id = session_id
        self._tapes.watch(self)

    def _number(self, outputs: list[Output]) -> list[Output]:
        self.outputs += len(outputs)
        for place, output in enumerate(outputs):
            if type(output) is WriteLine:
                self.writes += 1
                outputs[place] = WriteLine(NumberedLine.of(output.data, self.writes))
                if self.due is not None:
                    self.due[self.writes] = output.data
        return outputs

    def give_up(self, why: str) -> None:
        """From here on the agent ends with this server."""
        if self.is_exact:
            log.info("tape.given_up", session_id=self.session_id, why=why)
            self.is_exact = False
            self.touch()

    def touch(self) -> None:
        """Something has changed: the row is written with it, at the loop's next round. Nothing is committed before that."""
        if self.is_touched or self.due is not None or not self.session_id:
            return
        self._tapes.hold()
        if not self.is_over:
            self.is_touched = True
            self._tapes.touched.append(self)

    def row(self) -> JsonObject | None:
        """The row; None if no server could go on. Without a process it could if a prompt waits for one."""
        state = self.state()
        if state is None or not self.is_exact or (self.process is None and state["prompts"][1] is None):
            return None
        row: JsonObject = {"folder": str(self.hold.folder), "secret": self.hold.secret, "token": self.hold.token}
        row |= {
            "pid": self.process.pid if self.process is not None else None,
            "began_ms": self.began_ms,
            "lines": self.lines,
            "outputs": self.outputs,
        }
        return row | {"writes": self.writes, "calls": self.calls, "state": state}

    def renew_lease(self, *, is_busy: bool) -> None:
        """Tell the holder how long the agent may go on without a server. Not before the end of its turn is stored."""
        seconds = LEASE_S if is_busy else 0
        if self.process is None or seconds == self._lease_s:
            return
        self._lease_s = seconds
        if is_busy:
            self.process.lease(seconds)
        else:
            self._short_lease = asyncio.create_task(self._shorten_lease(self.process), name=f"lease of {self.session_id}")

    async def _shorten_lease(self, process: HeldProcess) -> None:
        await self._commit()
        if self._lease_s == 0:
            process.lease(0)

    async def _commit(self) -> None:
        """Wait until all that has happened is stored."""
        if not self.session_id:
            return
        await asyncio.sleep(0)  # the row is queued in the next round
        try:
            await self._tapes.flush()
        except StoreError as error:  # the turn goes on, as without a holder
            self.lose(error)

    def lose(self, error: StoreError) -> None:
        """The store cannot keep it: the agent ends with this server."""
        if self.is_exact:
            log.warning("tape.not_written", session_id=self.session_id, error=str(error))
        self.is_exact = False
        self.renew_lease(is_busy=False)

    def drop(self) -> None:
        """The agent is to end. Nobody takes it up if this server dies before it has ended it."""
        if self.process is not None:
            self.process.lease(0)

    def end(self) -> None:
        """The agent has ended, or is dropped."""
        self.is_over, self.is_exact = True, False
        self._tapes.remove(self.session_id, self.calls)


def _with_servers(value: Any, servers: tuple[McpServer, ...]) -> Any:
    if isinstance(value, DirectorySetup):
        return value._replace(servers=servers)
    setup: DirectorySetup | None = getattr(value, "setup", None)
    return value if setup is None else replace(value, setup=setup._replace(servers=servers))


class Tapes:
    """The tapes of this server. In: `folder` for holders; `state_of` says what the row of a session's tape has, or None."""

    def __init__(self, store: TapeStore, folder: Path, clock: Clock) -> None:
        self.clock = clock
        self.folder = folder
        self.starts = HolderStart()
        self.watch: Callable[[Tape], None] = Tape.touch
        """Gets each tape whose agent has started."""
        self.leaves = False
        """Whether agents go on when this server stops."""
        self.flush: Callable[[], Awaitable[None]] = store.flush
        """Waits until all that is queued is stored. Raises StoreError."""
        self.touched: list[Tape] = []
        """Tapes whose rows are written at the loop's next round."""
        self.unread: list[asyncio.Future[None]] = []
        """Tapes of agents that were taken up, until what stood on them is read."""
        self._store = store

    def expect(self, session_id: str) -> Tape:
        """A tape for an agent that is to be started. Its holder starts already."""
        self.starts.begin()
        tape = Tape(self, session_id, lambda: None)
        self.watch(tape)
        return tape

    def spare(self, agent: Agent, options: LaunchOptions) -> Tape | None:
        """A tape for an agent that is to wait for a session. None if it would end with this server."""
        tape = Tape(self, "", lambda: None)
        return tape if self.may_hold(tape, agent, options) else None

    def may_hold(self, tape: Tape, agent: Agent, options: LaunchOptions) -> bool:
        """Whether an agent can be on a holder. If not, it ends with its server, and the log says why."""
        if agent.located.path is None:
            tape.give_up("it runs in this server")
        elif options.bounds is not None and options.bounds.web is not None:
            tape.give_up("its sandbox reaches its model by this server")
        elif not tape.hold.fits:
            tape.give_up("the path of data_dir is too long for a socket")
        return tape.is_exact

    def follow(self, journal: SessionJournal) -> None:
        """Hold back commits with each event of a journal."""
        journal.on_queue = self.hold

    def hold(self) -> None:
        """Hold back commits until the loop's next round: a tape may follow, of the turn that begins."""
        groups = self._store.groups
        if not groups.is_grouping:
            groups.is_grouping = True
            asyncio.get_running_loop().call_soon(self._settle)

    def _settle(self) -> None:
        touched, self.touched = self.touched, []
        for tape in touched:
            row, calls, tape.is_touched, tape.new_calls = tape.row(), tape.new_calls, False, []
            values: list[tuple[str, str, Any]] = [(ROWS, tape.session_id, row)]
            for number, call in calls if tape.is_exact else ():
                values.append((calls_of(tape.session_id), number, call))
            try:
                self._store.set_values(values)
            except StoreError as error:  # it has no room: the agent ends with this server
                tape.lose(error)
            tape.renew_lease(is_busy=row is not None and bool(row["state"]["is_at_work"]))
        self._store.groups.end_group()

    async def read(self) -> None:
        """Wait, at most READ_S, until what stood on the tapes is read: a client of the server before may have seen it."""
        unread, self.unread = self.unread, []
        if unread:
            await asyncio.wait(unread, timeout=READ_S)

    def remove(self, session_id: str, calls: int) -> None:
        """Remove a session's row and calls from the store, together with what happens in this round."""
        self.hold()
        space = calls_of(session_id)
        numbers = [(space, str(number), None) for number in range(1, calls + 1)]
        try:
            self._store.set_values([(ROWS, session_id, None), *numbers])
        except StoreError as error:
            log.warning("tape.not_removed", session_id=session_id, error=str(error))

    async def sweep(self, rows: Mapping[str, Any]) -> None:
        """Remove what killed holders have left, but for those of these rows."""
        kept = {row["token"] for row in rows.values()}
        if count := await asyncio.to_thread(sweep, self.folder, kept, self.clock.now_ms()):
            log.warning("tape.holders_swept", count=count, why="they were killed")


def exchange(before: Tape | None, after: SpareTape | None = None, session_id: str = "") -> Tape | None:
    """End a session's tape, and let it have that of an agent that has waited, or none."""
    if before is not None:
        before.end()
    if not isinstance(after, Tape):
        return None
    after.adopt(session_id)
    return after
