"""A client whose server was killed goes on at the next one with its last id: nothing comes twice, and nothing is missing."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shim.faces.opencode1.events import encoder_of
from shim.faces.opencode1.routes.event import OPENCODE1
from shim.faces.opencode2 import dialects, stream
from shim.faces.opencode2.services import EventMaker, opencode2_face
from shim.lib.clock import ManualClock
from shim.lib.ids import Ids
from shim.sessions.feed import ChangeFeed, ReaderPlace, SessionChanges, digits_of
from shim.sessions.history.journal_streams import JournalStreams
from shim.sessions.session.session_state import SessionState
from shim.store.sqlite import SqliteStore
from shim.store.writer import Limits
from shim.stream.encoder import Encoder
from shim.stream.frame import Frame
from shim.stream.hub import Hub
from shim.stream.subscription import Subscription
from tests.properties.walk import Walk
from tests.support.session_states import state_deps
from universal.codec import Fact
from universal.events import EventType, UniversalEvent

SESSIONS = ("ses_one", "ses_two")
DATABASE = "journal.db"
LIMITS = Limits(group_s=3600.0, group_rows=100_000)
"""Of a store that commits when somebody waits for it."""
DIRECTORY = "/p"
STEP = st.sampled_from(("write", "write", "write", "flush", "read", "cut", "kill"))
STEPS = st.lists(st.tuples(STEP, st.integers(0, 40)), max_size=40)
ENCODERS: dict[str, Encoder[Any]] = {
    "opencode1": encoder_of(lambda: 7, "v1.18", wrapped=False),
    "opencode2": stream.ENCODERS[dialects.V2_0.name],
}


class Server:
    """A server with the journals of two sessions. `shown`: session, sequence and JSON of all events that clients can have got."""

    def __init__(self, folder: Path, clock: ManualClock, encoder: Encoder[Any]) -> None:
        self.shown: list[tuple[str, int, Any]] = []
        self.folder, self.clock, self.encoder = folder, clock, encoder
        self.ids = Ids(clock)
        self.store = SqliteStore(folder / DATABASE, limits=LIMITS)
        self.hub = Hub(clock, self.ids, faces=(OPENCODE1, opencode2_face(EventMaker(clock, self.ids))))
        self.changes = ChangeFeed(self.hub.bursts)
        self.changes.observe(self.note)
        self.changes.observe(self.hub.emit)
        self.states: dict[str, SessionState] = {}
        self.streams: Any = None

    async def start(self) -> None:
        await self.store.open()
        for newest in await self.store.newest(lambda event_id: True, 1):
            self.ids.pass_over(newest.event_id)
        for session_id in SESSIONS:
            state = self.states[session_id] = self.state(session_id, self.changes)
            state.load(await self.store.events(session_id))
        index: Any = SimpleNamespace(
            find=lambda id_: SimpleNamespace(state=self.states[id_]) if id_ in self.states else None,
            agent_of=lambda id_: "mock",
        )
        self.streams = JournalStreams(
            self.store, self.ids, index, lambda id_: True, lambda id_, agent: self.state(id_, ChangeFeed())
        )
        self.hub.use_positions(await self.streams.positions())

    def note(self, change: SessionChanges) -> None:
        events = self.hub.render(self.encoder.face, change)
        frames = [self.encoder.encode(event, "evt_0", "") for event in events]
        bodies = [json.loads(frame.body) for frame in frames if frame is not None]
        self.shown += [(change.session.id, change.sequence, body) for body in bodies]

    def state(self, session_id: str, changes: ChangeFeed) -> SessionState:
        return SessionState(session_id, "mock", state_deps(self.store, self.clock, changes))

    def write(self, session_id: str, events: Sequence[UniversalEvent]) -> None:
        """Say what comes next in a session: one event, or pieces that came together."""
        with self.changes.burst, self.states[session_id].journal:
            self.say(session_id, events)

    def say(self, session_id: str, events: Sequence[UniversalEvent]) -> None:
        state = self.states[session_id]
        for type_, some in groupby(events, key=lambda event: event.type):
            if type_ is EventType.ITEM_DELTA:
                state.record_pieces([Fact(type_, event.data) for event in some], self.clock.now_ms())
            else:
                for event in some:
                    state.record(type_, event.data)

    async def kill(self, folder: Path) -> Server:
        """The next server, on what this one has stored."""
        shutil.copytree(self.folder, folder, ignore=shutil.ignore_patterns("server*"))
        await self.store.close()
        self.clock.value_ms += -500 if folder.name == "3" else 50  # it may be set back
        after = Server(folder, self.clock, self.encoder)
        await after.start()
        after.shown = [shown for shown in self.shown if shown[1] <= after.states[shown[0]].sequence]
        return after

    @property
    def history(self) -> list[Any]:
        """All that clients have been told, as long as it is stored or may be."""
        return [body for _, _, body in self.shown]


class Client:
    """A client of one server after the other. `got`: the JSON of all events, but for those that it has read anew."""

    def __init__(self) -> None:
        self.got: list[Any] = []
        self.last_id = ""
        self.stream: Subscription | None = None
        self.hub: Any = None
        self.read_anew = 0

    async def come(self, server: Server) -> None:
        self.hub = server.hub
        self.stream = await server.streams.subscribe(server.hub, server.encoder, last_event_id=self.last_id or None)
        frames = await self.take_waiting()
        if frames[0].position != self.last_id:
            self.got = server.history
            self.read_anew += 1
        self.note(frames, len(frames))

    async def take_waiting(self) -> list[Frame]:
        assert self.stream is not None
        self.hub.bursts.deliver()
        batches = await self.stream.take(0.0, asyncio.get_running_loop().time())
        return [frame for batch in batches for frame in batch.frames]

    def note(self, frames: Sequence[Frame], count: int) -> None:
        for frame in frames[:count]:
            self.last_id = frame.position
            if frame.body and not (body := json.loads(frame.body))["type"].startswith("server."):
                self.got.append(body)

    async def leave(self, count: int) -> list[Frame]:
        """Read so many frames at most of those that wait, and leave. Out: all that waited."""
        assert self.stream is not None
        frames = await self.take_waiting()
        self.note(frames, count)
        self.stream.close()
        return frames


def by_session(bodies: Sequence[Any]) -> dict[str, list[Any]]:
    """What was told of each session, in order, without ids and times of events. Pieces that stand together are joined."""
    told: dict[str, list[Any]] = {}
    for body in bodies:
        data = body.get("properties") or body.get("data") or {}
        type_, own = body["type"], told.setdefault(data.get("sessionID") or data.get("info", {}).get("id", ""), [])
        if "delta" not in data:
            own.append((type_, json.dumps(data, sort_keys=True)))
            continue
        pieces: dict[str, str] = own[-1] if own and isinstance(own[-1], dict) else {}
        if not pieces:
            own.append(pieces)
        key = json.dumps([type_, {name: value for name, value in data.items() if name != "delta"}])
        pieces[key] = pieces.get(key, "") + data["delta"]
    return told


def journal_of(session_id: str, history: bytes) -> list[UniversalEvent]:
    """What is said in a session."""
    story = Walk(history).story
    return [UniversalEvent.model_validate_json(event.model_dump_json().replace(story.id, session_id)) for event in story.journal]


@pytest.mark.parametrize("face", ENCODERS)
@settings(max_examples=25)
@given(stories=st.tuples(*(st.binary(min_size=30, max_size=90) for _ in SESSIONS)), steps=STEPS)
async def test_nothing_comes_twice_and_nothing_is_missing(face: str, stories: tuple[bytes, ...], steps: list[Any]) -> None:
    journals = {id_: journal_of(id_, history) for id_, history in zip(SESSIONS, stories, strict=True)}
    with TemporaryDirectory() as top:
        (Path(top) / "0").mkdir()
        server, client, kills = Server(Path(top) / "0", ManualClock(), ENCODERS[face]), Client(), 0
        await server.start()
        await client.come(server)
        for step, number in steps:
            if step == "write":
                session_id = SESSIONS[number % 2]
                at = server.states[session_id].sequence
                server.write(session_id, journals[session_id][at : at + 1 + number // 4])
            elif step == "flush":
                await server.store.flush()
            elif step == "read":
                frames = await client.take_waiting()
                client.note(frames, len(frames))
            else:
                await client.leave(number)
                if step == "kill":
                    kills += 1
                    server = await server.kill(Path(top) / str(kills))
                goes_on = step == "cut" or await is_in_journal(server, client.last_id)
                anew = client.read_anew
                await client.come(server)
                assert (client.read_anew == anew) == goes_on, "who has seen what is stored goes on"
        await client.leave(10_000)
        assert by_session(client.got) == by_session(server.history)
        await server.store.close()


@pytest.mark.parametrize("face", ENCODERS)
async def test_a_client_goes_on_within_what_came_together(face: str, tmp_path: Path) -> None:
    """After each frame of a turn of the loop in which two sessions spoke. Their rows are stored in another order than shown."""
    speech = bytes((3, 1, 2, 0)) + bytes((0, 0)) * 12
    one, two = (journal_of(id_, speech) for id_ in SESSIONS)
    for count in range(100):
        server, client = Server(tmp_path / f"{count}", ManualClock(), ENCODERS[face]), Client()
        server.folder.mkdir()
        await server.start()
        server.write(SESSIONS[0], one[:-12])
        server.write(SESSIONS[1], two[:-14])
        await server.store.flush()
        await client.come(server)
        with server.changes.burst, server.states[SESSIONS[0]].journal:
            server.say(SESSIONS[0], one[-12:-8])
            server.say(SESSIONS[1], two[-14:-9])
            server.say(SESSIONS[0], one[-8:])
        await server.store.flush()
        told, came = server.history, len(await client.leave(count))
        server = await server.kill(tmp_path / f"{count} again")
        await client.come(server)
        assert client.read_anew == 1, "it read everything when it came first"
        assert by_session(client.got) == by_session(told)
        await server.store.close()
        if count > came:
            break
    assert count > 5


async def is_in_journal(server: Server, last_id: str) -> bool:
    seen = ReaderPlace.decode(last_id)
    rows = [row for session_id in SESSIONS for row in await server.store.rows(session_id)]
    return seen is not None and any(digits_of(row.event_id) == seen.id for row in rows)
