"""Bounds of the server: each refuses with a 4xx that names it, and what was there before goes on."""

from __future__ import annotations

import asyncio
import zlib
from pathlib import Path
from typing import Any

import pytest

from shim.http import wire_json
from tests.support.live import TURN_S, Live, live, prompt_body


def limit_of(body: Any) -> tuple[str, int]:
    assert body["name"] == "LimitReachedError"
    assert f"{body['data']['limit']} = {body['data']['value']}" in body["data"]["message"]
    return body["data"]["limit"], body["data"]["value"]


async def test_sessions(tmp_path: Path) -> None:
    async with live(tmp_path, max_sessions=2) as server:
        first = await server.session()
        await server.session()
        for path, body in (("/session", {}), (f"/session/{first}/fork", {})):
            assert limit_of((await server.api.post(path, body, status=429)).body) == ("max_sessions", 2)
        assert await server.ask(first, "hello")
        await server.api.delete(f"/session/{first}", status=200)
        await server.session()


@pytest.mark.parametrize("path", ["/event", "/global/event"])
async def test_streams(tmp_path: Path, path: str) -> None:
    async with live(tmp_path, max_streams=1) as server:
        async with server.api.stream("/event") as events:
            await events.next()
            assert limit_of((await server.api.get(path, status=429)).body) == ("max_streams", 1)
        async with asyncio.timeout(TURN_S):
            # The server sees a moment later that the client has gone.
            while await is_rate_limited(server, path):
                await asyncio.sleep(0)


async def is_rate_limited(server: Live, path: str) -> bool:
    async with server.api.raw.get(path) as answer:
        return answer.status == 429


async def test_prompts_that_wait(tmp_path: Path) -> None:
    async with live(tmp_path, max_queued_prompts=2) as server:
        session = await server.session()
        async with server.api.stream("/event") as events:
            await server.prompt(session, "hang")
            await server.prompt(session, "second")
            path = f"/session/{session}/prompt_async"
            assert limit_of((await server.api.post(path, prompt_body("third"), status=429)).body) == ("max_queued_prompts", 2)
            # Not stored, so that it may be sent again.
            assert len([m for m in await server.messages(session) if m["info"]["role"] == "user"]) == 2
            await server.api.post(f"/session/{session}/abort", status=200)
            await events.until("session.idle")


@pytest.mark.parametrize("depth", [wire_json.DEPTH_LIMIT + 1, 255, 300, 1000, 2000, 100_000])
@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
async def test_deep_json(tmp_path: Path, depth: int, opening: str, closing: str) -> None:
    async with live(tmp_path) as server:
        for body in (f'{{"x": {opening * depth}1{closing * depth}}}', opening * depth):
            answer = await server.api.request("POST", "/session", data=body, status=400)
            assert answer.body["name"] == "BadRequest"
        complaint = (await server.api.request("POST", "/session", data=opening * depth + "1" + closing * depth, status=400)).body
        assert f"{wire_json.DEPTH_LIMIT} levels" in complaint["data"]["message"]


async def test_json_that_is_deep_but_allowed(tmp_path: Path) -> None:
    inner = "[" * (wire_json.DEPTH_LIMIT - 2) + "]" * (wire_json.DEPTH_LIMIT - 2)
    async with live(tmp_path) as server:
        made = await server.api.request("POST", "/session", data=f'{{"metadata": {{"deep": {inner}}}}}', status=200)
        assert (await server.api.get(f"/session/{made.body['id']}", status=200)).body["metadata"] == made.body["metadata"]


async def test_streams_of_all_faces_count_together(tmp_path: Path) -> None:
    async with live(tmp_path, max_streams=2) as server:
        session = await server.session()
        own = f"/v1/sessions/{session}/events/sse"
        async with server.api.stream("/event") as events, server.api.raw.get(own) as one:
            await events.next()
            assert one.status == 200
            async with (
                server.api.raw.get(own) as two,
                server.api.raw.get(f"/inspector/api/sessions/{session}/trace/sse") as three,
            ):
                assert (two.status, three.status) == (429, 429)
                assert "max_streams" in await two.text()
            assert await is_rate_limited(server, "/event")
            async with server.api.raw.post(f"/v1/sessions/{session}/messages/stream", json={"message": "hello"}) as sent:
                assert sent.status == 429
            assert await server.messages(session) == []


@pytest.mark.parametrize("path", ["/session", "/api/session", "/v1/sessions/x"])
async def test_long_texts_are_refused_on_each_face(tmp_path: Path, path: str) -> None:
    async with live(tmp_path) as server:
        async with server.api.raw.post(path, json={"title": "x" * 10_000, "agent": "claude"}) as answer:
            assert answer.status == 400
            assert "at most 2000 characters" in await answer.text()
        parts = {"parts": [{"type": "text", "text": "x"}] * 2000, "agent": "claude"}
        async with server.api.raw.post(path, json=parts) as answer:
            assert answer.status == 413
            assert "at most 1000 items" in await answer.text()


async def test_answers_do_not_show_versions(tmp_path: Path) -> None:
    async with live(tmp_path) as server:
        for path in ("/global/health", "/nosuch"):
            async with server.api.raw.get(path) as answer:
                assert answer.headers["Server"] == "opencode-shim"


@pytest.mark.parametrize("encoding", ["deflate", "gzip", "br", "zstd", "x-unknown"])
@pytest.mark.parametrize("path", ["/session", "/api/session"])
async def test_a_body_with_an_encoding_is_refused_before_it_is_inflated(server: Live, encoding: str, path: str) -> None:
    bomb = zlib.compress(b"[]," * 10_000_000)
    refused = await server.api.request("POST", path, data=bomb, headers={"Content-Encoding": encoding}, status=400)
    assert "Content-Encoding" in str(refused.body)
