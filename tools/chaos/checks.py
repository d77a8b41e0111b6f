"""The promises of a cluster, checked on what a run has left. Pure: evidence -> violations.

A check judges what happened, not how long it took.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import pairwise

from tools.chaos.evidence import (
    Event,
    EventDigest,
    Evidence,
    FollowerRecord,
    Message,
    Prompt,
    SessionReading,
    Sign,
    StreamRecord,
    Token,
)
from tools.chaos.screens import SessionScreen
from universal.lib.jsonvalue import arr, obj, text

COMPLETED = "completed"


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken promise: which one, of which session (empty: of none), and what was seen."""

    check: str
    session_id: str
    what: str

    def __str__(self) -> str:
        return f"{self.check}: {self.session_id} {self.what}".replace("  ", " ")


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn of a journal: the sequences of its begin and its end (0: it has none), and the reason of the end."""

    begin: int
    end: int = 0
    reason: str = ""


@dataclass(slots=True)
class Story:
    """What a journal tells.

    prompts     message id -> the sequence at which it was stored
    dispatches  message id -> the sequence at which an agent got it, perhaps along with a later one
    carried     messages that no agent got but along with a later one, which was answered for both
    """

    turns: list[Turn] = field(default_factory=list[Turn])
    prompts: dict[str, int] = field(default_factory=dict[str, int])
    dispatches: dict[str, int] = field(default_factory=dict[str, int])
    carried: set[str] = field(default_factory=set[str])
    offences: list[str] = field(default_factory=list[str])

    def turn_of(self, message_id: str) -> Turn | None:
        """The turn in which a prompt came. None if there is none in the journal: its turn was never stored."""
        at = self.prompts.get(message_id)
        turn = None if at is None else self.turn_at(at)
        if at is None or turn is None or message_id not in self.carried or at > turn.begin:
            return turn
        return None if self.turn_at(self.dispatches[message_id]) == turn else turn

    def turn_at(self, sequence: int) -> Turn | None:
        """The first turn that ends after this event, or has no end."""
        return next((turn for turn in self.turns if not turn.end or turn.end > sequence), None)


def story_of(events: Sequence[Event]) -> Story:
    """Read a journal. Turns that do not alternate with their ends are noted in `offences`."""
    story, items = Story(), dict[str, str]()
    for event in events:
        if event.type == "turn.started":
            if story.turns and not story.turns[-1].end:
                story.offences.append(f"a turn begins at {event.sequence} in the turn of {story.turns[-1].begin}")
            story.turns.append(Turn(event.sequence))
        elif event.type == "turn.ended":
            if not story.turns or story.turns[-1].end:
                story.offences.append(f"a turn ends at {event.sequence}, and none ran")
            else:
                reason = text(obj(event.data.get("metadata")).get("reason"))
                story.turns[-1] = Turn(story.turns[-1].begin, event.sequence, reason)
        elif event.type == "item.completed":
            _read_item(story, items, event)
    return story


def _read_item(story: Story, items: dict[str, str], event: Event) -> None:
    item = obj(event.data.get("item"))
    meta = obj(item.get("metadata"))
    if item.get("role") == "user":
        message_id = text(obj(meta.get("opencode")).get("message_id"))
        if message_id:
            items[text(item.get("item_id"))] = message_id
            story.prompts.setdefault(message_id, event.sequence)
    elif meta.get("state") == "handed":
        message_id = items.get(text(meta.get("item_id")), "")
        if message_id in story.dispatches:
            story.offences.append(f"{message_id} is handed to an agent twice")
        if message_id:
            story.dispatches[message_id] = event.sequence
        for carried in map(text, arr(meta.get("carried"))):  # earlier messages of the conversation too, for a new agent
            if carried not in story.dispatches:
                story.dispatches[carried] = event.sequence
                story.carried.add(carried)


# --- checks ------------------------------------------------------------------------------------------------------


def check_prompts(evidence: Evidence) -> Iterator[Violation]:
    """Every acknowledged prompt is there, once at each node, and was answered, or its turn ended with an error."""
    stories = {session_id: story_of(reading.events) for session_id, reading in evidence.sessions.items()}
    for prompt in evidence.prompts:
        reading, story = evidence.sessions.get(prompt.session_id), stories.get(prompt.session_id)
        if not prompt.is_acknowledged or reading is None or story is None:
            if prompt.is_acknowledged:
                yield Violation("prompts", prompt.session_id, f"{prompt.message_id} was acknowledged; the session is gone")
            continue
        for what in _prompt_offences(prompt, reading, story):
            yield Violation("prompts", prompt.session_id, f"{prompt.message_id} ({prompt.text}) {what}")


def _prompt_offences(prompt: Prompt, reading: SessionReading, story: Story) -> Iterator[str]:
    message_id = prompt.message_id
    if message_id not in story.prompts:
        yield "was acknowledged and is not in the journal"
        return
    for node, messages in reading.messages.items():
        count = sum(message.id == message_id for message in messages)
        if count != 1:
            yield f"is shown {count} times by {node}"
    at = story.dispatches.get(message_id)
    if at is None:
        yield "was never handed to an agent"
        return
    turn = story.turn_at(at)
    if turn is None or not turn.end:
        yield "was handed to an agent, and its turn has no end"
    elif turn.reason == COMPLETED and message_id not in story.carried:
        for node, messages in reading.messages.items():
            answers = [message for message in messages if message.parent_id == message_id]
            if not any(message.is_over for message in answers):
                yield f"has no answer at {node}, and its turn is completed"


def check_turns(evidence: Evidence) -> Iterator[Violation]:
    """In the journal every turn ends once, and every prompt is handed to an agent at most once."""
    for session_id, reading in evidence.sessions.items():
        story = story_of(reading.events)
        offences = [*story.offences, *(f"the turn of {turn.begin} has no end" for turn in story.turns if not turn.end)]
        yield from (Violation("turns", session_id, what) for what in offences)


def check_idles(evidence: Evidence) -> Iterator[Violation]:
    """On every stream each turn has exactly one idle, also on one that goes on at other nodes.

    Of the first and the last turn of a stream that ended, or whose client had to read the state anew, it has at most one.
    """
    stories = {session_id: story_of(reading.events) for session_id, reading in evidence.sessions.items()}
    repeated = {prompt.message_id for prompt in evidence.prompts if prompt.is_repeated}
    for stream in evidence.streams:
        for session_id, tokens in stream.tokens.items():
            story = stories.get(session_id)
            if story is not None and not evidence.sessions[session_id].is_child:
                for what in _idle_offences(stream, tokens, story, repeated):
                    yield Violation("idles", session_id, f"on {stream.name}: {what}")


@dataclass(slots=True)
class _Segment:
    """The signs of one turn on a stream. `turn`: its number in the journal; -1: before the first; None: it was never stored.

    is_second  it began with a busy after an idle: the turn of a repeated prompt, or the sign of the next one ahead of its prompt
    """

    turn: int | None
    idles: int = 0
    is_second: bool = False


def _segments(tokens: Sequence[Token], story: Story, repeated: Set[str]) -> list[_Segment]:
    numbers = {turn: number for number, turn in enumerate(story.turns)}
    segments = [_Segment(-1)]
    sightings: set[str] = set()
    may_begin_again = False
    for token in tokens:
        if token.sign is Sign.IDLE:
            segments[-1].idles += 1
        elif token.sign is Sign.BUSY and segments[-1].idles == 1 and may_begin_again:
            turn, segments[-1].turn, may_begin_again = segments[-1].turn, None, False
            segments.append(_Segment(turn, is_second=True))
        elif token.sign is Sign.PROMPT and token.message_id not in sightings:
            sightings.add(token.message_id)
            may_begin_again = token.message_id in repeated
            turn = story.turn_of(token.message_id)
            number = None if turn is None else numbers[turn]
            if segments[-1].is_second and not segments[-1].idles:
                segments[-2].turn = segments.pop().turn
            if number is None or number != segments[-1].turn:
                segments.append(_Segment(number))
    return segments


def _idle_offences(stream: StreamRecord, tokens: Sequence[Token], story: Story, repeated: Set[str]) -> Iterator[str]:
    segments = _segments(tokens, story, repeated)
    stored = [segment for segment in segments[1:] if segment.turn is not None]
    for segment in segments:
        if segment.idles > 1:
            yield f"{_name(segment, story)} has {segment.idles} idles"
    # The first turn of a stream may have been at its end when the stream began; the last one may have gone on after it.
    begun = list(stored)
    while begun and not stream.is_whole and not begun[-1].idles:  # it went on after the stream, or is void
        begun.pop()
    for segment in begun[1:]:
        if segment.idles == 0:
            yield f"{_name(segment, story)} has no idle"
    for before, after in pairwise(segment.turn or 0 for segment in begun):
        if after <= before:
            yield f"the turn of {story.turns[after].begin} comes after the turn of {story.turns[before].begin}"
        for number in range(before + 1, after):
            yield f"the turn of {story.turns[number].begin} is missing"
    if stream.is_whole and stored:
        for number in range((stored[-1].turn or 0) + 1, len(story.turns)):
            yield f"the turn of {story.turns[number].begin} is missing at the end"
    if stream.is_whole and (last := _last_state(tokens)) is Sign.BUSY:
        yield f"the last state is {last}, and nothing runs"


def _name(segment: _Segment, story: Story) -> str:
    if segment.turn is None:
        return "a turn that was never stored"
    return "the begin" if segment.turn < 0 else f"the turn of {story.turns[segment.turn].begin}"


def _last_state(tokens: Sequence[Token]) -> Sign | None:
    return next((token.sign for token in reversed(tokens) if token.sign is not Sign.PROMPT), None)


def check_journals(evidence: Evidence) -> Iterator[Violation]:
    """The sequences of a journal have no gap and no fork, and only its owner has written each message."""
    for session_id, reading in evidence.sessions.items():
        for what in _journal_offences(reading):
            yield Violation("journals", session_id, what)


def _journal_offences(reading: SessionReading) -> Iterator[str]:
    stored, owner, epoch, part = 0, "", 0, 0
    ids: Counter[str] = Counter()
    for message in reading.journal:
        is_claim = message.last < message.first
        if is_claim or not owner:
            if message.epoch <= epoch:
                yield f"message {message.number} claims epoch {message.epoch} after epoch {epoch}"
            owner, epoch, part = message.owner, message.epoch, 0
        elif (message.owner, message.epoch) != (owner, epoch):
            yield f"message {message.number} is of {message.owner} in epoch {message.epoch}; {owner} owns it in epoch {epoch}"
        if message.first != stored + 1:
            yield f"message {message.number} begins with event {message.first} after event {stored}"
        if message.part not in (0, part):
            yield f"message {message.number} is part {message.part}, not {part}"
        is_complete = message.part == message.parts - 1
        part = 0 if is_complete else message.part + 1
        stored = max(stored, message.last if is_complete else message.first - 1)
        ids.update(event_id for _, event_id in message.events)
    yield from (f"event {event_id} is stored {count} times" for event_id, count in ids.items() if count > 1)
    is_released = not reading.owner  # nobody has claimed it since
    if ((owner if is_released else reading.owner), reading.epoch) != (owner, epoch) and owner:
        yield f"its entry names {reading.owner} in epoch {reading.epoch}; its journal {owner} in epoch {epoch}"
    shown = [(event.sequence, event.id) for event in reading.events]
    written = [event for message in reading.journal for event in message.events]
    if written and shown != written:
        yield f"a node shows {len(shown)} events, and NATS has {len(written)}, or other ones"


def check_agreement(evidence: Evidence) -> Iterator[Violation]:
    """All nodes show the same messages of a session."""
    for session_id, reading in evidence.sessions.items():
        nodes = list(reading.messages.items())
        for (before, messages), (after, others) in pairwise(nodes):
            if list(messages) != list(others):
                difference = _first_difference(messages, others)
                yield Violation("agreement", session_id, f"{before} and {after} show other messages: {difference}")


def _first_difference(messages: Sequence[Message], others: Sequence[Message]) -> str:
    for message, other in zip(messages, others, strict=False):
        if message != other:
            return f"{message} and {other}"
    return f"{len(messages)} and {len(others)} of them"


def check_processes(evidence: Evidence) -> Iterator[Violation]:
    """Every agent's process belongs to a living node, and to the one that owns its session."""
    for process in evidence.processes:
        reading = evidence.sessions.get(process.session_id)
        if not process.node:
            yield Violation("processes", process.session_id, f"agent {process.pid} lives, and its server is gone")
        elif reading is not None and evidence.nodes.get(process.node) != reading.owner:
            yield Violation(
                "processes", process.session_id, f"agent {process.pid} runs at {process.node}, which is not the owner"
            )
    counts = Counter(process.session_id for process in evidence.processes)
    for session_id, count in counts.items():
        if count > 1:
            yield Violation("processes", session_id, f"has {count} agents")


def check_followers(evidence: Evidence) -> Iterator[Violation]:
    """A client that goes on at another node with `Last-Event-ID` gets each event of the journal once, in order."""
    for record in evidence.followers:
        reading = evidence.sessions.get(record.session_id)
        if reading is not None:
            stored = {event.sequence: EventDigest.of(event.sequence, event.id, event.data) for event in reading.events}
            for what in _follower_offences(record, stored):
                yield Violation("followers", record.session_id, what)


def _follower_offences(record: FollowerRecord, stored: Mapping[int, EventDigest]) -> Iterator[str]:
    ids = Counter(event.id for event in record.events)
    yield from (f"event {event_id} came {count} times" for event_id, count in ids.items() if count > 1)
    last = 0
    for event in record.events:
        if event.sequence != last + 1:
            yield f"event {event.sequence} came after {last}"
        elif stored.get(event.sequence) != event:
            yield f"{event} is {stored.get(event.sequence)} in the journal"
        last = event.sequence
    if last < max(stored, default=0):
        yield f"event {last} was the last of {max(stored)}"


def check_hoppers(evidence: Evidence) -> Iterator[Violation]:
    """A client that goes on at another node with `Last-Event-ID` gets no event twice."""
    for stream in evidence.streams:
        yield from (Violation("hoppers", "", f"on {stream.name} came twice: {double}") for double in stream.doubles)


def check_screens(evidence: Evidence) -> Iterator[Violation]:
    """A client's screen has at the end what the nodes show: no message or part that is void, each text whole, no dialog."""
    for stream in evidence.streams:
        for session_id, screen in stream.screen.sessions.items() if stream.is_whole else ():
            if screen.is_back:
                yield Violation("screens", session_id, f"on {stream.name}: it is shown again after its deletion")
            reading = evidence.sessions.get(session_id)
            if reading is not None and not screen.is_gone:
                for what in _screen_offences(screen, reading):
                    yield Violation("screens", session_id, f"on {stream.name}: {what}")


def _screen_offences(screen: SessionScreen, reading: SessionReading) -> Iterator[str]:
    messages = next(iter(reading.messages.values()), ())
    ids, contents = {message.id for message in messages}, dict[str, str]()
    for message in messages:
        contents.update(message.parts)
    yield from (f"message {message_id} is no more" for message_id in sorted(screen.messages - ids))
    yield from (f"{dialog} waits for an answer" for dialog in sorted(screen.dialogs))
    for part_id, (message_id, content) in screen.parts.items():
        if part_id not in contents:
            yield f"part {part_id} of {message_id} is no more: {content[:60]!r}"
        elif content != contents[part_id]:
            yield f"part {part_id} of {message_id} is {content[-60:]!r}, not {contents[part_id][-60:]!r}"


def check_lists(evidence: Evidence) -> Iterator[Violation]:
    """All nodes list the same sessions: none that was deleted, none below one that is gone. No dialog waits."""
    lists = list(evidence.listed.items())
    for (before, listed), (after, others) in pairwise(lists):
        yield from (
            Violation("lists", one, f"only {before} or {after} lists it") for one in sorted(listed.keys() ^ others.keys())
        )
    for node, listed in lists:
        yield from (Violation("lists", one, f"was deleted, and {node} lists it") for one in evidence.deleted if one in listed)
        for session_id, above in listed.items():
            if above and above not in listed:
                yield Violation("lists", session_id, f"{node} lists it, and {above} above it is gone")
    yield from (Violation("lists", one, "was deleted, and NATS has it") for one in evidence.deleted if one in evidence.entries)
    for node, dialogs in evidence.dialogs.items():
        yield from (Violation("lists", "", f"{dialog} waits for an answer at {node}") for dialog in dialogs)


def check_rest(evidence: Evidence) -> Iterator[Violation]:
    """After the last turn no node shows a session as busy."""
    for node, sessions in evidence.busy.items():
        yield from (Violation("rest", session_id, f"is busy at {node}") for session_id in sessions)


def check_answers(evidence: Evidence) -> Iterator[Violation]:
    """A client gets what it asked for, or a refusal that docs/cluster.md names."""
    yield from (Violation("answers", "", what) for what in evidence.answers)


def check_logs(evidence: Evidence) -> Iterator[Violation]:
    """No server reports an error of its own program."""
    yield from (Violation("logs", "", what) for what in evidence.faults)


CHECKS: tuple[Callable[[Evidence], Iterator[Violation]], ...] = (
    check_prompts,
    check_turns,
    check_idles,
    check_journals,
    check_agreement,
    check_processes,
    check_followers,
    check_hoppers,
    check_screens,
    check_lists,
    check_rest,
    check_answers,
    check_logs,
)


def violations_of(evidence: Evidence) -> list[Violation]:
    """The violations that all checks find."""
    return [violation for check in CHECKS for violation in check(evidence)]
