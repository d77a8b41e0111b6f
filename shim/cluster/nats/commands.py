"""Commands of one server to another, over NATS: messages without a stream, which only a living server receives.

    asker -> PREFIX.command.SERVER    Id, Part (1/3), From: a piece of the command
    SERVER -> inbox of the asker      Number (`ready`): it has the whole command. Does the asker still wait?
    asker -> PREFIX.command.SERVER    Id, Part (begin): it does, and the work begins
    SERVER -> inbox of the asker      Number: a piece of the answer, `beat` each BEAT_S while it works, `refused` with a reason
    asker -> PREFIX.command.SERVER    Id, Part (cancel): its client has gone

A command and an answer are a head (a line of JSON) and a body, cut into pieces of at most a message. An asker that hears nothing
for SILENCE_S, or misses a piece, sends the command again. The server knows its id: it sends the pieces of the answer again, and
does the command once.

A command may wait in the socket of a paused server for longer than its asker. So one that changes something begins only at the
word of its asker, which must come within WORD_S of the question. An asker that has not given it knows that nothing was done.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter, OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from time import monotonic

import structlog

from shim.cluster.nats.connection import Connection, Parcel
from shim.cluster.nats.layout import Layout
from shim.cluster.peers import Answer, Command, Handle, Headers
from shim.lib.errors import ServerLost, StoreError
from shim.store.servers import ServerRef
from shim.telemetry.meters import BUCKETS_S, Histogram

log = structlog.get_logger(__name__)

BEAT_S = 1.0
"""Seconds between signs of life of a server that works on a command."""
SILENCE_S = 3.0
"""Seconds without a sign of life after which a command is sent again."""
SENDS = 3
"""Times that a command is sent before its server counts as lost."""
AGAIN_S = 0.5
"""Seconds until a command is sent again to a server that NATS does not know: it may be about to connect again."""
WORD_S = 1.0
"""Maximum seconds between the question whether an asker still waits and its word."""
QUESTIONS = 5
"""Times that it is asked before its command is dropped."""
WORKS = 512
"""Maximum commands that a server does at the same time."""
DONE = 512
"""Maximum finished commands whose answers are kept, for askers that repeat them."""
KEPT_BYTES = 64 * 2**10
"""Maximum bytes of an answer that is kept."""
ASSEMBLY_BYTES = 256 * 2**20
"""Maximum bytes of commands of which pieces are missing."""
ASSEMBLY_S = 30.0
"""Seconds for which the pieces of an incomplete command are kept."""
UNREAD_PARCELS = 4096
"""Maximum messages that wait for the reader of an answer. It gets no more until it has read some."""

ID, PART, NUMBER, FROM, END = "Shim-Id", "Shim-Part", "Shim-Number", "Shim-From", "Shim-End"
IS_CHANGE = "Shim-Change"
"""Header of a command that waits for the word of its asker."""
READY, BEAT, REFUSED = "ready", "beat", "refused"
BEGIN, CANCEL = "begin", "cancel"


def pieces(content: bytes, limit: int) -> list[bytes]:
    """Cut a content into pieces of at most `limit` bytes; one piece, if it is empty."""
    return [content[at : at + limit] for at in range(0, len(content), limit)] or [b""]


def encode_command(command: Command) -> bytes:
    """A command as a line of JSON and its body."""
    head = {"id": command.id, "method": command.method, "path": command.path, "headers": command.headers}
    return json.dumps(head).encode() + b"\n" + command.body


def decode_command(content: bytes) -> Command:
    """The inverse of `encode_command`. Raises StoreError if it is damaged."""
    head, _, body = content.partition(b"\n")
    try:
        value = json.loads(head)
        return Command(str(value["id"]), str(value["method"]), str(value["path"]), _headers(value["headers"]), body)
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(f"A command of another server cannot be read: {error}. Is it of another version?") from error


def _headers(value: list[list[str]]) -> Headers:
    return tuple((str(name), str(text)) for name, text in value)


@dataclass(slots=True)
class _Assembly:
    """A command of which pieces are missing."""

    count: int
    pieces: dict[int, bytes] = field(default_factory=dict[int, bytes])


@dataclass(slots=True)
class _Work:
    """A command that waits for the word of its asker, or is or was worked on.

    word     set when its asker wants it done
    parcels  the pieces of its answer so far, unless they are too large to be kept
    """

    inbox: str
    asker: str
    word: asyncio.Event = field(default_factory=asyncio.Event)
    has_begun: bool = False
    parcels: list[tuple[bytes, bool]] = field(default_factory=list[tuple[bytes, bool]])
    number: int = 0
    size: int = 0
    task: asyncio.Task[None] | None = None

    @property
    def is_kept(self) -> bool:
        """Whether the answer can be sent again."""
        return self.size <= KEPT_BYTES

    def keep(self, piece: bytes, *, is_last: bool) -> int:
        """Note a piece of the answer, and return its number."""
        self.number += 1
        self.size += len(piece)
        if self.is_kept:
            self.parcels.append((piece, is_last))
        else:
            self.parcels.clear()
        return self.number


class Commands:
    """The commands that this server sends, and those that it does for others."""

    def __init__(self, connection: Connection, layout: Layout, server_id: str) -> None:
        self._connection = connection
        self._layout = layout
        self._server_id = server_id
        self._handle: Handle | None = None
        self._assemblies: OrderedDict[str, _Assembly] = OrderedDict()
        self._works: dict[str, _Work] = {}
        self._done: OrderedDict[str, _Work] = OrderedDict()
        self.asked: Counter[str] = Counter()
        """Requests to other servers, by result: `answered`, `lost`, `failed`."""
        self.answer_s = Histogram(BUCKETS_S)
        """Seconds until an answer began."""

    # --- asking ------------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def ask(self, server: ServerRef, command: Command) -> AsyncGenerator[Answer]:
        """Let another server do a command. Raises ServerLost if there is no answer, and StoreError."""
        start, result = monotonic(), "failed"
        try:
            async with self._ask(server, command) as answer:
                self.answer_s.add(monotonic() - start)
                result = "answered"
                yield answer
        except ServerLost:
            result = "lost"
            raise
        finally:
            self.asked[result] += 1

    @asynccontextmanager
    async def _ask(self, server: ServerRef, command: Command) -> AsyncGenerator[Answer]:
        async with self._connection.inbox(UNREAD_PARCELS) as (inbox, parcels):
            subject = self._layout.command_subject(server.id)
            question = _Question(self._connection, subject, server, command, self._server_id, inbox, parcels)
            try:
                await question.send()
                head, _, rest = (await question.take()).partition(b"\n")
                value = json.loads(head)
                yield Answer(int(value["status"]), _headers(value["headers"]), question.chunks(rest))
            finally:
                if not question.is_over:
                    with suppress(StoreError):
                        await question.cancel()

    # --- doing -------------------------------------------------------------------------------------------------------

    async def serve(self, handle: Handle) -> None:
        """Do the commands of other servers from now on."""
        self._handle = handle
        await self._connection.subscribe(self._layout.command_subject(self._server_id), self._receive)

    async def close(self) -> None:
        """End all work. Those who wait for it hear nothing more."""
        tasks = [work.task for work in self._works.values() if work.task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _receive(self, parcel: Parcel) -> None:
        command_id, part = parcel.headers.get(ID, ""), parcel.headers.get(PART, "")
        work = self._works.get(command_id) or self._done.get(command_id)
        if part == CANCEL:
            if work is not None and work.task is not None:
                work.task.cancel()
            return
        if part == BEGIN:
            if work is not None:
                work.word.set()
            return
        number, _, count = part.partition("/")
        if not (command_id and number.isdecimal() and count.isdecimal()):
            log.warning("cluster.command_unreadable", part=part)
            return
        if work is not None:
            if number == count:
                work.inbox = parcel.reply
                await self._repeat(command_id, work)
            return
        content = self._assemble(command_id, int(number), int(count), parcel.data)
        if content is None:
            return
        if len(self._works) >= WORKS:
            await self._refuse(parcel.reply, f"works on {WORKS} requests of other servers already. Try again")
            return
        is_change = IS_CHANGE in parcel.headers
        work = self._works[command_id] = _Work(parcel.reply, parcel.headers.get(FROM, ""))
        work.task = asyncio.create_task(self._do(command_id, work, content, is_change=is_change), name=f"command {command_id}")

    def _assemble(self, command_id: str, number: int, count: int, piece: bytes) -> bytes | None:
        """The whole command if this was its last missing piece, else None."""
        if count == 1:
            return piece
        assembly = self._assemblies.get(command_id)
        if assembly is None:
            assembly = self._assemblies[command_id] = _Assembly(count)
            asyncio.get_running_loop().call_later(ASSEMBLY_S, lambda: self._assemblies.pop(command_id, None))
        assembly.pieces[number] = piece
        while sum(len(data) for waiting in self._assemblies.values() for data in waiting.pieces.values()) > ASSEMBLY_BYTES:
            self._assemblies.popitem(last=False)
        if len(assembly.pieces) < assembly.count or command_id not in self._assemblies:
            return None
        del self._assemblies[command_id]
        return b"".join(assembly.pieces[at] for at in sorted(assembly.pieces))

    async def _repeat(self, command_id: str, work: _Work) -> None:
        """The asker has missed something: send the answer again, as far as there is one."""
        log.info("cluster.command_repeated", command=command_id)
        if not work.has_begun:
            await self._sign(work, READY)
            return
        if not work.is_kept:
            await self._refuse(work.inbox, "has answered, and the answer was lost on its way. Look at the session")
            return
        await self._sign(work, BEAT)
        for number, (piece, is_last) in enumerate(list(work.parcels), 1):
            await self._publish(work, number, piece, is_last=is_last)

    async def _is_wanted(self, work: _Work) -> bool:
        """Whether the asker of a command still waits for it."""
        loop = asyncio.get_running_loop()
        for _ in range(QUESTIONS):
            work.word.clear()
            asked_at = loop.time()
            with suppress(StoreError, TimeoutError):
                await self._sign(work, READY)
                async with asyncio.timeout(WORD_S):
                    await work.word.wait()
            if work.word.is_set() and loop.time() - asked_at <= WORD_S:
                return True  # else the word is as old as the pause of this server
        return False

    async def _do(self, command_id: str, work: _Work, content: bytes, *, is_change: bool) -> None:
        assert self._handle is not None
        try:
            work.has_begun = not is_change or await self._is_wanted(work)
        finally:
            if not work.has_begun:
                del self._works[command_id]
        if not work.has_begun:
            log.warning("cluster.command_not_wanted", command=command_id, asker=work.asker)
            return
        beats = asyncio.create_task(self._keep_beating(work), name=f"beats of {command_id}")
        try:
            async with self._handle(decode_command(content)) as answer:
                head = json.dumps({"status": answer.status, "headers": answer.headers}).encode() + b"\n"
                await self._put(work, head)
                async for chunk in answer.chunks:
                    for piece in pieces(chunk, self._connection.message_bytes):
                        await self._put(work, piece)
            await self._put(work, b"", is_last=True)
        except StoreError as error:  # NATS is gone, or the command is unreadable
            log.warning("cluster.command_failed", command=command_id, error=str(error))
        except Exception as error:  # the asker hears of every fault
            log.exception("cluster.command_failed", command=command_id)
            with suppress(StoreError):
                await self._refuse(work.inbox, f"failed: {error}. See its log")
        finally:
            beats.cancel()
            self._works.pop(command_id, None)
            self._done[command_id] = work
            if len(self._done) > DONE:
                self._done.popitem(last=False)

    async def _keep_beating(self, work: _Work) -> None:
        while True:
            with suppress(StoreError):
                await self._sign(work, BEAT)
            await asyncio.sleep(BEAT_S)

    async def _sign(self, work: _Work, sign: str) -> None:
        await self._connection.publish(work.inbox, b"", {NUMBER: sign})

    async def _refuse(self, inbox: str, why: str) -> None:
        await self._connection.publish(inbox, why.encode(), {NUMBER: REFUSED})

    async def _put(self, work: _Work, piece: bytes, *, is_last: bool = False) -> None:
        await self._publish(work, work.keep(piece, is_last=is_last), piece, is_last=is_last)

    async def _publish(self, work: _Work, number: int, piece: bytes, *, is_last: bool) -> None:
        await self._connection.publish(work.inbox, piece, {NUMBER: str(number), **({END: "1"} if is_last else {})})


class _Question:
    """A command that was sent, and its answer as it comes."""

    def __init__(
        self,
        connection: Connection,
        subject: str,
        server: ServerRef,
        command: Command,
        asker: str,
        inbox: str,
        parcels: asyncio.Queue[Parcel],
    ) -> None:
        self._connection = connection
        self._subject = subject
        self._server = server
        self._command = command
        self._asker = asker
        self._inbox = inbox
        self._parcels = parcels
        self._next = 1
        self._may_have_begun = False
        self._was_unheard = True
        """Whether NATS has said of each sending that nobody listens."""
        self._has_gap = False
        self.is_over = False

    async def send(self) -> None:
        """Send the command, or send it again."""
        content = pieces(encode_command(self._command), self._connection.message_bytes)
        for number, piece in enumerate(content, 1):
            inbox = self._inbox if number == len(content) else ""  # so that NATS says once that nobody listens
            await self._publish(f"{number}/{len(content)}", piece, inbox)

    async def cancel(self) -> None:
        """Tell the server that nobody waits for the answer."""
        await self._publish(CANCEL, b"")

    async def _publish(self, part: str, piece: bytes, inbox: str = "") -> None:
        headers = {ID: self._command.id, PART: part, FROM: self._asker, **({IS_CHANGE: "1"} if self._command.is_change else {})}
        await self._connection.publish(self._subject, piece, headers, reply=inbox)

    async def chunks(self, first: bytes) -> AsyncIterator[bytes]:
        """The body of the answer. In: `first`, what has come with the head."""
        if first:
            yield first
        while not self.is_over:
            if piece := await self.take():
                yield piece

    async def take(self) -> bytes:
        """The next piece of the answer. Raises ServerLost, StoreError."""
        sends = 1
        while True:
            parcel = await self._parcel()
            if parcel is not None and not parcel.is_unheard:
                number = parcel.headers.get(NUMBER, "")
                if number in (READY, BEAT):
                    self._may_have_begun, sends = True, 1
                    if number == READY:
                        await self._publish(BEGIN, b"")
                    continue
                if number == REFUSED:
                    self.is_over = True
                    raise ServerLost(f"The server {self._server.label} {parcel.data.decode(errors='replace')}.")
                if not number.isdecimal():  # a sign of a later version
                    continue
                if int(number) == self._next:
                    self._next += 1
                    self._has_gap = False
                    self.is_over = END in parcel.headers
                    return parcel.data
                if int(number) > self._next and not self._has_gap:
                    self._has_gap = True
                    await self.send()
                continue
            self._was_unheard &= parcel is not None
            if sends == SENDS:
                self.is_over = True
                raise self._loss()
            if parcel is not None:
                await asyncio.sleep(AGAIN_S)
            sends += 1
            await self.send()

    async def _parcel(self) -> Parcel | None:
        """The next message to the inbox, or None after SILENCE_S."""
        with suppress(TimeoutError):
            async with asyncio.timeout(SILENCE_S):
                return await self._parcels.get()
        return None

    def _loss(self) -> ServerLost:
        name = self._server.label
        if self._may_have_begun:
            return ServerLost(
                f"The server {name} was lost while it worked on this request. Whether it was done is not known: look at the"
                " session. Another server takes its sessions over within some seconds."
            )
        return ServerLost(
            f"The server {name}, which has this session, cannot be reached. Try again in some seconds: if it is gone, another"
            " server takes its sessions over.",
            was_heard=not (self._command.is_change or self._was_unheard),
        )
