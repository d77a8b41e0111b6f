"""The policy for requests that nobody answers: where it is found, and what is needed to apply it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from shim.lib.errors import InvalidRequest
from universal.lib.jsonvalue import obj
from universal.session.values import SessionRecord
from universal.unattended_policy import UnattendedPolicy, parse

UNATTENDED_KEY = "unattended"
"""Key in a session's `metadata`, and field of `/v1`, for the policy for unanswered requests."""
UNATTENDED_HEADER = "X-OpenCode-Shim-Unattended"
"""Header with this policy, in requests that send a prompt."""


class Timer(Protocol):
    """A delayed call."""

    def cancel(self) -> object: ...


def call_later(delay_s: float, callback: Callable[[], None]) -> Timer:
    """Call a function after a delay, on the running loop."""
    return asyncio.get_running_loop().call_later(delay_s, callback)


class UnattendedCounts(Counter[str]):
    """Numbers of requests that ended without a person since the server's start, by reason: `timeout`, `rules`."""

    def __init__(self) -> None:
        super().__init__(timeout=0, rules=0)


def unattended_policy_of(value: Any, place: str) -> UnattendedPolicy | None:
    """The policy at `place` of a request, or None. Raises InvalidRequest."""
    if value is None:
        return None
    try:
        if isinstance(value, str):
            return parse(value)
        raise ValueError("use a string")
    except ValueError as error:
        raise InvalidRequest(f"{place} cannot be used: {error}, not {str(value)[:100]!r}.") from error


def unattended_policy_of_headers(headers: Mapping[str, str]) -> UnattendedPolicy | None:
    """The policy in a prompt's header, or None. Raises InvalidRequest."""
    return unattended_policy_of(headers.get(UNATTENDED_HEADER), UNATTENDED_HEADER)


def check_unattended(metadata: Any) -> None:
    """Raise InvalidRequest if `unattended` in a session's `metadata` is invalid."""
    unattended_policy_of(obj(metadata).get(UNATTENDED_KEY), f"metadata.{UNATTENDED_KEY}")


def unattended_policy_of_session(record: SessionRecord) -> UnattendedPolicy | None:
    """The policy in a session's `metadata`, or None. An invalid value, perhaps of another server, counts as None."""
    try:
        return unattended_policy_of((record.metadata or {}).get(UNATTENDED_KEY), UNATTENDED_KEY)
    except InvalidRequest:
        return None
