"""The entry of a session, loaded or not, and its conversion from and to the store's row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any

from shim.sessions.session.actor import SessionActor
from shim.sessions.session.native_sessions import NativeSession, native_sessions_of
from shim.sessions.session.session_state import SessionState
from shim.store.rows import JsonText, SessionRow, dump, load, may_be_busy
from universal.lib.jsonvalue import obj, text
from universal.session import importer
from universal.session.record_json import record_json, record_of
from universal.session.values import SessionRecord

DELEGATED = "delegated"
"""Key of the fact that an agent has started a session. Clients cannot change facts."""
RECORD_FIELDS = tuple(field.name for field in fields(SessionRecord))


class ListedRecord(SessionRecord):
    """The record of a row of which nothing but the columns was asked for. The first other field decodes all of them.

    A server lists all sessions and shows few. With 100,000 of them, a start decoded for seconds (docs/cluster.md).
    """

    __slots__ = ("text",)
    text: str
    """The row's JSON; "" once it is decoded."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:  # Python calls it for slots that are not set
            if name not in RECORD_FIELDS:
                raise AttributeError(name)
            record = record_of(load(self.text, f"session {self.id}")["record"])
            for field_name in RECORD_FIELDS:
                object.__setattr__(self, field_name, getattr(record, field_name))
            object.__setattr__(self, "text", "")
            return getattr(self, name)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SessionRecord):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in RECORD_FIELDS)

    def may_contain(self, words: str) -> bool:
        """Whether the row may have these words (of `words_in_json`) in a text, by its JSON. Decodes nothing."""
        text = self.text
        return not text or words in text.casefold() or "\\u" in text


def words_in_json(words: str) -> str:
    """Words as `ListedRecord.may_contain` looks for them."""
    return dump(words)[1:-1].casefold()


@dataclass(slots=True)
class SessionEntry:
    """The data of a session's row, and its loaded state.

    facts         those of `SessionState.facts`
    row_sequence  the last event of which the row tells, of a session of another server of a cluster
    lost_at_ms    when a turn or prompt of it was found lost with its server, or was taken up
    listed        the record whose place in the index's order is the entry's; the index's own
    text          the row's JSON, until one of DECODED is asked for
    """

    record: SessionRecord
    agent: str
    native: dict[str, NativeSession]
    busy: bool = False
    state: SessionState | None = None
    actor: SessionActor | None = None
    subagent: bool = False
    ended: bool = False
    facts: dict[str, Any] = field(default_factory=dict[str, object])
    row_sequence: int = 0
    lost_at_ms: int | None = None
    listed: SessionRecord | None = field(default=None, init=False, repr=False, compare=False)
    text: str = field(default="", init=False, repr=False, compare=False)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:  # Python calls it for slots that are not set
            if name not in DECODED:
                raise AttributeError(name)
            stored = _decode(load(self.text, f"session {self.record.id}"))
            for field_name in DECODED:
                try:
                    object.__getattribute__(self, field_name)
                except AttributeError:  # else it was changed meanwhile
                    setattr(self, field_name, stored[field_name])
            self.text = ""
            return getattr(self, name)

    @property
    def current_record(self) -> SessionRecord:
        return self.state.session.record if self.state is not None else self.record

    @property
    def is_at_work(self) -> bool:
        """Whether a turn runs here, in the session or in one of its subagents."""
        if self.state is None:
            return False
        return self.state.machine.busy or (self.actor is not None and self.actor.children.is_busy)

    @property
    def is_delegated(self) -> bool:
        """Whether the agent of the session above has started it (`shim.sessions.delegation`)."""
        return (self.state.facts if self.state is not None else self.facts).get(DELEGATED) is True

    @property
    def mode(self) -> str:
        """The mode in force: that of its agent's process, else of its last prompt."""
        live = self.actor.process.mode if self.actor is not None and self.actor.process.is_alive else ""
        return live or self.current_record.mode or ""

    def update_from(self, stored: SessionEntry) -> None:
        """Take over the values of a row. The session must not be loaded. Does not change `row_sequence`."""
        self.record, self.agent, self.native = stored.record, stored.agent, stored.native
        self.busy, self.subagent, self.ended, self.facts = stored.busy, stored.subagent, stored.ended, stored.facts
        self.text = ""

    def to_row(self) -> SessionRow:
        record = self.record
        data: dict[str, Any] = {
            "record": record_json(record),
            "agent": self.agent,
            "native": dict(zip(self.native, map(asdict, self.native.values()), strict=True)),
            "busy": self.busy,
            "subagent": self.subagent,
        }
        data |= {"ended": self.ended, "facts": self.facts}
        times = record.created_ms, record.updated_ms
        return SessionRow(record.id, record.directory, record.project_id, record.parent_id, *times, data)


DECODED = ("agent", "native", "subagent", "ended", "facts")
"""Fields of an entry that `listed_entry` leaves to the first who asks."""


def entry_from_row(row: SessionRow) -> SessionEntry:
    """Convert the store's row to an entry."""
    data = row.data
    record = record_of(data["record"]) if "record" in data else importer.session(obj(data.get("info")))
    return SessionEntry(record, busy=bool(data.get("busy")), **_decode(data))


def listed_entry(row: SessionRow) -> SessionEntry:
    """The same, but of a session in which no turn runs only the columns are read. The rest is decoded when it is asked for."""
    data = row.data
    if not isinstance(data, JsonText) or not data.text.startswith('{"record":') or may_be_busy(row):
        return entry_from_row(row)
    record = ListedRecord.__new__(ListedRecord)
    put = object.__setattr__  # records are frozen
    put(record, "id", row.id)
    put(record, "directory", row.directory)
    put(record, "project_id", row.project_id)
    put(record, "parent_id", row.parent_id)
    put(record, "created_ms", row.created_ms)
    put(record, "updated_ms", row.updated_ms)
    put(record, "text", data.text)
    entry = SessionEntry.__new__(SessionEntry)
    entry.record, entry.text, entry.busy = record, data.text, False
    entry.state = entry.actor = entry.lost_at_ms = entry.listed = None
    entry.row_sequence = 0
    return entry


def _decode(data: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of DECODED."""
    return {
        "agent": text(data.get("agent")),
        "native": native_sessions_of(data.get("native")),
        "subagent": bool(data.get("subagent")),
        "ended": bool(data.get("ended")),
        "facts": dict(obj(data.get("facts"))),
    }
