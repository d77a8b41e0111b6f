"""What the ring keeps of an event is small, and keeps nothing of its session alive."""

from __future__ import annotations

import gc
import tracemalloc
import weakref

from shim.faces.opencode1.events import render
from shim.lib.clock import ManualClock
from shim.lib.ids import Ids
from shim.stream.hub import Hub
from tests.unit.stream.reading import delta, make_hub, subscribe
from universal.events import EventType, ItemData, ItemDeltaData, SessionStartedData, Source, TurnData, UniversalEvent
from universal.items import Item, ItemKind, ItemRole, ItemStatus
from universal.session.reducer import Reducer


class Session(Reducer):
    """One that can be looked for."""


def stream_text(hub: Hub) -> weakref.ref[Session]:
    """A session of which a piece of text was told; it is dropped at once."""
    session = Session("ses_a", "mock")
    item = Item(item_id="itm_a", kind=ItemKind.MESSAGE, role=ItemRole.ASSISTANT, status=ItemStatus.IN_PROGRESS)
    info = {"id": "ses_a", "slug": "a", "directory": "/", "projectID": "global", "time": {"created": 1, "updated": 1}}
    info |= {"cost": 0, "tokens": {"input": 0, "output": 0, "reasoning": 0, "cache": {"read": 0, "write": 0}}}
    told = (
        (EventType.SESSION_STARTED, SessionStartedData(metadata={"opencode": info})),
        (EventType.TURN_STARTED, TurnData(phase="started", turn_id="trn_a")),
        (EventType.ITEM_STARTED, ItemData(item=item)),
        (EventType.ITEM_DELTA, ItemDeltaData(item_id="itm_a", delta="word", part_type="text", part_index=0)),
    )
    for sequence, (type_, data) in enumerate(told, 1):
        event = UniversalEvent(
            event_id=f"evt_{sequence}",
            sequence=sequence,
            time="2026-11-21T20:43:04.083Z",
            session_id="ses_a",
            source=Source.AGENT,
            synthetic=False,
            type=type_,
            data=data,
        )
        for out in render(session.apply(event, sequence), session.session, sequence):
            hub.publish(out)
    return weakref.ref(session)


async def test_the_ring_keeps_no_session_alive() -> None:
    clock = ManualClock()
    hub = Hub(clock, Ids(clock))
    readers = [subscribe(hub), subscribe(hub, legacy=True)]  # without them nothing is encoded
    session = stream_text(hub)
    gc.collect()
    assert hub.stats().published > 4
    assert [sum(frame.piece_of is not None for frame in entry.frames.values() if frame) for entry in hub._ring._entries][-1] == 2
    assert session() is None
    for reader in readers:
        reader.close()


async def test_a_piece_of_text_takes_less_than_two_kilobytes_of_the_ring() -> None:
    """orjson's bytes occupy 4 KiB, however short they are: they must not be kept."""
    hub, count = make_hub(), 500
    reader = subscribe(hub)
    await reader.take()
    tracemalloc.start()
    try:
        for _ in range(count):
            hub.publish(delta("word "))
            await reader.take()
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert hub.stats().published == count
    assert size / count < 2048
    reader.close()
