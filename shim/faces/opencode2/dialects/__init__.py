"""The two dialects of OpenCode 2's wire, which builds of different dates speak. Pure.

v2_0      2.0 to 2.1.2, the contract. All code outside this package and `negotiation` speaks it.
preview   the preview inside 1.18 (`session.next.*`)

A dialect converts events, messages, sessions and answers from `v2_0`, and requests to `v2_0`. Conversions return new values and
change nothing in place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from shim.faces.opencode2.dialects import preview
from shim.faces.opencode2.dialects.preview import Alias, Answer, Ask, of_data, of_each
from shim.faces.opencode2.envelope import with_project
from shim.faces.opencode2.wire_event import Event, ReadOnlyWire, Wire
from shim.http.operations import RequestInput
from universal.lib.jsonvalue import obj


def _same_event(event: Event) -> Event | None:
    return event


def _same_message(message: ReadOnlyWire) -> ReadOnlyWire | None:
    return message


@dataclass(frozen=True, slots=True)
class Dialect:
    """One dialect. `event` and `message` return None for what the dialect does not have.

    `requests` and `answers` have a row for each operation that differs. None is an answer without a body.
    `aliases`: routes that `v2_0` has at another place. Every client may call them and is answered in this dialect.
    `has_project`: answers about a directory name its project.
    """

    name: str
    event: Callable[[Event], Event | None] = _same_event
    message: Callable[[ReadOnlyWire], ReadOnlyWire | None] = _same_message
    answers: Mapping[str, Answer] = field(default_factory=dict[str, Answer])
    requests: Mapping[str, Ask] = field(default_factory=dict[str, Ask])
    aliases: tuple[Alias, ...] = ()
    has_project: bool = True

    def request(self, operation: str, fields: RequestInput) -> RequestInput:
        change = self.requests.get(operation)
        return fields if change is None else change(fields)

    def answer(self, operation: str, body: Any) -> Any:
        change = self.answers.get(operation)
        body = with_project(body) if self.has_project else body
        return body if change is None else change(body)


INBOX = "session.inbox.list"
NUMBERED_OPERATIONS = ("session.prompt", "session.synthetic", "session.compact", INBOX)
"""Operations that answer with inbox items. Handlers add `admittedSeq`, the item's number in the log, for `preview`."""


def _without_number(item: ReadOnlyWire) -> Wire:
    return {key: value for key, value in item.items() if key != "admittedSeq"}


V2_0 = Dialect(
    "v2_0",
    answers={**dict.fromkeys(NUMBERED_OPERATIONS, of_data(_without_number)), INBOX: of_each(_without_number)},
    has_project=False,
)
PREVIEW = Dialect(
    "preview",
    event=preview.event,
    message=preview.message,
    answers=preview.ANSWERS,
    requests=preview.REQUESTS,
    aliases=preview.ALIASES,
)
DIALECTS: dict[str, Dialect] = {dialect.name: dialect for dialect in (V2_0, PREVIEW)}

PREVIEW_FIELDS = {"session.prompt": "prompt", "session.permission.reply": "reply"}
"""Operation -> a field that its body has in `preview` and not in `v2_0`."""


def dialect_of_body(dialect: Dialect, operation: str, request: RequestInput) -> Dialect:
    """`preview` if only its clients send such a body, else `dialect`. Nothing else reveals the JS SDK without a directory."""
    is_preview = dialect is V2_0 and PREVIEW_FIELDS.get(operation) in obj(request.body)
    return PREVIEW if is_preview else dialect
