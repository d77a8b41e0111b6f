"""When a client's streams are on hold, what its answers are made from meanwhile, and what it is told again."""

from __future__ import annotations

import asyncio

import pytest

from shim.faces.opencode2 import read, services
from shim.faces.opencode2.dialects import V2_JULY
from shim.faces.opencode2.events import Event
from shim.faces.opencode2.services import Rereads
from shim.faces.opencode2.stream import ENCODERS
from shim.lib.clock import ManualClock
from shim.lib.ids import Ids
from shim.stream.hub import Hub
from universal.permissions import Access
from universal.session.entries import NoteEntry
from universal.session.model import Session
from universal.session.values import BUSY, PermissionRequest, SessionRecord

CLIENT = ("::1", "opencode2/x")
SETTLE_S, LAID_S, LONGEST_S, REPEAT_S = 0.02, 0.04, 0.2, 0.1


class Place:
    """Two sessions, and a client with a stream."""

    def __init__(self) -> None:
        clock = ManualClock()
        self.hub = Hub(clock, Ids(clock))
        self.sessions = {id_: Session(SessionRecord(id_, directory="/p"), "mock") for id_ in ("ses_1", "ses_2")}
        self.rereads = Rereads(self.hub, self.load, self.sessions.get, clock=clock, ids=Ids(clock))
        self.reader = self.hub.subscribe(ENCODERS["v2_july"], client=CLIENT)

    async def load(self, session_id: str) -> Session:
        return self.sessions[session_id]

    async def read(self, session_id: str = "ses_1", client: tuple[str, str] = CLIENT) -> list[str] | None:
        async with self.rereads.hold_for_answer(V2_JULY, client, session_id) as state:
            return None if state is None else list(state.timeline.entries)

    def say(self, message: str, session_id: str = "ses_1") -> None:
        """A message is there, and told."""
        self.sessions[session_id].timeline.entries[message] = NoteEntry(message, 1, message)
        self.hub.publish(Event("evt_1", 1, "session.renamed", {"sessionID": session_id, "title": message}, session_id))

    async def read_frames(self, wait_s: float = 0.0) -> list[str]:
        until = asyncio.get_running_loop().time() + wait_s
        return [frame.body.decode() for batch in await self.reader.take(0.0, until) for frame in batch.frames]


@pytest.fixture
async def place(monkeypatch: pytest.MonkeyPatch) -> Place:
    for name, value in (("SETTLE_S", SETTLE_S), ("LAID_S", LAID_S), ("LONGEST_S", LONGEST_S), ("REPEAT_S", REPEAT_S)):
        monkeypatch.setattr(services, name, value)
    made = Place()
    await made.read_frames()
    return made


async def test_later_events_follow_the_answers_of_one_moment(place: Place) -> None:
    place.say("msg_1")
    first = asyncio.create_task(place.read())
    place.sessions["ses_1"].status = BUSY
    await asyncio.sleep(0)
    assert any("msg_1" in one for one in await place.read_frames())
    place.say("msg_2")
    assert await place.read() == await first == ["msg_1"]
    assert await place.read_frames() == []
    assert any("msg_2" in one for one in await place.read_frames(LONGEST_S))
    assert await place.read() == list(place.sessions["ses_1"].timeline.entries)


async def test_a_client_without_a_stream_reads_what_is_now(place: Place) -> None:
    assert await place.read(client=("::1", "node")) is None
    place.say("msg_1")
    assert len(await place.read_frames()) == 1


async def test_every_request_for_work_is_answered_at_once(place: Place) -> None:
    await place.read()
    place.say("msg_1")
    assert await place.read_frames() == []
    place.rereads.end(CLIENT)
    assert len(await place.read_frames()) == 1


async def test_reads_of_another_session_wait_for_the_first_ones(place: Place) -> None:
    await place.read()
    place.say("msg_2", "ses_2")
    assert await place.read("ses_2") == ["msg_2"]
    assert len(await place.read_frames()) == 1


async def test_a_stream_is_not_on_hold_for_longer_however_much_is_read(place: Place) -> None:
    await place.read()
    place.say("msg_1")
    async with asyncio.timeout(4 * LONGEST_S):
        while "msg_1" not in (await place.read() or []):
            await asyncio.sleep(LAID_S / 4)
    assert len(await place.read_frames()) >= 1


async def test_requests_opened_during_a_hold_are_sent_again_once(place: Place) -> None:
    await place.read()
    session = place.sessions["ses_1"]
    access = Access("bash", ("ls",))
    session.permissions = {id_: PermissionRequest(id_, access) for id_ in ("per_1", "per_2")}
    asked = read.permission(session.permissions["per_1"], session)
    place.hub.publish(Event("evt_1", 1, "permission.asked", asked, "ses_1"))
    assert sum("per_1" in one for one in await place.read_frames(LONGEST_S)) == 1
    del session.permissions["per_2"]
    again = await place.read_frames(LONGEST_S + REPEAT_S)
    assert [("permission.v2.asked" in one, "per_1" in one) for one in again] == [(True, True)]
    assert await place.read_frames(REPEAT_S) == []


async def test_the_end_of_the_server_ends_holds(place: Place) -> None:
    await place.read()
    place.say("msg_1")
    place.rereads.close()
    assert len(await place.read_frames()) == 1
