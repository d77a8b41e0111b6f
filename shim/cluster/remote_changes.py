"""Exchanges with the other servers of a cluster what happens beside the sessions, so that each client gets each change once.

    terminals, shells, projects, worktrees, the TUI   happen at one server, which tells all others
    files and branches                                are watched by every server with the directory, for its own clients. One
                                                      without it names the server of the directory (`note_host`): that one
                                                      watches and tells, and only its word is taken

What is told may be lost while NATS is away, as in any stream without a journal. If the server of a directory is lost, the clients
are told that its instance was disposed of, so that they read everything again.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import get_args

import structlog
from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from shim.cluster.peers import Peers
from shim.host.changes import DirectoryDisposed, FileChanged, GitBranchChanged, HostChange, HostChanged, HostFeed
from shim.lib.errors import StoreError
from shim.lib.tasks import wait_at_most
from shim.store.servers import ServerRef

log = structlog.get_logger(__name__)

BEAT_S = 2.0
"""Seconds between two words of a server on the directories that others watch for it."""
WANTED_S = 3 * BEAT_S
"""Seconds after which a directory is not watched any more for a server that is silent."""
QUEUE = 1000
"""Maximum messages that wait to be sent. Beyond it, changes are lost for the clients of other servers."""
DIRECTORIES = 64
"""Maximum directories of other servers, the last ones that a client has asked for."""

WATCHED = (FileChanged, GitBranchChanged)
_KINDS = {kind.__name__: TypeAdapter[HostChange](kind) for kind in get_args(HostChange)}


def encode_change(changed: HostChanged) -> bytes:
    """A change as JSON. Raises ValueError for text that is no Unicode."""
    kind = type(changed.change).__name__
    try:
        value = _KINDS[kind].dump_python(changed.change, mode="json")
        return json.dumps([kind, value, changed.directory, changed.project_id]).encode()
    except PydanticSerializationError as error:
        raise ValueError(str(error)) from error


def decode_change(message: bytes) -> HostChanged:
    """The inverse of `encode_change`. Raises ValueError, also for a change that this version does not know."""
    kind, value, directory, project_id, *_ = json.loads(message)
    if kind not in _KINDS:
        raise ValueError(f"a change {kind} is not known")
    try:
        return HostChanged(_KINDS[kind].validate_python(value), directory, project_id)
    except ValidationError as error:
        raise ValueError(str(error)) from error


class RemoteChanges:
    """The changes of other servers, and ours for them.

    In: `changes`, ours; `emit`, which gives a change to the clients of this server alone; `has_reader`, whether a client gets the
    events of a directory; `watch`, which begins to watch a directory of this server, or does nothing if it is watched.
    """

    def __init__(
        self,
        changes: HostFeed,
        emit: Callable[[HostChanged], None],
        has_reader: Callable[[str], bool],
        watch: Callable[[str], Awaitable[None]],
    ) -> None:
        self._changes = changes
        self._emit = emit
        self._has_reader = has_reader
        self._watch = watch
        self._server_id = ""
        self._hosts: dict[str, str] = {}
        """Directory -> id of the server that watches it for this one."""
        self._wanted: dict[str, float] = {}
        """Directory that is watched for others -> until when."""
        self._queue: asyncio.Queue[bytes] = asyncio.Queue(QUEUE)
        self._soon = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self, peers: Peers, server_id: str) -> None:
        """Exchange changes from now on. In: `server_id`, that of this server. Raises StoreError."""
        self._server_id = server_id
        await peers.hear(self._receive)
        self._changes.observe(self._note_change)
        self._tasks = [
            asyncio.create_task(self._send(peers), name="broadcast changes"),
            asyncio.create_task(self._keep_watching(peers), name="watch for other servers"),
        ]

    async def close(self) -> None:
        """End the exchange."""
        self._changes.forget(self._note_change)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def note_host(self, directory: str, server: ServerRef) -> None:
        """Note that another server serves a directory, which this one does not have."""
        if self._hosts.pop(directory, "") != server.id:
            self._soon.set()
        self._hosts[directory] = server.id
        if len(self._hosts) > DIRECTORIES:
            del self._hosts[next(iter(self._hosts))]

    def is_wanted(self, directory: str) -> bool:
        """Whether another server wants to know of files and branches of a directory."""
        return self._wanted.get(directory, 0.0) > asyncio.get_running_loop().time()

    def _note_change(self, changed: HostChanged) -> None:
        if isinstance(changed.change, WATCHED) and not self.is_wanted(changed.directory):
            return
        try:
            self._put({"change": encode_change(changed).decode()})
        except ValueError as error:
            log.warning("cluster.change_unreadable", error=str(error))

    def _put(self, message: dict[str, object]) -> None:
        try:
            self._queue.put_nowait(json.dumps(message).encode())
        except asyncio.QueueFull:
            log.warning("cluster.changes_lost", queued=QUEUE)

    async def _send(self, peers: Peers) -> None:
        while True:
            message = await self._queue.get()
            try:
                await peers.broadcast(message)
            except StoreError as error:
                log.warning("cluster.changes_lost", error=str(error))

    def _receive(self, server_id: str, message: bytes) -> None:
        try:
            value = json.loads(message)
            changed = decode_change(value["change"].encode()) if "change" in value else None
            wanted = [str(directory) for directory in value.get("watch", {}).get(self._server_id, ())]
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            log.info("cluster.change_unreadable", server=server_id, error=str(error))
            return
        if changed is not None and (not isinstance(changed.change, WATCHED) or self._hosts.get(changed.directory) == server_id):
            self._emit(changed)
        for directory in wanted[:DIRECTORIES]:
            if not self.is_wanted(directory):
                self._soon.set()
            self._wanted[directory] = asyncio.get_running_loop().time() + WANTED_S

    async def _keep_watching(self, peers: Peers) -> None:
        """Say each BEAT_S what others shall watch, and watch what they want."""
        while True:
            self._soon.clear()
            self._drop_old(peers)
            by_server: dict[str, list[str]] = {}
            for directory, server_id in self._hosts.items():
                if self._has_reader(directory):
                    by_server.setdefault(server_id, []).append(directory)
            if by_server:
                self._put({"watch": by_server})
            for directory in tuple(self._wanted):
                await self._watch(directory)
            await wait_at_most(self._soon.wait(), BEAT_S)

    def _drop_old(self, peers: Peers) -> None:
        self._wanted = {directory: until for directory, until in self._wanted.items() if self.is_wanted(directory)}
        living = {node.ref.id for node in peers.nodes()}
        for directory in [directory for directory, server_id in self._hosts.items() if server_id not in living]:
            del self._hosts[directory]
            self._emit(HostChanged(DirectoryDisposed(directory), directory))
