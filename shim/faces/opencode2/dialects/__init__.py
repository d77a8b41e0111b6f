"""The four dialects of OpenCode 2's wire, which builds of different dates speak. Pure.

v2_0      2.0 to 2.1.2, the contract. All code outside this package and `negotiation` speaks it.
v2_july   the build of 17 July 2026 (`v2-20260717`)
preview   the preview inside 1.18 (`session.next.*`)
web_ui    the web UI of 1.18.33 when it speaks its second protocol

A dialect converts events, messages, sessions and answers from `v2_0`, and requests to `v2_0`. Conversions return new values and
change nothing in place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from shim.faces.opencode2.dialects import preview, v2_july, web_ui
from shim.faces.opencode2.envelope import with_project
from shim.faces.opencode2.rewrite_rules import Alias, Answer, Ask, of_data, of_each
from shim.faces.opencode2.wire_event import Event, ReadOnlyWire, Wire
from shim.http.operations import RequestInput
from universal.lib.jsonvalue import obj


def _same_event(event: Event) -> Event | None:
    return event


def _same_message(message: ReadOnlyWire) -> ReadOnlyWire | None:
    return message


def _same_session(session: ReadOnlyWire) -> ReadOnlyWire:
    return session


@dataclass(frozen=True, slots=True)
class Dialect:
    """One dialect. `event` and `message` return None for what the dialect does not have.

    `requests` and `answers` have a row for each operation that differs, by the operation's id, or by `Alias.row` for a route of
    `aliases`. `rewrite_rules.NoContent` is an answer without a body.
    `aliases`: routes that `v2_0` has at another place. Every client may call them and is answered in this dialect.
    `has_project`: answers about a directory name its project.
    `joins`: text pieces of one burst are joined, because each piece costs the client a redraw.
    """

    name: str
    event: Callable[[Event], Event | None] = _same_event
    message: Callable[[ReadOnlyWire], ReadOnlyWire | None] = _same_message
    session: Callable[[ReadOnlyWire], ReadOnlyWire] = _same_session
    answers: Mapping[str, Answer] = field(default_factory=dict[str, Answer])
    requests: Mapping[str, Ask] = field(default_factory=dict[str, Ask])
    aliases: tuple[Alias, ...] = ()
    joins: bool = False
    has_project: bool = True

    def request(self, row: str, fields: RequestInput) -> RequestInput:
        change = self.requests.get(row)
        return fields if change is None else change(fields)

    def answer(self, row: str, body: Any) -> Any:
        change = self.answers.get(row)
        body = with_project(body) if self.has_project else body
        return body if change is None else change(body)


INBOX = "session.inbox.list"
NUMBERED_OPERATIONS = ("session.prompt", "session.synthetic", "session.compact", INBOX)
"""Operations that answer with inbox items. Handlers add `admittedSeq`, the item's number in the log, for the older dialects."""


def _without_number(item: ReadOnlyWire) -> Wire:
    return {key: value for key, value in item.items() if key != "admittedSeq"}


V2_0 = Dialect(
    "v2_0",
    answers={**dict.fromkeys(NUMBERED_OPERATIONS, of_data(_without_number)), INBOX: of_each(_without_number)},
    has_project=False,
)
V2_JULY = Dialect(
    "v2_july",
    event=v2_july.event,
    message=v2_july.message,
    session=v2_july.session,
    answers=v2_july.ANSWERS,
    requests=v2_july.REQUESTS,
    aliases=v2_july.ALIASES,
    joins=True,
)
PREVIEW = Dialect(
    "preview",
    event=preview.event,
    message=preview.message,
    session=preview.session,
    answers=preview.ANSWERS,
    requests=preview.REQUESTS,
    aliases=preview.ALIASES,
)
WEB_UI = Dialect(
    "web_ui",
    event=web_ui.event,
    message=web_ui.message,
    session=v2_july.session,
    answers=web_ui.ANSWERS,
    requests=v2_july.REQUESTS,
    aliases=v2_july.ALIASES,
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
