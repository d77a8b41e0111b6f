"""An aiohttp application that runs without sockets, threads and real time, one step at a time.

    with VirtualServer(app) as server:
        stream = server.open("GET", "/event")
        answer = server.request("POST", "/session", {})
        stream.events()

Each call runs the event loop until nothing is left to do, so what happens depends on the input alone. Work that the
application gives to a thread runs at once; its waits of up to `STEP_S` end without waiting.
"""

from __future__ import annotations

import asyncio
import json
import selectors
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from aiohttp import web

STEP_S = 0.1
"""Virtual seconds that one step may let pass: longer than a stream gathers its frames, shorter than a heartbeat."""
ANSWER_S = 5.0
"""Virtual seconds for an answer that is held back (`shim.faces.opencode2.services`)."""
LIFE_S = 300.0
"""Virtual seconds for the start or the end of the application."""


class _Selector(selectors.DefaultSelector):
    """Never blocks: where the loop would wait, the virtual time goes on or the step ends."""

    loop: VirtualLoop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready and timeout != 0:
            self.loop.rest(timeout)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop whose time goes on only when it has nothing to do."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self._left_s = 0.0
        selector = _Selector()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        return self.now_s

    def rest(self, timeout_s: float | None) -> None:
        """Nothing is ready: let the next timer come if this step may wait for it, else end the step."""
        if timeout_s is not None and timeout_s <= self._left_s:
            self._left_s -= timeout_s
            self.now_s += timeout_s + 1e-9
        else:
            self.stop()

    def settle(self, step_s: float = STEP_S) -> None:
        """Run until nothing is left to do. In: the virtual seconds that may pass."""
        self._left_s = step_s
        self.run_forever()

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        """Run it now, as if no loop ran: a thread would come back at another moment in each run."""
        future = self.create_future()
        asyncio._set_running_loop(None)
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        finally:
            asyncio._set_running_loop(self)
        return future


class _Transport(asyncio.Transport):
    """The server's end of a connection: what it writes is collected."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 50000), "sockname": ("127.0.0.1", 4096)})
        self.written = bytearray()
        self.protocol: Any = None
        self._closed = False

    def write(self, data: Any) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return self._closed

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            asyncio.get_event_loop().call_soon(self.protocol.connection_lost, None)

    abort = close

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def is_reading(self) -> bool:
        return True

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...


@dataclass(frozen=True, slots=True)
class Response:
    """The answer to one request; status 0 if none has come."""

    status: int
    body: Any


@dataclass(slots=True)
class Connection:
    """One request and what has come back so far."""

    protocol: Any
    transport: _Transport = field(default_factory=_Transport)

    def body(self) -> tuple[int, bytes]:
        """Status and body, as far as they are here."""
        head, blank, rest = bytes(self.transport.written).partition(b"\r\n\r\n")
        if not blank:
            return 0, b""
        lines = head.decode("latin-1").split("\r\n")
        status = int(lines[0].split()[1])
        chunked = any(line.lower() == "transfer-encoding: chunked" for line in lines)
        return status, _join_chunks(rest) if chunked else rest

    def response(self) -> Response:
        """Status and parsed body."""
        status, body = self.body()
        try:
            return Response(status, json.loads(body) if body else None)
        except ValueError:
            return Response(status, body.decode("utf-8", "replace"))

    def events(self) -> list[Any]:
        """The events of a stream, parsed."""
        status, body = self.body()
        if status != 200:
            return [{"status": status, "body": body.decode("utf-8", "replace")}]
        found: list[Any] = []
        for block in body.decode().split("\n\n"):
            data = "\n".join(line[5:].removeprefix(" ") for line in block.split("\n") if line.startswith("data:"))
            if data:
                found.append(json.loads(data))
        return found


def _join_chunks(chunks: bytes) -> bytes:
    """The body in chunks; a chunk that is not complete yet is left out."""
    joined = bytearray()
    while True:
        size, blank, rest = chunks.partition(b"\r\n")
        if not blank or len(rest) < (length := int(size, 16)) or length == 0:
            return bytes(joined)
        joined += rest[:length]
        chunks = rest[length + 2 :]


class VirtualServer:
    """A started application. In: `make`, builds it in the running loop."""

    def __init__(self, make: Callable[[], web.Application], loop: VirtualLoop) -> None:
        self._make = make
        self.loop = loop

    def __enter__(self) -> VirtualServer:
        async def start() -> web.AppRunner:
            runner = web.AppRunner(self._make(), handle_signals=False, access_log=None)
            await runner.setup()
            return runner

        self._runner = self.run(start())
        self.loop.settle()
        return self

    def __exit__(self, *_: object) -> None:
        self.run(self._runner.cleanup())

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Do this to its end. Raises TimeoutError if it waits for something that does not come."""
        task = self.loop.create_task(work)
        task.add_done_callback(lambda _: self.loop.stop())
        self.loop.settle(LIFE_S)
        if not task.done():
            raise TimeoutError(f"{work} waits for something that does not come")
        return task.result()

    def open(self, method: str, path: str, body: Any = None, **query: str) -> Connection:
        """Send a request and let the server work; its answer may be not complete yet."""
        target = f"{path}?{urlencode(query)}" if query else path
        data = b"" if body is None else json.dumps(body).encode()
        head = [f"{method} {target} HTTP/1.1", "Host: 127.0.0.1:4096", f"Content-Length: {len(data)}"]
        if body is not None:
            head.append("Content-Type: application/json")
        connection = Connection(self._runner.server())
        connection.transport.protocol = connection.protocol
        connection.protocol.connection_made(connection.transport)
        connection.protocol.data_received("\r\n".join([*head, "", ""]).encode() + data)
        self.loop.settle()
        return connection

    def request(self, method: str, path: str, body: Any = None, **query: str) -> Response:
        """Send a request and read its answer; one that the server holds back is waited for."""
        connection = self.open(method, path, body, **query)
        if not connection.transport.written:
            self.loop.settle(ANSWER_S)
        return connection.response()

    def get(self, path: str, **query: str) -> Response:
        """GET."""
        return self.request("GET", path, **query)
