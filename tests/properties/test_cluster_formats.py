"""What servers of a cluster store and send is read by the version before and after: so they can be upgraded one after the other.

What a later version adds is left out, and what an earlier one does not write has its default. `FORMS` has all that is read.
"""

from __future__ import annotations

import ast
import asyncio
import copy
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeAlias

import pytest

import shim.cluster
from shim.cluster import tunnel
from shim.cluster.nats import commands
from shim.cluster.nats.batches import Reader, batches, encode_event, envelope_of
from shim.cluster.nats.commands import BEGIN, READY, decode_command, encode_command
from shim.cluster.nats.connection import Message, Parcel
from shim.cluster.nats.layout import Layout, Manifest, decode_manifest, decode_record, encode_manifest, encode_record
from shim.cluster.nats.layout import SessionRecord as EntryRecord
from shim.cluster.nats.leases import _node as read_lease  # pyright: ignore[reportPrivateUsage]
from shim.cluster.nats.peers import JetStreamPeers
from shim.cluster.nats.values import _decode as read_value  # pyright: ignore[reportPrivateUsage]
from shim.cluster.peers import Command, Growth, Offer
from shim.cluster.places import Progress, Viewpoint, decode_viewpoint
from shim.cluster.remote_changes import RemoteChanges, encode_change
from shim.host.changes import HostChanged, HostFeed, TuiPrompt
from shim.host.git.projects import _from_row as read_project  # pyright: ignore[reportPrivateUsage]
from shim.http.pairing import ANY, Person, Quota, decode_person, encode_person
from shim.sessions.index.accounts import Accounts
from shim.sessions.index.named_sessions import NamedSessions
from shim.sessions.index.session_entry import SessionEntry, entry_from_row
from shim.sessions.session.native_sessions import NativeSession
from shim.store.rows import EventRow, SessionRow, event_of, row_of
from shim.store.servers import ServerRef
from tests.unit.store.store_contract import event
from universal.events import EventType, ItemData
from universal.items import Item, ItemKind, ItemRole, ItemStatus, TextPart
from universal.session.values import SessionRecord

Path_: TypeAlias = tuple[str | int, ...]
"""Where something is in a value of JSON."""
BOUND_S = 10.0
LATER = {"x": [1]}
"""The value of a key of a later version."""


@dataclass(frozen=True)
class Form:
    """What is stored or sent.

    sample    an example, as JSON
    read      reads it, as a server does
    grows     the objects that may get keys, and the arrays that may get items at their end
    optional  keys that an earlier version does not write, and the values for which they stand then
    """

    sample: Any
    read: Callable[[Any], Any]
    grows: Sequence[Path_] = ((),)
    optional: Mapping[Path_, Any] | None = None


def decode_bytes(read: Callable[[bytes], Any]) -> Callable[[Any], Any]:
    return lambda value: read(json.dumps(value).encode())


ROW = SessionRow("ses_a", "/srv", "p", None, 1, 2, {"record": {}})
ENTRY = SessionEntry(
    SessionRecord("ses_a", "slug", "1", "p", "/srv", None, "t", 1, 2),
    "mock",
    {"mock": NativeSession("n", started=True, title="t", others_ms=5)},
    facts={"a": 1},
)
ITEM = Item(
    item_id="itm_1",
    kind=ItemKind.MESSAGE,
    role=ItemRole.USER,
    status=ItemStatus.COMPLETED,
    content=(TextPart(text="hello"),),
)
EVENT = row_of(event(1, data=ItemData(item=ITEM)).model_copy(update={"type": EventType.ITEM_COMPLETED, "by": "wim"}))
(BATCH,) = batches("srv", 2, 1, [encode_event(EVENT)], 2**20)
ENVELOPE, COLUMNS, *_ = BATCH.payload.split(b"\n")


def read_row_data(value: Any) -> SessionEntry:
    return entry_from_row(ROW._replace(data=value))


def read_event(value: Any) -> Any:
    return event_of(EVENT._replace(body=json.dumps(value)))


def read_columns(value: Any) -> list[EventRow]:
    lines = BATCH.payload.split(b"\n")
    return Reader("ses_a", with_raw=True).rows(b"\n".join([lines[0], json.dumps(value).encode(), *lines[2:]]), 0)


def read_growth(value: Any) -> list[Growth]:
    """Of one message, and of some together."""
    unused: Any = None
    found: list[Growth] = []
    journals: Any = SimpleNamespace(note_last=lambda session_id, last: None)
    heard = JetStreamPeers(unused, Layout("shim", 1.0), unused, "here", journals, unused, unused, unused)
    heard._on_growth = found.append  # pyright: ignore[reportPrivateUsage] - `watch` needs a connection
    asyncio.run(heard._hear_one(parcel(value)))  # pyright: ignore[reportPrivateUsage]
    asyncio.run(heard._hear_some(parcel([[*value[:4], value[4] + 1, *value[5:]]])))  # pyright: ignore[reportPrivateUsage]
    return found


def parcel(value: Any, **headers: str) -> Parcel:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return Parcel("", {name.replace("_", "-"): text for name, text in headers.items()}, data)


def read_talk(value: Any) -> Any:
    """A change, and the directories that this server shall watch."""

    async def read() -> Any:
        seen: list[HostChanged] = []
        changes = RemoteChanges(HostFeed(), seen.append, lambda directory: True, lambda directory: asyncio.sleep(0))
        changes._server_id = "here"  # pyright: ignore[reportPrivateUsage] - `start` needs peers
        changes._receive("other", json.dumps(value).encode())  # pyright: ignore[reportPrivateUsage]
        return seen, changes.is_wanted("/srv")

    return asyncio.run(read())


def read_change(value: Any) -> Any:
    return read_talk({"change": json.dumps(value)})[0]


class Socket:
    """A client's WebSocket that notes what comes."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.closed = False

    async def send_str(self, text: str) -> None:
        self.seen.append(text)

    async def send_bytes(self, data: bytes) -> None:
        self.seen.append(data)

    async def close(self, *, code: int = 1000, message: bytes = b"") -> bool:
        self.seen.append((code, message))
        return True


def frames_seen(*frames: bytes) -> list[Any]:
    """What a client gets of these frames of another server."""
    messages: list[bytes | None] = [*frames, None]

    async def receive() -> bytes | None:
        return messages.pop(0)

    socket = Socket()
    pipe: Any = SimpleNamespace(receive=receive)
    typed: Any = socket
    asyncio.run(tunnel._to_socket(pipe, typed, lambda: None))  # pyright: ignore[reportPrivateUsage]
    return socket.seen


def read_close(value: Any) -> list[Any]:
    return frames_seen(b"C" + json.dumps(value).encode())


def answer_to(*parcels: Parcel) -> Any:
    """What an asker takes of these messages of the server that it has asked."""

    async def ask() -> Any:
        inbox: asyncio.Queue[Parcel] = asyncio.Queue()
        for one in parcels:
            inbox.put_nowait(one)
        sent: list[str] = []

        async def publish(subject: str, data: bytes, headers: Mapping[str, str], reply: str = "") -> None:
            sent.append(headers[commands.PART])

        connection: Any = SimpleNamespace(publish=publish, inbox=lambda size: inbox_of(inbox), message_bytes=2**20)
        asker = commands.Commands(connection, Layout("shim", 1.0), "here")
        async with asyncio.timeout(BOUND_S), asker.ask(ServerRef("other"), Command("c", "GET", "/")) as answer:
            return answer.status, answer.headers, [chunk async for chunk in answer.chunks], sent

    return asyncio.run(ask())


class inbox_of:
    """The inbox of an asker, as `Connection.inbox` gives it."""

    def __init__(self, parcels: asyncio.Queue[Parcel]) -> None:
        self._parcels = parcels

    async def __aenter__(self) -> tuple[str, asyncio.Queue[Parcel]]:
        return "inbox", self._parcels

    async def __aexit__(self, *_: object) -> None:
        pass


def read_answer(value: Any) -> Any:
    return answer_to(parcel(json.dumps(value).encode() + b"\nbody", Shim_Number="1", Shim_End="1"))


def read_name(value: Any) -> Any:
    unused: Any = None
    named = NamedSessions(unused, unused, unused)
    named.note("name", value)
    return named._ids, named._permission_modes  # pyright: ignore[reportPrivateUsage]


def read_spending(value: Any) -> Any:
    unused: Any = None
    accounts = Accounts(unused, unused, SimpleNamespace(now_ms=lambda: 0), unused)  # type: ignore[arg-type]
    accounts.note("srv wim", value)
    return accounts._spent  # pyright: ignore[reportPrivateUsage]


OFFER = Offer({"mock": "1"}, ("/srv",), 3, ("gpu=yes",), in_use=("/srv/a",))
PROJECT = {"id": "p", "worktree": "/srv", "time": {"created": 1, "updated": 2}, "icon": {"url": "u"}, "sandboxes": ["/b"]}

FORMS: Mapping[str, Form] = {
    "entry of a session": Form(
        json.loads(encode_record(EntryRecord("ses_a", "srv", 3, 7, ROW, size=9))),
        decode_bytes(decode_record),
        ((), ("row",)),
        {("size",): 0},
    ),
    "row of a session": Form(
        json.loads(json.dumps(dict(ENTRY.to_row().data))),
        read_row_data,
        ((), ("record",), ("native", "mock")),
        {
            ("native",): {},
            ("native", "mock", "started"): False,
            ("native", "mock", "resume_at"): None,
            ("native", "mock", "title"): "",
            ("native", "mock", "others_ms"): 0,
            ("busy",): False,
            ("subagent",): False,
            ("ended",): False,
            ("facts",): {},
        },
    ),
    "entry of a checkpoint": Form(
        json.loads(encode_manifest(Manifest(7, (5, 90), (1, 2), {1: (3,)}))),
        decode_bytes(decode_manifest),
    ),
    "small value": Form(
        {"namespace": "n", "key": "k", "value": LATER, "by": "srv"},
        decode_bytes(lambda data: read_value(Message(1, "", data))),
        optional={("by",): ""},
    ),
    "lease": Form(
        {"pid": 1, "url": "u", "host": "h", "name": "n", "offer": asdict(OFFER)},
        decode_bytes(lambda data: read_lease("srv", data)),
        ((), ("offer",)),
        {("offer", key): value for key, value in asdict(Offer()).items()},
    ),
    "envelope of a journal's message": Form(json.loads(ENVELOPE), decode_bytes(envelope_of)),
    "columns of an event": Form(json.loads(COLUMNS), read_columns),
    "body of an event": Form(
        json.loads(EVENT.body),
        read_event,
        ((), ("data",), ("data", "item"), ("data", "item", "content", 0)),
        {("by",): None, ("data", "item", "metadata"): None, ("data", "item", "role"): None},
    ),
    "word of a journal's growth": Form(["srv", "ses_a", 1, 2, 5, 1], read_growth),
    "command": Form(json.loads(encode_command(Command("c", "GET", "/"))), decode_bytes(decode_command)),
    "head of an answer": Form({"status": 200, "headers": [["a", "b"]]}, read_answer),
    "person of a command": Form(
        encode_person(Person("wim", quota=Quota(max_running=2))), decode_person, ((), ("limits",)), {("limits",): ANY._asdict()}
    ),
    "talk": Form({"watch": {"here": ["/srv"]}}, read_talk),
    "change": Form(json.loads(encode_change(HostChanged(TuiPrompt("a"), "/srv", "p"))), read_change, ((), (1,))),
    "head of a WebSocket": Form([101, [["a", "b"]]], decode_bytes(tunnel.decode_head)),
    "close of a WebSocket": Form({"code": 4000, "reason": "r"}, read_close, optional={("reason",): ""}),
    "name of a session": Form(
        {"session": "ses_a", "permission_mode": "plan"}, read_name, optional={("permission_mode",): "default"}
    ),
    "spending of a person": Form({"day": "1970-01-01", "usd": 1.5}, read_spending),
    "project": Form(PROJECT, read_project, ((), ("time",), ("icon",))),
}


def edit(sample: Any, path: Path_, change: Callable[[Any], object]) -> Any:
    """The sample, of which one object or array was changed."""
    value = copy.deepcopy(sample)
    place = value
    for step in path:
        place = place[step]
    change(place)
    return value


def grow(place: Any) -> None:
    """Add what a later version may have."""
    if isinstance(place, list):
        place.append(LATER)
    else:
        place["later"] = LATER


GROWN = [(name, path) for name, form in FORMS.items() for path in form.grows]
MISSING = [(name, path) for name, form in FORMS.items() for path in form.optional or ()]


@pytest.mark.parametrize(("name", "path"), GROWN)
def test_an_unknown_key_of_a_later_version_is_left_out(name: str, path: Path_) -> None:
    form = FORMS[name]
    assert form.read(edit(form.sample, path, grow)) == form.read(form.sample)


@pytest.mark.parametrize(("name", "path"), MISSING)
def test_a_key_that_an_earlier_version_does_not_write_has_its_default(name: str, path: Path_) -> None:
    form = FORMS[name]
    *above, key = path
    default = (form.optional or {})[path]
    without = edit(form.sample, tuple(above), lambda place: place.pop(key, None))
    assert form.read(without) == form.read(edit(form.sample, tuple(above), lambda place: place.update({key: default})))


def test_a_sign_of_a_later_version_in_an_answer_is_passed_over() -> None:
    head = parcel(b'{"status": 200, "headers": []}\n', Shim_Number="1")
    expected = (200, (), [b"body"], ["1/1", BEGIN])
    signs = parcel(b"", Shim_Number=READY), parcel(b"", Shim_Number="later")
    assert answer_to(*signs, head, parcel(b"body", Shim_Number="2", Shim_End="1")) == expected


def test_a_frame_of_a_later_version_is_passed_over() -> None:
    assert frames_seen(b"Xlater", b"Tab", b"Bcd")[:2] == ["ab", b"cd"]


def test_a_position_of_another_version_makes_its_client_read_everything() -> None:
    assert decode_viewpoint("x.5~aabbccdd,2,0,1") == Viewpoint(5, (Progress("aabbccdd", 2, 0, 1),))
    assert decode_viewpoint("x.5~aabbccdd,2,0,1,later") is decode_viewpoint("x.5~aabbccdd,2,0,1,v,later") is None


# --- whether something was forgotten ---------------------------------------------------------------------------------

READERS = {
    "nats/layout.py:_object": "entry of a session",  # and of a checkpoint
    "nats/values.py:_decode": "small value",
    "nats/leases.py:_node": "lease",
    "nats/batches.py:envelope_of": "envelope of a journal's message",
    "nats/batches.py:_events": "columns of an event",
    "nats/peers.py:_hear_one": "word of a journal's growth",
    "nats/peers.py:_hear_some": "word of a journal's growth",
    "nats/commands.py:decode_command": "command",
    "nats/commands.py:_ask": "head of an answer",
    "relay.py:_receive": "person of a command",
    "remote_changes.py:_receive": "talk",
    "remote_changes.py:decode_change": "change",
    "tunnel.py:decode_head": "head of a WebSocket",
    "tunnel.py:_to_socket": "close of a WebSocket",
}
"""Where the cluster's code reads JSON, and the form that it reads."""
NOT_OURS = {
    "nats/connection.py:append",
    "nats/connection.py:_api",
    "nats/nats_process.py:_wait_for_url",
    "nats/store.py:save_session",
}
"""Where it reads what NATS has written, or what it has encoded itself."""
DECODERS = {"json.loads", "load", "from_json"}


def calls_in(node: ast.AST) -> Iterator[str]:
    return (ast.unparse(call.func) for call in ast.walk(node) if isinstance(call, ast.Call))


def readers() -> Iterator[str]:
    """The functions of the cluster that read JSON."""
    folder = Path(shim.cluster.__file__).parent
    for file in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and DECODERS & set(calls_in(node)):
                yield f"{file.relative_to(folder)}:{node.name}"


def test_every_reader_of_the_cluster_stands_in_the_table() -> None:
    assert set(readers()) == READERS.keys() | NOT_OURS
    assert set(READERS.values()) <= set(FORMS)
