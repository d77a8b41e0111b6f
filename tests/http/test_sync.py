"""Twins on `/global/event`, histories, and sessions that are taken over from one. Source: a live OpenCode 1.18.33."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path
from typing import Any

from shim.store.memory import MemoryStore
from tests.support.live import TURN_S, Live, live

LASTING = {"session.created", "session.updated", "message.updated", "message.part.updated"}
OLD = {"User-Agent": "opencode/1.2.27"}


async def global_events(server: Live, *prompts: str, **options: Any) -> tuple[str, list[Any]]:
    """A session of these prompts, and what `/global/event` tells of it until the last of its idles."""
    seen: list[Any] = []
    async with server.api.stream("/global/event", **options) as events, asyncio.timeout(TURN_S):
        session = await server.session()
        for prompt in prompts:
            await server.ask(session, prompt)
        idles = 0
        while idles < len(prompts):
            seen.append((await events.next())["payload"])
            idles += seen[-1]["type"] == "session.idle" and seen[-1]["properties"]["sessionID"] == session
    return session, seen


async def history(server: Live, known: dict[str, int] | None = None) -> list[Any]:
    return list((await server.api.post("/sync/history", known or {}, status=200)).body)


async def test_each_lasting_event_has_a_twin_right_after_it(server: Live) -> None:
    session, seen = await global_events(server, "tool", "edit")
    twins = [e["syncEvent"] for e in seen if e["type"] == "sync"]
    assert [t["seq"] for t in twins] == list(range(len(twins)))
    assert {t["aggregateID"] for t in twins} == {session}
    for before, twin in pairwise(seen):
        if twin["type"] == "sync":
            assert twin["id"] == before["id"]
            assert twin["syncEvent"]["type"] == before["type"] + ".1"
            assert twin["syncEvent"]["data"] == before["properties"]
    assert [e["type"] for e in seen if e["type"] in LASTING] == [t["type"].removesuffix(".1") for t in twins]


async def test_the_history_matches_the_events(server: Live, tmp_path: Path) -> None:
    session, seen = await global_events(server, "think", "subagent")
    twins = [e["syncEvent"] for e in seen if e["type"] == "sync" and e["syncEvent"]["aggregateID"] == session]
    rows = [r for r in await history(server) if r["aggregate_id"] == session]
    assert [(r["id"], r["seq"], r["type"], r["data"]) for r in rows] == [(t["id"], t["seq"], t["type"], t["data"]) for t in twins]
    later = [r["seq"] for r in await history(server, {session: 5}) if r["aggregate_id"] == session]
    assert later == list(range(6, len(rows)))


async def test_clients_before_1_14_get_none(server: Live) -> None:
    _, seen = await global_events(server, "echo hi", headers=OLD)
    assert not [e for e in seen if e["type"] == "sync"]


async def test_numbers_go_on_after_a_restart(tmp_path: Path) -> None:
    store = MemoryStore()
    async with live(tmp_path, store=store) as first:
        session, _ = await global_events(first, "echo one")
        before = await history(first)
    async with live(tmp_path, store=store) as second:
        assert await history(second) == before
        await second.api.patch(f"/session/{session}", {"title": "new"}, status=200)
        after = await history(second)
        assert after[: len(before)] == before
        assert [r["seq"] for r in after] == list(range(len(after)))


async def test_a_history_replayed_elsewhere_is_the_session(server: Live, tmp_path: Path) -> None:
    session, _ = await global_events(server, "edit", "compact")
    events = [
        {"id": r["id"], "aggregateID": r["aggregate_id"], "seq": r["seq"], "type": r["type"], "data": r["data"]}
        for r in await history(server)
    ]
    (tmp_path / "other").mkdir()
    async with live(tmp_path / "other") as other:
        body = {"directory": str(other.directory), "events": events}
        assert (await other.api.post("/sync/replay", body, status=200)).body == {"sessionID": session}
        assert await other.messages(session) == await server.messages(session)
        gap = await other.api.post("/sync/replay", {**body, "events": events[:1] + events[2:]}, status=400)
        assert "event 1 is missing" in gap.body["data"]["message"]
        await other.api.post("/sync/replay", {**body, "events": []}, status=400)


async def test_sessions_do_not_move_to_workspaces(server: Live) -> None:
    assert (await server.api.post("/sync/start", status=200)).body is True
    session = await server.session()
    refused = await server.api.post("/sync/steal", {"sessionID": session}, status=501)
    assert "POST /sync/replay" in refused.body["data"]["message"]
