"""What a run leaves for the checks: what clients did and saw, what NATS has stored, and what each node shows at the end."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import blake2b
from typing import Any

from tools.chaos.screens import Screen


class Sign(StrEnum):
    """What a stream tells of a session, as far as the checks need it."""

    PROMPT = "prompt"
    BUSY = "busy"
    IDLE = "idle"


@dataclass(frozen=True, slots=True)
class Token:
    """A sign of a stream. `message_id`: of a prompt; `at_s`: when it came, for people who look for a cause."""

    sign: Sign
    message_id: str = ""
    at_s: float = field(default=0.0, compare=False)


@dataclass(slots=True)
class StreamRecord:
    """A connection of a client to an event stream, or those of one that goes on with `Last-Event-ID`.

    tokens    session -> its signs, in order
    is_whole  it lasted until the end of the run
    hops      so often its client has gone on at another node with `Last-Event-ID`, without being told to read the state anew
    doubles   ids of events that came more than once
    screen    what its client shows at the end
    """

    name: str
    tokens: dict[str, list[Token]] = field(default_factory=dict[str, list[Token]])
    is_whole: bool = False
    hops: int = 0
    doubles: list[str] = field(default_factory=list[str])
    screen: Screen = field(default_factory=Screen)

    def has_ended(self, last: Mapping[str, str]) -> bool:
        """Whether it has the ends of the last prompts (by session) of all sessions that it shows, and shows none as busy."""
        for session_id, tokens in self.tokens.items():
            if session_id not in last:
                continue  # of a subagent, or deleted
            states = [token.sign for token in tokens if token.sign is not Sign.PROMPT]
            if states[-1:] == [Sign.BUSY]:  # it began in a turn of which it has no prompt
                return False
            prompts = [at for at, token in enumerate(tokens) if token.sign is Sign.PROMPT]
            after = next((at for at in prompts if tokens[at].message_id == last.get(session_id)), None)
            if prompts and (after is None or not any(token.sign is Sign.IDLE for token in tokens[after:])):
                return False
        return True


@dataclass(frozen=True, slots=True)
class EventDigest:
    """An event of a journal, as a client has read it. `digest`: of its content."""

    sequence: int
    id: str
    digest: str

    @classmethod
    def of(cls, sequence: int, event_id: str, data: Mapping[str, Any]) -> EventDigest:
        """Make it of an event's fields."""
        content = json.dumps(data, sort_keys=True).encode()
        return cls(sequence, event_id, blake2b(content, digest_size=8).hexdigest())


@dataclass(slots=True)
class FollowerRecord:
    """The events that a client has read which hops from node to node with `Last-Event-ID`."""

    session_id: str
    hops: int = 0
    events: list[EventDigest] = field(default_factory=list[EventDigest])


@dataclass(slots=True)
class Prompt:
    """A prompt of a client.

    is_acknowledged  a server has answered that it is stored
    is_repeated      it was sent more than once, with the same id: a server that was cut off may have shown a turn of it
    """

    session_id: str
    message_id: str
    text: str
    is_acknowledged: bool = False
    is_repeated: bool = False


@dataclass(frozen=True, slots=True)
class JournalMessage:
    """A message of a session's journal in NATS.

    In: `owner` and `epoch`, as its writer names itself; `first` to `last`, its events (none: `first` is `last` + 1); `part` of
    `parts`, of an event that is larger than a message; `events`, their sequences and ids.
    """

    number: int
    owner: str
    epoch: int
    first: int
    last: int
    part: int = 0
    parts: int = 1
    events: Sequence[tuple[int, str]] = ()


@dataclass(frozen=True, slots=True)
class Event:
    """An event of a journal, as a node shows it."""

    sequence: int
    id: str
    type: str
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Message:
    """A message of a session, as a node shows it. `parent_id`: the prompt that it answers; `parts`: id -> content."""

    id: str
    role: str
    parent_id: str = ""
    is_over: bool = False
    has_error: bool = False
    text: str = ""
    parts: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(slots=True)
class SessionReading:
    """A session at the end: its journal, its owner by NATS, and its messages at each node. `is_child`: of a subagent."""

    session_id: str
    journal: Sequence[JournalMessage] = ()
    owner: str = ""
    epoch: int = 0
    events: Sequence[Event] = ()
    messages: dict[str, Sequence[Message]] = field(default_factory=dict[str, Sequence[Message]])
    is_child: bool = False


@dataclass(frozen=True, slots=True)
class AgentProcess:
    """An agent's process that lives at the end. `node`: the node that started it, empty if that is gone."""

    pid: int
    session_id: str
    node: str


@dataclass(slots=True)
class Evidence:
    """All of it.

    nodes     name of a node -> its server id
    busy      node -> sessions that it shows as busy, when all should be at rest
    listed    node -> the sessions that it lists, with the one above ("" for none)
    dialogs   node -> permissions and questions that it lists
    deleted   sessions of which a client was told that they are deleted
    entries   sessions that NATS has
    answers   answers to clients that are neither a success nor one of the refusals that docs/cluster.md names
    faults    lines of logs that report a bug
    """

    nodes: dict[str, str] = field(default_factory=dict[str, str])
    prompts: list[Prompt] = field(default_factory=list[Prompt])
    streams: list[StreamRecord] = field(default_factory=list[StreamRecord])
    followers: list[FollowerRecord] = field(default_factory=list[FollowerRecord])
    sessions: dict[str, SessionReading] = field(default_factory=dict[str, SessionReading])
    processes: list[AgentProcess] = field(default_factory=list[AgentProcess])
    busy: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    listed: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]])
    dialogs: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    deleted: list[str] = field(default_factory=list[str])
    entries: set[str] = field(default_factory=set[str])
    answers: list[str] = field(default_factory=list[str])
    faults: list[str] = field(default_factory=list[str])
