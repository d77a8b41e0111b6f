"""A stream with gzip over HTTP: a client that takes it reads the same events as one that does not, each in time."""

from __future__ import annotations

import asyncio
import json
import zlib
from pathlib import Path

import pytest
from aiohttp import ClientResponse

from tests.support.live import Live, live

WAIT_S = 10.0


async def until(response: ClientResponse, text: bytes) -> bytes:
    """The body so far, decompressed, once `text` is in it."""
    inflate, got = zlib.decompressobj(16 + zlib.MAX_WBITS), b""
    async with asyncio.timeout(WAIT_S):
        while text not in got:
            got += inflate.decompress(await response.content.readany())
    return got


async def open_stream(server: Live, accepts: str) -> ClientResponse:
    return await server.api.raw.get("/event", headers={"Accept-Encoding": accepts}, auto_decompress=False)


async def test_a_stream_can_be_compressed(tmp_path: Path) -> None:
    async with live(tmp_path, compress_streams="always") as server:
        session = await server.session()
        response = await open_stream(server, "gzip, deflate")
        assert response.headers["Content-Encoding"] == "gzip"
        assert b"server.connected" in await until(response, b"\n\n")
        await server.prompt(session, "burst 200")
        response.close()


@pytest.mark.parametrize(("accepts", "when"), [("gzip", "auto"), ("identity", "always"), ("gzip", "never")])
async def test_streams_are_plain_on_loopback_and_for_clients_without_gzip(tmp_path: Path, accepts: str, when: str) -> None:
    async with live(tmp_path, compress_streams=when) as server:
        response = await open_stream(server, accepts)
        assert "Content-Encoding" not in response.headers
        async with asyncio.timeout(WAIT_S):
            assert (await response.content.readuntil(b"\n")).startswith(b"id:")
        response.close()


async def test_compressed_a_turn_is_a_quarter_at_most(tmp_path: Path) -> None:
    async with live(tmp_path, compress_streams="always") as server:
        session = await server.session()
        response = await open_stream(server, "gzip")
        raw, inflate, got = 0, zlib.decompressobj(16 + zlib.MAX_WBITS), b""
        await server.prompt(session, "burst 500")
        async with asyncio.timeout(WAIT_S):
            while b'"session.idle"' not in got:
                piece = await response.content.readany()
                raw += len(piece)
                got += inflate.decompress(piece)
        deltas = [json.loads(line[6:])["properties"] for line in got.split(b"\n") if b'"message.part.delta"' in line]
        assert "".join(delta["delta"] for delta in deltas) == "".join(f"{number} " for number in range(1, 501))
        assert raw < len(got) / 4
        response.close()
