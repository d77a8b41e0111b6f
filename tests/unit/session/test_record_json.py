"""A session's record, and its changes, in the journal."""

from __future__ import annotations

import pytest

from universal.session.importer import patch_record
from universal.session.record_json import RecordChanges, changes_json, fork_json, fork_of, record_json, record_of
from universal.session.values import ForkSource, ModelRef, SessionRecord

RECORD = SessionRecord("ses_1", title="old", mode="build", share={"url": "u"}, archived_ms=3)


@pytest.mark.parametrize(
    "changes",
    [
        RecordChanges(title="new"),
        RecordChanges(permission=[{"permission": "bash", "pattern": "*", "action": "ask"}]),
        RecordChanges(metadata={"a": 1}),
        RecordChanges(share=None),
        RecordChanges(mode="plan"),
        RecordChanges(model=ModelRef("claude", "opus")),
        RecordChanges(model=ModelRef("claude", "opus", "high")),
        RecordChanges(archived_ms=None),
        RecordChanges(archived_ms=5),
        RecordChanges(),
    ],
)
def test_changes_are_read_as_they_were_written(changes: RecordChanges) -> None:
    changed = patch_record(RECORD, changes_json(changes))
    for name, value in changes.items():
        assert getattr(changed, name) == (tuple(value) if isinstance(value, list) else value)
    before = record_json(RECORD)
    assert {key: value for key, value in record_json(changed).items() if key not in changes} == {
        key: value for key, value in before.items() if key not in changes
    }


def test_a_record_is_read_as_it_was_written() -> None:
    assert record_of(record_json(RECORD)) == RECORD


@pytest.mark.parametrize("is_included", [True, False])
def test_the_source_of_a_fork_is_read_as_it_was_written(is_included: bool) -> None:
    fork = ForkSource("ses_0", "msg_0", is_included)
    assert fork_of(fork_json(fork)) == fork
    assert fork_json(fork)["boundary"]["type"] == ("through" if is_included else "before")


def test_a_session_that_is_no_fork_has_no_source() -> None:
    assert fork_of(None) is None
    assert fork_of({}) is None
