"""The dialects of OpenCode 2's wire. Pure: inside there is only R; what clients of other builds say and hear is rewritten here.

R  2.0 to 2.1.2, the truth: nothing is rewritten (but numbers that only the others tell are left out)
J  the build of 17 July 2026 (`v2-20260717`)
P  the preview in 1.18 (`session.next.*`)
W  the web UI of 1.18 when it speaks its second protocol

In: an event, message, session, answer or request in one dialect. Out: a new one in the other; nothing is changed in place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from shim.faces.opencode2.dialects import preview as dialect_p
from shim.faces.opencode2.dialects import preview_edge as dialect_p_edge
from shim.faces.opencode2.dialects import v2_july as dialect_j
from shim.faces.opencode2.dialects import v2_july_edge as dialect_j_edge
from shim.faces.opencode2.dialects import web_ui as dialect_w
from shim.faces.opencode2.events import Event, Wire
from shim.faces.opencode2.rewrite_rules import Alias
from shim.operations import AskedField
from universal.jsonvalue import arr, obj


def _same_event(event: Event) -> Event | None:
    return event


def _same_message(message: Wire) -> Wire | None:
    return message


def _same_session(session: Wire) -> Wire:
    return session


def _same_answer(operation: str, answer: Any) -> Any:
    return answer


def _same_request(operation: str, asked: AskedField) -> AskedField:
    return asked


@dataclass(frozen=True, slots=True)
class Dialect:
    """One dialect. `event` and `message`: None means that it has no such thing.

    `request` and `answer`: what comes in and goes out at R's operation of that name (or a row of `aliases`, `Alias.row`);
    `rewriting.Nothing` is an answer without a body. `aliases`: routes that R has elsewhere, served to everybody in this dialect.
    `joins`: each piece of text costs its client a redraw, so it gets the pieces of one burst as one.
    `overwrites`: R's operations whose answers its client puts in the place of what events have told it (`Rereads`).
    """

    name: str
    event: Callable[[Event], Event | None] = _same_event
    message: Callable[[Wire], Wire | None] = _same_message
    session: Callable[[Wire], Wire] = _same_session
    answer: Callable[[str, Any], Any] = _same_answer
    request: Callable[[str, AskedField], AskedField] = _same_request
    aliases: tuple[Alias, ...] = ()
    joins: bool = False
    overwrites: frozenset[str] = frozenset()


NUMBERED = ("session.prompt", "session.synthetic", "session.compact", "session.inbox.list")
"""Operations whose answers have what waits in an inbox. Handlers tell its number in the log, which R does not tell."""


def _without_numbers(operation: str, answer: Any) -> Any:
    if operation not in NUMBERED:
        return answer
    data: Any = answer["data"]
    return {**answer, "data": [_without(obj(one)) for one in arr(data)] if isinstance(data, list) else _without(data)}


def _without(item: Wire) -> Wire:
    return {key: value for key, value in item.items() if key != "admittedSeq"}


R = Dialect("R", answer=_without_numbers)
J = Dialect(
    "J",
    event=dialect_j.event,
    message=dialect_j.message,
    session=dialect_j.session,
    answer=dialect_j_edge.answer,
    request=dialect_j_edge.request,
    aliases=dialect_j_edge.ALIASES,
    joins=True,
    overwrites=dialect_j_edge.OVERWRITES,
)

P = Dialect(
    "P",
    event=dialect_p.event,
    message=dialect_p.message,
    session=dialect_p.session,
    answer=dialect_p_edge.answer,
    request=dialect_p_edge.request,
    aliases=dialect_p_edge.ALIASES,
)
W = Dialect(
    "W",
    event=dialect_w.event,
    message=dialect_w.message,
    session=dialect_j.session,
    answer=dialect_w.answer,
    request=dialect_j_edge.request,
    aliases=(*dialect_j_edge.ALIASES, *dialect_w.ALIASES),
)

DIALECTS: dict[str, Dialect] = {one.name: one for one in (R, J, P, W)}

OF_PREVIEW = {"session.prompt": "prompt", "session.permission.reply": "reply"}
"""Operation -> a field of its body that P has and R has not."""


def by_body(dialect: Dialect, operation: str, asked: AskedField) -> Dialect:
    """The dialect of a request whose client did not say what it is, by what it sends: the SDK without a directory does not."""
    return P if dialect is R and OF_PREVIEW.get(operation) in obj(asked.body) else dialect
