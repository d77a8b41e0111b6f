"""What a request says of a prompt beside its words: what happens to asks that nobody answers, and its caps."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypedDict

from shim.lib.errors import InvalidRequest
from universal.lib.jsonvalue import obj
from universal.session.values import SessionRecord
from universal.unattended_policy import UnattendedPolicy, parse

UNATTENDED_KEY = "unattended"
"""Key in a session's `metadata`, and field of `/v1`, for the policy for unanswered requests."""
UNATTENDED_HEADER = "X-OpenCode-Shim-Unattended"
"""Header with this policy, in requests that send a prompt."""
COST, SECONDS = KEYS = ("max_cost", "max_turn_seconds")
"""Keys in a session's `metadata`, in place of the server's settings of these names."""
HEADERS = ("X-OpenCode-Shim-Max-Cost", "X-OpenCode-Shim-Max-Turn-Seconds")
"""Headers with these numbers, in requests that send a prompt."""


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


def check_unattended(metadata: Any) -> None:
    """Raise InvalidRequest if `unattended` in a session's `metadata` is invalid."""
    unattended_policy_of(obj(metadata).get(UNATTENDED_KEY), f"metadata.{UNATTENDED_KEY}")


def unattended_policy_of_session(record: SessionRecord) -> UnattendedPolicy | None:
    """The policy in a session's `metadata`, or None. An invalid value, perhaps of another server, counts as None."""
    try:
        return unattended_policy_of((record.metadata or {}).get(UNATTENDED_KEY), UNATTENDED_KEY)
    except InvalidRequest:
        return None


# --- caps ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Caps:
    """The caps of a prompt; 0 is none. `max_cost` counts from this prompt on, that of a session from the session's beginning."""

    max_cost: float = 0.0
    max_turn_seconds: float = 0.0

    def to_json(self) -> dict[str, float]:
        return {COST: self.max_cost, SECONDS: self.max_turn_seconds}


def caps_of(values: Mapping[str, Any], names: tuple[str, str] = KEYS, place: str = "") -> Caps | None:
    """The caps at these names, or None if there are none of them. Raises InvalidRequest."""
    if values.get(names[0]) is None and values.get(names[1]) is None:
        return None
    return Caps(*(_number(values.get(name, 0), f"{place}{name}") for name in names))


def _number(value: Any, place: str) -> float:
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not 0 <= number < math.inf:
        raise InvalidRequest(f"{place} cannot be used: give a number from 0 (no cap) on, not {str(value)[:100]!r}.")
    return number


def check_caps(metadata: Any) -> None:
    """Raise InvalidRequest if a session's `metadata` has an invalid cap."""
    caps_of(obj(metadata), place="metadata.")


class Terms(TypedDict):
    """What the headers of a request say of its prompt."""

    unattended: UnattendedPolicy | None
    caps: Caps | None


def terms_of_headers(headers: Mapping[str, str]) -> Terms:
    """The terms of a prompt. Raises InvalidRequest."""
    unattended = unattended_policy_of(headers.get(UNATTENDED_HEADER), UNATTENDED_HEADER)
    return Terms(unattended=unattended, caps=caps_of(headers, HEADERS))
