"""What statistics need of sessions: their messages without what was said, read from the journal once for each state of it.

    Counted.of(session)  -> `Session.Info` and messages in R's form with only what `shim.faces.opencode2.stats` looks at

Sessions are read one after the other, whoever asks, and no view of one is made for it. What was read is kept, some 200 bytes for
each step of a model, of at most KEPT sessions; one that has changed since is read again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from shim.clock import from_rfc3339
from shim.faces.opencode2.events import Wire
from shim.faces.opencode2.projector import Projector2
from shim.faces.opencode2.state import Conversation2
from shim.sessions.journal_loader import PAGE, SLICE, join_deltas
from shim.store.base import Store
from universal.events import UniversalEvent

KEPT = 10_000


@dataclass(frozen=True, slots=True)
class Summary:
    """`messages` in order; `sequence` is the last of the journal that is in them."""

    sequence: int
    info: Wire
    messages: tuple[Wire, ...]


class Counted:
    """In: `projector_of` begins the projection of a session with its first event; `seen`, a session's view if there is one."""

    def __init__(
        self, store: Store, projector_of: Callable[[UniversalEvent], Projector2], seen: Callable[[str], Conversation2 | None]
    ) -> None:
        self._store = store
        self._projector_of = projector_of
        self._seen = seen
        self._kept: dict[str, Summary] = {}
        self._reading = asyncio.Lock()
        self.read = 0
        """Sessions that were read from the journal so far."""

    async def of(self, session_id: str) -> Summary | None:
        """None for a session that is gone, or has nothing yet. Raises StoreError."""
        async with self._reading:
            kept = self._kept.pop(session_id, None)
            if kept is None or kept.sequence != self._store.last_sequence(session_id):
                kept = await self._summary(session_id)
            if kept is not None:
                self._kept[session_id] = kept  # the last one: the one that was used last
                if len(self._kept) > KEPT:
                    del self._kept[next(iter(self._kept))]
            return kept

    async def _summary(self, session_id: str) -> Summary | None:
        sequence = self._store.last_sequence(session_id)
        if (view := self._seen(session_id)) is not None:
            return _of(sequence, view)
        self.read += 1
        projector, sequence = None, 0
        while page := await self._store.brief(session_id, sequence, PAGE):
            for number, event in enumerate(join_deltas(page)):
                projector = projector or self._projector_of(event)
                projector.feed(event, from_rfc3339(event.time))
                if number % SLICE == 0:
                    await asyncio.sleep(0)
            sequence = page[-1].sequence
        return None if projector is None else _of(sequence, projector.conversation)


def _of(sequence: int, conversation: Conversation2) -> Summary:
    return Summary(sequence, conversation.info, tuple(_counted(conversation.messages.values())))


def _counted(messages: Iterable[Wire]) -> Iterable[Wire]:
    for message in messages:
        kept: Wire = {"type": message["type"], "time": {"created": message["time"]["created"]}}
        if message["type"] == "assistant":
            tools = [one for one in message["content"] if one["type"] == "tool"]
            kept["content"] = [
                {"type": "tool", "name": one["name"], "time": one["time"], "state": {"status": one["state"]["status"]}}
                for one in tools
            ]
            kept |= {key: message[key] for key in ("model", "cost", "tokens") if key in message}
        if message["type"] in ("assistant", "user"):
            yield kept
