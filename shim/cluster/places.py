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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import takewhile
from typing import NamedTuple, Protocol

from shim.cluster.peers import Growth
from shim.sessions.feed import SessionChanges
from shim.stream.encoder import SEPARATOR, local_part
from universal.lib.ids import COUNTER_SPAN, MASK

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
VOID = "v"
"""Last field of a session of which a client has seen what another owner has replaced."""
NUMBER_CHARS = 12
"""Maximum hexadecimal digits of a number in a position."""


@dataclass(frozen=True, slots=True)
class Progress:
    """What a client has seen of a session.

    tag    the hash of the session's id
    next   the first event that it has not seen, or not completely
    count  how many events of its face that event had made, which it has seen
    epoch  of the owner who showed the events before they were stored; STORED if they were read from the journal
    is_void  events among them were never stored: the next owner has written others in their place
    """

    tag: str
    next: int
    count: int
    epoch: int
    is_void: bool = False

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


class CurrentEvent(NamedTuple):
    """The event of a face that is being published: its session, the event of the journal, its number among those of its change.

    epoch  of the owner who shows it; STORED if it was read from the journal
    """

    tag: str
    sequence: int
    number: int
    epoch: int


class Watcher(Protocol):
    """Is told what `Places` learns, for a client that has seen more elsewhere."""

    def note(self, growth: Growth, tag: str, shown: int | None) -> None:
        """A message was noted (`Places.note`)."""
        ...

    def orphans(self, is_orphan: Callable[[str], bool]) -> None:
        """Perhaps a server lives no more that had a session."""
        ...

    def end(self, tag: str, sequence: int) -> None:
        """All faces have published an event of a session."""
        ...

    def forget(self, tag: str) -> None:
        """No more events of a session are awaited here."""
        ...

    def seams(self, tag: str) -> set[int]:
        """The events of a session after which pieces of text may not be joined with those before."""
        ...


@dataclass(slots=True, eq=False)
class _Place:
    """How far a session is shown here, while that differs from what is stored.

    is_void         another owner has written in the place of events that are shown
    first           the first event that was not exact
    last, position  the newest message that was noted: its last event, its number
    text            itself in a position; empty if it must be made
    """

    tag: str
    next: int
    epoch: int
    first: int
    count: int = 0
    is_void: bool = False
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
        self._history_of: dict[str, deque[Growth]] = {}
        """The same by session."""
        self._early: dict[int, Growth] = {}
        self._tags: dict[str, str] = {}
        self._sessions: dict[str, str] = {}
        """The sessions of the messages by their tags."""
        self._current: _Place | None = None
        self._event_id = ""
        self._watchers: list[Watcher] = []

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
            for watcher in tuple(self._watchers):
                watcher.end(place.tag, change.sequence)

    @property
    def current(self) -> CurrentEvent | None:
        """The event of a face that is being published, after its `next`. None if it is in no journal."""
        place = self._current
        return None if place is None else CurrentEvent(place.tag, place.next, place.count - 1, place.epoch)

    def renew(self, position: str) -> str:
        """As `Positions.renew`."""
        return local_part(position) + self._shared_part()

    def _place_of(self, change: SessionChanges) -> _Place:
        session_id = change.session.id
        place = self._places.get(session_id)
        if place is None:
            place = self._places[session_id] = _Place(hash_of(session_id), change.sequence, self._epoch(change), change.sequence)
        else:
            place.epoch = self._epoch(change)
        is_replaced = place.last >= change.sequence  # another owner has stored others in their place, and no look has told that
        place.is_void = (place.is_void or is_replaced) and not change.is_stored
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

    def with_sessions(self, position: str, sessions: Mapping[str, Progress]) -> str:
        """The same place in this server's stream, for a client that has seen other events of these sessions (by tag)."""
        if len(self._places) + len(sessions) > EXCEPTIONS:
            return local_part(position) + SEPARATOR
        ours = (place.text or place.encode() for place in self._places.values() if place.tag not in sessions)
        return "".join((local_part(position), self._floor, *ours, *map(_encode_session, sessions.values())))

    # --- messages of journals ----------------------------------------------------------------------------------------

    @property
    def position(self) -> int:
        """The message up to which all were noted."""
        return self._position

    @property
    def newest(self) -> int:
        """The newest message that was noted. Some before it may be missing."""
        return max(self._early, default=self._position)

    @property
    def since(self) -> int:
        """The message after which all are remembered."""
        return self._since

    def note(self, growth: Growth, shown: int | None) -> None:
        """Note a message.

        In: `shown`, the last event of a session of another server that the readers here have got; None: no reader waits.
        """
        for watcher in tuple(self._watchers):
            watcher.note(growth, hash_of(growth.session_id), shown)
        place = self._places.get(growth.session_id)
        if place is None and shown is not None and shown < growth.last:
            place = self._places[growth.session_id] = _Place(hash_of(growth.session_id), shown + 1, STORED, shown + 1)
        if place is not None and growth.position > place.position:
            place.last, place.position = growth.last, growth.position
            if place.epoch != STORED and growth.epoch > place.epoch and growth.first < place.next + (place.count > 0):
                place.is_void, place.text = True, ""
        if growth.position <= self._position:
            return  # it is known, or from before this server's start and shown only now
        if len(self._early) < EARLY:
            self._early[growth.position] = growth
        self.learn(growth.session_id)
        self._advance()

    def learn(self, session_id: str) -> None:
        """Note the tag of a session."""
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

    def is_unstored(self, session_id: str) -> bool:
        """Whether readers here have got events of a session that this server still has to store, as far as it knows."""
        place = self._places.get(session_id)
        return place is not None and place.epoch != STORED and not place.is_void

    def forget(self, session_id: str) -> None:
        """Forget how far a session is shown, because it is gone or no reader waits for it."""
        self._places.pop(session_id, None)
        for watcher in tuple(self._watchers):
            watcher.forget(hash_of(session_id))

    def look_for_orphans(self, is_orphan: Callable[[str], bool]) -> None:
        """Let the watchers look which sessions have lost their server."""
        for watcher in tuple(self._watchers):
            watcher.orphans(is_orphan)

    def watch(self, watcher: Watcher) -> None:
        """Tell somebody what is noted and published from now on, until `unwatch`."""
        self._watchers.append(watcher)

    def unwatch(self, watcher: Watcher) -> None:
        """Tell it no more. May be called again."""
        self._watchers = [other for other in self._watchers if other is not watcher]

    def seams(self, session_id: str) -> set[int]:
        """The events of a session after which pieces of text may not be joined with those before: a client has seen these."""
        if not self._watchers:
            return set()
        tag = hash_of(session_id)
        return {sequence for watcher in self._watchers for sequence in watcher.seams(tag)}

    def _advance(self) -> None:
        while (growth := self._early.pop(self._position + 1, None)) is not None:
            self._position += 1
            self._remember(growth)
        self._floor = f"{SEPARATOR}{self._position:x}"
        for session_id in tuple(self._places):
            self._drop_if_exact(session_id)

    def _remember(self, growth: Growth) -> None:
        self._history.append(growth)
        self._history_of.setdefault(growth.session_id, deque()).append(growth)
        if len(self._history) > HISTORY:
            oldest = self._history.popleft()
            self._since = oldest.position
            of_session = self._history_of[oldest.session_id]
            of_session.popleft()
            if not of_session:
                del self._history_of[oldest.session_id]

    def _drop_if_exact(self, session_id: str) -> None:
        place = self._places.get(session_id)
        if place is None or place.is_void:
            return
        if place.next == place.last + 1 and not place.count and place.position <= self._position:
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
        for growth in reversed(growths):
            self._history_of.setdefault(growth.session_id, deque()).appendleft(growth)
            self.learn(growth.session_id)
        self._since = since

    def last_of(self, session_id: str) -> int:
        """The last event of a session that was noted or, by its owner, shown. 0 for an unknown session."""
        last = max((growth.last for growth in self._growths_of(session_id)), default=0)
        place = self._places.get(session_id)
        return last if place is None or place.epoch == STORED else max(last, place.next - 1)

    def last_until(self, session_id: str, position: int) -> int:
        """The last event of a session up to a message, of those that are remembered. 0 if there is none."""
        growths = self._growths_of(session_id)
        return max((growth.last for growth in growths if growth.position <= position), default=0)

    def first_since(self, session_id: str, epoch: int) -> int | None:
        """The first event that an owner of a later epoch has written or may write, of those that are remembered, or None."""
        growths = self._growths_of(session_id)
        return min((growth.first for growth in growths if growth.epoch > epoch), default=None)

    def _growths_of(self, session_id: str) -> list[Growth]:
        early = (growth for growth in self._early.values() if growth.session_id == session_id)
        return [*self._history_of.get(session_id, ()), *early]

    def last_shown(self, session_id: str) -> int | None:
        """The last event that readers here have got of a session of which more is stored. None if nothing is awaited."""
        place = self._places.get(session_id)
        return place.next - 1 if place is not None and place.epoch == STORED else None

    def has_shown(self, position: int) -> bool:
        """Whether the readers here have got all that is stored up to a message, as far as it was noted."""
        return not self.unshown(position)

    def unshown(self, position: int) -> dict[str, int]:
        """Session -> its last event up to a message, of those that the readers here have not got all of, as far as noted."""
        behind, found = dict(self._places), dict[str, int]()
        for session_id, place in self._places.items():
            if place.epoch == STORED and 0 < place.position <= position:  # its message may be from before this server
                del behind[session_id]
                if place.next <= place.last:
                    found[session_id] = place.last
        early = (self._early[number] for number in sorted(self._early, reverse=True))
        for growth in (*early, *reversed(self._history)) if behind else ():
            if growth.position <= position and growth.has_events and (place := behind.pop(growth.session_id, None)) is not None:
                if place.next <= growth.last if place.epoch == STORED else place.epoch < growth.epoch:
                    found[growth.session_id] = growth.last
                if not behind:
                    break
        return found

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
    end = f"{FIELD}{VOID}" if session.is_void else ""
    return f"{SESSION}{session.tag}{FIELD}{session.next:x}{FIELD}{session.count:x}{FIELD}{session.epoch:x}{end}"


def decode_viewpoint(last_event_id: str) -> Viewpoint | None:
    """Decode the part of a client's `Last-Event-ID` for all servers, or None if it has none."""
    position, *sessions = last_event_id.partition(SEPARATOR)[2].split(SESSION)
    if len(sessions) > EXCEPTIONS:
        return None
    try:
        return Viewpoint(_number(position), tuple(_progress(*session.split(FIELD)) for session in sessions))
    except (ValueError, TypeError):
        return None


def _progress(tag: str, next_: str, count: str, epoch: str, state: str = "") -> Progress:
    if state not in ("", VOID):
        raise ValueError("no state of a session")
    return Progress(tag, _number(next_), _number(count), _number(epoch), state == VOID)


def _number(text: str) -> int:
    """Decode a number. Raises ValueError."""
    if len(text) > NUMBER_CHARS or not text.isascii() or not text.isalnum():
        raise ValueError("no number of a position")
    return int(text, 16)
