"""Adds readers to the hub: for a server alone from the hub, in a cluster from the journals too (`shim.cluster.streams`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from shim.stream.encoder import Encoder, StreamEvent
from shim.stream.frame import Scope
from shim.stream.hub import Hub
from shim.stream.subscription import Subscription

Greeting: TypeAlias = Callable[[Callable[[str], bool]], Sequence[StreamEvent]]
"""Makes events of the present state. In: whether this server shows a session (id) as the reader knows it, or later."""


class MustReadAll(Exception):
    """The client has missed too much, or has seen what is void or was not stored. It reads the state anew."""


class Streams:
    """Adds readers to the hub of a server alone, which has all that a reader can have missed."""

    async def subscribe(
        self,
        hub: Hub,
        encoder: Encoder[Any],
        *,
        last_event_id: str | None,
        scope: Scope = None,
        greeting: Greeting = lambda is_shown: (),
    ) -> Subscription:
        """Add a reader, also one that was cut off at another server of the cluster. As `Hub.subscribe`."""
        events = greeting(lambda session_id: True)  # all sessions are shown as it knows them, or later
        return hub.subscribe(encoder, scope=scope, last_event_id=last_event_id, greeting=events)
