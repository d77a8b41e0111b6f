"""What an OpenCode says of a request, a result or an error, kept in events and read back."""

from __future__ import annotations

import pytest

from universal.items import Json
from universal.opencode_metadata import (
    NativeError,
    NativeResult,
    access_metadata,
    access_of,
    error_details,
    error_of,
    result_metadata,
    result_of,
)
from universal.permissions import Access


def test_an_access_is_read_as_it_was_written() -> None:
    access = Access("edit", ("a.py",), ("*",), {"diff": "+x"})
    assert access_of(access_metadata(access), "other") == access


def test_a_request_of_an_old_journal_takes_its_permission_from_the_action() -> None:
    assert access_of({"opencode": {"patterns": ["ls"], "always": []}}, "bash") == Access("bash", ("ls",), ())


def test_a_result_is_read_as_it_was_written() -> None:
    result = NativeResult("Read a.py", {"preview": "x"})
    assert result_of(result_metadata(result)) == result


def test_an_error_is_read_with_its_status() -> None:
    error = {"name": "APIError", "data": {"message": "busy", "statusCode": 529}}
    assert error_of(error_details(error)) == NativeError("APIError", "busy", 529, error)
    assert error_of({"opencode": {"name": "X", "data": {"statusCode": "529"}}}) == NativeError(
        "X", "", None, {"name": "X", "data": {"statusCode": "529"}}
    )


@pytest.mark.parametrize("metadata", [{}, {"opencode": None}, {"opencode": "text"}])
def test_metadata_without_words_of_an_opencode_has_none(metadata: dict[str, Json]) -> None:
    assert access_of(metadata, "bash") is None
    assert result_of(metadata) is None
    assert error_of(metadata) is None


def test_errors_need_no_details() -> None:
    assert error_of(None) is None
