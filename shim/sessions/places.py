"""Positions of the streams of a cluster: what a client has seen of all journals, so that it can go on at any server.

    LOCAL.SHARED      LOCAL   this server and the place in its own stream
                      SHARED  how far this server has shown the messages of all journals, and the sessions for which that is not
                              exact: events that are shown and not stored yet, or stored and not shown yet

The number of a message in the stream of journals is the same for all servers. Another server sends what came after it, and skips
or adds what the sessions say. A session with nothing on its way costs no byte, so a position has 26 to 43 characters as a rule.
An event's id depends on its place in the journal alone. SHARED is a text, and not packed: each piece of text makes one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import takewhile

from shim.sessions.feed import SessionChanges
from shim.store.peers import Growth
from shim.stream.positions import SEPARATOR, local_part
from universal.ids import COUNTER_SPAN, MASK

HISTORY = 65_536
"""Maximum messages that are remembered, after which a client can go on."""
EARLY = 4_096
"""Maximum messages that wait for an earlier one."""
EXCEPTIONS = 64
"""Maximum sessions in a position. With more, a position is understood by its own server only."""
HASH_BYTES = 4
"""Bytes of the hash of a server's or a session's id."""
STORED = 0
"""Epoch of a session whose events are read from the journal: nobody can lose them."""
SESSION, FIELD = "~", ","
"""What stands before each session of a position, and between its fields."""
NUMBER_CHARS = 12
"""Maximum hexadecimal digits of a number in a position."""


@dataclass(frozen=True, slots=True)
class Progress:
    """What a client has seen of a session.

    tag    the hash of the session's id
    next   the first event that it has not seen, or not completely
    count  how many events of its face that event had made, which it has seen
    epoch  of the owner who showed the events before they were stored; STORED if they were read from the journal
    """

    tag: str
    next: int
    count: int
    epoch: int

    @property
    def last(self) -> int:
        """The last event of which the client has seen something."""
        return self.next if self.count else self.next - 1

    @property
    def may_be_lost(self) -> bool:
        """Whether events that the client has seen may be missing in the journal, because their server died."""
        return self.epoch != STORED


@dataclass(frozen=True, slots=True)
class Viewpoint:
    """What a client has seen: all messages up to `position`, but of these sessions as they say."""

    position: int
    sessions: tuple[Progress, ...] = ()


@dataclass(slots=True, eq=False)
class _Place:
    """How far a session is shown here, while that differs from what is stored.

    first           the first event that was not exact
    last, position  the newest message that was noted: its last event, its number
    text            itself in a position; empty if it must be made
    """

    tag: str
    next: int
    epoch: int
    first: int
    count: int = 0
    last: int = 0
    position: int = 0
    text: str = ""

    def encode(self) -> str:
        """Itself in a position."""
        self.text = _encode_session(self)
        return self.text


class Places:
    """The positions of this server's streams. Used from one event loop.

    In: `epoch_of`, the number of this server's ownership of a session; `position`, the last message before this server began.
    """

    def __init__(self, server_id: str, epoch_of: Callable[[str], int], position: int) -> None:
        self._server = hash_of(server_id)
        self._epoch_of = epoch_of
        self._position = self._since = position
        self._floor = f"{SEPARATOR}{position:x}"
        self._places: dict[str, _Place] = {}
        self._history: deque[Growth] = deque()
        self._early: dict[int, Growth] = {}
        self._tags: dict[str, str] = {}
        self._sessions: dict[str, str] = {}
        """The sessions of the messages by their tags."""
        self._current: _Place | None = None
        self._event_id = ""

    # --- positions of events -----------------------------------------------------------------------------------------

    def begin(self, change: object) -> None:
        """As `Positions.begin`."""
        self._current = None
        if isinstance(change, SessionChanges) and change.sequence:
            self._current = place = self._place_of(change)
            place.next, place.count = change.sequence, 0
            self._event_id = event_id(place.tag, change.sequence, change.at_ms)

    def next(self, moment: str) -> tuple[str, str]:
        """As `Positions.next`."""
        place = self._current
        if place is None:
            return self._text(moment), moment
        id_ = f"{self._event_id}{place.count:02x}"
        place.count += 1
        place.text = ""
        return self._text(moment), id_

    def end(self, change: object) -> None:
        """As `Positions.end`."""
        self._current = None
        if isinstance(change, SessionChanges) and change.sequence:
            place = self._place_of(change)
            place.next, place.count, place.text = change.sequence + 1, 0, ""
            if place.last == change.sequence:
                self._drop_if_exact(change.session.id)

    def renew(self, position: str) -> str:
        """As `Positions.renew`."""
        return local_part(position) + self._shared_part()

    def _place_of(self, change: SessionChanges) -> _Place:
        session_id = change.session.id
        place = self._places.get(session_id)
        if place is None:
            place = self._places[session_id] = _Place(hash_of(session_id), change.sequence, self._epoch(change), change.sequence)
        elif (place.epoch == STORED) != change.is_stored:
            place.epoch = self._epoch(change)
        return place

    def _epoch(self, change: SessionChanges) -> int:
        return STORED if change.is_stored else self._epoch_of(change.session.id)

    def _text(self, moment: str) -> str:
        return f"{self._server}{moment[4:]}{self._shared_part()}"

    def _shared_part(self) -> str:
        places = self._places
        if len(places) > EXCEPTIONS:
            return SEPARATOR
        return self._floor + "".join([place.text or place.encode() for place in places.values()]) if places else self._floor

    # --- messages of journals ----------------------------------------------------------------------------------------

    @property
    def position(self) -> int:
        """The message up to which all were noted."""
        return self._position

    @property
    def since(self) -> int:
        """The message after which all are remembered."""
        return self._since

    def note(self, growth: Growth, shown: int | None) -> None:
        """Note a message.

        In: `shown`, the last event of a session of another server that the readers here have got; None: no reader waits.
        """
        if growth.position <= self._position:
            return
        place = self._places.get(growth.session_id)
        if place is None and shown is not None and shown < growth.last:
            place = self._places[growth.session_id] = _Place(hash_of(growth.session_id), shown + 1, STORED, shown + 1)
        if place is not None and growth.position > place.position:
            place.last, place.position = growth.last, growth.position
        if len(self._early) < EARLY:
            self._early[growth.position] = growth
        self._note_session(growth.session_id)
        self._advance()

    def _note_session(self, session_id: str) -> None:
        if session_id not in self._tags:
            if len(self._tags) >= HISTORY:
                self._tags.clear()
                self._sessions.clear()
            self._tags[session_id] = tag = hash_of(session_id)
            self._sessions[tag] = session_id

    def hole(self) -> tuple[int, int] | None:
        """The messages (after, until) that were not noted although later ones were, or None."""
        return (self._position, min(self._early) - 1) if self._early else None

    def close_hole(self, until: int) -> None:
        """Go on after a hole of which all messages that are still there were noted."""
        skipped = sorted(position for position in self._early if position <= until)
        for position in skipped:
            self._remember(self._early.pop(position))
        self._position = max(self._position, until)
        self._advance()

    def exception_ids(self) -> list[str]:
        """The sessions of which more is shown than stored, or more stored than shown."""
        return list(self._places)

    def forget(self, session_id: str) -> None:
        """Forget how far a session is shown, because it is gone or no reader waits for it."""
        self._places.pop(session_id, None)

    def _advance(self) -> None:
        while (growth := self._early.pop(self._position + 1, None)) is not None:
            self._position += 1
            self._remember(growth)
        self._floor = f"{SEPARATOR}{self._position:x}"
        for session_id in tuple(self._places):
            self._drop_if_exact(session_id)

    def _remember(self, growth: Growth) -> None:
        self._history.append(growth)
        if len(self._history) > HISTORY:
            self._since = self._history.popleft().position

    def _drop_if_exact(self, session_id: str) -> None:
        place = self._places.get(session_id)
        if place is not None and place.next == place.last + 1 and not place.count and place.position <= self._position:
            del self._places[session_id]

    # --- clients of other servers ------------------------------------------------------------------------------------

    def after(self, position: int) -> list[Growth]:
        """The messages after a position that were noted, oldest first, also those that wait for an earlier one."""
        newest_first = takewhile(lambda growth: growth.position > position, reversed(self._history))
        early = (self._early[number] for number in sorted(self._early) if number > position)
        return [*reversed(list(newest_first)), *early]

    def remember_before(self, growths: Sequence[Growth], since: int) -> None:
        """Remember messages that were written before this server began, all after `since`."""
        self._history.extendleft(reversed(growths))
        for growth in growths:
            self._note_session(growth.session_id)
        self._since = since

    def last_of(self, session_id: str) -> int:
        """The last event of a session that was noted or, by its owner, shown. 0 for an unknown session."""
        growths = (*self._history, *self._early.values())
        last = max((growth.last for growth in growths if growth.session_id == session_id), default=0)
        place = self._places.get(session_id)
        return last if place is None or place.epoch == STORED else max(last, place.next - 1)

    def has_shown(self, position: int) -> bool:
        """Whether the readers here have got all that is stored up to a message."""
        behind = {session_id: place for session_id, place in self._places.items() if place.epoch == STORED}
        for growth in reversed(self._history):
            if growth.position <= position and (place := behind.get(growth.session_id)) is not None and growth.has_events:
                if place.next <= growth.last:
                    return False
                del behind[growth.session_id]
            if not behind:
                break
        return True

    def first_after(self, session_id: str) -> int | None:
        """The first event of a session that is shown here and in no message that was noted. None if there is none."""
        place = self._places.get(session_id)
        if place is None:
            return None
        first = max(place.first, place.last + 1)
        return first if first < place.next or place.count else None

    def session_of(self, tag: str) -> str | None:
        """The session with this tag, if there were messages of it lately."""
        return self._sessions.get(tag)


class ReplayPositions:
    """The positions of events that are sent again: what the client has seen, and these. No local part."""

    def __init__(self, viewpoint: Viewpoint) -> None:
        self._position = viewpoint.position
        self._sessions = {progress.tag: progress for progress in viewpoint.sessions}

    def show(self, tag: str, sequence: int, count: int) -> str:
        """The position after so many events of a face that an event of the journal has made."""
        self._sessions[tag] = Progress(tag, sequence, count, STORED)
        return SEPARATOR + encode_viewpoint(Viewpoint(self._position, tuple(self._sessions.values())))


def hash_of(id_: str) -> str:
    """The hash of the id of a session or a server, for positions and ids of events."""
    return blake2b(id_.encode(), digest_size=HASH_BYTES).hexdigest()


def event_id(tag: str, sequence: int, at_ms: int) -> str:
    """The beginning of the ids of the events that an event of the journal makes; two hex digits for the number follow."""
    return f"evt_{(at_ms * COUNTER_SPAN + sequence % COUNTER_SPAN) & MASK:012x}{tag}"


def encode_viewpoint(viewpoint: Viewpoint) -> str:
    """Encode what a client has seen. Empty if there are too many sessions."""
    if len(viewpoint.sessions) > EXCEPTIONS:
        return ""
    return f"{viewpoint.position:x}{''.join(map(_encode_session, viewpoint.sessions))}"


def _encode_session(session: Progress | _Place) -> str:
    return f"{SESSION}{session.tag}{FIELD}{session.next:x}{FIELD}{session.count:x}{FIELD}{session.epoch:x}"


def decode_viewpoint(last_event_id: str) -> Viewpoint | None:
    """Decode the part of a client's `Last-Event-ID` for all servers, or None if it has none."""
    position, *sessions = last_event_id.partition(SEPARATOR)[2].split(SESSION)
    if len(sessions) > EXCEPTIONS:
        return None
    try:
        return Viewpoint(_number(position), tuple(_progress(*session.split(FIELD)) for session in sessions))
    except (ValueError, TypeError):
        return None


def _progress(tag: str, next_: str, count: str, epoch: str) -> Progress:
    return Progress(tag, _number(next_), _number(count), _number(epoch))


def _number(text: str) -> int:
    """Decode a number. Raises ValueError."""
    if len(text) > NUMBER_CHARS or not text.isascii() or not text.isalnum():
        raise ValueError("no number of a position")
    return int(text, 16)
