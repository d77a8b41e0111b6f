"""The dialects of OpenCode 2's wire. Pure: inside there is only R; what clients of other builds say and hear is rewritten here.

R  2.0.21, the truth: nothing is rewritten
J  the build of 17 July 2026 (`v2-20260717`)

In: an event, message, session, answer or request in one dialect. Out: a new one in the other; what was given is never changed in place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from shim.opencode2 import dialect_j
from shim.opencode2.events import Event2, Wire


class Request2(NamedTuple):
    """What a client asks. `query` as sent; `body` None if there is none."""

    method: str
    path: str
    query: Mapping[str, str]
    body: Any


def _same_event(event: Event2) -> Event2 | None:
    return event


def _same_message(message: Wire) -> Wire | None:
    return message


def _same_session(session: Wire) -> Wire:
    return session


def _same_answer(operation: str, answer: Any) -> Any:
    return answer


def _same_request(request: Request2) -> Request2:
    return request


@dataclass(frozen=True, slots=True)
class Dialect:
    """One dialect. `event` and `message`: None means that it has no such thing. `answer` and `request`: at the edge, by R's names."""

    name: str
    event: Callable[[Event2], Event2 | None] = _same_event
    message: Callable[[Wire], Wire | None] = _same_message
    session: Callable[[Wire], Wire] = _same_session
    answer: Callable[[str, Any], Any] = _same_answer
    request: Callable[[Request2], Request2] = _same_request


R = Dialect("R")
J = Dialect("J", event=dialect_j.event, message=dialect_j.message, session=dialect_j.session)

DIALECTS: dict[str, Dialect] = {one.name: one for one in (R, J)}
