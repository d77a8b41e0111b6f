"""Reading event streams in tests: a strict parser of what we send, and events to send."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, NamedTuple

from aiohttp import ClientResponse

from shim.faces.opencode1.events import EventEncoder, encoder_of
from shim.faces.opencode1.wire_event import OpenCodeEvent
from shim.lib.clock import ManualClock
from shim.lib.ids import Ids
from shim.stream.frame import decode_position, normal_scope
from shim.stream.hub import DEFAULT_BOUNDS, Bursts, Hub, HubBounds
from shim.stream.subscription import Batch, Subscription

WAIT_S = 5.0
SENT_MS = 7
"""The time that events of 1.0 are sent at."""


class ReceivedFrame(NamedTuple):
    """One frame as a client sees it: the event that its `id:` line tells the place of, and the JSON."""

    id: str
    data: Any

    @property
    def event(self) -> Any:
        """The event itself, out of its envelope."""
        return self.data.get("payload", self.data)

    @property
    def type(self) -> str:
        return self.event["type"]


def parse(text: bytes) -> list[ReceivedFrame]:
    """Frames of exactly the form that we send; anything else is an error."""
    assert text == b"" or text.endswith(b"\n\n"), text[-80:]
    found: list[ReceivedFrame] = []
    for block in text.split(b"\n\n")[:-1]:
        id_line, data_line = block.split(b"\n")
        assert id_line.startswith(b"id:"), id_line
        assert b" " not in id_line, id_line
        assert data_line.startswith(b"data: {"), data_line
        found.append(ReceivedFrame(decode_position(id_line[3:].decode()), json.loads(data_line[6:])))
    return found


def parse_batches(subscription: Subscription, taken: list[Batch]) -> list[ReceivedFrame]:
    """What a client of this subscription sees of what it has taken."""
    frames = [frame for batch in taken for frame in batch.frames]
    assert b"".join(batch.data for batch in taken) == b"".join(map(subscription.encoder.layout, frames))
    return parse(b"".join(map(subscription.encoder.layout, frames)))


async def drain(subscription: Subscription) -> list[ReceivedFrame]:
    """All that waits now; [] if nothing does. For readers that have something: the greeting, or what was published."""
    found: list[ReceivedFrame] = []
    soon = asyncio.get_running_loop().time() + 0.005
    while got := parse_batches(subscription, await subscription.take(0.0, soon)):
        found += got
    return found


async def frames_of(response: ClientResponse) -> AsyncIterator[ReceivedFrame]:
    """Frames of a real stream as they come, until its end."""
    buffer = b""
    while chunk := await response.content.readany():
        *whole, buffer = (buffer + chunk).split(b"\n\n")
        for block in whole:
            yield parse(block + b"\n\n")[0]
    assert buffer == b""


def make_hub(
    bounds: HubBounds = DEFAULT_BOUNDS,
    soon: Callable[[Callable[[], None]], object] | None = None,
    now: Callable[[], float] = lambda: 0.0,
) -> Hub:
    """A hub whose second burst is always too soon after the first."""
    clock = ManualClock()
    return Hub(clock, Ids(clock), bounds=bounds, bursts=Bursts(soon=soon, now=now))


def sent_ms() -> int:
    return SENT_MS


REQUEST = {"id": "per_1", "sessionID": "ses_1", "permission": "bash", "patterns": ["ls"], "metadata": {}, "always": []}
ASK = OpenCodeEvent("permission.asked", REQUEST, scope="/p", urgent=True, subject=("permission.asked", "per_1"))
ASK_2 = OpenCodeEvent(
    "question.asked",
    {"id": "que_1", "sessionID": "ses_2", "questions": []},
    scope="/q",
    urgent=True,
    subject=("question.asked", "que_1"),
)


def encoder(*, wrapped: bool = False, legacy: bool = False, oldest: bool = False) -> EventEncoder:
    """The encoder of a client: `legacy`, one of 1.1; `oldest`, one of 1.0."""
    return encoder_of(sent_ms, "v1.0" if oldest else "v1.1" if legacy else "v1.18", wrapped=wrapped)


def subscribe(
    hub: Hub,
    *,
    scope: str | None = None,
    last_event_id: str | None = None,
    greeting: Sequence[OpenCodeEvent] = (),
    **client: bool,
) -> Subscription:
    """A reader of OpenCode 1's events. `client` is what `encoder` takes."""
    return hub.subscribe(encoder(**client), scope=scope, last_event_id=last_event_id, greeting=greeting)


def numbered_event(number: int, directory: str | None = "/p", **options: Any) -> OpenCodeEvent:
    """An event that says its number."""
    scope = None if directory is None else normal_scope(directory)
    return OpenCodeEvent("test.said", {"n": number}, scope=scope, **options)


def delta(text: str, part: str = "prt_1", directory: str = "/p") -> OpenCodeEvent:
    """A piece of text."""
    properties = {"sessionID": "ses_1", "messageID": "msg_1", "partID": part, "field": "text", "delta": text}
    return OpenCodeEvent("message.part.delta", properties, scope=directory)


def numbers(found: list[ReceivedFrame]) -> list[int]:
    """The numbers of the events, in order."""
    return [got.event["properties"]["n"] for got in found if got.type == "test.said"]
