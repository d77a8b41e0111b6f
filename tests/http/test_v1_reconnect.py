"""Streams of `/v1` that are cut at random points, 1,000 times: each event once, in order; with raw and without.

Some are far behind, some begin where a turn is just beginning and what they get is live.
"""

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
LIVE = RUNS // 10
"""So many of the streams, at least, must have had live events."""
MOST = 30
BURST = 80
"""Events of one connection: fewer than MOST, or as many as a turn has at least, to be there when they are made."""
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


@pytest.mark.nightly
@pytest.mark.timeout(240)
async def test_a_thousand_reconnects_while_turns_run(tmp_path: Path) -> None:
    dice = random.Random(SEED)
    async with face(tmp_path) as v1:
        await v1.session()

        talking: asyncio.Future[Any] | None = None
        seen: list[dict[str, Any]] = []
        live = 0
        for _ in range(RUNS):
            after = seen[-1]["sequence"] if seen else 0
            end = await _end(v1)
            if end - after < BURST:
                if talking is not None:
                    await talking  # else it might be over before all that is wanted has come
                talking = asyncio.ensure_future(v1.say("s", dice.choice([f"burst {BURST}", "burst 300"])))
            most = dice.choice([dice.randrange(1, MOST), BURST])
            got = await _cut_stream(v1, after, most, raw=dice.random() < 0.5, header=dice.random() < 0.5)
            assert [event["sequence"] for event in got] == list(range(after + 1, after + len(got) + 1))
            assert len(got) == most
            live += got[-1]["sequence"] > end
            seen += got
        assert live > LIVE
        assert talking is not None
        await talking
        whole: list[dict[str, Any]] = []
        while len(whole) < len(seen):
            whole += (await v1.call("get_events", session_id="s", offset=len(whole), include_raw=True))["events"]
        for event in seen:
            assert {**event, "raw": None} == {**whole[event["sequence"] - 1], "raw": None}
            assert event["raw"] in (None, whole[event["sequence"] - 1]["raw"])


async def _end(v1: Face) -> int:
    return int((await v1.call("list_sessions"))["sessions"][0]["eventCount"])
