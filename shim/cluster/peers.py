"""The other servers of a cluster: what they do for this one (a command is one HTTP request of a client), and what they tell.

How it is carried is the store's matter: `nats/commands.py` does it over NATS. What it means is `relay.py`'s.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias
from urllib.parse import quote

from shim.lib.errors import ServerLost, StoreError, StoreUnavailable
from shim.sessions.placement import Need
from shim.store.servers import ServerRef
from shim.telemetry.meters import Histogram

DELETED = (200, 404)
"""Statuses of a deletion after which the session is gone."""
ANSWER_CHARS = 300
"""Maximum bytes of another server's answer in an error."""

Headers: TypeAlias = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Command:
    """A request for another server. A repeated one, with the same id, is done once.

    path       with the query, as the client has sent it
    is_change  it may change something, so it must not be done for an asker that has given it up; not part of what is sent
    """

    id: str
    method: str
    path: str
    headers: Headers = ()
    body: bytes = field(default=b"", repr=False)
    is_change: bool = True


@dataclass(frozen=True, slots=True)
class Answer:
    """What another server has answered. `chunks`: its body."""

    status: int
    headers: Headers
    chunks: AsyncIterator[bytes]


@dataclass(frozen=True, slots=True)
class Growth:
    """A server has written a message into the journal of a session. All servers see the messages of all journals in one order.

    first, last  the events that are complete with it; `last` is `first` - 1 if there are none, as when an owner claims
    position     its number among the messages of all journals
    epoch        the owner's number; it grows with each change of the owner
    is_ours      this server has written it
    """

    session_id: str
    first: int
    last: int
    position: int = 0
    epoch: int = 0
    is_ours: bool = False

    @property
    def has_events(self) -> bool:
        """Whether events are complete with the message."""
        return self.last >= self.first


@dataclass(frozen=True, slots=True)
class Offer:
    """What a server can take.

    agents  those that it can start, with their versions (empty: not known); none for a front
    roots   directories in which its projects lie; empty: anywhere
    room    how many more agents it can run
    labels  what it says of itself, as KEY=VALUE
    is_draining  it gives its sessions up, to stop or because a person drains it, and takes no others
    is_cordoned  a person has said that it takes no more sessions; it keeps those that it has
    in_use  directories with terminals or shell commands, which live in this server
    """

    agents: Mapping[str, str] = field(default_factory=dict[str, str])
    roots: tuple[str, ...] = ()
    room: int = 0
    labels: tuple[str, ...] = ()
    is_draining: bool = False
    in_use: tuple[str, ...] = ()
    is_cordoned: bool = False

    @property
    def takes_sessions(self) -> bool:
        """Whether it may take sessions that others give up."""
        return not (self.is_draining or self.is_cordoned)

    def has_root_of(self, directory: str) -> bool:
        """Whether the directory lies in one of the roots."""
        return any(directory == root or directory.startswith(root.rstrip("/") + "/") for root in self.roots)

    def may_have(self, directory: str) -> bool:
        """Whether it may have the directory. A front has none."""
        return bool(self.agents) and (not self.roots or self.has_root_of(directory))

    def may_take(self, need: Need, *, needs_room: bool = True) -> bool:
        """Whether it may have what a session needs, and room."""
        fits = (need.agent is None or need.agent in self.agents) and set(need.labels) <= set(self.labels)
        return fits and self.may_have(need.directory) and (self.room > 0 or not needs_room) and self.takes_sessions


@dataclass(frozen=True, slots=True)
class Node:
    """A server that lives."""

    ref: ServerRef
    offer: Offer


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """A server that lives, as this one sees it.

    is_here      it is this server
    sessions     number of sessions that it has
    lease_age_s  seconds since this server saw the last renewal of its lease
    """

    node: Node
    is_here: bool
    sessions: int
    lease_age_s: float


@dataclass(frozen=True, slots=True)
class Overview:
    """The cluster as this server sees it, and what this server has counted since its start.

    address        the NATS servers, without passwords
    is_full        NATS had no room at the last write; deletions of sessions make some
    used_bytes     on the disk of NATS, of all streams of the account
    limit_bytes    what they may take, by the account or by `cluster_max_bytes`; 0: not known
    largest_bytes  of the journal of the largest session
    waiting        rows that NATS has not acknowledged
    spooled_bytes  bytes on disk of the events among them
    nodes          all living servers, this one first, the others by name
    renewals       of this server's lease, by result: `done`, `failed`
    append_s       seconds until an append to a journal was acknowledged; those that were refused are counted by `refused_appends`
    asked          requests to other servers, by result: `answered`, `lost` (the server was), `failed`
    answer_s       seconds until the answer began
    """

    address: str
    prefix: str
    is_connected: bool
    is_full: bool
    used_bytes: int
    limit_bytes: int
    largest_bytes: int
    reconnects: int
    waiting: int
    spooled_bytes: int
    nodes: tuple[NodeStatus, ...]
    renewals: Mapping[str, int]
    append_s: Histogram
    refused_appends: int
    asked: Mapping[str, int]
    answer_s: Histogram

    @property
    def here(self) -> NodeStatus:
        """This server."""
        return self.nodes[0]


Handle: TypeAlias = Callable[[Command], AbstractAsyncContextManager[Answer]]
"""Does a command."""


class PipeEnded(ServerLost):
    """The other end sends no more, or is lost. What it has sent before can still be received."""


class Pipe(Protocol):
    """One end of a two-way stream of messages between two servers."""

    async def send(self, message: bytes) -> None:
        """Send a message. Waits while the other end does not take what was sent before.

        Raises PipeEnded, ServerLost if the other end takes nothing for long, and StoreError.
        """
        ...

    async def receive(self) -> bytes | None:
        """The next message; None after the last one. Raises ServerLost, StoreError."""
        ...


Accept: TypeAlias = Callable[[Command, Pipe], Awaitable[None]]
"""Serves a stream that another server has opened with a command. The stream ends when it returns."""


class Peers(Protocol):
    """The other servers."""

    def ask(self, server: ServerRef, command: Command) -> AbstractAsyncContextManager[Answer]:
        """Let another server do a command. Entering raises ServerLost if there is no answer, and StoreError.

        A change that `was_heard` says no one has heard is never done: it begins only while its asker waits.
        """
        ...

    async def serve(self, handle: Handle) -> None:
        """Do the commands of other servers from now on, until the store is closed."""
        ...

    def open(self, server: ServerRef, command: Command) -> AbstractAsyncContextManager[Pipe]:
        """Open a stream to another server. Entering raises ServerLost if there is no answer, and StoreError."""
        ...

    async def accept(self, accept: Accept) -> None:
        """Serve the streams that other servers open from now on, until the store is closed."""
        ...

    async def watch(self, on_growth: Callable[[Growth], None], on_read: Callable[[Growth], None]) -> int:
        """Call a function soon after a server, this one included, has written to a journal. Some calls may be missing.

        `on_read` is called with each message of a journal that this server reads, before who reads it gets it.
        Returns the position of the last message that was there before.
        """
        ...

    async def attend(self, *, is_wanted: bool) -> bool:
        """Be told of each message at once, or of some together. Out: whether it is told at once only from now on."""
        ...

    async def newest(self) -> int:
        """The position of the last message of all journals. Raises StoreError."""
        ...

    async def growths(self, after: int, until: int) -> Sequence[Growth]:
        """The messages between two positions that are still there, read from the store. Raises StoreError."""
        ...

    async def growths_of(self, session_id: str, after: int) -> Sequence[Growth]:
        """The messages of a session's journal after a position, up to this server's own last one. Raises StoreError."""
        ...

    def is_orphan(self, session_id: str) -> bool:
        """Whether the server that has a session, as far as this one knows, lives no more."""
        ...

    def has_writes(self, session_id: str) -> bool:
        """Whether something of a session waits to be written by this server, perhaps its deletion."""
        ...

    async def need_session(self, session_id: str) -> None:
        """Raise SessionNotFound if the store has no such session, also if this server has not read it yet. Raises StoreError."""
        ...

    def epoch_of(self, session_id: str) -> int:
        """The number of this server's ownership of a session; 1 for a new session."""
        ...

    async def broadcast(self, message: bytes) -> None:
        """Send a message to all other servers. It may be lost. Raises StoreError."""
        ...

    async def hear(self, receive: Callable[[str, bytes], None]) -> None:
        """Call a function with each message that another server broadcasts: its id, and the message."""
        ...

    def announce_offer(self, offer: Callable[[], Offer]) -> None:
        """Tell the other servers what this one can take, from now on and as it changes."""
        ...

    def nodes(self) -> Sequence[Node]:
        """The other servers that lived at the last look."""
        ...

    def overview(self) -> Overview:
        """The cluster as this server sees it, for people and metrics."""
        ...


async def delete_elsewhere(peers: Peers, session_id: str, server: ServerRef, headers: Headers = ()) -> None:
    """Let another server delete a session of its own. Raises ServerLost, StoreError."""
    command = Command(secrets.token_hex(16), "DELETE", f"/session/{quote(session_id, safe='')}", headers)
    async with peers.ask(server, command) as answer:
        body = b"".join([chunk async for chunk in answer.chunks])
    if answer.status not in DELETED:
        raise (StoreError if answer.status == 500 else StoreUnavailable)(  # its fault, or a refusal that passes
            f"Session {session_id} was not deleted: server {server.label} answered with {answer.status}: "
            f"{body[:ANSWER_CHARS].decode(errors='replace')}. Delete it there first."
        )
