"""One run: the machines start, clients work while the plan is carried out, all comes to rest, and the evidence is read."""

from __future__ import annotations

import asyncio
import json
import random
import secrets
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import aiohttp

from shim.cluster.nats.leases import LEASE_S
from tools.chaos.checks import Violation, story_of, violations_of
from tools.chaos.clients import DIRECTORIES, Clients
from tools.chaos.evidence import Evidence, SessionReading, Sign
from tools.chaos.faults import Injector
from tools.chaos.machines import AGENT, REPLICAS, Machines
from tools.chaos.plan import Fault, make_plan
from tools.chaos.readings import (
    agent_processes,
    bug_reports,
    get,
    read_dialogs,
    read_events,
    read_list,
    read_messages,
    read_nats,
)
from tools.chaos.streams import Follower, Hopper, IdleBell, StreamReader

REST_S = 120.0
"""Maximum seconds for the cluster to come to rest after the last fault, on a busy machine."""
POLL_S = 0.5
STEADY_S = 2.0
"""Seconds that all must be at rest: a server that was taken for dead looks once a second what it has lost."""
FOLLOWERS = 12
"""Sessions that a hopping client reads."""
HOPPERS = 3
"""Clients of all sessions that hop."""
READS_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class Parameters:
    """The size of a run. Equal parameters have an equal plan."""

    nodes: int = 4
    sessions: int = 200
    seconds: float = 180.0
    seed: int = 1

    @property
    def directories(self) -> int:
        """Directories of the sessions. The first session of each has an agent that is a process, the others have the mock."""
        return min(DIRECTORIES, (self.sessions + 1) // 2)


@dataclass(frozen=True, slots=True)
class Report:
    """The figures of a run, and what was broken."""

    figures: Counter[str]
    violations: list[Violation]


class Run:
    """One run in a folder of its own. In: `plan`, instead of that of the seed. `say` prints a line."""

    def __init__(
        self, parameters: Parameters, folder: Path, say: Callable[[str], None], plan: Sequence[Fault] | None = None
    ) -> None:
        self._parameters = parameters
        self._folder = folder
        self._say = say
        self._machines = Machines(folder, parameters.nodes, secrets.token_hex(8))
        self._plan = make_plan(parameters.seed, parameters.seconds, parameters.nodes, REPLICAS) if plan is None else plan
        self._evidence = Evidence()
        self._bell = IdleBell()
        self._readers: list[StreamReader] = []
        self._hoppers: list[Hopper] = []
        self._followers: list[Follower] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def run(self) -> Report:
        """Raises RuntimeError or TimeoutError if the machines do not start, or do not come back."""
        self._say(f"plan of seed {self._parameters.seed}:")
        for fault in self._plan:
            self._say(f"  {fault}")
        injector = Injector(self._machines, self._say)
        connector = aiohttp.TCPConnector(limit=0)
        try:
            await self._machines.start()
            async with aiohttp.ClientSession(connector=connector, read_bufsize=2**22) as http:
                clients = Clients(http, self._machines.nodes, self._bell, self._evidence, self._parameters.seed)
                try:
                    await self._work(http, clients, injector)
                finally:
                    for task in self._tasks:
                        task.cancel()
                    await asyncio.gather(*self._tasks, return_exceptions=True)
        finally:
            await self._machines.stop()
        return self._report(clients, injector)

    async def _work(self, http: aiohttp.ClientSession, clients: Clients, injector: Injector) -> None:
        await self._open_streams(http, injector)
        await clients.create(self._parameters.sessions, await asyncio.to_thread(self._make_directories))
        self._open_followers(http, clients)
        self._say(f"{len(clients.works)} sessions at work")
        await asyncio.gather(clients.work(self._parameters.seconds), injector.carry_out(self._plan))
        self._say("all faults are undone; the last prompts")
        await self._machines.wait_until_current()
        await clients.finish(REST_S)
        await self._wait_for_rest(http)
        await self._read(http, clients)
        for reader in (*self._readers, *self._hoppers):
            reader.finish()

    def _make_directories(self) -> list[str]:
        directories = [self._folder / "work" / str(number) for number in range(self._parameters.directories)]
        for directory in directories:
            directory.mkdir(parents=True)
        return list(map(str, directories))

    # --- clients that read ---------------------------------------------------------------------------------------

    async def _open_streams(self, http: aiohttp.ClientSession, injector: Injector) -> None:
        """Connect a reader of everything to each node, before the first session is created."""
        self._readers = [StreamReader(http, node, "/global/event", self._bell) for node in self._machines.nodes]
        chance = random.Random(self._parameters.seed)  # noqa: S311 - equal seeds must give equal hops
        names = (f"hopper{number}" for number in range(1, HOPPERS + 1))
        self._hoppers = [
            Hopper(http, name, lambda: chance.choice(injector.calm_nodes() or self._machines.nodes), chance) for name in names
        ]
        readers: list[StreamReader | Hopper] = [*self._readers, *self._hoppers]
        self._tasks += [asyncio.create_task(reader.run(), name="reader") for reader in readers]
        async with asyncio.timeout(REST_S):
            for reader in self._readers:
                await reader.is_open.wait()

    def _open_followers(self, http: aiohttp.ClientSession, clients: Clients) -> None:
        works = clients.works[:: max(1, len(clients.works) // FOLLOWERS)][:FOLLOWERS]
        self._followers = [Follower(http, work.session_id, clients.any_node) for work in works]
        self._tasks += [asyncio.create_task(follower.run(), name="follower") for follower in self._followers]

    # --- the end -------------------------------------------------------------------------------------------------

    async def _wait_for_rest(self, http: aiohttp.ClientSession) -> None:
        """Wait until no node shows a running turn, all streams have shown the last idle, and followers have all events.

        Also until no lease is about to end: it could not be renewed for a while, and another server takes sessions over then.
        What has not come by then is found by the checks.
        """
        sessions, loop = list(self._evidence_sessions()), asyncio.get_running_loop()
        until, steady_from = loop.time() + REST_S, 0.0
        while loop.time() < until:
            if not await self._is_at_rest(http, sessions):
                steady_from = 0.0
            elif loop.time() >= (steady_from := steady_from or loop.time()) + STEADY_S:
                return
            await asyncio.sleep(POLL_S)
        self._say(f"the cluster was not at rest within {REST_S:g} s")

    def _evidence_sessions(self) -> set[str]:
        return {prompt.session_id for prompt in self._evidence.prompts}

    def _streams_rest(self, sessions: list[str]) -> bool:
        """Whether every open stream has ended the last prompt of each session."""
        last = {prompt.session_id: prompt.message_id for prompt in self._evidence.prompts if prompt.is_acknowledged}
        for reader in self._readers:
            if not reader.is_open.is_set():
                return False
            tokens = reader.records[-1].tokens
            for session_id in sessions:
                signs = tokens.get(session_id, [])
                after = next((at for at, token in enumerate(signs) if token.message_id == last.get(session_id)), None)
                if after is None or not any(token.sign is Sign.IDLE for token in signs[after:]):
                    return False
        return all(hopper.records[-1].has_ended(last) for hopper in self._hoppers)

    async def _followers_rest(self, http: aiohttp.ClientSession) -> bool:
        for follower in self._followers:
            path = f"/v1/sessions/{follower.record.session_id}/events?offset={follower.last}&limit=1"
            if (await get(http, self._machines.nodes[0].url + path))["events"]:
                return False
        return True

    async def _is_at_rest(self, http: aiohttp.ClientSession, sessions: list[str]) -> bool:
        for node in self._machines.nodes:
            self._evidence.busy[node.name] = sorted(await get(http, node.url + "/session/status"))
        is_idle = not any(self._evidence.busy.values()) and self._streams_rest(sessions)
        return is_idle and await self._followers_rest(http) and await self._leases_rest(http)

    async def _leases_rest(self, http: aiohttp.ClientSession) -> bool:
        """Whether each node sees that all have renewed their leases lately."""
        nodes = self._machines.nodes
        seen = [(await get(http, node.url + "/v1/x-nodes"))["nodes"] for node in nodes]
        return all(len(others) == len(nodes) and all(one["leaseAgeMs"] < LEASE_S * 500 for one in others) for others in seen)

    async def _read(self, http: aiohttp.ClientSession, clients: Clients) -> None:
        """Read what the nodes, NATS and the kernel have at the end."""
        evidence, nodes = self._evidence, self._machines.nodes
        evidence.sessions = {work.session_id: SessionReading(work.session_id) for work in clients.works}
        directories = list(dict.fromkeys(work.directory for work in clients.works))
        for node in nodes:
            evidence.listed[node.name] = listed = await read_list(http, node.url)
            evidence.dialogs[node.name] = await read_dialogs(http, node.url, directories)
            for session_id in (one for one, above in listed.items() if above in evidence.sessions):
                evidence.sessions.setdefault(session_id, SessionReading(session_id, is_child=True))
        slots = asyncio.Semaphore(READS_AT_ONCE)

        async def read(number: int, reading: SessionReading) -> None:
            async with slots:
                url = nodes[number % len(nodes)].url
                reading.events = await read_events(http, url, reading.session_id)
                for node in nodes:
                    reading.messages[node.name] = await read_messages(http, node.url, reading.session_id)

        await asyncio.gather(*(read(number, reading) for number, reading in enumerate(evidence.sessions.values())))
        options = self._machines.options
        servers = await read_nats(options.servers, options.prefix, evidence)
        names = {node.pid: node.name for node in nodes}
        evidence.nodes = {names[pid]: server_id for server_id, pid in servers.items() if pid in names}
        folders = {work.directory: work.session_id for work in clients.works if work.is_process}
        evidence.processes = list(agent_processes(self._machines.mark, str(AGENT), names, folders))
        evidence.streams = [record for reader in self._readers for record in reader.records]
        evidence.streams += [record for hopper in self._hoppers for record in hopper.records]
        evidence.followers = [follower.record for follower in self._followers]
        for node in nodes:
            log = await asyncio.to_thread(node.log.read_text, "utf-8", "replace")
            evidence.faults += [f"{node.name}: {line}" for line in bug_reports(log)]

    def _report(self, clients: Clients, injector: Injector) -> Report:
        evidence = self._evidence
        figures = Counter(clients.counts)
        figures.update({f"faults of kind {kind}": count for kind, count in injector.counts.items()})
        figures["sessions of subagents"] = sum(reading.is_child for reading in evidence.sessions.values())
        figures["prompts"] = len(evidence.prompts)
        for reading in evidence.sessions.values():
            turns = story_of(reading.events).turns
            figures["turns"] += len(turns)
            figures.update(f"turns that ended as {turn.reason}" for turn in turns)
            figures["events"] += len(reading.events)
            figures["changes of owner"] += sum(message.last < message.first for message in reading.journal)
        figures["streams"] = len(evidence.streams)
        figures["streams from begin to end"] = sum(record.is_whole for record in evidence.streams)
        figures["idles read"] = sum(
            token.sign is Sign.IDLE for record in evidence.streams for tokens in record.tokens.values() for token in tokens
        )
        figures["hops of clients of all sessions"] = sum(record.hops for hopper in self._hoppers for record in hopper.records)
        figures["hops after which all is read anew"] = sum(len(hopper.records) - 1 for hopper in self._hoppers)
        figures["hops of followers"] = sum(record.hops for record in evidence.followers)
        figures["agents at the end"] = len(evidence.processes)
        violations = violations_of(evidence)
        if violations:
            (self._folder / "evidence.json").write_text(json.dumps(asdict(evidence), default=str))
        return Report(figures, violations)
