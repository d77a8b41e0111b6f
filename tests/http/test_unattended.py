"""Asks that nobody answers, over HTTP with the mock: each place where `unattended` is set, and which one counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shim.sessions.permissions.unattended_policy import UNATTENDED_HEADER
from tests.support.live import Live, live, prompt_body
from tests.support.universal import face

SOON = "reject:0.05"
WRONG = "reject:soon"
BY_RULES = {UNATTENDED_HEADER: "rules"}
WITHOUT_MEANING = {UNATTENDED_HEADER: WRONG}
ASKS = "permission"
"""A prompt for which the mock asks for a permission."""


async def turn_is_rejected(server: Live, **session: Any) -> None:
    """A blocking prompt of a session ends although nobody answers; once."""
    id_ = await server.session(**session)
    async with server.api.stream("/event") as events:
        await server.ask(id_, ASKS)
        kinds = await until_title(server, events, id_)
    assert kinds.count("permission.asked") == kinds.count("permission.replied") == 1
    assert kinds.count("session.idle") == 1


async def until_title(server: Live, events: Any, session: str) -> list[str]:
    """The events of a session up to now."""
    await server.api.patch(f"/session/{session}", {"title": "over"}, status=200)
    kinds: list[str] = []
    while True:
        event = await events.next()
        if event["properties"].get("sessionID") == session:
            kinds.append(event["type"])
        if event["properties"].get("info", {}).get("title") == "over":
            return kinds


async def test_the_server_rejects_unanswered_requests(tmp_path: Path) -> None:
    async with live(tmp_path, unattended=SOON) as server:
        await turn_is_rejected(server)


async def test_a_session_of_opencode1_rejects_unanswered_requests(tmp_path: Path) -> None:
    async with live(tmp_path) as server:
        await turn_is_rejected(server, metadata={"unattended": SOON})


async def test_a_session_counts_before_the_server(tmp_path: Path) -> None:
    async with live(tmp_path, unattended="rules") as server:
        await turn_is_rejected(server, metadata={"unattended": SOON})


@pytest.mark.parametrize("route", ["message", "prompt_async"])
async def test_a_prompts_header_counts_before_the_session(tmp_path: Path, route: str) -> None:
    async with live(tmp_path) as server:
        id_ = await server.session(metadata={"unattended": "wait"})
        async with server.api.stream("/event") as events:
            status = 200 if route == "message" else 204
            await server.api.post(f"/session/{id_}/{route}", prompt_body(ASKS), headers=BY_RULES, status=status)
            assert "permission.asked" not in await to_idle(events)


async def test_a_wrong_value_is_refused_with_a_sentence(tmp_path: Path) -> None:
    async with live(tmp_path) as server:
        id_ = await server.session()
        metadata = {"metadata": {"unattended": WRONG}}
        answers = [
            await server.api.post("/session", metadata, status=400),
            await server.api.patch(f"/session/{id_}", metadata, status=400),
            await server.api.post("/api/session", metadata, status=400),
            await server.api.patch(f"/api/session/{id_}", metadata, status=400),
            await server.api.post(f"/session/{id_}/message", prompt_body("hi"), headers=WITHOUT_MEANING, status=400),
            await server.api.post(f"/session/{id_}/prompt_async", prompt_body("hi"), headers=WITHOUT_MEANING, status=400),
            await server.api.post(f"/api/session/{id_}/prompt", {"text": "hi"}, headers=WITHOUT_MEANING, status=400),
        ]
        for answer in answers:
            assert 'cannot be used: use "wait", "reject:SECONDS"' in str(answer.body)
        assert await server.messages(id_) == []


async def test_v1_sets_and_shows_it(tmp_path: Path) -> None:
    async with face(tmp_path) as v1:
        problem = await v1.call("create_session", session_id="s", json={"agent": "mock", "unattended": WRONG}, status=400)
        assert "reject:SECONDS" in problem["detail"]
        await v1.call("create_session", session_id="s", json={"agent": "mock", "unattended": SOON})
        [info] = (await v1.call("list_sessions"))["sessions"]
        assert (info["unattended"], info.get("waitingSince")) == (SOON, None)
        problem = await v1.call("post_message", session_id="s", json={"message": "hi", "unattended": WRONG}, status=400)
        assert "reject:SECONDS" in problem["detail"]
        async with v1.stream("post_message_stream", session_id="s", json={"message": ASKS}) as stream:
            events = await stream.rest()
        kinds = [event["type"] for event in events]
        assert kinds.count("permission.resolved") == kinds.count("turn.ended") == 1
        statuses = [event["data"]["item"] for event in events if event["type"] == "item.completed"]
        [told] = [part for item in statuses for part in item["content"] if part.get("label") == "unattended"]
        assert "Nobody answered within 0.05 s" in told["detail"]
        message = {"message": ASKS, "unattended": "rules"}
        async with v1.stream("post_message_stream", session_id="s", json=message) as stream:
            assert (await stream.rest())[-1]["type"] == "turn.ended"
        metrics = (await v1.call("get_metrics")).decode()
    assert 'opencode_shim_asks_unattended_total{action="timeout"} 1.0' in metrics
    assert 'opencode_shim_asks_unattended_total{action="rules"} 1.0' in metrics
    assert "opencode_shim_asks_open 0.0" in metrics
    assert "opencode_shim_asks_oldest_seconds 0.0" in metrics


async def test_v1_tells_since_when_a_session_waits(tmp_path: Path) -> None:
    async with face(tmp_path) as v1:
        await v1.call("create_session", session_id="s", json={"agent": "mock"})
        async with v1.stream("post_message_stream", session_id="s", json={"message": ASKS}) as stream:
            asked = (await stream.until("permission.requested"))[-1]["data"]
            [info] = (await v1.call("list_sessions"))["sessions"]
            assert info["unattended"] == "wait"
            assert info["createdAt"] <= info["waitingSince"]
            assert "opencode_shim_asks_open 1.0" in (await v1.call("get_metrics")).decode()
            reply = {"permission_id": asked["permission_id"], "json": {"reply": "once"}}
            await v1.call("reply_permission", session_id="s", **reply)
            await stream.rest()
        [info] = (await v1.call("list_sessions"))["sessions"]
        assert info.get("waitingSince") is None


async def test_opencode2_sets_it_for_a_session_and_a_prompt(tmp_path: Path) -> None:
    async with live(tmp_path) as server:
        made = (await server.api.post("/api/session", {"metadata": {"unattended": SOON}}, status=200)).body["data"]
        async with server.api.stream("/event") as events:
            path = f"/api/session/{made['id']}"
            await server.api.post(f"{path}/prompt", {"text": ASKS}, status=200)
            assert "permission.replied" in await to_idle(events)
            await server.api.post(f"{path}/prompt", {"text": ASKS}, headers=BY_RULES, status=200)
            assert "permission.asked" not in await to_idle(events)
            await server.api.patch(path, {"metadata": {"unattended": "rules"}}, status=204)
            await server.api.post(f"{path}/prompt", {"text": ASKS}, status=200)
            assert "permission.asked" not in await to_idle(events)


async def to_idle(events: Any) -> list[str]:
    """The types of all events up to the first idle."""
    kinds: list[str] = []
    while "session.idle" not in kinds:
        kinds.append((await events.next())["type"])
    return kinds
