"""The stream: how it begins, what is told to whom, how a reader comes back; and both wires at the same moment."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from shim.http.services import Services
from shim.main.app import SERVICES
from tests.http.opencode2.client import Tui, tui
from tests.http.test_transfer import EXPORTED
from tests.support.live import TURN_S, Live, live
from tests.support.opencode1_fold import Fold


def services(server: Live) -> Services:
    app = server.api.raw.server.app  # type: ignore[union-attr]
    return app[SERVICES]


async def test_the_first_bytes_of_a_stream(server: Live) -> None:
    async with asyncio.timeout(TURN_S), server.api.raw.get("/api/event") as response:
        assert response.headers["Content-Type"] == "text/event-stream"
        assert response.headers["Cache-Control"] == "no-cache, no-transform"
        assert response.headers["X-Accel-Buffering"] == "no"
        lines = [(await response.content.readline()).decode() for _ in range(5)]
    assert lines[0].startswith("id: ")
    assert lines[1].startswith('data: {"id":"evt_')
    assert lines[1].rstrip().endswith('"type":"server.connected","data":{}}')
    assert lines[2:] == ["\n", ": heartbeat\n", "\n"]


async def test_a_session_of_1x_is_seen_live_on_2x_and_back(client: Tui) -> None:
    """Made and prompted by a client of 1.x, then by one of 2.x: both streams tell both turns, and agree with what is read."""
    server = client.live
    async with server.api.stream("/event") as first:
        client.session = await server.session()
        fold = Fold(client.session)

        async def read_first() -> None:
            event = await first.next()
            fold.feed(event["type"], event["properties"])

        async def read_both_streams(turns: int) -> None:
            async with asyncio.timeout(TURN_S):
                while fold.idles < turns:
                    await read_first()
                while len(client.ends) < turns:
                    await client.take_next()

        await server.prompt(client.session, "tool")
        await read_both_streams(1)
        await client.prompt("echo from OpenCode 2")
        await read_both_streams(2)
        await client.assert_matches_server()
        fold.check()
        assert fold.wire() == await server.messages(client.session)
    said = [p["text"] for m in fold.wire() if m["info"]["role"] == "assistant" for p in m["parts"] if p["type"] == "text"]
    assert said == client.texts()
    assert client.texts()[-1] == "from OpenCode 2"


async def test_a_request_of_one_wire_is_answered_on_the_other(client: Tui) -> None:
    server = client.live
    async with server.api.stream("/event") as first:
        client.session = await server.session()
        await server.prompt(client.session, "permission")
        while client.types[-1:] != [client.name("permission.asked")]:
            await client.take_next()
        [asked] = (await server.api.get("/permission", status=200)).body
        await server.api.post(f"/permission/{asked['id']}/reply", {"reply": "once"}, status=200)
        await first.until("session.idle")
        await client.end()
    assert client.types.count(client.name("permission.replied")) == 1
    await client.assert_matches_server()


async def test_a_reader_that_was_cut_off_goes_on_where_it_was(client: Tui) -> None:
    await client.turn("echo one")
    await client.prompt("echo two")
    places = client.events.ids[-1:]
    seen = [await client.take_next() for _ in range(3)]
    client.events.response.close()
    count = len(seen)
    async with client.live.api.stream(
        "/api/event", params={"dialect": client.dialect}, headers={"Last-Event-ID": client.events.ids[-1]}
    ) as again:
        connected = await again.next()
        assert connected["type"] == "server.connected"
        client.events = again
        await client.end()
    await client.assert_matches_server()
    assert client.texts() == ["one", "two"]
    assert count == 3
    assert places != again.ids[-1:]


async def test_the_event_itself_names_its_place_too(client: Tui) -> None:
    await client.turn("echo one")
    async with client.live.api.stream("/api/event") as watched:
        await watched.next()
        await client.prompt("echo two")
        told = await watched.until("session.execution.succeeded")
    for index in (0, len(told) // 2):
        async with client.live.api.stream("/api/event", params={"after": told[index]["id"]}) as again:
            await again.next()
            assert await again.until("session.execution.succeeded") == told[index + 1 :]


async def test_an_unknown_position_is_the_present(client: Tui) -> None:
    await client.turn("echo one")
    async with client.live.api.stream("/api/event", params={"after": "evt_nosuch"}) as again:
        assert (await again.next())["type"] == "server.connected"
        await client.call("PATCH", f"/api/session/{client.session}", {"title": "now"}, status=204)
        event = await again.next()
    assert (event["type"], event["data"]["title"]) == ("session.renamed", "now")


async def test_a_running_text_is_not_in_what_is_read(client: Tui) -> None:
    """Deltas and a reread would add up otherwise: the TUI has no second look."""
    await client.new()
    await client.prompt("hang")
    while client.types[-1:] != ["session.text.delta"]:
        await client.take_next()
    page = (await client.call("GET", f"/api/session/{client.session}/message")).body["data"]
    running = next(m for m in page if m["type"] == "assistant")
    assert running["content"][0]["text"] == ""
    assert "completed" not in running["time"]
    await client.interrupt()
    await client.end()
    await client.assert_matches_server()


async def test_an_unread_session_is_sent_from_its_position(server: Live) -> None:
    """Its first turn is history when a reader comes in the middle of nothing; its second one is told whole."""
    session = await server.session()
    await server.ask(session, "echo first")
    async with tui(server, "v2_0") as client:
        client.session = session
        await client.open()
        before = dict(client.screen)
        assert await client.turn("echo second") == "succeeded"
        assert client.types[0] == "session.inbox.enqueued"
        await client.assert_matches_server()
    assert list(client.screen)[: len(before)] == list(before)


async def test_a_reloaded_session_is_the_same(server: Live, client: Tui) -> None:
    for scene in ("tool", "think", "error", "echo x"):
        await client.turn(scene)
    base = f"/api/session/{client.session}"
    live_ = (await client.call("GET", base)).body, (await client.call("GET", f"{base}/message", limit="200")).body
    entry = services(server).sessions.index.find(client.session)
    assert entry is not None and entry.actor is not None
    await entry.actor.close()
    entry.state = entry.actor = None
    rebuilt = (await client.call("GET", base)).body, (await client.call("GET", f"{base}/message", limit="200")).body
    assert rebuilt == live_
    assert await client.turn("echo on") == "succeeded"
    await client.assert_matches_server()


async def test_the_log_matches_the_events(client: Tui) -> None:
    told: list[dict[str, Any]] = []

    async def act(client: Tui, event: dict[str, Any]) -> None:
        if event.get("durable", {}).get("aggregateID") == client.session:
            told.append({key: value for key, value in event.items() if key != "location"})

    await client.turn("tool", act)
    path = f"/api/experimental/session/{client.session}/log"
    async with client.live.api.stream(path) as log:
        items = await log.until("log.synced")
        with pytest.raises(EOFError):
            await log.next()
    assert items[:-1] == told
    assert [item["durable"]["seq"] for item in items[:-1]] == list(range(len(items) - 1))
    assert items[-1] == {"type": "log.synced", "aggregateID": client.session, "seq": len(items) - 2}
    async with client.live.api.stream(path, params={"after": "5", "follow": "true"}) as log:
        assert (await log.until("log.synced"))[:-1] == items[6:-1]
        await client.prompt("echo more")
        more = await log.until("session.execution.succeeded")
        assert more[0]["durable"]["seq"] == len(items) - 1
        assert [item["type"] for item in more][:2] == ["session.inbox.enqueued", "session.execution.started"]


async def test_the_host_is_reported_too(client: Tui) -> None:
    toast = {"message": "hello", "variant": "info"}
    await client.live.api.post("/tui/show-toast", toast, status=200)
    event = await client.events.next()
    assert (event["type"], event["data"]["message"]) == ("tui.toast.show", "hello")


async def test_an_imported_session_is_answered_by_the_default_agent(client: Tui) -> None:
    """A session that was imported has the model of an agent that is not here."""
    document = json.loads(EXPORTED.read_text())
    client.session = (await client.live.api.post("/session/import", document, status=200)).body["id"]
    await client.prompt("echo here")
    assert await client.end() == "succeeded"
    assert client.texts()[-1] == "here"


async def test_a_base_path_and_a_password(tmp_path: Path) -> None:
    async with live(tmp_path, base_path="/shim", password="secret") as server:
        auth = {"Authorization": "Basic b3BlbmNvZGU6c2VjcmV0"}
        async with server.api.raw.get("/shim/api/session/active") as refused:
            assert refused.status == 401
        async with server.api.raw.get("/shim/api/session/active", headers=auth) as answer:
            assert await answer.json() == {"data": {}}
