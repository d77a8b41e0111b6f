"""Sends a long JSON list in pieces, so that other requests get their turn between them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from aiohttp import web

from shim.http import wire_json

PIECE = 100
"""Elements that are encoded and written at once. With messages of some KB each this takes a millisecond or two."""

T = TypeVar("T")


async def send(
    request: web.Request,
    items: Sequence[T],
    wire: Callable[[Sequence[T]], Sequence[object]],
    headers: Mapping[str, str],
    *,
    prepare: Callable[[Sequence[T]], Awaitable[None]] | None = None,
) -> web.StreamResponse:
    """200 with what `wire` makes of `items`, piece by piece as it is sent. Waits for a client that reads slowly.

    In: `prepare`, called for each piece before `wire`: what has to be waited for.

    Raises: ConnectionError if the client disconnects.
    """
    response = web.StreamResponse(headers={"Content-Type": "application/json", **headers})
    if request.method == "HEAD":
        return response
    response.enable_compression()
    await response.prepare(request)
    between = b"["
    for at in range(0, len(items), PIECE):
        if prepare is not None:
            await prepare(items[at : at + PIECE])
        if piece := wire(items[at : at + PIECE]):
            await response.write(between + wire_json.dumps(piece)[1:-1])
            between = b","
        await asyncio.sleep(0)  # a client that reads fast never makes `write` wait
    await response.write(b"]")
    await response.write_eof()
    return response
