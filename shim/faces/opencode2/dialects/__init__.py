"""The four dialects of OpenCode 2's wire, which builds of different dates speak. Pure.

v2_0      2.0 to 2.1.2, the contract. All code outside this package and `negotiation` speaks it.
v2_july   the build of 17 July 2026 (`v2-20260717`)
preview   the preview inside 1.18 (`session.next.*`)
web_ui    the web UI of 1.18.33 when it speaks its second protocol

A dialect converts events, messages, sessions and answers from `v2_0`, and requests to `v2_0`. Conversions return new values and
change nothing in place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from shim.faces.opencode2.dialects import preview, preview_edge, v2_july, v2_july_edge, web_ui
from shim.faces.opencode2.rewrite_rules import Alias
from shim.faces.opencode2.wire_event import Event, ReadOnlyWire, Wire
from shim.http.operations import RequestInput
from universal.lib.jsonvalue import arr, obj


def _same_event(event: Event) -> Event | None:
    return event


def _same_message(message: ReadOnlyWire) -> ReadOnlyWire | None:
    return message


def _same_session(session: ReadOnlyWire) -> ReadOnlyWire:
    return session


def _same_answer(operation: str, answer: Any) -> Any:
    return answer


def _same_request(operation: str, request: RequestInput) -> RequestInput:
    return request


@dataclass(frozen=True, slots=True)
class Dialect:
    """One dialect. `event` and `message` return None for what the dialect does not have.

    `request` and `answer` convert the fields and the answer of an operation. They look it up by the operation's id, or by
    `Alias.row` for a route of `aliases`. `rewrite_rules.NoContent` is an answer without a body.
    `aliases`: routes that `v2_0` has at another place. Every client may call them and is answered in this dialect.
    `joins`: text pieces of one burst are joined, because each piece costs the client a redraw.
    """

    name: str
    event: Callable[[Event], Event | None] = _same_event
    message: Callable[[ReadOnlyWire], ReadOnlyWire | None] = _same_message
    session: Callable[[ReadOnlyWire], ReadOnlyWire] = _same_session
    answer: Callable[[str, Any], Any] = _same_answer
    request: Callable[[str, RequestInput], RequestInput] = _same_request
    aliases: tuple[Alias, ...] = ()
    joins: bool = False


NUMBERED_OPERATIONS = ("session.prompt", "session.synthetic", "session.compact", "session.inbox.list")
"""Operations that answer with inbox items. Handlers add `admittedSeq`, the item's number in the log, for the older dialects."""


def _without_numbers(operation: str, answer: Any) -> Any:
    if operation not in NUMBERED_OPERATIONS:
        return answer
    data: Any = answer["data"]
    return {**answer, "data": [_without(obj(item)) for item in arr(data)] if isinstance(data, list) else _without(data)}


def _without(item: ReadOnlyWire) -> Wire:
    return {key: value for key, value in item.items() if key != "admittedSeq"}


V2_0 = Dialect("v2_0", answer=_without_numbers)
V2_JULY = Dialect(
    "v2_july",
    event=v2_july.event,
    message=v2_july.message,
    session=v2_july.session,
    answer=v2_july_edge.answer,
    request=v2_july_edge.request,
    aliases=v2_july_edge.ALIASES,
    joins=True,
)
PREVIEW = Dialect(
    "preview",
    event=preview.event,
    message=preview.message,
    session=preview.session,
    answer=preview_edge.answer,
    request=preview_edge.request,
    aliases=preview_edge.ALIASES,
)
WEB_UI = Dialect(
    "web_ui",
    event=web_ui.event,
    message=web_ui.message,
    session=v2_july.session,
    answer=web_ui.answer,
    request=v2_july_edge.request,
    aliases=(*v2_july_edge.ALIASES, *web_ui.ALIASES),
)

DIALECTS: dict[str, Dialect] = {dialect.name: dialect for dialect in (V2_0, V2_JULY, PREVIEW, WEB_UI)}
LETTERS = {"R": V2_0, "J": V2_JULY, "P": PREVIEW, "W": WEB_UI}
"""Names of the dialects before 2026-11-24. Scripts still send them, and `clients.json` of an older server holds them."""

PREVIEW_FIELDS = {"session.prompt": "prompt", "session.permission.reply": "reply"}
"""Operation -> a field that its body has in `preview` and not in `v2_0`."""


def find_dialect(name: str) -> Dialect | None:
    """The dialect of this name, or of this letter (`LETTERS`)."""
    return DIALECTS.get(name) or LETTERS.get(name)


def dialect_of_body(dialect: Dialect, operation: str, request: RequestInput) -> Dialect:
    """`preview` if only its clients send such a body, else `dialect`. Nothing else reveals the JS SDK without a directory."""
    is_preview = dialect is V2_0 and PREVIEW_FIELDS.get(operation) in obj(request.body)
    return PREVIEW if is_preview else dialect
