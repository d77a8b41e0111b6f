"""The other servers of a cluster: what they do for this one (a command is one HTTP request of a client), and what they tell.

How it is carried is the store's matter: `shim.store.jetstream.commands` does it over NATS. What it means is `shim.http.relay`'s.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from shim.store.servers import ServerRef

Headers: TypeAlias = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Command:
    """A request for another server. A repeated one, with the same id, is done once.

    path  with the query, as the client has sent it
    """

    id: str
    method: str
    path: str
    headers: Headers = ()
    body: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class Answer:
    """What another server has answered. `chunks`: its body."""

    status: int
    headers: Headers
    chunks: AsyncIterator[bytes]


@dataclass(frozen=True, slots=True)
class Growth:
    """Another server has stored events of a session: from `first` to `last`."""

    session_id: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Offer:
    """What a server can take.

    agents  names of those that it can start; none for a front
    roots   directories in which its projects lie; empty: anywhere
    room    how many more agents it can run
    """

    agents: tuple[str, ...] = ()
    roots: tuple[str, ...] = ()
    room: int = 0

    def has_root_of(self, directory: str) -> bool:
        """Whether the directory lies in one of the roots."""
        return any(directory == root or directory.startswith(root.rstrip("/") + "/") for root in self.roots)

    def may_take(self, directory: str, agent: str | None) -> bool:
        """Whether it may have the directory and the agent (None: any), and room."""
        has_agent = bool(self.agents) if agent is None else agent in self.agents
        return has_agent and self.room > 0 and (not self.roots or self.has_root_of(directory))


@dataclass(frozen=True, slots=True)
class Node:
    """Another server that lives."""

    ref: ServerRef
    offer: Offer


Handle: TypeAlias = Callable[[Command], AbstractAsyncContextManager[Answer]]
"""Does a command."""


class Peers(Protocol):
    """The other servers."""

    def ask(self, server: ServerRef, command: Command) -> AbstractAsyncContextManager[Answer]:
        """Let another server do a command. Entering raises ServerLost if there is no answer, and StoreError."""
        ...

    async def serve(self, handle: Handle) -> None:
        """Do the commands of other servers from now on, until the store is closed."""
        ...

    async def watch(self, on_growth: Callable[[Growth], None]) -> None:
        """Call a function soon after another server has stored events. Some calls may be missing."""
        ...

    def announce_offer(self, offer: Callable[[], Offer]) -> None:
        """Tell the other servers what this one can take, from now on and as it changes."""
        ...

    def nodes(self) -> Sequence[Node]:
        """The other servers that lived at the last look."""
        ...
