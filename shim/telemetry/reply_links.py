"""Links that answer one ask each, for hooks with `reply = true`: who has one needs no password.

    GET  /x-reply/{code}            the page: what is asked, and a button for each answer. It changes nothing
    POST /x-reply/{code}/{answer}   answers: `once`, `reject`, or the number of a question's option

The first answer uses the code up. It also ends with the ask, after REPLY_S, and with the server.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from shim.lib.clock import Clock
from universal.events import PermissionData, QuestionData

Ask: TypeAlias = PermissionData | QuestionData
PATH = "/x-reply/"
CODE_BYTES = 18
REPLY_S = 6 * 3600
"""Seconds for which a link can be used."""
LINKS = 1_000
"""Maximum links; the oldest is dropped."""
PERMISSION: Mapping[str, str] = {"once": "Allow once", "reject": "Reject"}
"""The answers to a permission, and their buttons. "Always" needs a client, which shows what it covers."""


@dataclass(frozen=True, slots=True)
class ReplyLink:
    """An ask. `answers`: what can be answered -> the label; for a question of one choice its options, for another none."""

    request_id: str
    is_permission: bool
    answers: Mapping[str, str]
    ends_ms: int


class ReplyLinks:
    """The links of one server, by their codes. In: `address`, where other devices reach it."""

    def __init__(self, clock: Clock, address: Callable[[], str]) -> None:
        self._clock = clock
        self._address = address
        self._links: OrderedDict[str, ReplyLink] = OrderedDict()

    def add(self, data: Ask) -> dict[str, str]:
        """Make the links of an ask: the `page`, and the URL of each answer."""
        ends_ms = self._clock.now_ms() + REPLY_S * 1000
        if isinstance(data, PermissionData):
            link = ReplyLink(data.permission_id, True, PERMISSION, ends_ms)
        else:
            is_choice = len(data.questions) == 1 and not data.questions[0].multiple
            options = data.questions[0].options if is_choice else ()
            answers = {str(number): option.label for number, option in enumerate(options)}
            link = ReplyLink(data.question_id, False, answers, ends_ms)
        code = secrets.token_urlsafe(CODE_BYTES)
        self._links[code] = link
        if len(self._links) > LINKS:
            self._links.popitem(last=False)
        page = f"{self._address()}{PATH}{code}"
        names = {answer: answer if link.is_permission else label for answer, label in link.answers.items()}
        return {"page": page, **{names[answer]: f"{page}/{answer}" for answer in link.answers}}

    def find(self, code: str) -> ReplyLink | None:
        """The link of a code that can still be used."""
        link = self._links.get(code)
        return link if link is not None and self._clock.now_ms() < link.ends_ms else None

    def spend(self, code: str) -> None:
        self._links.pop(code, None)
