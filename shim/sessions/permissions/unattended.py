"""What clients say of asks that nobody answers: in a session's `metadata.unattended`, a header of prompts, a field of `/v1`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shim.errors import BadRequest
from universal.jsonvalue import obj
from universal.unattended import Unattended, parse

KEY = "unattended"
"""The key in a session's `metadata`, and the field of `/v1`."""
HEADER = "X-OpenCode-Shim-Unattended"
"""The header of requests that send a prompt."""


def from_request(value: Any, place: str) -> Unattended | None:
    """The value that a request has at `place`, None if it has none. Raises BadRequest."""
    if value is None:
        return None
    try:
        if isinstance(value, str):
            return parse(value)
        raise ValueError("use a string")
    except ValueError as error:
        raise BadRequest(f"{place} cannot be used: {error}, not {str(value)[:100]!r}.") from error


def from_headers(headers: Mapping[str, str]) -> Unattended | None:
    """The value of a prompt's header, None without it. Raises BadRequest."""
    return from_request(headers.get(HEADER), HEADER)


def check_metadata(metadata: Any) -> None:
    """Raises BadRequest for a session's `metadata` whose `unattended` has no meaning."""
    from_request(obj(metadata).get(KEY), f"metadata.{KEY}")


def of_session(info: Mapping[str, Any]) -> Unattended | None:
    """The value of a session, None if its `metadata` has none that is understood (it may be from another server)."""
    try:
        return from_request(obj(info.get("metadata")).get(KEY), KEY)
    except BadRequest:
        return None
