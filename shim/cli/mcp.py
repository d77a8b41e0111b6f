"""`opencode-shim mcp`: the server's `/mcp` for a program that speaks the Model Context Protocol over stdin and stdout.

Each line is one message. It goes to the server as it is, and so do its answers to the program.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

from aiohttp import ClientError, ClientResponse, ClientSession, ClientTimeout

from shim.cli.local_server import authorization, trust
from shim.lib.errors import ShimError
from shim.lib.settings import Settings
from shim.lib.tasks import end_tasks
from shim.processes.child_environment import MARK
from universal.lib.jsonvalue import obj, text

LINE_BYTES = 8 * 2**20
"""Maximum bytes of a line in either direction."""
CHUNK_BYTES = 2**16
CALLS_LIMIT = 64
"""Calls that are under way at once. The next line is read when one has ended."""
CONNECT_S, READ_S = 10.0, 60.0
"""Seconds to reach the server, and without a sign of life of it."""
SESSION = "Mcp-Session-Id"
INSIDE = (
    "This program was started by an agent that runs behind opencode-shim. With a person's rights here it could answer its own "
    "permissions. Start the server with --mcp: its agents have these tools then, with the rights of their sessions."
)


async def serve(settings: Settings, url: str) -> int:
    """Pass messages on until stdin ends. Raises ShimError within an agent of a server."""
    if os.environ.get(MARK):
        raise ShimError(INSIDE)
    timeout = ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=READ_S)
    async with ClientSession(headers=authorization(settings), timeout=timeout, read_bufsize=LINE_BYTES) as client:
        bridge = _Bridge(client, f"{url.rstrip('/')}/mcp")
        async for line in _lines():
            await bridge.take(line)
        await bridge.close()
    return 0


async def _lines() -> AsyncIterator[bytes]:
    """The lines of stdin, which may be a pipe, a file or a terminal. Raises ShimError for one that is too long."""
    loop, chunks = asyncio.get_running_loop(), asyncio.Queue[bytes](maxsize=1)

    def read() -> None:  # in a thread that nobody waits for at the end: a read cannot be ended
        with suppress(RuntimeError, OSError):  # the loop is closed
            while True:
                data = os.read(0, CHUNK_BYTES)
                asyncio.run_coroutine_threadsafe(chunks.put(data), loop).result()
                if not data:
                    return

    threading.Thread(target=read, daemon=True, name="stdin").start()
    rest = b""
    while data := await chunks.get():
        *lines, rest = (rest + data).split(b"\n")
        for line in filter(bytes.strip, lines):
            yield line
        if len(rest) > LINE_BYTES:
            raise ShimError(f"A line on stdin has more than {LINE_BYTES} bytes, and no message of MCP is that long.")


class _Bridge:
    """One program's messages under way."""

    def __init__(self, client: ClientSession, url: str) -> None:
        self._client, self._url = client, url
        self._room = asyncio.Semaphore(CALLS_LIMIT)
        self._tasks: dict[object, asyncio.Task[None]] = {}
        self._headers = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}

    async def take(self, line: bytes) -> None:
        """Begin to pass a message on. Waits while too many are under way."""
        try:
            message = obj(json.loads(line))
        except ValueError:
            _write(_failure(None, -32700, "The line is not JSON."))
            return
        if message.get("method") == "notifications/cancelled":
            if (call := self._tasks.get(repr(obj(message.get("params")).get("requestId")))) is not None:
                call.cancel()  # the server sees that nobody listens
            return
        await self._room.acquire()
        key: object = repr(message["id"]) if "id" in message else object()
        task = self._tasks[key] = asyncio.create_task(self._pass_on(message, line), name="mcp message")
        task.add_done_callback(lambda done: self._end(key, done))
        if message.get("method") == "initialize":
            await asyncio.wait({task})  # its answer names the connection

    def _end(self, key: object, task: asyncio.Task[None]) -> None:
        self._room.release()
        if self._tasks.get(key) is task:
            del self._tasks[key]

    async def _pass_on(self, message: Any, line: bytes) -> None:
        try:
            async with self._client.post(self._url, data=line, headers=self._headers, ssl=trust(self._url)) as answer:
                await self._give_back(message.get("id"), answer)
        except (ClientError, TimeoutError, OSError, ValueError) as error:
            if "id" in message:
                _write(_failure(message["id"], -32000, f"The server at {self._url} does not answer: {error or 'timeout'}."))

    async def _give_back(self, id_: Any, answer: ClientResponse) -> None:
        if (name := answer.headers.get(SESSION)) is not None:
            self._headers[SESSION] = name
        if answer.content_type == "text/event-stream":
            async for line in answer.content:
                if line.startswith(b"data: "):
                    _write(line[6:].strip())
            return
        body = await answer.read()
        if not answer.ok and id_ is not None:
            _write(_failure(id_, -32000, _words(body) or f"The server answers with {answer.status}."))
        elif answer.content_type == "application/json":
            _write(body)

    async def close(self) -> None:
        await end_tasks(*self._tasks.values())


def _words(body: bytes) -> str:
    try:
        return text(obj(obj(json.loads(body)).get("error")).get("message"))
    except ValueError:
        return ""


def _failure(id_: Any, code: int, message: str) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": id_, "error": {"code": code, "message": message}}).encode()


def _write(line: bytes) -> None:
    """Write a line. A program that does not read makes this one wait, and with it the server, which cuts it off."""
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()
