"""The streams of `/api/event`: frames by dialect, made once; positions; replay; slow readers; and what is thrown away."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from shim.faces.opencode1.events import encoder_of
from shim.faces.opencode1.wire_event import OpenCodeEvent
from shim.faces.opencode2.dialects import Dialect
from shim.faces.opencode2.stream import ENCODERS, HEARTBEAT, KEEP_S, READER_FRAMES, DialectEncoder
from shim.faces.opencode2.wire_event import Event
from shim.lib.clock import ManualClock
from shim.lib.ids import Ids
from shim.stream.frame import encode_position
from shim.stream.hub import Bursts, Face, Hub, HubBounds
from shim.stream.subscription import Bounds, State, Subscription

V2_0, PREVIEW = ENCODERS["v2_0"], ENCODERS["preview"]
OPENCODE1 = encoder_of(lambda: 0, "v1.18", wrapped=False)
FACE = Face("opencode2", keep_s=KEEP_S, keeps_events=True)
DEFAULT_BOUNDS = HubBounds(Bounds(frames=READER_FRAMES))


def make(bounds: HubBounds = DEFAULT_BOUNDS, bursts: Bursts | None = None) -> tuple[Hub, ManualClock]:
    """A hub with the bounds that `shim.main.app` gives it."""
    clock = ManualClock()
    return Hub(clock, Ids(clock), bounds=bounds, bursts=bursts, faces=(FACE,)), clock


def place(position: str) -> str:
    return encode_position(position).decode()


def delta(text: str, ordinal: int = 0) -> Event:
    data = {"sessionID": "ses_1", "assistantMessageID": "msg_1", "ordinal": ordinal, "delta": text}
    return Event("evt_d", 1, "session.text.delta", data, "ses_1", directory="/p")


def rename_event(number: int) -> Event:
    return Event(f"evt_{number}", 1, "session.renamed", {"sessionID": "ses_1", "title": str(number)}, "ses_1", number, 1, "/p")


async def read_events(reader: Subscription) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while batches := await reader.take(0.0, 0.0):
        for frame in (frame for batch in batches for frame in batch.frames):
            text = reader.encoder.layout(frame).decode()
            if text.startswith(":"):
                continue
            head, body = text.removesuffix("\n\n").split("\n")
            assert head == f"id: {place(frame.position)}"
            found.append({**json.loads(body.removeprefix("data: ")), "place": frame.position})
    return found


def kinds(found: list[dict[str, Any]]) -> list[str]:
    return [one["type"] for one in found]


async def test_a_reader_begins_with_connected_and_a_comment() -> None:
    hub, _ = make()
    reader = hub.subscribe(V2_0)
    (batch,) = await reader.take(0.0, 0.0)
    first, beat = (reader.encoder.layout(frame) for frame in batch.frames)
    assert beat == HEARTBEAT
    assert json.loads(first.split(b"data: ")[1])["type"] == "server.connected"
    assert "created" not in json.loads(first.split(b"data: ")[1])


async def test_each_reader_gets_its_dialect_and_each_form_is_encoded_once() -> None:
    made: list[str] = []

    def event(one: Event) -> Event | None:
        made.append(one.id)
        return None if one.type == "session.text.delta" else one

    mute = DialectEncoder(Dialect("mute", event=event))
    hub, _ = make()
    readers = [hub.subscribe(mute), hub.subscribe(mute), hub.subscribe(V2_0)]
    hub.publish(delta("x"))
    hub.publish(rename_event(1))
    assert [kinds(await read_events(reader))[1:] for reader in readers] == [
        ["session.renamed"],
        ["session.renamed"],
        ["session.text.delta", "session.renamed"],
    ]
    assert made == ["evt_d", "evt_1"]


async def test_the_envelope_is_that_of_the_wire() -> None:
    hub, _ = make()
    reader = hub.subscribe(V2_0)
    hub.publish(rename_event(7))
    event = (await read_events(reader))[1]
    del event["place"]
    assert event == {
        "id": "evt_7",
        "created": 1,
        "type": "session.renamed",
        "durable": {"aggregateID": "ses_1", "seq": 7, "version": 1},
        "location": {"directory": "/p"},
        "data": {"sessionID": "ses_1", "title": "7"},
    }


async def test_pieces_of_one_text_are_joined_for_a_reader_that_is_behind() -> None:
    hub, _ = make(HubBounds(Bounds(10, 1 << 20, grace_s=0), 100, 1 << 20))
    reader = hub.subscribe(V2_0)
    for index in range(30):
        hub.publish(delta(f"{index} ", ordinal=index // 15))
    hub.publish(rename_event(1))
    for _ in range(2):
        await asyncio.sleep(0)  # it is judged when the loop has turned
    found = (await read_events(reader))[1:]
    assert reader.state is State.OPEN
    assert kinds(found) == ["session.text.delta"] * 2 + ["session.renamed"]
    assert found[0]["data"]["delta"] == "".join(f"{n} " for n in range(15))
    assert found[1]["data"]["delta"] == "".join(f"{n} " for n in range(15, 30))


async def test_a_reader_that_does_not_read_is_cut_off_and_comes_back() -> None:
    hub, _ = make(HubBounds(Bounds(4, 1 << 20), 100, 1 << 20))
    slow = hub.subscribe(V2_0)
    last = (await read_events(slow))[0]["place"]
    for number in range(40):
        hub.publish(rename_event(number))
    assert slow.state is State.DROPPED
    assert hub.stats().dropped == 1
    again = hub.subscribe(V2_0, last_event_id=place(last))
    found = await read_events(again)
    assert found[0]["place"] == last
    assert [one["data"]["title"] for one in found[1:]] == [str(number) for number in range(40)]


async def test_a_burst_is_one_batch_for_each_reader_in_its_dialect() -> None:
    bursts = Bursts(now=lambda: 0.0)
    mute = DialectEncoder(Dialect("mute", event=lambda one: None if one.type == "session.text.delta" else one))
    hub, _ = make(bursts=bursts)
    readers = [hub.subscribe(V2_0), hub.subscribe(V2_0), hub.subscribe(mute)]
    for reader in readers:
        await read_events(reader)
    with bursts:
        hub.publish(rename_event(1))
        hub.publish(delta("x"))
        assert not any(reader._live for reader in readers)
        late = hub.subscribe(V2_0)  # has what was said before at once, and for nobody is it lost
        assert [len(reader._live) for reader in readers] == [1, 1, 1]
        hub.publish(rename_event(2))
        hub.publish(delta("y"))
    batches = [tuple(reader._live)[-1] for reader in (*readers, late)]
    assert batches[0] is batches[1] is batches[3]
    told = ["session.renamed", "session.text.delta"]
    assert [kinds(await read_events(reader)) for reader in readers] == [[*told, *told], [*told, *told], ["session.renamed"] * 2]
    assert kinds(await read_events(late)) == ["server.connected", *told]


async def test_something_urgent_does_not_wait_for_the_bursts_after_it() -> None:
    turns: list[Callable[[], None]] = []
    bursts = Bursts(soon=turns.append, now=lambda: 0.0)
    hub, _ = make(bursts=bursts)
    reader = hub.subscribe(V2_0)
    await read_events(reader)

    def publish(event: Event) -> int:
        with bursts:
            hub.publish(event)
        return len(reader._live)

    asked = Event("evt_a", 1, "permission.asked", {"id": "per_1", "sessionID": "ses_1"}, "ses_1", directory="/p")
    assert [publish(rename_event(1)), publish(rename_event(2)), publish(asked)] == [1, 1, 2]
    assert len(turns) == 1
    assert kinds(await read_events(reader)) == ["session.renamed", "session.renamed", "permission.asked"]


async def test_a_replay_is_in_the_dialect_of_who_asks() -> None:
    hub, _ = make()
    reader = hub.subscribe(V2_0)
    hub.publish(rename_event(1))
    data = {"sessionID": "ses_1", "agent": "plan"}
    hub.publish(Event("evt_2", 1, "session.agent.selected", data, "ses_1", 2, 1, "/p"))
    first = (await read_events(reader))[1]
    assert kinds(await read_events(hub.subscribe(PREVIEW, last_event_id=first["id"])))[1:] == ["session.next.agent.switched"]


async def test_events_are_wanted_for_a_while_after_the_last_reader_left() -> None:
    hub, clock = make()
    assert not hub.wants("opencode2")
    reader = hub.subscribe(V2_0)
    last = (await read_events(reader))[0]["place"]
    reader.close()
    assert hub.wants("opencode2")
    hub.publish(rename_event(1))
    assert kinds(await read_events(hub.subscribe(V2_0, last_event_id=place(last)))) == ["server.connected", "session.renamed"]
    for one in hub._all_readers():
        one.close()
    clock.value_ms += int(KEEP_S * 1000) + 1
    assert not hub.wants("opencode2")
    # What happened since is not known: the ring has a hole, so nothing is replayed from before it.
    assert kinds(await read_events(hub.subscribe(V2_0, last_event_id=place(last)))) == ["server.connected"]
    assert hub.stats().replay_missed == 1


async def test_a_reader_is_sent_events_of_its_face_alone() -> None:
    """Live, and when it asks for what it missed."""
    hub, _ = make()
    first, second = hub.subscribe(OPENCODE1), hub.subscribe(V2_0)
    start = (await read_events(second))[0]["place"]
    hub.publish(OpenCodeEvent("session.updated", {"sessionID": "ses_1"}, "/p"))
    hub.publish(rename_event(1))
    assert kinds(await read_events(second)) == ["session.renamed"]
    assert kinds(await read_events(hub.subscribe(V2_0, last_event_id=place(start)))) == ["server.connected", "session.renamed"]
    sent = b"".join(batch.data for batch in await first.take(0.0, 0.0))
    assert (sent.count(b"session.updated"), sent.count(b"session.renamed")) == (1, 0)


async def test_a_face_without_readers_makes_no_events() -> None:
    asked: list[object] = []

    def render(change: object) -> list[Event]:
        asked.append(change)
        return [rename_event(1)]

    hub, _ = make()
    hub.add_face(FACE._replace(render=render))
    hub.emit("change")
    assert asked == []
    reader = hub.subscribe(V2_0)
    hub.emit("change")
    assert asked == ["change"]
    assert kinds(await read_events(reader)) == ["server.connected", "session.renamed"]


async def test_the_end() -> None:
    hub, _ = make()
    reader = hub.subscribe(V2_0)
    hub.close()
    hub.publish(rename_event(1))
    assert kinds(await read_events(reader)) == ["server.connected"]
    assert reader.over
    assert hub.subscribe(V2_0).state is State.ENDING
