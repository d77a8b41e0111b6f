"""A client that puts what it has read over what events told it meanwhile: the first prompt of a new session in the TUI of July.

Its answers arrive a while before they are on the screen (`lay_s`: parsing, a busy machine), while a quick agent goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from shim.faces.opencode2.services import LONGEST_S
from tests.http.opencode2.july_screen import Observation, Screen, Wire, screen_of
from tests.support.api import WAIT_S, EventStream
from tests.support.live import Live

JULY = {"User-Agent": "opencode2/2.0.0-v2.20260717"}
READS = {"pending": "/pending", "message": "/message?limit=200&order=desc", "permission": "/permission", "form": "/form"}


@dataclass
class July:
    """The client, with its stream open. `seen`: all that came, with its time."""

    server: Live
    events: EventStream
    lay_s: float
    seen: list[Observation] = field(default_factory=list)
    session: str = ""
    more: asyncio.Event = field(default_factory=asyncio.Event)

    async def ask(self, method: str, path: str, body: Any = None) -> Any:
        async with self.server.api.raw.request(method, path, json=body, headers=JULY) as answer:
            assert answer.status in (200, 204), await answer.text()
            return (await answer.json())["data"] if answer.status == 200 else None

    async def listen(self) -> None:
        while True:
            event = await self.events.next()
            data = event["data"]
            if self.session in (data.get("sessionID"), data.get("form", {}).get("sessionID")):
                self.note(Observation(self.now(), event["type"], data))

    def note(self, seen: Observation) -> None:
        self.seen.append(seen)
        self.more.set()

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    async def read(self, what: str) -> None:
        data = await self.ask("GET", f"/api/session/{self.session}{READS[what]}")
        self.note(Observation(self.now() + self.lay_s, what, data, read=True))

    async def begin(self, text: str) -> None:
        """The first prompt, and what this client reads after it."""
        body = {"agent": "build", "location": {"directory": str(self.server.directory)}}
        self.session = (await self.ask("POST", "/api/session", body))["id"]
        await self.ask("POST", f"/api/session/{self.session}/prompt", {"text": text, "files": [], "agents": []})
        await asyncio.gather(*(self.read(what) for what in READS))

    async def until(self, want: Callable[[Screen], bool]) -> Screen:
        """The screen, once it is as wanted."""
        async with asyncio.timeout(WAIT_S):
            while not want(screen := screen_of(self.seen)):
                self.more.clear()
                await self.more.wait()
        return screen

    async def over(self) -> Screen:
        return await self.until(lambda _: any(one.what.startswith("session.execution.succeeded") for one in self.seen))

    async def assert_matches_server(self, screen: Screen) -> None:
        """The screen is what the server says when nothing runs any more."""
        fresh = Screen()
        fresh.lay("message", await self.ask("GET", f"/api/session/{self.session}{READS['message']}"))
        assert screen.visible_rows() == fresh.visible_rows()
        assert (screen.inputs, screen.permissions, screen.forms, screen.running) == ({}, {}, {}, False)


@asynccontextmanager
async def july(server: Live, lay_s: float) -> AsyncIterator[July]:
    async with server.api.stream("/api/event", headers=JULY) as events:
        assert (await events.next())["type"] == "server.connected"
        client = July(server, events, lay_s)
        async with asyncio.TaskGroup() as group:
            listening = group.create_task(client.listen())
            yield client
            listening.cancel()


@pytest.mark.parametrize("lay_s", [0.0, 0.03, 0.08])
@pytest.mark.parametrize("scene", ["tool", "think", "echo one two three", "parallel"])
async def test_nothing_of_the_first_answer_is_lost_or_there_twice(server: Live, scene: str, lay_s: float) -> None:
    async with july(server, lay_s) as client:
        await client.begin(scene)
        await client.assert_matches_server(await client.over())


@pytest.mark.parametrize("lay_s", [0.0, 0.03, 0.08])
async def test_the_dialog_of_a_quick_permission_is_there_with_its_card(server: Live, lay_s: float) -> None:
    async with july(server, lay_s) as client:
        await client.begin("permission")
        screen = await client.until(lambda screen: bool(screen.permissions))
        assert ("shell", "running") in screen.visible_rows()
        [request] = screen.permissions
        await client.ask("POST", f"/api/session/{client.session}/permission/{request}/reply", {"reply": "once"})
        await client.assert_matches_server(await client.over())


async def test_a_question_asked_during_a_read_is_sent_again(server: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    """For an answer that took longer than the streams were on hold. This client takes no notice of what it has."""
    monkeypatch.setattr("shim.faces.opencode2.services.REPEAT_S", 0.6)
    async with july(server, 0.3) as client:
        await client.begin("question")
        screen = await client.until(lambda screen: bool(screen.forms))
        [form] = screen.forms.values()
        told = [one.data["form"] for one in client.seen if one.what == "form.created"]
        assert told == [form, form]


async def test_a_busy_reader_gets_every_event(server: Live) -> None:
    """Whoever polls and listens at once is behind by LONGEST_S at most."""
    async with july(server, 0.0) as client:
        await client.begin("tool")
        stop = asyncio.Event()

        async def poll() -> None:
            while not stop.is_set():
                await client.ask("GET", f"/api/session/{client.session}/message")

        polling = asyncio.create_task(poll())
        began = client.now()
        await client.over()
        assert client.now() - began < 4 * LONGEST_S
        stop.set()
        await polling


async def test_other_clients_read_and_hear_what_is_now(server: Live) -> None:
    """Without a stream of its own a client has nothing to lose; nobody waits for another's hold."""
    async with july(server, 0.0) as client, server.api.stream("/api/event") as other:
        await client.begin("permission")
        asked = (await other.until("permission.asked"))[-1]["data"]
        async with server.api.raw.get(f"/api/session/{client.session}/permission") as answer:
            listed: list[Wire] = (await answer.json())["data"]
        assert [one["id"] for one in listed] == [asked["id"]]
