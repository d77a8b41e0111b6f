"""A cluster in one event loop: real stores, managers and commands between servers, on a simulated NATS, in virtual time.

    client -> ClusterNode.request -> the route's function -> SessionManager -> JetStreamStore -> SimulatedNats
                                  -> SessionElsewhere: Commands.ask -> the owner

Only three things are not real: NATS, the agents (`BusyAgent`), and HTTP. `Observations` keeps what anybody outside could see; the
laws (`cluster_laws.py`) judge it.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, Callable
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from tempfile import TemporaryFile
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from shim.cluster.nats import connection as connections
from shim.cluster.nats import leases, spool
from shim.cluster.nats.lanes import DEFAULT_LIMITS
from shim.cluster.nats.layout import ClusterOptions, SessionRecord, decode_record
from shim.cluster.nats.store import JetStreamStore
from shim.cluster.peers import Answer, Command
from shim.cluster.remote_sessions import RemoteSessions
from shim.cluster.replays import Replays
from shim.cluster.streams import ClusterStreams
from shim.faces.opencode1.routes.event import OPENCODE1, encoder_of, lost_turns, open_requests, running_state
from shim.faces.opencode1.routes.prompt import PromptBody, prompt_async
from shim.faces.opencode1.routes.session import SessionPath
from shim.lib.clock import Clock
from shim.lib.errors import MessageExists, ServerLost, SessionElsewhere, SessionNotFound, ShimError, StoreError
from shim.lib.ids import Ids
from shim.lib.settings import Settings
from shim.sessions.feed import ChangeFeed, SessionChanges
from shim.sessions.history import checkpoints, journal_loader
from shim.sessions.index.manager import SessionManager
from shim.sessions.session.dependencies import SessionDeps
from shim.sessions.session.session_state import SessionState
from shim.store.servers import ServerRef
from shim.stream.hub import Bursts, Hub
from shim.stream.subscription import Subscription
from tests.support.cluster.simulated_nats import SimulatedClient, SimulatedNats, StoredMessage
from tests.support.cluster.virtual_time import MACHINE, ClusterLoop, Machine, elapse
from tests.support.scripted_model import Project, ScriptedAgent, ScriptedAgents, ScriptedCodec
from tests.unit.stream.reading import ReceivedFrame, parse_batches
from tools.chaos.screens import Screen
from universal.codec import Interrupt, PermissionReply, Prompt, Signal
from universal.launch import LaunchOptions
from universal.permissions import DirectoryRules
from universal.session.changes import StatusChanged, TurnEnded
from universal.turn import Input

OPTIONS = ClusterOptions(("nats://simulated",))
LIMITS = DEFAULT_LIMITS._replace(kept_bytes=0, chunk_bytes=4096)
"""All events wait on disk while NATS is away."""
DIRECTORY = "/"
CLIENT_S = 60.0
"""Seconds after which a client gives a request up."""
TRIES = 12
"""So often a client sends a prompt that is refused."""
START_AGAIN_S = 1.0
"""Seconds until a server that could not start tries it again."""
PIECE_S = 0.4
"""Seconds between two pieces of an agent's answer."""
SKEWS_MS = (0, 90_000, -45_000, 3_600_000)
"""How wrong the clocks of the machines are."""
CHECKPOINT_EVERY = 12
"""Events between two checkpoints; few, so that there are many."""
ANEW = "anew"
SESSIONS = ("ses_a", "ses_b")
EXTRA = "ses_x"
VIEWERS = 2
QUIET_NODE = 2
"""The server without a client that listens all the time."""
EPOCH_MS = 1_795_293_784_083


class MachineClock(Clock):
    """The clock of a machine, which may be wrong."""

    def __init__(self, skew_ms: int, time: Callable[[], float]) -> None:
        self._skew_ms = skew_ms
        self._time = time

    def now_ms(self) -> int:
        return EPOCH_MS + self._skew_ms + int(self._time() * 1000)


MANY_IDS = 20_000
"""More than a server makes in a run."""


def ids_of(name: str, clock: Clock) -> Ids:
    """Ids of a server that are the same in each run."""
    ids = Ids(clock)
    ids._tails = [f"{name}{number}".rjust(14, "0") for number in range(MANY_IDS, 0, -1)]  # the last one is used first
    return ids


ASKS, SUBAGENT = "ask", "sub"
"""Kinds of prompts."""


class BusyAgent(ScriptedAgent):
    """An agent that answers each prompt `NAME [KIND] PIECES` with so many pieces of text.

    Kind `ask`: it asks for a permission first; `sub`: a subagent writes as much before it.
    """

    place: ClusterNode
    name = ""
    run: asyncio.Task[None] | None = None
    permitted: asyncio.Event | None = None

    def new(self, prefix: str = "itm") -> str:
        self.numbers += 1
        return f"{prefix}_{self.name}_{self.numbers}"

    def write(self, data: bytes) -> None:
        super().write(data)
        command = self.commands[-1]
        if isinstance(command, Prompt):
            *before, text = command.text.splitlines()
            self.place.seen.dispatches[text].append(self.place.server)
            self.place.seen.carried.update(before)
            self.run = asyncio.get_running_loop().create_task(self._answer(text))
        elif isinstance(command, PermissionReply) and self.permitted is not None:
            self.permitted.set()
        elif isinstance(command, Interrupt) and self.run is not None and not self.run.done():
            self.run.cancel()
            self.abort_turn()

    def exits(self, code: int | None = 0, signal: int | None = None, stderr: str = "") -> None:
        if self.run is not None:
            self.run.cancel()
        super().exits(code, signal, stderr)

    async def _answer(self, text: str) -> None:
        _, *kind, pieces = text.split(" ")
        if kind == [ASKS]:
            item_id, self.permitted = self.begin(), asyncio.Event()
            call = self.new("call")
            self.call(item_id, call)
            self.ask(call)
            await self.permitted.wait()
            self.result(call)
            self.complete(item_id, "")
        elif kind == [SUBAGENT]:
            item_id, call = self.begin(), self.new("call")
            self.call(item_id, call, "task")
            self.child(call)
            await self._write(int(pieces), call)
            self.says(Signal(Input.DONE, child=call))
            self.result(call)
            self.complete(item_id, "")
        await self._write(int(pieces))
        self.end_turn()

    async def _write(self, pieces: int, child: str | None = None) -> None:
        item_id = self.begin(child)
        for number in range(pieces):
            await elapse(PIECE_S)
            self.delta(item_id, f"{number}.", child)
        self.complete(item_id, "".join(f"{number}." for number in range(pieces)), child)


class BusyAgents(ScriptedAgents):
    """The agents of a server."""

    def __init__(self, place: ClusterNode) -> None:
        super().__init__()
        self._place = place

    def _maker(self, name: str) -> Any:
        def make(_ids: Any) -> ScriptedCodec:
            agent = BusyAgent(LaunchOptions("", "/"), lambda _: None, lambda _: None)
            agent.place, agent.name = self._place, f"{self._place.server}a{len(self.spawned)}"
            return ScriptedCodec(name, agent)

        return make


@dataclass(frozen=True, slots=True)
class AckedPrompt:
    """A prompt that a client was told is accepted. `events`: those of its session that NATS had stored then."""

    session_id: str
    text: str
    server: str
    stored_texts: tuple[str, ...]


@dataclass
class Observations:
    """What the laws judge.

    stored      stream -> all messages that it ever had
    acked       accepted prompts
    refused     texts of prompts that were refused, or whose fate no client knows
    not_done    those of them of which a client was told that nobody has heard them
    dispatches  text of a prompt -> the servers whose agents got it
    carried     lines that agents got along with a later prompt
    deleted     sessions of which a client was told that they are deleted
    views       (server, session) -> what its clients saw of the status: "busy", "idle", "ended REASON"; ANEW: they came again
    """

    stored: dict[str, list[StoredMessage]] = field(default_factory=lambda: defaultdict(list))
    sessions: list[str] = field(default_factory=list)
    acked: list[AckedPrompt] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    not_done: list[str] = field(default_factory=list)
    dispatches: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    carried: set[str] = field(default_factory=set)
    deleted: list[str] = field(default_factory=list)
    views: dict[tuple[str, str], list[str]] = field(default_factory=lambda: defaultdict(list))


class Viewer:
    """A client of all sessions. It hops from server to server with `Last-Event-ID`, and folds what it gets as OpenCode's do.

    screen    what it shows since it has read everything; `idles`: session -> its `session.idle` since then
    doubles   events that came twice since then
    """

    def __init__(self, world: ClusterWorld, number: int) -> None:
        self._world = world
        self.number = number
        """Of the server where it reads."""
        self.position = ""
        self.doubles: list[str] = []
        self._subscription: Subscription | None = None
        self._clear()

    def _clear(self) -> None:
        """The client reads the whole state."""
        self.screen, self.idles, self.statuses = Screen(), Counter[str](), dict[str, str]()
        self._ids: set[str] = set()

    def hop(self, number: int) -> None:
        """Go on at another server."""
        self.number = number
        if self._subscription is not None:
            self._subscription.close()

    async def run(self) -> None:
        """Read until the world ends."""
        while True:
            node = self._world.nodes[self.number]
            if node.is_ready:
                opening = self._world.loop.spawn(node.machine, node.subscribe(self.position or None))
                until = self._world.loop.time() + CLIENT_S
                while not opening.done() and self._world.nodes[self.number] is node and self._world.loop.time() < until:
                    await asyncio.wait({opening}, timeout=START_AGAIN_S)
                if opening.done() and not opening.cancelled() and opening.exception() is None:
                    await self._read(node, opening.result())
            await elapse(START_AGAIN_S)

    async def _read(self, node: ClusterNode, subscription: Subscription) -> None:
        """Read until the stream ends, its server dies, or the client hops. A paused server sends nothing."""
        self._subscription = subscription
        pump = self._world.loop.spawn(node.machine, self._pump(subscription))
        while not pump.done() and self._world.nodes[self.number] is node and not subscription.over:
            await asyncio.wait({pump}, timeout=START_AGAIN_S)
        self._subscription = None
        pump.cancel()
        subscription.close()

    async def _pump(self, subscription: Subscription) -> None:
        is_first = True
        while batches := await subscription.take():
            for frame in parse_batches(subscription, batches):
                if is_first and self.position and frame.id != self.position:
                    self._clear()
                is_first = False
                self.position = frame.id
                self._note(frame)

    def _note(self, frame: ReceivedFrame) -> None:
        event = frame.event
        id_, type_, properties = str(event["id"]), str(event["type"]), event["properties"]
        if type_.startswith("server."):
            return
        if id_ in self._ids:
            self.doubles.append(f"{type_} {id_}")
        self._ids.add(id_)
        self.screen.note(b"data:" + json.dumps(frame.data, separators=(",", ":")).encode())
        if type_ == "session.idle":
            self.idles[properties["sessionID"]] += 1
        elif type_ == "session.status":
            self.statuses[properties["sessionID"]] = properties["status"]["type"]


class PeersOf:
    """The other servers that a store knows, as often as it is opened."""

    def __init__(self, store: JetStreamStore) -> None:
        self._store = store

    def __getattr__(self, name: str) -> object:
        return getattr(self._store.peers, name)


class ClusterNode:
    """A server of the cluster, from its start to its death."""

    def __init__(self, world: ClusterWorld, number: int, generation: int) -> None:
        self.number = number
        self.server = f"n{number}g{generation}"
        self.machine = Machine(self.server)
        self.world, self.seen = world, world.seen
        self.store = JetStreamStore(OPTIONS, name=self.server, limits=LIMITS)
        self.store.server_id = self.server
        clock = MachineClock(SKEWS_MS[number % len(SKEWS_MS)], world.loop.time)
        self.clock = clock
        self.hub = Hub(clock, ids_of(f"{self.server}h", clock), faces=(OPENCODE1,), bursts=Bursts(now=world.loop.time))
        changes = ChangeFeed(self.hub.bursts)
        changes.observe(self._observe)
        changes.observe(self.hub.emit)
        self.agents = BusyAgents(self)
        deps = SessionDeps(
            clock,
            ids_of(self.server, clock),
            self.store,
            changes,
            self.agents,
            lambda *_: DirectoryRules(),
            Settings(),
            listened=lambda directory, session_id: not self.is_quiet or self.hub.has_reader(directory),
            end_streams=self._end_streams,
        )
        self._peers: Any = PeersOf(self.store)
        self.remotes: RemoteSessions | None = None
        self.streams: ClusterStreams | None = None
        self.manager = SessionManager(deps, self._make_remotes)
        self.is_ready = False

    @property
    def is_quiet(self) -> bool:
        """Whether no client listens here all the time."""
        return self.number == QUIET_NODE

    def _make_remotes(self, *parts: Any) -> RemoteSessions:
        self.remotes = RemoteSessions(*parts, self._peers, self._delete_elsewhere)
        return self.remotes

    async def start(self) -> None:
        """Start, again and again until NATS can be reached."""
        while not self.is_ready:
            try:
                await self.store.open()
                await self.manager.start()
                await self.store.peers.serve(self._perform)
                remotes, index, look = self.remotes, self.manager.index, self.manager.others.look_now
                assert remotes is not None
                assert remotes.places is not None
                self.hub.use_positions(remotes.places)
                remotes.is_read = lambda: not self.is_quiet or self.hub.stats().readers > 0
                replays = Replays(self.store, index, remotes, look, remotes.places, self._peers, self.manager.detached_state)
                self.streams = ClusterStreams(replays)
                self.is_ready = True
            except ShimError:
                with suppress(ShimError):
                    await self.store.close()
                await elapse(START_AGAIN_S)

    def _end_streams(self, directory: str) -> None:
        """All clients here come again, and read everything anew."""
        for session_id in self.seen.sessions:
            self.seen.views[self.server, session_id].append(ANEW)
        self.hub.end_void(directory)

    def _observe(self, published: SessionChanges) -> None:
        for change in published.changes:
            if isinstance(change, StatusChanged):
                self.seen.views[self.server, published.session.id].append(change.status.type)
            elif isinstance(change, TurnEnded):
                self.seen.views[self.server, published.session.id].append(f"ended {change.reason}")

    # --- what clients ask --------------------------------------------------------------------------------------------

    async def create(self, session_id: str) -> None:
        """Create a session, as the route does."""
        self.manager.create(DIRECTORY, Project(), session_id=session_id)
        await self.store.flush()

    async def create_and_prompt(self, session_id: str, text: str) -> None:
        """Create a session, and prompt before that is stored."""
        self.manager.create(DIRECTORY, Project(), session_id=session_id)
        await self._do("prompt", session_id, text)
        await self.store.flush(session_id)

    async def subscribe(self, position: str | None) -> Subscription:
        """Open an event stream of all sessions, as the route does."""
        assert self.streams is not None
        context: Any = SimpleNamespace(services=SimpleNamespace(sessions=self.manager, clock=self.clock))
        return await self.streams.subscribe(
            self.hub,
            encoder_of(self.clock.now_ms, "v1.18", wrapped=True),
            last_event_id=position,
            greeting=lambda is_shown: [
                *lost_turns(context, is_shown),
                *running_state(context, is_shown),
                *open_requests(context, is_shown),
            ],
        )

    async def _delete_elsewhere(self, session_id: str, owner: ServerRef) -> None:
        """As `Relay.delete_session`."""
        self.world.commands += 1
        command = Command(f"{self.server}c{self.world.commands}", "delete", "/", body=json.dumps([session_id, ""]).encode())
        async with self.store.peers.ask(owner, command) as answer:
            why = b"".join([chunk async for chunk in answer.chunks])
        if answer.status not in (200, 404):
            raise StoreError(why.decode())

    async def request(self, action: str, session_id: str, text: str = "") -> None:
        """Do what a client asks, or let the session's owner do it, as `shim.cluster.relay` does."""
        try:
            try:
                await self._do(action, session_id, text)
            except SessionNotFound:
                await self.manager.others.look_now()
                if self.manager.index.find(session_id) is None:
                    await self.store.peers.need_session(session_id)
                    raise StoreError(f"{session_id} is not read yet.") from None
                await self._do(action, session_id, text)
        except SessionElsewhere as error:
            if not isinstance(error.owner, ServerRef) or not error.owner.pid:
                raise
            self.world.commands += 1
            body = json.dumps([session_id, text]).encode()
            command = Command(f"{self.server}c{self.world.commands}", action, "/", body=body)
            try:
                async with self.store.peers.ask(error.owner, command) as answer:
                    why = b"".join([chunk async for chunk in answer.chunks])
            except ServerLost as lost:
                if action == "prompt" and not lost.was_heard:
                    self.seen.not_done.append(text)
                raise
            await self.manager.others.look_now()
            if answer.status == 404:
                raise SessionNotFound(session_id) from None
            if answer.status != 200:
                raise ShimError(why.decode()) from None

    async def _do(self, action: str, session_id: str, text: str) -> None:
        if action in ("prompt", "insist"):
            services = SimpleNamespace(sessions=self.manager, store=self.store)
            context: Any = SimpleNamespace(services=services, request=SimpleNamespace(headers={}))
            message_id = f"msg_{text.partition(' ')[0]}" if action == "insist" else None
            body = PromptBody.model_validate({"parts": [{"type": "text", "text": text}], "messageID": message_id})
            with suppress(*[MessageExists] * (action == "insist")):  # it was sent before: that is done, the client says
                await prompt_async(context, SessionPath(sessionID=session_id), body)
        elif action == "delete":
            await self.manager.delete(session_id)
        elif action == "reply":
            entry = self.manager.index.get(session_id)
            if entry.state is None:
                raise SessionElsewhere(session_id, self.manager.others.owner(session_id) or ServerRef(""))
            for request_id in tuple(entry.state.session.permissions):
                self.manager.requests.reply_permission(request_id, "once")
        else:
            await self.manager.abort(session_id)

    @asynccontextmanager
    async def _perform(self, command: Command) -> AsyncGenerator[Answer]:
        session_id, text = json.loads(command.body)
        status, why = 200, b""
        try:
            await self._do(command.method, session_id, text)
            await self.store.flush(session_id)
        except SessionNotFound:
            status = 404
        except ShimError as error:
            status, why = 409, str(error).encode()

        async def chunks() -> Any:
            yield why

        yield Answer(status, (), chunks())

    async def read(self, session_id: str, text: str = "") -> None:
        """Read a session, and note what a client sees. In: a prompt that this server has acknowledged."""
        state = await self.manager.readable_state(session_id)
        entry = self.manager.index.find(session_id)
        if entry is not None and entry.state is None:
            self.world.on_read(self.server, state, text)


class ClusterWorld:
    """NATS, servers and clients."""

    def __init__(self, loop: ClusterLoop, nodes: int) -> None:
        self.loop = loop
        self.nats = SimulatedNats()
        self.seen = Observations()
        self.nats.on_stored = lambda stream, message: self.seen.stored[stream].append(message)
        self.clients: dict[str, SimulatedClient] = {}
        self.nodes = [ClusterNode(self, number, 1) for number in range(nodes)]
        self.commands = 0
        self.extra = 0
        """Number of sessions that were created later, `EXTRA` and a number."""
        self.viewers = [Viewer(self, number) for number in range(VIEWERS)]
        self._requests: list[asyncio.Task[None]] = []
        self._numbers = count(1)

    def new_client(self) -> SimulatedClient:
        """The connection of the machine that runs."""
        client = self.nats.client()
        machine = MACHINE.get()
        self.clients["" if machine is None else machine.name] = client
        return client

    async def start(self) -> None:
        """Start all servers."""
        starts = [self.loop.spawn(node.machine, node.start()) for node in self.nodes]
        await asyncio.gather(*starts)
        for viewer in self.viewers:
            self.loop.spawn(None, viewer.run())

    async def create(self, session_id: str, number: int) -> None:
        """Create a session at a server, and wait until it is acknowledged."""
        node = self.nodes[number]
        await self.loop.spawn(node.machine, node.create(session_id))
        self.seen.sessions.append(session_id)

    def owner(self, session_id: str) -> int:
        """The number of the server that owns a session, or did before it died."""
        stream = self.nats.stream("KV_shim_sessions")
        newest = stream.newest.get(f"$KV.shim_sessions.{session_id}")
        server = "" if newest is None else decode_record(stream.messages[newest].data).owner
        return int(server.removeprefix("n").partition("g")[0] or 0)

    async def add_node(self) -> ClusterNode:
        """One more server, which knows nothing but what is stored."""
        node = ClusterNode(self, len(self.nodes), 1)
        self.nodes.append(node)
        await self.loop.spawn(node.machine, node.start())
        return node

    # --- clients -----------------------------------------------------------------------------------------------------

    def prompt(self, number: int, session_id: str, pieces: int, kind: str = "") -> None:
        """A client prompts at a server, and waits for the acknowledgement. In: `kind` of the prompt."""
        text = " ".join(filter(None, (f"p{next(self._numbers)}", kind, str(pieces))))
        self._send(self._prompt(self.nodes[number], session_id, text))

    def create_more(self, number: int, pieces: int) -> None:
        """A client creates one more session and prompts at once."""
        self.extra += 1
        text = f"p{next(self._numbers)} {SUBAGENT} {pieces}"
        self._send(self._create_more(self.nodes[number], f"{EXTRA}{self.extra}", text))

    async def _create_more(self, node: ClusterNode, session_id: str, text: str) -> None:
        if await self._answer_of(node, node.create_and_prompt(session_id, text)):
            self.seen.sessions.append(session_id)
            self.seen.acked.append(AckedPrompt(session_id, text, node.server, tuple(self.stored_texts(session_id))))

    def delete_more(self, number: int) -> None:
        """A client deletes the newest of these sessions."""
        node, session_id = self.nodes[number], f"{EXTRA}{self.extra}"
        if session_id in self.seen.sessions and session_id not in self.seen.deleted:
            self._send(self._delete(node, session_id))

    async def _delete(self, node: ClusterNode, session_id: str) -> None:
        if await self._answer_of(node, node.request("delete", session_id)):
            self.seen.deleted.append(session_id)

    def reply(self, number: int, session_id: str) -> None:
        """A client answers what a session asks."""
        node = self.nodes[number]
        self._send(self._answer_of(node, node.request("reply", session_id)))

    async def _prompt(self, node: ClusterNode, session_id: str, text: str) -> None:
        if await self._answer_of(node, node.request("prompt", session_id, text)):
            self.seen.acked.append(AckedPrompt(session_id, text, node.server, tuple(self.stored_texts(session_id))))
            await self._answer_of(node, node.read(session_id, text))
        else:
            self.seen.refused.append(text)

    def insist(self, number: int, session_id: str, pieces: int) -> None:
        """A client sends a prompt with an id of its own twice at once, and again until it is done."""
        text = f"p{next(self._numbers)} {pieces}"
        for _ in range(2):
            self._send(self._insist(number, session_id, text))

    async def _insist(self, number: int, session_id: str, text: str) -> None:
        for _ in range(TRIES):
            node = self.nodes[number]
            if await self._answer_of(node, node.request("insist", session_id, text)):
                self.seen.acked.append(AckedPrompt(session_id, text, node.server, tuple(self.stored_texts(session_id))))
                return
            await elapse(START_AGAIN_S)
        self.seen.refused.append(text)

    def abort(self, number: int, session_id: str) -> None:
        """A client aborts a turn."""
        node = self.nodes[number]
        self._send(self._answer_of(node, node.request("abort", session_id)))

    def read(self, number: int, session_id: str) -> None:
        """A client reads a session."""
        node = self.nodes[number]
        self._send(self._answer_of(node, node.read(session_id)))

    def _send(self, request: Any) -> None:
        task = self.loop.spawn(None, request)
        self._requests.append(task)

    async def _answer_of(self, node: ClusterNode, work: Any) -> bool:
        """Whether a request was answered without an error. False for one without an answer."""
        if not node.is_ready:
            work.close()
            return False
        task = self.loop.spawn(node.machine, work)
        await asyncio.wait({task}, timeout=CLIENT_S)
        if not task.done() or task.cancelled():
            return False
        error = task.exception()
        if error is not None and not isinstance(error, ShimError):
            raise error
        return error is None

    async def settle(self) -> None:
        """Wait until all requests are answered or given up. Raises what was wrong in one."""
        await asyncio.gather(*self._requests)

    def on_read(self, server: str, state: SessionState, text: str) -> None:
        """Judge what a reader sees. In: a prompt that must be there."""

    # --- faults ------------------------------------------------------------------------------------------------------

    def kill(self, number: int) -> None:
        """Kill a server, and start another one on its machine."""
        node = self.nodes[number]
        node.machine.kill()
        client = self.clients.get(node.server)
        if client is not None and client.link in self.nats.links:
            self.nats.links.remove(client.link)
        generation = int(node.server.rpartition("g")[2]) + 1
        self.nodes[number] = ClusterNode(self, number, generation)
        self.loop.spawn(self.nodes[number].machine, self.nodes[number].start())

    def entries(self) -> dict[str, SessionRecord]:
        """The entries of all sessions that are not deleted, as NATS has them."""
        stream = self.nats.stream("KV_shim_sessions")
        records = (decode_record(stream.messages[newest].data) for newest in stream.newest.values())
        return {record.session_id: record for record in records if not record.is_deleted}

    def stored_texts(self, session_id: str) -> list[str]:
        """The messages of a session's journal as NATS has them now."""
        stream = self.nats.stream("shim_journal")
        return [message.data.decode() for message in stream.messages.values() if message.subject.endswith(f".{session_id}")]


def run(test: Any, nodes: int = 3) -> None:
    """Run an async test of a world to its end."""
    loop = ClusterLoop()
    world = ClusterWorld(loop, nodes)
    with (
        ExitStack() as files,  # also those of killed servers
        patch.object(spool, "TemporaryFile", lambda **how: files.enter_context(TemporaryFile(**how))),
        patch.object(connections, "Client", world.new_client),
        patch.object(leases, "monotonic", loop.time),
        patch.object(journal_loader, "perf_counter", loop.time),
        patch.object(checkpoints, "EVERY", CHECKPOINT_EVERY),
    ):
        loop.run(test(world))
