"""A session's record, and what changes of it, as JSON in the journal and in the store's row. Pure.

Fields that have their default are left out. Rows and journals of before 2026-11-23 hold OpenCode 1's JSON, which
`universal.session.importer` reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

from pydantic import TypeAdapter

from universal.lib.jsonvalue import obj, text
from universal.session import importer
from universal.session.values import Fields, ForkSource, ModelRef, SessionRecord

_RECORD = TypeAdapter(SessionRecord)
_NAMES = {"mode": "agent", "archived_ms": "archived"}
"""Field of a record -> its name in the journal, if that is another one."""


class RecordChanges(TypedDict, total=False):
    """Fields of a record that change. None removes one."""

    title: str
    permission: list[Fields] | None
    metadata: Fields | None
    share: Fields | None
    mode: str
    model: ModelRef
    archived_ms: float | None


def changes_json(changes: RecordChanges) -> dict[str, Any]:
    """The changes as a `session` status of the journal has them; `importer.patch_record` reads them."""
    fields = {_NAMES.get(name, name): value for name, value in changes.items()}
    if (model := changes.get("model")) is not None:
        variant = {} if model.variant is None else {"variant": model.variant}
        fields["model"] = {"id": model.model_id, "providerID": model.provider_id, **variant}
    return fields


def fork_json(fork: ForkSource) -> dict[str, Any]:
    """The source of a fork as the journal and the session's row have it: in OpenCode 2's form."""
    boundary = {"type": "through" if fork.is_included else "before", "messageID": fork.message_id}
    return {"sessionID": fork.session_id, "boundary": boundary}


def fork_of(value: Any) -> ForkSource | None:
    """Read `fork_json` back; None if there is none."""
    fork, boundary = obj(value), obj(obj(value).get("boundary"))
    if not fork:
        return None
    return ForkSource(text(fork.get("sessionID")), text(boundary.get("messageID")), boundary.get("type") == "through")


def record_json(record: SessionRecord) -> dict[str, Any]:
    """The record as JSON."""
    return _RECORD.dump_python(record, mode="json", exclude_defaults=True)


def record_of(value: Any) -> SessionRecord:
    """Read `record_json` back. Raises pydantic.ValidationError."""
    return _RECORD.validate_python(value)


def stored_record(value: Mapping[str, Any]) -> SessionRecord:
    """The record of a journal's `session.started` metadata, of any age."""
    return record_of(value["record"]) if "record" in value else importer.session(obj(value.get("opencode")))
