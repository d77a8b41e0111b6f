"""A session's record as JSON, in the journal and in the store's row. Pure.

Fields that have their default are left out. Rows and journals of before 2026-11-23 hold OpenCode 1's JSON, which
`universal.session.importer` reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter

from universal.jsonvalue import obj
from universal.session import importer
from universal.session.model import SessionRecord

_RECORD = TypeAdapter(SessionRecord)


def record_json(record: SessionRecord) -> dict[str, Any]:
    """The record as JSON."""
    return _RECORD.dump_python(record, mode="json", exclude_defaults=True)


def record_of(value: Any) -> SessionRecord:
    """Read `record_json` back. Raises pydantic.ValidationError."""
    return _RECORD.validate_python(value)


def stored_record(value: Mapping[str, Any]) -> SessionRecord:
    """The record of a journal's `session.started` metadata, of any age."""
    return record_of(value["record"]) if "record" in value else importer.session(obj(value.get("opencode")))
