"""`opencode-shim acp`: an agent of the Agent Client Protocol on stdin and stdout, for the settings of editors.

It carries the editor's lines to `/acp` of a server, and back. The server has the sessions: on a running one they go on when the
editor leaves. Stdout has nothing but messages; errors and the log go to stderr.
"""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import suppress

from aiohttp import ClientError, ClientSession, ClientTimeout, ClientWebSocketResponse, WSMsgType, WSServerHandshakeError

from shim.cli.local_server import authorization, trust
from shim.cli.serve_command import with_server
from shim.lib.errors import ShimError
from shim.lib.settings import Settings

LINE_BYTES = 64 * 2**20
"""Maximum size of a message, in both directions: that of a body."""
CONNECT_S = 30.0
"""Seconds for the server to accept the connection."""
PING_S = 30.0
"""Seconds between pings. A server that does not answer counts as gone."""
UNAUTHORIZED = 401


def run(settings: Settings, url: str | None) -> int:
    """Serve the editor until it closes stdin. Uses the server at `url`, the one on the data directory, or starts one.

    Raises ShimError if there is no connection.
    """
    return with_server(settings, url, lambda at: _carry(settings, at))


async def _carry(settings: Settings, url: str) -> int:
    timeout = ClientTimeout(total=None, connect=CONNECT_S)
    try:
        async with (
            ClientSession(timeout=timeout, headers=authorization(settings)) as client,
            asyncio.timeout(CONNECT_S) as limit,
            client.ws_connect(f"{url}/acp", ssl=trust(url), max_msg_size=LINE_BYTES, heartbeat=PING_S) as socket,
        ):
            limit.reschedule(None)
            left = asyncio.Event()
            sending = asyncio.create_task(_send_lines(socket, left), name="acp stdin")
            try:
                return await _write_lines(socket, left)
            finally:
                sending.cancel()
                with suppress(asyncio.CancelledError):
                    await sending
    except WSServerHandshakeError as error:
        why = "Set its password in OPENCODE_SERVER_PASSWORD." if error.status == UNAUTHORIZED else f"status {error.status}."
        raise ShimError(f"The server at {url} refused the connection: {why}") from error
    except (ClientError, TimeoutError, OSError) as error:
        raise ShimError(f"The server at {url} does not answer: {error or 'no answer in time'}.") from error


async def _send_lines(socket: ClientWebSocketResponse, left: asyncio.Event) -> None:
    """Send each line of stdin as a message. At its end, set `left`, and close."""
    reader = asyncio.StreamReader(limit=LINE_BYTES)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    with suppress(ValueError, ConnectionError):  # a line that is too long ends the connection
        async for line in reader:
            if text := line.strip():
                await socket.send_str(text.decode("utf-8", "replace"))
    left.set()
    await socket.close()


async def _write_lines(socket: ClientWebSocketResponse, left: asyncio.Event) -> int:
    """Write each message as a line, until one side ends. Returns 1 if the server has ended the connection."""
    output = sys.stdout.buffer
    async for message in socket:
        if message.type is WSMsgType.TEXT:
            line = message.data.encode() + b"\n"
            try:
                await asyncio.to_thread(_write, output.fileno(), line)
            except BrokenPipeError:
                return 0
    if left.is_set():
        return 0
    sys.stderr.write("The server has ended the connection.\n")
    return 1


def _write(descriptor: int, line: bytes) -> None:
    """Write all of a line. Blocking: an editor that does not read holds up the messages, and the server cuts it off."""
    while line:
        line = line[os.write(descriptor, line) :]
