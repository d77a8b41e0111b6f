"""Ids and places of one session's events on the OpenCode 2 face. Pure: the same journal, the same ids and numbers.

An event's id is `evt_` + 48 bits of time + a tail that counts. A message that is made by an event has the event's id with `msg_`
(clients compute it), and clients compare ids of messages as strings: so an event's value is the highest that the session's
messages have used, and only its tail is higher; the next message's value is above it.
"""

from __future__ import annotations

from collections.abc import Callable

from shim.faces.opencode2.events import NO_LOCATION, VERSIONS, Event2, Wire
from universal.ids import COUNTER_SPAN, MASK, hashed_tail

LETTERS = "abcdefghijklmnopqrstuvwxyz"
"""Ends of the ids of events that accompany another one (`Teller.accompany`)."""


class Teller:
    """Collects the events of one feed. `floor`: the last value that an id of a message or part has used."""

    def __init__(self, session_id: str, floor: Callable[[], int], directory: Callable[[], str]) -> None:
        self._session = session_id
        self._floor = floor
        self._directory = directory
        self._own = hashed_tail(f"{session_id}:2")[:4]
        self._last = 0
        self._count = 0
        self._companions = 0
        self.next_seq = 0
        self.at = 0
        self.out: list[Event2] = []

    def begin(self, at_ms: int) -> None:
        """A new universal event is taken."""
        self.at = at_ms
        self.out = []

    def tell(self, kind: str, data: Wire, *, note: str = "", beside: Wire | None = None, created: int | None = None) -> Event2:
        """One more event; `data` without `sessionID`. `note` and `beside` are for dialects (`Event2.note`).

        `created`: when it happened, if that was before the universal event that told of it.
        """
        self._last = max(self._last, self._floor(), self.at * COUNTER_SPAN & MASK)
        self._count += 1
        version = VERSIONS.get(kind)
        event = Event2(
            f"evt_{self._last:012x}zzz{self._count:07x}{self._own}",
            self.at if created is None else created,
            kind,
            {"sessionID": self._session, **data} if kind != "form.created" else data,
            self._session,
            None if version is None else self.next_seq,
            version,
            None if kind in NO_LOCATION else self._directory(),
            note,
            beside,
        )
        if version is not None:
            self.next_seq += 1
        self._companions = 0
        self.out.append(event)
        return event

    def accompany(self, kind: str, data: Wire) -> None:
        """A live event behind the last one, under its id and a letter: ids of later events and messages stay as they are."""
        id_ = f"evt_{self._last:012x}zzz{self._count:07x}{self._own}{LETTERS[self._companions]}"
        self._companions = min(self._companions + 1, len(LETTERS) - 1)
        data = {"sessionID": self._session, **data}
        self.out.append(Event2(id_, self.at, kind, data, self._session, directory=self._directory()))


def message_id(event: Event2) -> str:
    """The id of the message that this event makes."""
    return f"msg_{event.id.removeprefix('evt_')}"
