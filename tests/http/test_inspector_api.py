"""What the inspector is given: traces side by side, paged and live; counters; export; metrics."""

from __future__ import annotations

import asyncio
import io
import json
import zipfile
from typing import Any

from tests.support.universal import WAIT_S, Face, our_document


async def trace(v1: Face, name: str, **query: Any) -> list[dict[str, Any]]:
    return list((await v1.call("get_trace", session_id=name, limit=5000, **query))["rows"])


async def test_rows_are_what_opencodes_clients_were_sent(v1: Face) -> None:
    core = (await v1.call("create_session", session_id="s", json={"agent": "mock"}))["openCodeSessionId"]
    async with v1.live.api.stream("/event") as events:
        await v1.say("s", "tool")
        sent = [event for event in await events.until("session.idle") if event["type"] != "server.connected"]
    rows = await trace(v1, "s")
    made = [one for row in rows for one in row["opencode"]]
    assert made[0]["type"] == "session.created"
    assert [{"type": e["type"], "properties": e["properties"]} for e in sent] == made[1:]
    assert {one["properties"].get("sessionID", core) for one in made} == {core}
    assert [row["event"]["sequence"] for row in rows] == list(range(1, len(rows) + 1))
    agent = [row["event"] for row in rows if row["event"]["source"] == "agent"]
    assert agent
    assert all(event["raw"] is not None for event in agent)


async def test_the_state_over_time(v1: Face) -> None:
    await v1.session()
    async with v1.stream("post_message_stream", session_id="s", json={"message": "permission"}) as stream:
        asked = (await stream.until("permission.requested"))[-1]["data"]
        [row] = [row for row in await trace(v1, "s") if row["event"]["type"] == "permission.requested"]
        assert (row["state"], row["open"]) == ("waiting", [asked["permission_id"]])
        await v1.call("reply_permission", session_id="s", permission_id=asked["permission_id"], json={"reply": "once"})
        await stream.rest()
    states = [row["state"] for row in await trace(v1, "s")]
    changes = [state for index, state in enumerate(states) if index == 0 or states[index - 1] != state]
    assert changes == ["idle", "queued", "running", "waiting", "running", "idle"]


async def test_pages_are_the_whole_in_any_order(v1: Face) -> None:
    await v1.session()
    await v1.say("s", "edit")
    await v1.say("s", "subagent")
    whole = await trace(v1, "s")
    got: list[dict[str, Any]] = []
    more = True
    while more:
        page = await v1.call("get_trace", session_id="s", after=len(got), limit=7)
        got += page["rows"]
        more = page["hasMore"]
    assert got == whole
    assert await trace(v1, "s", after=5) == whole[5:]
    assert await trace(v1, "s", after=10**6) == []


async def test_live_rows_go_on_where_a_page_ended(v1: Face) -> None:
    await v1.session()
    await v1.say("s", "echo one")
    whole = await trace(v1, "s")
    url = "/inspector/api/sessions/s/trace/sse"
    async with v1.live.api.raw.get(url, params={"after": str(len(whole) - 3)}) as response:
        talking = asyncio.ensure_future(v1.say("s", "tool"))
        got: list[dict[str, Any]] = []
        async with asyncio.timeout(WAIT_S):
            while not got or got[-1]["event"]["type"] != "turn.ended" or got[-1]["event"]["sequence"] <= len(whole):
                line = (await response.content.readline()).decode()
                if line.startswith("data: "):
                    got.append(json.loads(line[6:]))
    await talking
    assert got == (await trace(v1, "s"))[len(whole) - 3 :]


async def test_live_rows_begin_with_the_first(v1: Face) -> None:
    await v1.session()
    await v1.say("s", "echo one")
    whole = await trace(v1, "s")
    got: list[dict[str, Any]] = []
    async with v1.live.api.raw.get("/inspector/api/sessions/s/trace/sse") as response, asyncio.timeout(WAIT_S):
        while len(got) < len(whole):
            line = (await response.content.readline()).decode()
            if line.startswith("data: "):
                got.append(json.loads(line[6:]))
    assert got == whole


async def test_counters(v1: Face) -> None:
    await v1.session()
    await v1.say("s", "unparsed")
    await v1.say("s", "error")
    counters = await v1.call("get_counters")
    assert sum(counters["unparsed"].values()) > 0
    assert counters["turns"] == {"completed": 1, "error": 1}
    assert counters["turnsRunning"] == 0
    assert counters["events"]["turn.started"] == 2
    assert counters["eventsPerSecond"] > 0
    assert counters["memoryBytes"] > 10**6
    assert sum(counters["errors"].values()) == 1
    async with v1.stream("get_events_sse", session_id="s") as stream:
        await stream.next()
        assert (await v1.call("get_counters"))["subscribers"] == {"opencode": 0, "universal": 1}


async def test_export(v1: Face) -> None:
    await v1.session(title="sk-abcdefghijklmnop")
    await v1.say("s", f"echo in {v1.live.directory} with token=abcdefgh")
    data = await v1.call("export_session", session_id="s")
    with zipfile.ZipFile(io.BytesIO(data)) as found:
        texts = {name: found.read(name).decode() for name in found.namelist()}
    assert set(texts) == {"README.txt", "session.json", "native.jsonl", "universal.jsonl", "opencode.jsonl"}
    for text in texts.values():
        assert str(v1.live.directory) not in text
        assert "abcdefgh" not in text
    rows = await trace(v1, "s")
    universal = [json.loads(line) for line in texts["universal.jsonl"].splitlines()]
    assert [event["sequence"] for event in universal] == [row["event"]["sequence"] for row in rows]
    assert len(texts["opencode.jsonl"].splitlines()) == sum(len(row["opencode"]) for row in rows)
    native = [json.loads(line) for line in texts["native.jsonl"].splitlines()]
    assert native
    assert "/project" in texts["native.jsonl"]
    for event in universal:
        our_document().check_event({**event})


async def test_abort(v1: Face) -> None:
    await v1.session()
    async with v1.stream("post_message_stream", session_id="s", json={"message": "hang"}) as stream:
        await stream.until("item.started")
        await v1.call("abort_session", session_id="s")
        rest = await stream.rest()
    assert rest[-1]["data"]["metadata"]["reason"] == "aborted"
    assert (await v1.say("s", "echo on"))[-1]["data"]["metadata"]["reason"] == "completed"


async def test_metrics(v1: Face) -> None:
    await v1.session()
    await v1.say("s", "echo x")
    raw = v1.live.api.raw
    async with raw.get("/metrics") as answer:
        text = await answer.text()
        assert answer.status == 200
        assert answer.headers["Content-Type"].startswith("text/plain")
    assert 'opencode_shim_turns_total{reason="completed"} 1.0' in text
    assert 'opencode_shim_events_total{type="turn.ended"} 1.0' in text
    assert 'route="/v1/sessions/{session_id}/messages/stream",status="200"} 1.0' in text
    assert "opencode_shim_turn_seconds_count 1.0" in text
    assert "process_resident_memory_bytes" in text
    assert "opencode_shim_sessions 1.0" in text
    assert 'opencode_shim_tasks{kind="reap"} 1.0' in text
    assert float(text.split("\nopencode_shim_memory_blocks ")[1].split()[0]) > 100_000
    assert "/v1/sessions/s" not in text


async def test_a_server_without_a_cluster_has_no_nodes(v1: Face) -> None:
    await v1.session()
    assert await v1.call("list_nodes") == {"nodes": []}
    refused = await v1.call("change_node", node="one", json={"duty": "cordoned"}, status=404)
    assert refused["detail"] == "There is no server one. This server is in no cluster."
    assert "node" not in (await v1.call("list_sessions"))["sessions"][0]
    async with v1.live.api.raw.get("/metrics") as answer:
        assert "opencode_shim_cluster" not in await answer.text()


async def test_sessions_that_wait_for_a_person_come_first_and_are_counted(v1: Face) -> None:
    for name in ("old", "crashed", "new"):
        await v1.session(name)
    async with v1.stream("post_message_stream", session_id="old", json={"message": "permission"}) as stream:
        await stream.until("permission.requested")
        await v1.say("crashed", "crash")
        await v1.say("new", "echo hello")
        listed = await v1.call("list_page", open="crashed")
        assert [(one["sessionId"], one["state"]) for one in listed["sessions"]] == [
            ("old", "waiting"), ("new", "idle"), ("crashed", "failed"),
        ]  # fmt: skip
        assert (listed["total"], listed["all"], listed["waiting"]) == (3, 3, 1)
        assert (listed["open"]["sessionId"], listed["open"]["state"]) == ("crashed", "failed")
        found = await v1.call("list_page", search="Waiting")
        assert ([one["sessionId"] for one in found["sessions"]], found["total"], found["all"]) == (["old"], 1, 3)


async def test_pages_of_sessions_are_the_whole_list(v1: Face) -> None:
    for number in range(7):
        await v1.session(f"walnut{number}")
    whole = [one["sessionId"] for one in (await v1.call("list_page"))["sessions"]]
    assert sorted(whole) == [f"walnut{number}" for number in range(7)]
    pages = [await v1.call("list_page", offset=offset, limit=3) for offset in (0, 3, 6, 9)]
    assert [one["sessionId"] for page in pages for one in page["sessions"]] == whole
    assert {page["total"] for page in pages} == {7}
    assert [one["sessionId"] for one in (await v1.call("list_page", search="WALNUT3"))["sessions"]] == ["walnut3"]
    assert (await v1.call("list_page", search="nothing like it", open="nobody")).get("open") is None
