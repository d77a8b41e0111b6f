"""The connection to NATS, and the few requests of JetStream that the store needs. Only this module imports nats-py.

Every request is bounded by REQUEST_S. Errors are StoreError with what to do; `WrongSequence` if the last message of a subject is
not the expected one. `last` asks the leader of a stream; `read` asks any replica, which may be behind for a moment.
"""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import nats.errors
import structlog
from nats.aio.client import Client as NatsClient
from nats.aio.msg import Msg

from shim.cluster.nats.layout import FORMAT, FORMAT_KEY, ClusterOptions, Layout, Stream
from shim.lib.errors import StoreError, StoreFull, StoreUnavailable

log = structlog.get_logger(__name__)

CONNECT_S = 10.0
"""Maximum seconds for the first connection."""
GIVE_UP_S = 1.0
"""Maximum seconds to close a connection that could not be opened."""
REQUEST_S = 5.0
"""Maximum seconds for the answer of a request."""
CREATE_S = 20.0
"""Maximum seconds for the creation of a stream; replicas choose a leader meanwhile."""
RECONNECT_EVERY_S = 0.25
"""Seconds between two tries to connect again. They never end."""
PING_EVERY_S = 5
"""Seconds between pings. After two without an answer the connection counts as gone."""
READ_MESSAGES = 512
"""Maximum messages of one read."""
READ_BYTES = 8 * 2**20
"""Maximum bytes of one read."""
MARGIN_BYTES = 4096
"""Bytes of NATS's limit that are left for headers and subject."""
MESSAGE_BYTES = 2**20
"""Maximum bytes of our messages, also where NATS allows more."""

WRONG_SEQUENCE = (10071, 10164)
NO_STREAM = 10059
NO_MESSAGE = 10037
NO_LEADER = (10008, 10118)
NO_ROOM = (10023, 10047, 10077)
NO_RESPONDERS = "503"

ADVICE: dict[int, str] = {
    10023: "JetStream has no room. Give it more, or delete sessions; what waits to be written is kept and tried again.",
    10047: "JetStream has no room. Give it more, or delete sessions; what waits to be written is kept and tried again.",
    10077: "The stream is full. Raise its limit, or delete sessions; what waits to be written is kept and tried again.",
    10076: "JetStream is not enabled for this account. Enable it, or use other credentials.",
    10039: "JetStream is not enabled for this account. Enable it, or use other credentials.",
    10074: "There are fewer NATS servers than replicas. Lower cluster_replicas, or start more of them.",
    10005: "There are fewer NATS servers than replicas. Lower cluster_replicas, or start more of them.",
    10008: "JetStream has no leader at present. Look at its servers; what waits to be written is kept and tried again.",
}
"""JetStream's error code -> what to do."""


CERTIFICATE_ADVICE: dict[int, str] = {
    9: "the certificate of NATS is not valid yet. Look at the clocks of both machines.",
    10: "the certificate of NATS has expired. Renew it there, and look at the clock of this machine.",
    **dict.fromkeys(
        (18, 19, 20, 21),
        "no authority that this server knows has signed the certificate of NATS. Name that authority in cluster_tls_ca.",
    ),
    **dict.fromkeys(
        (62, 64), "the certificate of NATS is for another name. Write one of its names into cluster, or issue one with this name."
    ),
}
"""OpenSSL's code of a verification -> what to do."""
REFUSED_CREDENTIALS = "Authorization Violation"
"""What NATS's protocol says of wrong or missing credentials. nats-py has no type for it at the first connection."""


class NoTlsError(nats.errors.Error):
    """The NATS server offers no TLS, and TLS is wanted."""


class RefusedError(Exception):
    """All NATS servers have refused this one for a reason that stays. Ends the first connection."""


class Client(NatsClient):
    """The client of nats-py, but it sends no credentials to a server without TLS if TLS is wanted."""

    needs_tls = False
    server_wants_credentials = False

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        if initial_connection:
            self.server_wants_credentials = bool(info.get("auth_required"))
            scheme = self._current_server.uri.scheme if self._current_server is not None else ""
            if self.needs_tls and not scheme.startswith("ws") and not info.get("tls_required"):
                raise NoTlsError
        await super()._process_info(info, initial_connection)

    @staticmethod
    def _parse_header_lines(raw: bytes) -> dict[str, str]:
        """As nats-py's, which looks at each character of each name: a third of the time of a read (docs/cluster.md)."""
        lines = (line.split(":", 1) for line in raw.decode("utf-8", "replace").split("\r\n") if ":" in line)
        return {name.strip(): value.strip() for name, value in lines}


class ConnectionLostError(Exception):
    """The connection was lost before the answer came."""


class WrongSequence(Exception):
    """The last message of the subject is another one than expected."""


class Message(NamedTuple):
    """A stored message. `sequence`: its number in the stream."""

    sequence: int
    subject: str
    data: bytes


class Room(NamedTuple):
    """Bytes on disk of all streams of the account, and the account's limit of them, if it has one."""

    used: int
    limit: int | None


NO_ROOM_KNOWN = Room(0, None)


class StreamState(NamedTuple):
    """A stream at a `time` of NATS's clock: the number of its last message. `identity` is another one if it is made anew."""

    identity: str
    last: int
    time: str


class Parcel(NamedTuple):
    """A message that no stream stores."""

    reply: str
    headers: dict[str, str]
    data: bytes

    @property
    def is_unheard(self) -> bool:
        """Whether this is NATS's word that nobody listens to what was sent."""
        return self.headers.get("Status") == NO_RESPONDERS


class Page(NamedTuple):
    """Messages of a stream in order. `has_more`: there were more when it was read."""

    messages: list[Message]
    has_more: bool


class Connection:
    """A connection to NATS. Call it in the event loop that opened it."""

    def __init__(self, options: ClusterOptions, name: str) -> None:
        self.options = options
        self._name = name
        self._client: Client | None = None
        self._connected = asyncio.Event()
        self._fault = ""
        self._refusals = 0
        self._inbox = ""
        self._number = 0
        self._waiting: dict[str, asyncio.Future[Msg]] = {}
        self.reconnects = 0

    @property
    def is_connected(self) -> bool:
        """Whether NATS can be reached at present."""
        return self._connected.is_set()

    def need(self) -> None:
        """Raise StoreUnavailable while NATS cannot be reached."""
        if not self.is_connected:
            raise self._unavailable("write", ConnectionLostError("the connection is lost"))

    @property
    def message_bytes(self) -> int:
        """Maximum bytes of a message."""
        return min(MESSAGE_BYTES, self._use().max_payload - MARGIN_BYTES)

    async def open(self) -> None:
        """Connect. Raises StoreError after CONNECT_S, or when all servers have refused this one."""
        options = self.options
        client = Client()
        more: dict[str, Any] = {}
        if options.credentials is not None:
            await asyncio.to_thread(_require_credentials, options.credentials)
            more["user_credentials"] = str(options.credentials)
        user, colon, password = options.secret.partition(":")
        if options.secret:
            more |= {"user": user, "password": password} if colon else {"token": user}
        try:
            if options.tls_ca is not None or options.tls_cert is not None or any(s.startswith("tls:") for s in options.servers):
                more["tls"] = _tls(options)
                client.needs_tls = True

            async def note(error: Exception) -> None:
                await self._on_error(error, client)
                if self._client is None and _is_refusal(error):
                    self._refusals += 1
                    if self._refusals >= len(options.servers):
                        raise RefusedError from error

            async with asyncio.timeout(CONNECT_S):
                await client.connect(
                    list(options.servers),
                    name=self._name,
                    error_cb=note,
                    disconnected_cb=self._on_disconnected,
                    reconnected_cb=self._on_connected,
                    max_reconnect_attempts=-1,
                    reconnect_time_wait=RECONNECT_EVERY_S,  # pyright: ignore[reportArgumentType] - seconds may be a float
                    connect_timeout=int(CONNECT_S / 2),
                    ping_interval=PING_EVERY_S,
                    **more,
                )
        except (OSError, ValueError, TimeoutError, nats.errors.Error, RefusedError) as error:
            with suppress(Exception):
                async with asyncio.timeout(GIVE_UP_S):
                    await client.close()
            why = self._fault or _explain(error, client, options)
            raise StoreError(f"Cannot connect to NATS at {options.address}: {why}") from error
        self._client = client
        self._connected.set()
        self._inbox = client.new_inbox()
        await client.subscribe(f"{self._inbox}.*", cb=self._on_answer)  # pyright: ignore[reportUnknownMemberType] - of its `future`

    async def close(self) -> None:
        """Close the connection. May be called again."""
        client, self._client = self._client, None
        await self._on_disconnected()
        if client is not None:
            with suppress(nats.errors.Error, OSError, TimeoutError):
                async with asyncio.timeout(REQUEST_S):
                    await client.close()

    async def _on_error(self, error: Exception, client: Client) -> None:
        fault = _explain(error, client, self.options)
        if fault != self._fault:
            self._fault = fault
            log.warning("cluster.nats_error", error=fault)

    async def _on_disconnected(self) -> None:
        self._connected.clear()
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(ConnectionLostError())
        if self._client is not None:
            log.warning("cluster.nats_disconnected", servers=self.options.address)

    async def _on_connected(self) -> None:
        self._fault = ""
        self.reconnects += 1
        self._connected.set()
        log.info("cluster.nats_connected", servers=self.options.address)

    # --- streams -----------------------------------------------------------------------------------------------------

    async def prepare(self, layout: Layout) -> None:
        """Create the streams that are missing. Raises StoreError for a cluster of another format."""
        for stream in layout.streams:
            answer = await self._api(f"STREAM.INFO.{stream.name}", {})
            if _code(answer) == NO_STREAM:
                answer = await self._api(f"STREAM.CREATE.{stream.name}", stream.config(self.options.replicas), CREATE_S)
            config = self._check(answer, f"open the stream {stream.name}").get("config", {})
            format_ = config.get("metadata", {}).get(FORMAT_KEY)
            if format_ != FORMAT:
                raise StoreError(
                    f"The stream {stream.name} in NATS is of format {format_} (this version: {FORMAT}): it was made by another"
                    " program or another version of opencode-shim. Use the same version, or another cluster_prefix. Nothing was"
                    " changed."
                )
            if config.get("num_replicas") != self.options.replicas:
                log.warning(
                    "cluster.replicas_differ", stream=stream.name, has=config.get("num_replicas"), wanted=self.options.replicas
                )

    async def last_sequence(self, stream: Stream) -> int:
        """The number of the stream's last message."""
        return (await self.state(stream)).last

    async def state(self, stream: Stream) -> StreamState:
        """The stream as it is now."""
        answer = await self._ask(f"STREAM.INFO.{stream.name}", {}, f"read the stream {stream.name}")
        return StreamState(f"{stream.name} {answer['created']}", int(answer["state"]["last_seq"]), str(answer["ts"]))

    # --- writing -----------------------------------------------------------------------------------------------------

    async def append(self, subject: str, payload: bytes, *, after: int | None = None, expires_s: int = 0) -> int:
        """Store a message and return its number. The message is on disk then, on most replicas.

        In: `after`, the number that the subject's last message must have (0: none); `expires_s`, seconds after which the message
        is removed. Raises WrongSequence.
        """
        headers: dict[str, str] = {}
        if after is not None:
            headers["Nats-Expected-Last-Subject-Sequence"] = str(after)
        if expires_s:
            headers["Nats-TTL"] = str(expires_s)
        answer = json.loads((await self._request(subject, payload, headers=headers or None)).data)
        if _code(answer) in WRONG_SEQUENCE:
            raise WrongSequence(answer["error"].get("description", ""))
        return int(self._check(answer, f"write {subject}")["seq"])

    async def purge(self, stream: Stream, subject: str) -> None:
        """Remove all messages of a subject."""
        await self._ask(f"STREAM.PURGE.{stream.name}", {"filter": subject}, f"remove {subject}")

    async def remove(self, stream: Stream, sequence: int) -> None:
        """Remove a message. One that is gone is ignored."""
        answer = await self._api(f"STREAM.MSG.DELETE.{stream.name}", {"seq": sequence, "no_erase": True})
        if _status(answer) not in (400, 404, 500):  # gone: JetStream has several codes for that
            self._check(answer, f"remove message {sequence} of {stream.name}")

    # --- reading -----------------------------------------------------------------------------------------------------

    async def room(self) -> Room:
        """What the streams take on disk."""
        account = await self._ask("INFO", {}, "read what the streams take")
        limit = int(account.get("limits", {}).get("max_storage", -1))
        return Room(int(account.get("storage", 0)), limit if limit > 0 else None)

    async def last(self, stream: Stream, subject: str) -> Message | None:
        """The last message of a subject, or None. Asks the leader, so all acknowledged messages are seen."""
        answer = await self._api(f"STREAM.MSG.GET.{stream.name}", {"last_by_subj": subject})
        if _code(answer) == NO_MESSAGE:
            return None
        message = self._check(answer, f"read {subject}")["message"]
        return Message(int(message["seq"]), str(message["subject"]), base64.b64decode(message.get("data", "")))

    async def by_sequence(self, stream: Stream, sequence: int) -> bytes | None:
        """The content of a message, or None if it is gone."""
        message = await self._request(f"$JS.API.DIRECT.GET.{stream.name}", json.dumps({"seq": sequence}).encode())
        status = _header(message, "Status")
        if status == "404":
            return None
        if status:
            raise self._error(f"read message {sequence} of {stream.name}", 0, _header(message, "Description"))
        return message.data

    async def read(self, stream: Stream, subject: str, start: int = 0) -> Page:
        """Messages of a subject (with wildcards) from the number `start` on, at most READ_MESSAGES and READ_BYTES."""
        request = {"seq": max(start, 1), "next_by_subj": subject, "batch": READ_MESSAGES, "max_bytes": READ_BYTES}
        found: list[Message] = []
        try:
            async with asyncio.timeout(REQUEST_S), self.inbox(READ_MESSAGES + 1) as (inbox, answers):
                await self._use().publish(f"$JS.API.DIRECT.GET.{stream.name}", json.dumps(request).encode(), reply=inbox)
                while True:
                    parcel = await answers.get()
                    if status := parcel.headers.get("Status", ""):
                        break
                    headers = parcel.headers
                    found.append(Message(int(headers["Nats-Sequence"]), headers["Nats-Subject"], parcel.data))
        except (TimeoutError, nats.errors.Error, OSError) as error:
            raise self._unavailable(f"read {stream.name}", error) from error
        if status not in ("204", "404"):
            raise self._error(f"read {stream.name}", 0, parcel.headers.get("Description", status))
        return Page(found, int(parcel.headers.get("Nats-Num-Pending", 0)) > 0)

    async def read_all(self, stream: Stream, subject: str, start: int = 0) -> list[Message]:
        """All messages of a bucket from the number `start` on."""
        return [message async for message in self.messages(stream, subject, start)]

    async def messages(self, stream: Stream, subject: str, start: int = 0) -> AsyncGenerator[Message]:
        """The same, one after the other: a page at a time is in memory."""
        has_more = True
        while has_more:
            page = await self.read(stream, subject, start)
            for message in page.messages:
                yield message
                start = message.sequence + 1
            has_more = page.has_more and bool(page.messages)

    # --- messages without a stream ---------------------------------------------------------------------------------

    async def publish(self, subject: str, payload: bytes, headers: dict[str, str] | None = None, *, reply: str = "") -> None:
        """Send a message to those who listen at present. Raises StoreUnavailable while NATS cannot be reached."""
        try:
            async with asyncio.timeout(REQUEST_S):
                client = await self._ready()
                await client.publish(subject, payload, reply=reply, headers=headers)
        except (TimeoutError, nats.errors.Error, OSError) as error:
            raise self._unavailable(f"use {subject}", error) from error

    async def subscribe(self, subject: str, receive: Callable[[Parcel], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
        """Call a function with each message to a subject, one after the other. Returns what ends that."""

        async def pass_on(message: Msg) -> None:
            try:
                await receive(_parcel(message))
            except StoreError as error:
                log.warning("cluster.message_not_answered", subject=subject, error=str(error))

        client = await self._ready()
        subscription = await client.subscribe(subject, cb=pass_on)  # pyright: ignore[reportUnknownMemberType] - of its `future`

        async def end() -> None:
            with suppress(nats.errors.Error, OSError):
                await subscription.unsubscribe()

        return end

    @asynccontextmanager
    async def inbox(self, size: int) -> AsyncGenerator[tuple[str, asyncio.Queue[Parcel]]]:
        """A subject for answers, and the messages that come to it. In: `size`, the maximum number that waits to be read."""
        answers: asyncio.Queue[Parcel] = asyncio.Queue(size)

        async def keep(message: Msg) -> None:
            await answers.put(_parcel(message))

        try:
            async with asyncio.timeout(REQUEST_S):
                client = await self._ready()
                inbox = client.new_inbox()
                subscription = await client.subscribe(inbox, cb=keep)  # pyright: ignore[reportUnknownMemberType] - of its `future`
        except (TimeoutError, nats.errors.Error, OSError) as error:
            raise self._unavailable("ask", error) from error
        try:
            yield inbox, answers
        finally:
            with suppress(nats.errors.Error, OSError):
                await subscription.unsubscribe()

    # --- requests ----------------------------------------------------------------------------------------------------

    async def _ask(self, name: str, body: dict[str, Any], doing: str) -> dict[str, Any]:
        return self._check(await self._api(name, body), doing)

    async def _api(self, name: str, body: dict[str, Any], timeout_s: float | None = None) -> dict[str, Any]:
        return json.loads((await self._request(f"$JS.API.{name}", json.dumps(body).encode(), timeout_s=timeout_s)).data)

    async def _request(
        self, subject: str, payload: bytes, *, headers: dict[str, str] | None = None, timeout_s: float | None = None
    ) -> Msg:
        """Send a request, and again after a lost connection, so that it may be done twice. Raises StoreError.

        Without a leader, NATS hears nothing on a stream's subject. The servers choose one within some seconds.
        """
        unheard = ""
        try:
            async with asyncio.timeout(timeout_s or REQUEST_S):
                while True:
                    try:
                        message = await self._send(subject, payload, headers)
                    except ConnectionLostError:
                        continue
                    if _header(message, "Status") != NO_RESPONDERS or subject.startswith("$JS."):
                        break
                    unheard = "its stream has no leader at present"
                    await asyncio.sleep(RECONNECT_EVERY_S)
        except (TimeoutError, nats.errors.Error, OSError) as error:
            raise self._unavailable(f"use {subject}", error, unheard) from error
        if _header(message, "Status") == NO_RESPONDERS:
            raise StoreUnavailable(
                f"JetStream does not answer at {self.options.address} (subject {subject}): start NATS with JetStream (-js), and "
                "look at the permissions of the account, and whether its servers have a leader."
            )
        return message

    async def _send(self, subject: str, payload: bytes, headers: dict[str, str] | None) -> Msg:
        client = await self._ready()
        self._number += 1
        inbox = f"{self._inbox}.{self._number}"
        answer: asyncio.Future[Msg] = asyncio.get_running_loop().create_future()
        self._waiting[inbox] = answer
        try:
            await client.publish(subject, payload, reply=inbox, headers=headers)
            return await answer
        finally:
            del self._waiting[inbox]

    async def _on_answer(self, message: Msg) -> None:
        answer = self._waiting.get(message.subject)
        if answer is not None and not answer.done():
            answer.set_result(message)

    async def _ready(self) -> Client:
        """The client, once it is connected. The caller bounds the wait."""
        self._use()
        await self._connected.wait()
        return self._use()

    def _use(self) -> Client:
        if self._client is None:
            raise StoreError("The connection to NATS is closed.")
        return self._client

    def _check(self, answer: dict[str, Any], doing: str) -> dict[str, Any]:
        if "error" in answer:
            raise self._error(doing, _code(answer), str(answer["error"].get("description", answer["error"])))
        return answer

    def _error(self, doing: str, code: int, why: str) -> StoreError:
        kind = StoreUnavailable if code in NO_LEADER else StoreFull if code in NO_ROOM else StoreError
        return kind(f"Cannot {doing} in NATS at {self.options.address}: {why}. {ADVICE.get(code, '')}".rstrip())

    def _unavailable(self, doing: str, error: Exception, why: str = "") -> StoreUnavailable:
        why = why or self._fault or str(error) or type(error).__name__
        return StoreUnavailable(
            f"Cannot {doing}: NATS at {self.options.address} does not answer ({why}). What waits to be written is kept and tried "
            "again. Look at the network and at NATS."
        )


def _tls(options: ClusterOptions) -> ssl.SSLContext:
    """Raises StoreError for files that are no certificates."""
    try:
        context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=options.tls_ca)
    except OSError as error:
        raise StoreError(f"Cannot read certificates from cluster_tls_ca {options.tls_ca}: {error}. It must be PEM.") from error
    if options.tls_cert is not None:
        try:
            context.load_cert_chain(options.tls_cert, options.tls_key)
        except OSError as error:
            raise StoreError(
                f"Cannot use the certificate {options.tls_cert} with the key {options.tls_key or options.tls_cert}: {error}."
                " Both must be PEM and belong together (cluster_tls_cert, cluster_tls_key)."
            ) from error
    return context


def _require_credentials(file: Path) -> None:
    """Raise StoreError if a file has no credentials of NATS. Blocking."""
    try:
        content = file.read_text("utf-8", "replace")
    except OSError as error:
        raise StoreError(f"Cannot read cluster_credentials {file}: {error.strerror or error}.") from error
    if "BEGIN NATS USER JWT" not in content or "BEGIN USER NKEY SEED" not in content:
        raise StoreError(f"{file} (cluster_credentials) is no credentials file of NATS. `nsc generate creds` makes one.")


def _is_refusal(error: Exception) -> bool:
    """Whether an error of a connection stays until a person does something."""
    if isinstance(error, ssl.SSLCertVerificationError | NoTlsError) or REFUSED_CREDENTIALS in str(error):
        return True
    return isinstance(error, ssl.SSLError) and error.reason == "TLSV13_ALERT_CERTIFICATE_REQUIRED"


def _explain(error: BaseException, client: Client, options: ClusterOptions) -> str:
    """What a failed connection means, and what to do, in sentences."""
    secret = options.secret or options.credentials
    if isinstance(error, ssl.SSLCertVerificationError) and error.verify_code in CERTIFICATE_ADVICE:
        return CERTIFICATE_ADVICE[error.verify_code]
    if isinstance(error, NoTlsError):
        return (
            "it offers no TLS, and no credentials were sent to it. Configure TLS there, or use nats:// without cluster_tls_ca and"
            " cluster_tls_cert."
        )
    if isinstance(error, ssl.SSLError):
        return (
            f"TLS failed: {error.reason or error}. Look at the certificates; if NATS wants one of this server: cluster_tls_cert."
        )
    if client.server_wants_credentials and not secret and options.tls_cert is None:
        return "it wants credentials. Set cluster_password (a token, or USER:PASSWORD) or cluster_credentials (a .creds file)."
    is_cut_off = isinstance(error, ConnectionResetError | BrokenPipeError) and client.server_wants_credentials
    if is_cut_off or REFUSED_CREDENTIALS in str(error):
        what = f"the file {options.credentials} (cluster_credentials)" if options.credentials else "cluster_password"
        seen = (
            "it has closed the connection, so it probably refuses the credentials" if is_cut_off else "it refuses the credentials"
        )
        return f"{seen}. Look at {what}, which may be wrong, expired or revoked."
    return f"{str(error) or type(error).__name__}. Look at the address, the credentials and the certificates."


def _parcel(message: Msg) -> Parcel:
    return Parcel(message.reply, dict(message.headers or {}), message.data)


def _header(message: Msg, name: str) -> str:
    return (message.headers or {}).get(name, "")


def _code(answer: dict[str, Any]) -> int:
    return int(answer.get("error", {}).get("err_code", 0))


def _status(answer: dict[str, Any]) -> int:
    return int(answer.get("error", {}).get("code", 0))
