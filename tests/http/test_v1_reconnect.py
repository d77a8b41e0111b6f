"""Streams of `/v1` that are cut at random points, 1,000 times: each event once, in order; with raw and without."""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientResponse

from tests.support.universal import WAIT_S, Face, face

RUNS = 1_000
MOST = 30
"""Events of one connection, at most."""
SEED = 20260101


async def _read(response: ClientResponse, most: int) -> list[dict[str, Any]]:
    """Up to so many events, as bytes come; the last block may be cut anywhere."""
    got: list[dict[str, Any]] = []
    rest = b""
    async for chunk in response.content.iter_any():
        *blocks, rest = (rest + chunk).split(b"\n\n")
        for block in blocks:
            lines = block.split(b"\n")
            if lines[0].startswith(b"id: "):
                event = json.loads(lines[1].removeprefix(b"data: "))
                assert int(lines[0][4:]) == event["sequence"]
                got.append(event)
                if len(got) == most:
                    return got
    return got


async def _cut_stream(v1: Face, after: int, most: int, *, raw: bool, header: bool) -> list[dict[str, Any]]:
    headers = {"Last-Event-ID": str(after)} if header else {}
    params = {"include_raw": str(raw).lower(), **({} if header else {"offset": str(after)})}
    async with asyncio.timeout(WAIT_S):
        response = await v1.live.api.raw.get("/v1/sessions/s/events/sse", headers=headers, params=params)
        try:
            return await _read(response, most)
        finally:
            response.close()  # the connection is broken off, in the middle of whatever was on its way


@pytest.mark.timeout(240)
async def test_a_thousand_reconnects_while_turns_run(tmp_path: Path) -> None:
    dice = random.Random(SEED)
    async with face(tmp_path) as v1:
        await v1.session()

        talking: asyncio.Future[Any] = asyncio.ensure_future(v1.say("s", "burst 100"))
        seen: list[dict[str, Any]] = []
        for _ in range(RUNS):
            after = seen[-1]["sequence"] if seen else 0
            if talking.done() and await _end(v1) - after < MOST:
                talking = asyncio.ensure_future(v1.say("s", dice.choice(["burst 80", "burst 300"])))
            most = dice.randrange(1, MOST)
            got = await _cut_stream(v1, after, most, raw=dice.random() < 0.5, header=dice.random() < 0.5)
            assert [event["sequence"] for event in got] == list(range(after + 1, after + len(got) + 1))
            assert len(got) == most
            seen += got
        await talking
        whole: list[dict[str, Any]] = []
        while len(whole) < len(seen):
            whole += (await v1.call("get_events", session_id="s", offset=len(whole), include_raw=True))["events"]
        for event in seen:
            assert {**event, "raw": None} == {**whole[event["sequence"] - 1], "raw": None}
            assert event["raw"] in (None, whole[event["sequence"] - 1]["raw"])


async def _end(v1: Face) -> int:
    return int((await v1.call("list_sessions"))["sessions"][0]["eventCount"])
