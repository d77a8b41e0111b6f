"""From Enter to the first word, with real agents and a scripted model without delay: first and second prompt of a session.

`python -m tests.bench --only first_word`. Beside our server, with and without a spare agent, stand native OpenCode and the agent
alone: its program, driven over its own protocol in this process, with no server in between.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from shim.agents.directory import AgentDirectory
from shim.agents.spares.spare_agents import PREPARE_MS
from shim.dev.record.homes import MCP_SERVER
from shim.lib.clock import SystemClock
from shim.lib.ids import Ids
from shim.processes.handle import AgentHandle
from shim.store.memory import MemoryStore
from tests.bench import work
from tests.bench.contenders import usage
from tests.e2e.support.agents import AGENTS, agents_environment
from tests.e2e.support.children import children_of, holders_in, wait_for
from tests.e2e.support.places import Place
from tests.e2e.support.servers import Model, Native, Shim, configure
from tests.e2e.support.wire import Api
from universal.codec import Codec, Fact, Output, Prompt, Signal, WriteLine
from universal.events import EventType
from universal.launch import Exit, LaunchOptions
from universal.registry import agents
from universal.turn import Input

MEASURED = ("claude", "codex", "pi", "opencode", "claude-agent-acp")
SESSIONS = 10
TURN_S = 60
SPARE_S = 60
SETUP_SESSIONS = 12
AT_REST_S = 0.05
"""Seconds of processor that agents at rest take, at most, while it is looked."""
SERVERS = ("one", "two", "three")
"""MCP servers of a set-up."""
PROMPT = "[scene:text] say hello"
MARK, END = b'"message.part.delta"', b'"session.idle"'


class Stream:
    """Event stream of a server: notes when the first word and the end of a turn were read."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), TURN_S)
        self._socket.sendall(b"GET /event HTTP/1.0\r\nUser-Agent: opencode/1.18.33\r\n\r\n")
        self._socket.recv(2**16)
        self._first_s = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def begin(self) -> None:
        """A prompt follows."""
        self._first_s = 0.0
        self._over.clear()

    def first_word(self) -> float:
        """Wait for the end of the turn; the time of its first word. Raises RuntimeError."""
        if not self._over.wait(TURN_S) or not self._first_s:
            raise RuntimeError(f"no first word within {TURN_S} s")
        return self._first_s

    def _read(self) -> None:
        tail = b""
        try:
            while data := self._socket.recv(2**18):
                now = time.monotonic()
                text = tail + data
                if MARK in text and not self._first_s:
                    self._first_s = now
                if END in text:
                    self._over.set()
                    tail = b""
                else:
                    tail = text[-max(len(MARK), len(END)) :]
        except OSError:
            return

    def close(self) -> None:
        self._socket.close()


def prompt_server(api: Api, stream: Stream, session: str) -> float:
    """Prompt a session; seconds to the first word."""
    stream.begin()
    began = time.monotonic()
    api.prompt(session, PROMPT)
    return stream.first_word() - began


@contextmanager
def place_and_model() -> Iterator[tuple[Place, Model]]:
    place = Place.make()
    model = Model(place)
    try:
        yield place, model
    finally:
        model.close()
        place.remove()


def spares(port: int) -> int:
    """How many spare agents a server has."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=TURN_S) as answer:
        rows = dict(line.rsplit(" ", 1) for line in answer.read().decode().splitlines() if not line.startswith("#"))
    return int(float(rows['opencode_shim_agents{state="spare"}']))


def behind_shim(agent: str, *, has_spare: bool, servers: Sequence[str] = ()) -> work.Figures:
    """Medians over SESSIONS of our server. The first session does not count: the server loads what it needs then.

    `servers`: names of MCP servers of the person's OpenCode configuration.
    """
    with place_and_model() as (place, model):
        configure(place, {"mcp": {name: {"type": "local", "command": [sys.executable, str(MCP_SERVER)]} for name in servers}})
        server = Shim(place, agent=agent, model=model, is_fork=False, SHIM_SPARE_AGENTS="1" if has_spare else "0")
        stream = Stream(server.port)
        try:
            api = Api(server.url, place.project)
            wait_for(lambda: _models(api, server.provider), SPARE_S, f"{agent} does not tell its models")
            rows: list[tuple[float, float]] = []
            sizes: list[int] = []
            for _ in range(SESSIONS + 1):
                if has_spare and rows:
                    wait_for(lambda: spares(server.port) == 1, SPARE_S, "no spare agent")
                    time.sleep(PREPARE_MS / 1000)
                    wait_for(lambda: is_at_rest(*pids(server)), SPARE_S, "the spare agent does not come to rest")
                    sizes.append(memory_below(*pids(server)))
                session = api.session()
                rows.append((prompt_server(api, stream, session), prompt_server(api, stream, session)))
                api.call("DELETE", f"/session/{session}")
            require_tools(model, servers)
            return {**_medians(rows[1:]), **({"spare_bytes": median(sizes)} if sizes else {})}
        finally:
            stream.close()
            server.close()


def beside_alone(servers: Sequence[str]) -> tuple[work.Figures, work.Figures]:
    """Claude Code with MCP servers behind our server, and alone: medians over SETUP_SESSIONS, one after the other in turn."""
    with place_and_model() as (place, model), place_and_model() as (other, others_model):
        local = {"type": "local", "command": [sys.executable, str(MCP_SERVER)]}
        configure(place, {"mcp": dict.fromkeys(servers, local)})
        environ = _claude_alone(other, others_model, servers)
        server = Shim(place, agent="claude", model=model, is_fork=False, SHIM_SPARE_AGENTS="0")
        stream = Stream(server.port)
        try:
            api = Api(server.url, place.project)
            wait_for(lambda: _models(api, server.provider), SPARE_S, "claude does not tell its models")
            ours: list[float] = []
            alone_: list[float] = []
            for _ in range(SETUP_SESSIONS + 1):
                session = api.session()
                ours.append(prompt_server(api, stream, session))
                api.call("DELETE", f"/session/{session}")
                alone_.append(asyncio.run(_alone("claude", environ, other.project, 1))[0][0])
            require_tools(model, servers)
            require_tools(others_model, servers)
            return {"first_s": median(ours[1:])}, {"first_s": median(alone_[1:])}
        finally:
            stream.close()
            server.close()


def _claude_alone(place: Place, model: Model, servers: Sequence[str]) -> dict[str, str]:
    """The environment of Claude Code with MCP servers of its own settings."""
    environ = place.env(**agents_environment(place, model.url, ("claude",)))
    local = {"type": "stdio", "command": sys.executable, "args": [str(MCP_SERVER)]}
    (place.home / ".claude").mkdir(exist_ok=True)
    (place.home / ".claude" / ".claude.json").write_text(json.dumps({"mcpServers": dict.fromkeys(servers, local)}))
    return environ


def require_tools(model: Model, servers: Sequence[str]) -> None:
    """Raises RuntimeError if the model was asked without a tool of one of these MCP servers."""
    offers = [json.dumps(tools) for request in model.requests() if (tools := request["body"].get("tools"))]  # not for titles
    for tools in offers:
        if missing := [name for name in servers if f"mcp__{name}__echo" not in tools]:
            raise RuntimeError(f"the model was asked without the tools of {', '.join(missing)}")


def pids(server: Shim) -> list[int]:
    """Of a server, and of the holders of its agents."""
    return [server.child.pid, *holders_in(server.place.home / "data")]


def is_at_rest(*pids: int) -> bool:
    """Whether the processes below these take no processor for a while: a spare agent has initialised itself then."""

    def cpu_s() -> float:
        return sum(usage(child).cpu_s for pid in pids for child in processes_below(pid))

    try:
        before = cpu_s()
        time.sleep(work.SETTLE_S)
        return cpu_s() - before < AT_REST_S
    except (FileNotFoundError, ProcessLookupError):  # one of them has just ended
        return False


def processes_below(pid: int) -> list[int]:
    """All descendants of a process."""
    return [below for child in children_of(pid) for below in (child, *processes_below(child))]


def memory_below(*pids: int) -> int:
    """Bytes that the processes below these take, each shared page counted in part."""
    rollups = (Path(f"/proc/{child}/smaps_rollup").read_text() for pid in pids for child in processes_below(pid))
    return sum(int(line.split()[1]) * 1024 for text in rollups for line in text.splitlines() if line.startswith("Pss:"))


def behind_native() -> work.Figures:
    """The same of native OpenCode, which has no agent to start."""
    with place_and_model() as (place, model):
        server = Native(place, model)
        stream = Stream(server.port)
        try:
            api = Api(server.url, place.project)
            rows: list[tuple[float, float]] = []
            for _ in range(SESSIONS + 1):
                session = api.session()
                rows.append((prompt_server(api, stream, session), prompt_server(api, stream, session)))
            return _medians(rows[1:])
        finally:
            stream.close()
            server.close()


def alone(agent: str) -> work.Figures:
    """The same of the agent's own program: from its start, and from the second prompt, to the first word on its stdout."""
    with place_and_model() as (place, model):
        environ = place.env(**agents_environment(place, model.url, (agent,)))
        rows = asyncio.run(_alone(AGENTS[agent].provider, environ, place.project, SESSIONS + 1))
        return _medians(rows[1:])


async def _alone(provider: str, environ: dict[str, str], project: Path, processes: int) -> list[tuple[float, float]]:
    clock, store = SystemClock(), MemoryStore()
    await store.open()
    directory = AgentDirectory(
        {provider: agents()[provider]}, clock=clock, ids=Ids(clock), store=store, environ=environ, is_root=None
    )
    await directory.start()
    await directory.settle()
    try:
        return [await _one_process(directory, provider, str(project)) for _ in range(processes)]
    finally:
        await directory.close()


class _Driver:
    """Runs a codec over its process and notes the first word of each turn."""

    def __init__(self, codec: Codec) -> None:
        self.codec = codec
        self.handle: AgentHandle | None = None
        self.first_s = 0.0
        self.over = asyncio.Event()

    def carry_out(self, outputs: list[Output]) -> None:
        for output in outputs:
            if isinstance(output, WriteLine) and self.handle is not None:
                self.handle.write(output.data)
            elif isinstance(output, Fact) and output.type is EventType.ITEM_DELTA and not self.first_s:
                self.first_s = time.monotonic()
            elif isinstance(output, Signal) and output.input in (Input.DONE, Input.FAILED):
                self.over.set()

    def on_lines(self, lines: list[bytes]) -> None:
        for line in lines:
            self.carry_out(self.codec.receive(line))

    def on_exit(self, _exit: Exit) -> None:
        self.over.set()

    async def prompt(self, key: str) -> float:
        """The time of the first word. Raises TimeoutError, RuntimeError."""
        self.first_s = 0.0
        self.over.clear()
        self.carry_out(self.codec.send(Prompt(key, PROMPT)))
        async with asyncio.timeout(TURN_S):
            await self.over.wait()
        if not self.first_s:
            raise RuntimeError("the agent said no word")
        return self.first_s


async def _one_process(directory: AgentDirectory, provider: str, project: str) -> tuple[float, float]:
    agent = directory.get(provider)
    assert agent is not None
    driver = _Driver(agent.spec.make(Ids(SystemClock()).new))
    began = time.monotonic()
    driver.handle = await directory.spawn(agent, LaunchOptions("", project), driver.codec, driver.on_lines, driver.on_exit)
    try:
        driver.carry_out(driver.codec.start())
        first = await driver.prompt("itm_1") - began
        again = time.monotonic()
        return first, await driver.prompt("itm_2") - again
    finally:
        await driver.handle.stop()


def _models(api: Api, provider: str) -> bool:
    return any(row["id"] == provider and row["models"] for row in api.get("/provider")["all"])


def _medians(rows: list[tuple[float, float]]) -> work.Figures:
    return {"first_s": median(first for first, _ in rows), "second_s": median(second for _, second in rows)}
