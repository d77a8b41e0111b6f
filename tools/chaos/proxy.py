"""A wire between one node and the NATS servers that can be cut: a TCP proxy. A network namespace would need root."""

from __future__ import annotations

import asyncio
import socket
import struct
from asyncio import StreamReader, StreamWriter
from collections.abc import Sequence
from contextlib import suppress

CHUNK_BYTES = 64 * 2**10
RESET = struct.pack("ii", 1, 0)
"""Value of SO_LINGER with which a closed connection is reset."""
SLOW_S = 0.5
CONNECT_S = 5.0
"""Maximum seconds for a connection to a NATS server."""


class Wire:
    """A port of 127.0.0.1 for each target port.

    silence   nothing passes, but connections stay and can be made, as if packets were lost. What was sent meanwhile arrives later
    reset     connections are reset, and new ones too
    slow      bytes arrive SLOW_S later
    """

    def __init__(self, targets: Sequence[int]) -> None:
        self._targets = tuple(targets)
        self._servers: list[asyncio.Server] = []
        self._writers: set[StreamWriter] = set()
        self._flows = asyncio.Event()
        self._flows.set()
        self._refuses = False
        self._delay_s = 0.0

    @property
    def ports(self) -> list[int]:
        """The ports, in the order of the targets."""
        return [int(server.sockets[0].getsockname()[1]) for server in self._servers]

    @property
    def url(self) -> str:
        """The NATS servers as a node names them."""
        return ",".join(f"nats://127.0.0.1:{port}" for port in self.ports)

    async def open(self) -> None:
        """Listen."""
        for target in self._targets:

            async def accept(reader: StreamReader, writer: StreamWriter, target: int = target) -> None:
                await self._connect(target, reader, writer)

            self._servers.append(await asyncio.start_server(accept, "127.0.0.1", 0))

    async def close(self) -> None:
        """End all connections."""
        for server in self._servers:
            server.close()
        self.reset()

    def silence(self) -> None:
        """Let nothing pass."""
        self._flows.clear()

    def reset(self) -> None:
        """Reset all connections, and those that are made from now on."""
        self._refuses = True
        for writer in tuple(self._writers):
            _reset(writer)

    def slow(self) -> None:
        """Let bytes arrive SLOW_S later."""
        self._delay_s = SLOW_S

    def mend(self) -> None:
        """End a cut or a slowness."""
        self._delay_s = 0.0
        self._refuses = False
        self._flows.set()

    async def _connect(self, target: int, reader: StreamReader, writer: StreamWriter) -> None:
        if self._refuses:
            _reset(writer)
            return
        self._writers.add(writer)
        try:
            async with asyncio.timeout(CONNECT_S):
                far_reader, far_writer = await asyncio.open_connection("127.0.0.1", target)
        except (OSError, TimeoutError):
            _reset(writer)
            self._writers.discard(writer)
            return
        self._writers.add(far_writer)
        try:
            await asyncio.gather(self._pass(reader, far_writer), self._pass(far_reader, writer))
        finally:
            self._writers -= {writer, far_writer}

    async def _pass(self, reader: StreamReader, writer: StreamWriter) -> None:
        """Pass bytes on in one direction until either side ends."""
        with suppress(OSError):
            while data := await reader.read(CHUNK_BYTES):
                await self._flows.wait()
                await asyncio.sleep(self._delay_s)
                writer.write(data)
                await writer.drain()
        with suppress(OSError):
            writer.close()


def _reset(writer: StreamWriter) -> None:
    connection = writer.get_extra_info("socket")
    if connection is not None:
        with suppress(OSError):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    writer.transport.abort()
