"""The streams, buckets, subjects and keys of a cluster, and the JSON of their entries. Pure.

    PREFIX_journal          PREFIX.journal.SESSION          batches of events
    PREFIX_blobs            PREFIX.blob.SESSION             heads and pages of checkpoints
    PREFIX_reserve          PREFIX.reserve                  nothing: room that events do not take (reserve.py)
    KV_PREFIX_sessions      $KV.PREFIX_sessions.SESSION     owner, epoch and row of a session
    KV_PREFIX_checkpoints   $KV.PREFIX_checkpoints.SESSION  where the parts of a checkpoint are
    KV_PREFIX_values        $KV.PREFIX_values.SPACE.KEY     small values
    KV_PREFIX_servers       $KV.PREFIX_servers.SERVER       leases, which expire
    KV_PREFIX_leases        $KV.PREFIX_leases.SERVER        the same in the memory of NATS, while its disk has no room

Buckets have the names and subjects of NATS's key-value stores, so that `nats kv` reads them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

from pydantic_core import from_json

from shim.lib.errors import StoreError
from shim.store.base import SessionRow
from shim.store.rows import dump, load

FORMAT = "1"
"""The form of all messages. A server refuses a cluster of another format."""
FORMAT_KEY = "opencode-shim-format"
TOKEN_CHARS = 200
"""Maximum characters of a key's readable form. A longer key is replaced by its hash; the entry holds the key itself."""
_PLAIN = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """How to reach the NATS of a cluster. `servers` are URLs; `prefix` separates clusters that share a NATS.

    secret  a token, or USER:PASSWORD
    max_bytes, max_session_bytes  what all sessions may take on the disk of NATS, and the journal of each; None: no bound
    """

    servers: tuple[str, ...]
    prefix: str = "shim"
    replicas: int = 1
    credentials: Path | None = None
    secret: str = field(default="", repr=False)
    tls_ca: Path | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    max_bytes: int | None = None
    max_session_bytes: int | None = None

    @property
    def address(self) -> str:
        """The servers without passwords, for messages."""
        return ", ".join(server.rpartition("@")[2].rpartition("://")[2] for server in self.servers)


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream: its name, the subjects it stores, and how.

    keeps_last     one message for each subject: a bucket
    expires_s      seconds after which messages are removed; 0: never
    is_in_memory   NATS keeps it in its memory, where there is room also if its disk is full
    """

    name: str
    subjects: str
    keeps_last: bool = False
    expires_s: float = 0.0
    is_in_memory: bool = False

    def config(self, replicas: int) -> dict[str, Any]:
        """The configuration in the form of JetStream's API."""
        return {
            "name": self.name,
            "subjects": [self.subjects],
            "retention": "limits",
            "storage": "memory" if self.is_in_memory else "file",
            "discard": "new" if self.keeps_last else "old",
            "num_replicas": replicas,
            "max_age": int(self.expires_s * 1e9),
            "max_consumers": -1,
            "max_msgs": -1,
            "max_bytes": -1,
            "max_msg_size": -1,
            "max_msgs_per_subject": 1 if self.keeps_last else -1,
            "duplicate_window": min(120_000_000_000, int(self.expires_s * 1e9) or 120_000_000_000),
            "allow_direct": True,
            "allow_rollup_hdrs": self.keeps_last,
            "allow_msg_ttl": self.keeps_last,
            "metadata": {FORMAT_KEY: FORMAT},
        }


class Layout:
    """The names of one cluster. `prefix` separates clusters that share a NATS."""

    def __init__(self, prefix: str, lease_s: float) -> None:
        self.prefix = prefix
        self.journal = Stream(f"{prefix}_journal", f"{prefix}.journal.*")
        self.blobs = Stream(f"{prefix}_blobs", f"{prefix}.blob.*")
        self.sessions = self._bucket("sessions")
        self.checkpoints = self._bucket("checkpoints")
        self.values = self._bucket("values")
        self.servers = self._bucket("servers", lease_s)
        self.leases = replace(self._bucket("leases", lease_s), is_in_memory=True)
        self.reserve = Stream(f"{prefix}_reserve", f"{prefix}.reserve")
        self.growth = f"{prefix}.growth"
        """The subject on which owners tell that a journal has grown. No stream stores it."""
        self.growths = f"{prefix}.growths"
        """The subject on which they tell the same of some time together, for servers at which no client reads."""
        self.renewal = f"{prefix}.renewal"
        """The subject on which servers tell that they have renewed their lease, or ended one. No stream stores it."""
        self.talk = f"{prefix}.talk"
        """The subject on which servers tell what happens beside the sessions. No stream stores it."""
        self.streams = (
            self.journal,
            self.blobs,
            self.sessions,
            self.checkpoints,
            self.values,
            self.servers,
            self.leases,
            self.reserve,
        )

    def _bucket(self, name: str, expires_s: float = 0.0) -> Stream:
        return Stream(f"KV_{self.prefix}_{name}", f"$KV.{self.prefix}_{name}.>", keeps_last=True, expires_s=expires_s)

    def journal_subject(self, session_id: str) -> str:
        """The subject of a session's journal."""
        return f"{self.prefix}.journal.{token(session_id)}"

    def blob_subject(self, session_id: str) -> str:
        """The subject of the parts of a session's checkpoints."""
        return f"{self.prefix}.blob.{token(session_id)}"

    def session_key(self, session_id: str) -> str:
        """The subject of a session's entry."""
        return f"$KV.{self.prefix}_sessions.{token(session_id)}"

    def checkpoint_key(self, session_id: str) -> str:
        """The subject of the entry of a session's checkpoint."""
        return f"$KV.{self.prefix}_checkpoints.{token(session_id)}"

    def value_key(self, namespace: str, key: str) -> str:
        """The subject of a small value. Key `*`: of all values of the namespace."""
        return f"$KV.{self.prefix}_values.{token(namespace)}.{key if key == '*' else token(key)}"

    def command_subject(self, server_id: str) -> str:
        """The subject of commands for a server. No stream stores them."""
        return f"{self.prefix}.command.{server_id}"

    def pipe_subject(self, server_id: str) -> str:
        """The subject on which other servers open streams to a server. No stream of JetStream stores them."""
        return f"{self.prefix}.pipe.{server_id}"

    def server_key(self, server_id: str, stream: Stream | None = None) -> str:
        """The subject of a server's lease. In: `leases` for the one in memory."""
        return f"{(stream or self.servers).subjects.removesuffix('>')}{server_id}"


def token(text: str) -> str:
    """Encode a text as one token of a subject. Other characters than letters, digits, `_` and `-` become `=XX`."""
    if _PLAIN.fullmatch(text) and len(text) <= TOKEN_CHARS:
        return text
    data = text.encode("utf-8", "surrogatepass")
    encoded = "".join(chr(byte) if _PLAIN.match(chr(byte)) and byte < 128 else f"={byte:02X}" for byte in data)
    if not encoded or len(encoded) > TOKEN_CHARS:
        return f"=h{blake2b(data, digest_size=20).hexdigest()}"
    return encoded


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """The entry of a session: who owns it, and its row.

    owner     id of the server that owns it
    epoch     grows with each change of the owner
    last      sequence of the last event when the entry was written
    row       None before the row was saved
    is_deleted  the session is gone; the entry expires
    size      bytes of its journal then; what versions wrote that did not count is left out
    """

    session_id: str
    owner: str
    epoch: int
    last: int = 0
    row: SessionRow | None = None
    is_deleted: bool = False
    size: int = 0


def encode_record(record: SessionRecord) -> bytes:
    """Encode a session's entry as JSON. Raises StoreError if its row is not JSON."""
    row = record.row
    value = {
        "session": record.session_id,
        "owner": record.owner,
        "epoch": record.epoch,
        "last": record.last,
        "deleted": record.is_deleted,
        "size": record.size,
        "row": None
        if row is None
        else [row.directory, row.project_id, row.parent_id, row.created_ms, row.updated_ms, dict(row.data)],
    }
    return dump(value, f"session {record.session_id}").encode()


def decode_record(data: bytes) -> SessionRecord:
    """The inverse of `encode_record`. Raises StoreError if it is damaged."""
    value = _object(data, "entry of a session")
    try:
        session_id, row = str(value["session"]), value["row"]
        stored = None if row is None else SessionRow(session_id, *row[:6])
        return SessionRecord(
            session_id,
            str(value["owner"]),
            int(value["epoch"]),
            int(value["last"]),
            stored,
            bool(value["deleted"]),
            int(value.get("size", 0)),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise StoreError(f"The stored entry of a session cannot be read: {error}. Was it written by another version?") from error


@dataclass(frozen=True, slots=True)
class Manifest:
    """Where the parts of a session's checkpoint are: sequences in the stream of blobs.

    sequence  the event at which the checkpoint stands
    start     a message of the journal's stream, and the last event before it; reading may begin there
    """

    sequence: int
    start: tuple[int, int]
    head: tuple[int, ...]
    pages: Mapping[int, tuple[int, ...]]


def encode_manifest(manifest: Manifest) -> bytes:
    """Encode the entry of a checkpoint as JSON."""
    pages = [[number, *parts] for number, parts in manifest.pages.items()]
    value = {"sequence": manifest.sequence, "start": manifest.start, "head": manifest.head, "pages": pages}
    return json.dumps(value, separators=(",", ":")).encode()


def decode_manifest(data: bytes) -> Manifest:
    """The inverse of `encode_manifest`. Raises StoreError if it is damaged."""
    value = _object(data, "entry of a checkpoint")
    try:
        before, position = value["start"]
        pages = {int(number): tuple(map(int, parts)) for number, *parts in value["pages"]}
        return Manifest(int(value["sequence"]), (int(before), int(position)), tuple(map(int, value["head"])), pages)
    except (KeyError, TypeError, ValueError) as error:
        raise StoreError(
            f"The stored entry of a checkpoint cannot be read: {error}. Was it written by another version?"
        ) from error


def _object(data: bytes, what: str) -> dict[str, Any]:
    try:
        value = from_json(data)  # equal texts of many entries are one object, as far as its cache goes
    except ValueError:  # damaged, or a lone surrogate, which it does not take
        value = load(data.decode("utf-8", "replace"), what)
    if not isinstance(value, dict):
        raise StoreError(f"The stored {what} is no JSON object. Was it written by another version?")
    return value  # pyright: ignore[reportUnknownVariableType] - JSON objects have string keys
