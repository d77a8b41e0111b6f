"""Opens event streams, and sends what a client has missed at another server of the cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import structlog

from shim.cluster.places import ReplayPositions, Viewpoint, event_id, hash_of
from shim.cluster.replays import Gap, Replays
from shim.lib.errors import SessionElsewhere, SessionNotFound, StoreError
from shim.stream.encoder import Encoder
from shim.stream.frame import Frame, Scope, normal_scope
from shim.stream.hub import LOGGED_CHARS, Hub, wants
from shim.stream.streams import Greeting, MustReadAll, Streams
from shim.stream.subscription import Subscription

REPLAY_S = 5.0
"""Maximum seconds in which what a client has missed is read."""
READS_AT_ONCE = 8
"""Sessions whose journals are read at the same time for one client."""

OF_ONE_SESSION = (SessionElsewhere, SessionNotFound)
"""Errors that say nothing of the other sessions: the client reads everything again."""

log = structlog.get_logger()


class ClusterStreams(Streams):
    """The `Streams` of a server in a cluster. In: `replays`, what clients of other servers have missed."""

    def __init__(self, replays: Replays) -> None:
        self._replays = replays

    async def subscribe(
        self,
        hub: Hub,
        encoder: Encoder[Any],
        *,
        last_event_id: str | None,
        scope: Scope = None,
        greeting: Greeting = lambda is_shown: (),
    ) -> Subscription:
        """Add a reader, also one that was cut off at another server of the cluster. As `Hub.subscribe`.

        What it has missed there comes after the first frames and before the greeting. What it has seen there, and this server has
        not shown yet, does not come again. If that is not possible, the client must read everything again, as for an unknown id:
        the `id:` of `server.connected` is then not the one that it has sent. Raises StoreError if this server stays
        behind what is stored then.
        """
        with suppress(TimeoutError):  # requests that may have been answered are not shown then
            async with asyncio.timeout(REPLAY_S):
                await self._replays.attend()
                await self._replays.freshen_requests()
        viewpoint: Viewpoint | None = None
        if last_event_id:  # the hub has not seen what was stored elsewhere while nobody listened here
            with suppress(*OF_ONE_SESSION):
                viewpoint = await self._replays.prepare(last_event_id)
        if viewpoint is not None and last_event_id is not None:
            try:
                return await _go_on(hub, self._replays, encoder, viewpoint, last_event_id, scope, greeting)
            except (StoreError, *OF_ONE_SESSION, TimeoutError, MustReadAll) as error:  # of one session, and not of all
                wire = encoder.generation
                log.info("replay.read_all", wire=wire, last_event_id=last_event_id[:LOGGED_CHARS], scope=scope, why=repr(error))
        if last_event_id:
            await self._replays.catch_up(last_event_id)
        known = None if viewpoint is not None else last_event_id  # perhaps this server alone understands it
        return hub.subscribe(encoder, scope=scope, last_event_id=known, greeting=greeting(self._replays.is_current))


async def _go_on(
    hub: Hub,
    replays: Replays,
    encoder: Encoder[Any],
    viewpoint: Viewpoint,
    last_event_id: str,
    scope: Scope,
    greeting: Greeting,
) -> Subscription:
    """Add a reader that goes on after `viewpoint`. Raises MustReadAll, StoreError and TimeoutError."""

    def is_wanted(directory: str) -> bool:
        return wants(normal_scope(scope) if isinstance(scope, str) else scope, normal_scope(directory))

    # All in one step of the loop: later events come by themselves.
    gaps = replays.gaps(viewpoint, is_wanted)
    repeats = replays.repeats(viewpoint, gaps, is_wanted)
    subscription = hub.subscribe(encoder, scope=scope, position=last_event_id, repeats=repeats)
    try:
        events = greeting(
            lambda session_id: replays.is_current(session_id) and (repeats is None or not repeats.is_behind(session_id))
        )
        opening = hub.encode_greeting(subscription, events)
        async with asyncio.timeout(REPLAY_S):
            missed = await _read_all(hub, replays, encoder, gaps)
    except BaseException:  # a client that has gone must not stay a reader
        subscription.close()
        raise
    replayed = {event.subject for event in missed} - {None}
    subscription.extend_opening(_in_order(missed, ReplayPositions(viewpoint)))
    subscription.extend_opening(frame for subject, frame in opening if subject not in replayed)
    return subscription


class _MissedEvent(NamedTuple):
    """A missed event. `at_ms`: not before the one before it of its session; `number`: its place among those of its change."""

    at_ms: int
    tag: str
    sequence: int
    number: int
    subject: tuple[str, str] | None
    frame: Frame


async def _read_all(hub: Hub, replays: Replays, encoder: Encoder[Any], gaps: Sequence[Gap]) -> list[_MissedEvent]:
    """Read and encode the missed events of all sessions, READS_AT_ONCE at the same time."""
    slots = asyncio.Semaphore(READS_AT_ONCE)

    async def read(gap: Gap) -> list[_MissedEvent]:
        async with slots:
            return await _read(hub, replays, encoder, gap)

    tasks = [asyncio.create_task(read(gap), name=f"replay {gap.session_id}") for gap in gaps]
    try:
        return [event for found in await asyncio.gather(*tasks) for event in found]
    finally:
        for task in tasks:
            task.cancel()


async def _read(hub: Hub, replays: Replays, encoder: Encoder[Any], gap: Gap) -> list[_MissedEvent]:
    """Read and encode the missed events of a session."""
    found: list[_MissedEvent] = []
    tag, at_ms = hash_of(gap.session_id), 0
    async for change in replays.changes(gap):
        at_ms, id_ = max(at_ms, change.at_ms), event_id(tag, change.sequence, change.at_ms)
        for number, event in enumerate(hub.render(encoder.face, change)):
            if change.sequence == gap.start and number < gap.count:
                continue
            frame = encoder.encode(event, f"{id_}{number:02x}", "")
            if frame is not None:
                found.append(_MissedEvent(at_ms, tag, change.sequence, number + 1, event.subject, frame))
    return found


def _in_order(missed: list[_MissedEvent], replayed: ReplayPositions) -> list[Frame]:
    """The frames by time, each with the position of a client that has seen all before it."""
    ordered = sorted(missed, key=lambda event: event.at_ms)
    return [event.frame._replace(position=replayed.show(event.tag, event.sequence, event.number)) for event in ordered]
