"""A JSON list that is too long to be written at once: it is sent piece by piece, and others have their turn between them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from aiohttp import web

from shim.http import wire_json

PIECE = 100
"""Elements that are read and written at once: messages have some KB each, so this takes a millisecond or two."""

T = TypeVar("T")


async def send(
    request: web.Request, found: Sequence[T], wire: Callable[[T], object], headers: Mapping[str, str]
) -> web.StreamResponse:
    """200 with `[wire(one), ...]`, each read when its piece is sent. Waits for a client that reads slowly; memory is a piece.

    Raises: ConnectionError when the client has gone.
    """
    response = web.StreamResponse(headers={"Content-Type": "application/json", **headers})
    if request.method == "HEAD":
        return response
    response.enable_compression()
    await response.prepare(request)
    between = b"["
    for at in range(0, len(found), PIECE):
        await response.write(between + wire_json.dumps([wire(one) for one in found[at : at + PIECE]])[1:-1])
        between = b","
        await asyncio.sleep(0)  # a client that reads fast never makes `write` wait
    await response.write(b"]")
    await response.write_eof()
    return response
