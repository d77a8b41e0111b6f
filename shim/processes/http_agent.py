"""Runs an agent that is an HTTP server (`opencode serve`) behind the handle of a process that speaks lines.

    HttpAgent.spawn    starts the process (`AgentProcess`, so its family ends with it) on a free port, with a random password
    _serve             waits until it listens, opens its event stream (`LaunchSpec.events`), then makes the queued requests
    event              `data: {...}` of the stream      -> line {"event": {...}}
    request            line {"id", "method", "path", "body"?} -> HTTP -> line {"id", "status", "body"}

Requests start in the order of `write`, and none before the stream's first event. That event says that the agent has subscribed
us, so no event is missed. Requests run concurrently, since some are answered only at the end of a turn. When the stream ends,
events would be missed, so the process is ended too, and the next prompt starts it again. The process cannot outlive us: a shell
waits at the other end of its stdin, which we hold, and ends it when stdin closes.

    python -P -m shim.processes.http_agent EVENTS ARGV...

The same as a program of its own, which speaks the lines on stdin and stdout (`bridge`). On a holder it outlives the server, with
the stream and all requests: a tape has what came meanwhile, and no port or password.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import secrets
import signal
import socket
import sys
from collections.abc import Awaitable, Mapping
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path

import aiohttp
import structlog

from shim.lib.errors import AgentError, AgentGone, AgentNotFound, AgentStuck
from shim.lib.tasks import end_tasks, keep, wait_at_most
from shim.processes.agent_pipes import AgentProcess, OnExit, OnLines
from universal.items import Json
from universal.launch import Exit, LaunchSpec
from universal.lib.framing import FrameError, LineFramer
from universal.lib.jsonvalue import obj, text

START_S = 60.0
"""Seconds for the server to listen. It took 1 to 5 s, and more at the first start in a home on a busy machine."""
NOT_READY_S = 0.25
"""Seconds between attempts to open the stream of a server that answers 503 because it still starts (OpenCode 2)."""
FIRST_EVENT_S = 30.0
"""Seconds for the stream's first event. OpenCode writes `server.connected` together with the headers."""
LAST_EVENTS_S = 1.0
"""Seconds to read events that are still in the socket after the end of the process."""
REQUESTS = 256
"""Maximum number of requests that wait or run."""
USER = "opencode"
PASSWORDS = ("OPENCODE_SERVER_PASSWORD", "OPENCODE_PASSWORD", "KILO_SERVER_PASSWORD")
"""Variables of the password. OpenCode 2 may prefer the second, which the person may have set for a server of their own.

The third is that of Kilo, a fork.
"""
KEEPER = 'exec 3<&0; "$@" </dev/null 3<&- & child=$!; exec >/dev/null 2>&1; trap "" TERM; cat <&3; kill -TERM 0; wait "$child"'
"""`sh -c KEEPER sh ARGV...` runs ARGV until stdin closes, then ends its group.

The shell closes its own stdout, so that we see the end of a child that exits by itself.
"""
LISTENING = re.compile(rb"listening on (https?://\S+)")

log = structlog.get_logger(__name__)


class HttpAgent:
    """A running HTTP agent; implements `AgentHandle`. Create it with `spawn`."""

    def __init__(self, on_lines: OnLines, on_exit: OnExit, password: str, events: str, name: str) -> None:
        self._on_lines = on_lines
        self._on_exit = on_exit
        self._headers = {"Authorization": "Basic " + base64.b64encode(f"{USER}:{password}".encode()).decode()}
        self._events_path = events
        self._name = name
        self._process: AgentProcess | None = None
        self._url: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._queue: asyncio.Queue[bytes] = asyncio.Queue()
        self._calls: set[asyncio.Task[None]] = set()
        self._stream: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None
        self._ended = asyncio.Event()
        self._trouble = ""

    @classmethod
    async def spawn(cls, spec: LaunchSpec, env: Mapping[str, str], *, on_lines: OnLines, on_exit: OnExit, name: str) -> HttpAgent:
        """Start the agent with the arguments of `AgentProcess.spawn`. It adds `--port` to argv and a password to the environment.

        Returns at once; requests wait until the server listens. Raises AgentNotFound, AgentStartFailed.
        """
        password = secrets.token_urlsafe(24)
        self = cls(on_lines, on_exit, password, spec.events, name)
        argv = ("/bin/sh", "-c", KEEPER, "sh", *spec.argv, "--port", str(free_port()))
        launch = replace(spec, argv=argv, env={**spec.env, **dict.fromkeys(PASSWORDS, password)})
        _check_program(spec)
        self._process = await AgentProcess.spawn(launch, env, on_lines=self._on_stdout, on_exit=self._on_process_exit, name=name)
        self._stream = asyncio.create_task(self._serve(), name=f"{name} {self._process.pid}: http")
        return self

    # --- from the session ------------------------------------------------------------------------------

    @property
    def pid(self) -> int | None:
        """Id of the process and of its group."""
        return self._process.pid if self._process is not None else None

    @property
    def alive(self) -> bool:
        """True while requests can be made."""
        return self._process is not None and self._process.alive and self._ending is None

    @property
    def stderr(self) -> str:
        """The beginning and the end of its stderr so far."""
        return self._process.stderr if self._process is not None else ""

    def write(self, data: bytes) -> None:
        """Queue a request line. Raises AgentGone, AgentStuck."""
        if not self.alive:
            raise AgentGone("The agent's server has ended; the next prompt starts it again.")
        if self._queue.qsize() + len(self._calls) >= REQUESTS:
            raise AgentStuck(f"The agent's server does not answer: {REQUESTS} requests wait for it.")
        self._queue.put_nowait(data)

    def interrupt(self) -> None:
        """Do nothing. A request interrupts an HTTP agent; a signal would end it."""

    def kill(self) -> None:
        """Send SIGKILL to the process and its group. `on_exit` follows."""
        if self._process is not None:
            self._process.kill()

    async def stop(self) -> None:
        """Stop the process with the ladder of `shim.processes.agent_pipes`. Returns after `on_exit` was called."""
        if self._process is not None:
            await self._process.stop()
            await self._ended.wait()

    # --- the process -----------------------------------------------------------------------------------

    def _on_stdout(self, lines: list[bytes]) -> None:
        """Find the server's address in its stdout. The other lines are for people."""
        for line in lines:
            match = LISTENING.search(line)
            if match and not self._url.done():
                self._url.set_result(match[1].decode())

    def _on_process_exit(self, exit_: Exit) -> None:
        self._ending = asyncio.get_running_loop().create_task(self._end(exit_), name=f"{self._name}: end")

    async def _end(self, exit_: Exit) -> None:
        """Deliver the last events, then report the exit."""
        try:
            if self._stream is not None and self._url.done():
                await asyncio.wait({self._stream}, timeout=LAST_EVENTS_S)
            await end_tasks(self._stream, *self._calls)
            self._url.cancel()
        finally:
            stderr = "\n".join(filter(None, (exit_.stderr, self._trouble)))
            try:
                self._on_exit(replace(exit_, stderr=stderr))
            finally:
                self._ended.set()

    # --- http --------------------------------------------------------------------------------------------

    async def _serve(self) -> None:
        """Open the stream and make the requests until the stream ends."""
        try:
            async with asyncio.timeout(START_S):
                url = await asyncio.shield(self._url)
            timeout = aiohttp.ClientTimeout(total=None, sock_connect=START_S)
            async with (
                aiohttp.ClientSession(headers=self._headers, timeout=timeout) as http,
                await self._open_stream(http, url) as stream,
            ):
                connected = asyncio.Event()
                requests = asyncio.create_task(self._requests(http, url, connected), name=f"{self._name}: requests")
                try:
                    await self._events(stream, connected)
                finally:
                    await end_tasks(requests)  # it makes no more calls
                    await end_tasks(*self._calls)
            self._trouble = "The agent's event stream has ended."
        except TimeoutError:
            self._trouble = f"The agent's server did not listen, or was not ready, within {START_S:.0f} s."
        except aiohttp.ClientError as error:
            self._trouble = f"The agent's event stream broke: {error}"
        except Exception as error:  # a fault in a codec ends its agent, not the server
            log.exception("agent.lines_failed", agent=self._name)
            self._trouble = str(error)
        if self._process is not None:  # not killed, so that an agent that died by itself can report its exit code
            await self._process.stop()

    async def _open_stream(self, http: aiohttp.ClientSession, url: str) -> aiohttp.ClientResponse:
        """Return the open event stream. Raises ClientResponseError, and TimeoutError for a server that never gets ready."""
        async with asyncio.timeout(START_S):
            while True:
                stream = await http.get(url + self._events_path, headers={"accept": "text/event-stream"})
                if stream.status != HTTPStatus.SERVICE_UNAVAILABLE:
                    stream.raise_for_status()
                    return stream
                stream.close()
                await asyncio.sleep(NOT_READY_S)

    async def _events(self, stream: aiohttp.ClientResponse, connected: asyncio.Event) -> None:
        """Deliver the stream's events until it ends. `connected` is set after the first one."""
        framer = LineFramer()
        async for chunk in stream.content.iter_any():
            lines: list[bytes] = []
            for framed in framer.push(chunk):
                if isinstance(framed, FrameError):
                    log.warning("agent.line_dropped", agent=self._name, size_bytes=framed.size_bytes)
                    lines.append(framed.stand_in())
                elif framed.startswith(b"data:"):
                    lines.append(b'{"event":' + framed.removeprefix(b"data:").strip() + b"}")
            await self._deliver(lines)
            if lines:
                connected.set()

    async def _deliver(self, lines: list[bytes]) -> None:
        if not lines:
            return
        pending: Awaitable[None] | None = self._on_lines(lines)
        if pending is not None:
            await pending

    async def _requests(self, http: aiohttp.ClientSession, url: str, connected: asyncio.Event) -> None:
        await wait_at_most(connected.wait(), FIRST_EVENT_S)  # a server without a first event may still answer requests
        while True:
            line = await self._queue.get()
            request = self._request(http, url, obj(json.loads(line)))
            keep(asyncio.create_task(request, name=f"{self._name}: request"), self._calls)

    async def _request(self, http: aiohttp.ClientSession, url: str, request: dict[str, Json]) -> None:
        answer: dict[str, Json] = {"id": request.get("id"), "status": 0, "body": None}
        body = request.get("body")
        try:
            async with http.request(text(request.get("method"), "GET"), url + text(request.get("path")), json=body) as response:
                answer["status"] = response.status
                answer["body"] = _body(await response.read())
        except (aiohttp.ClientError, TimeoutError) as error:
            answer["body"] = {"message": str(error) or type(error).__name__}
        try:
            await self._deliver([json.dumps(answer, ensure_ascii=False).encode()])
        except Exception:  # a fault in a codec ends its agent, not the server
            log.exception("agent.lines_failed", agent=self._name)
            self.kill()


def _check_program(spec: LaunchSpec) -> None:
    if not os.access(spec.argv[0], os.X_OK):
        raise AgentNotFound(f"The agent's program does not exist, or may not be run: {spec.argv[0]}.")


def _body(data: bytes) -> Json:
    """Return the decoded JSON of a body, a message with its text if it is no JSON, or None if it is empty."""
    if not data:
        return None
    try:
        return json.loads(data)
    except ValueError:
        return {"message": data[:500].decode("utf-8", "replace")}


def free_port() -> int:
    """Return a free port. With `--port 0` OpenCode would try 4096 first, which is our own port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


# --- a program of its own -------------------------------------------------------------------------------------------


def with_bridge(spec: LaunchSpec) -> LaunchSpec:
    """The agent behind a program that speaks its lines, for a holder. Raises AgentNotFound."""
    _check_program(spec)
    return replace(spec, argv=(sys.executable, "-P", "-m", __name__, spec.events, *spec.argv))


class _Stdin(asyncio.Protocol):
    """Gives lines to an agent, and ends it at the end of stdin."""

    def __init__(self, agent: HttpAgent) -> None:
        self._agent = agent
        self._framer = LineFramer()
        self._end: asyncio.Task[None] | None = None

    def data_received(self, data: bytes) -> None:
        try:
            for line in self._framer.push(data):
                if isinstance(line, bytes):
                    self._agent.write(line)
        except AgentError as error:
            sys.stderr.write(f"{error}\n")
            self._agent.kill()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end = asyncio.create_task(self._agent.stop())


async def bridge(events: str, *argv: str) -> Exit:
    """Run an agent with its lines on stdin and stdout, until stdin ends or the agent exits."""
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, lambda: None)  # as `HttpAgent.interrupt`
    stdout = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what is printed here is no line
    exit_: asyncio.Future[Exit] = loop.create_future()

    def on_lines(lines: list[bytes]) -> None:
        stdout.write(b"".join(line + b"\n" for line in lines))
        stdout.flush()

    spec = LaunchSpec(argv, str(Path.cwd()), events=events)
    agent = await HttpAgent.spawn(spec, os.environ, on_lines=on_lines, on_exit=exit_.set_result, name="agent")
    stdin, _ = await loop.connect_read_pipe(lambda: _Stdin(agent), sys.stdin)
    try:
        return await exit_
    finally:
        stdin.close()


if __name__ == "__main__":
    exit_ = asyncio.run(bridge(*sys.argv[1:]))
    sys.stderr.write(f"{exit_.stderr}\n")
    sys.exit(128 + (exit_.signal or 0) if exit_.code is None else exit_.code)
