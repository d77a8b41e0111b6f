"""The context that the parts of a codec share: ids, counts, and facts of every agent."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from universal.codec import Fact, IdFactory
from universal.events import ErrorData, EventType, ItemData, UnparsedData
from universal.items import ContentPart, Item, ItemKind, ItemRole, ItemStatus, Json, StatusPart, TextPart

# --- counts in bounded memory -----------------------------------------------------------------------------------

MOST = 500
"""Maximum number of names with a count of their own."""
OTHER = "other"
"""Name under which all further names are counted."""


class Kinds(Counter[str]):
    """A Counter for `kinds[name] += 1` whose size is bounded, whatever names agents invent."""

    def __setitem__(self, kind: str, count: int) -> None:
        if kind not in self and len(self) >= MOST:
            kind, count = OTHER, self[OTHER] + count
        super().__setitem__(kind, count)


# --- what the parts of a codec share ----------------------------------------------------------------------------


@dataclass(slots=True)
class Context:
    """The shared context of one codec. `agent` is its name in the location of unparsed messages."""

    agent: str
    ids: IdFactory
    counters: Kinds = field(default_factory=Kinds, kw_only=True)
    """Counts by native kind: `unparsed:KIND`, `ignored:KIND`."""

    def ignore(self, kind: str) -> None:
        """Count a known native message that is not used."""
        self.counters[f"ignored:{kind}"] += 1

    def report_unparsed(self, kind: str, error: str, raw: Json, raw_hash: str | None = None) -> Fact:
        """Count and report a native message that no rule knows."""
        self.counters[f"unparsed:{kind}"] += 1
        data = UnparsedData(error=error, location=self.location(kind), raw_hash=raw_hash)
        return Fact(EventType.UNPARSED, data, raw=raw, synthetic=True)

    def leave_out(self, family: str, kind: str, ignored: Container[str], what: str, raw: Json) -> Iterator[Fact]:
        """Count a part of a message that is not used, and report one that no rule knows."""
        if kind in ignored:
            self.ignore(f"{family}/{kind}")
        else:
            yield self.report_unparsed(f"{family}/{kind or '?'}", f"unknown {what}", raw)

    def location(self, kind: str) -> str:
        return f"{self.agent} stdout: {kind}"

    def status(self, label: str, detail: str | None, metadata: dict[str, Json], raw: Json, child: str | None = None) -> Fact:
        """A complete status item. `metadata` as listed at `universal.items.Item`."""
        return self._complete(ItemKind.STATUS, StatusPart(label=label, detail=detail), metadata, raw, child)

    def note(self, text: str, raw: Json) -> Fact:
        """A warning for the person that belongs to no message."""
        return self._complete(ItemKind.SYSTEM, TextPart(text=text), None, raw, None)

    def _complete(
        self, kind: ItemKind, part: ContentPart, metadata: dict[str, Json] | None, raw: Json, child: str | None
    ) -> Fact:
        item = Item(
            item_id=self.ids("item"),
            kind=kind,
            role=ItemRole.SYSTEM,
            status=ItemStatus.COMPLETED,
            content=(part,),
            metadata=metadata,
        )
        return Fact(EventType.ITEM_COMPLETED, ItemData(item=item), raw=raw, child=child)


ContextT = TypeVar("ContextT", bound=Context)


def error_data(error: dict[str, Json]) -> ErrorData:
    """The payload of an `error` event for an error {message, code, details?} of a signal."""
    return ErrorData(message=error["message"], code=error["code"], details=error.get("details"))


_STATUS = re.compile(r"\s*([45]\d\d)\b")
_JSON_MESSAGE = re.compile(r'"message":\s*"((?:[^"\\]|\\.)*)"')


def api_error(text: str) -> tuple[int, str]:
    """(status, words) of a model API's error that may begin with its HTTP status, else 0, before the JSON of the answer."""
    found, inner = _STATUS.match(text), _JSON_MESSAGE.search(text)
    return (int(found[1]), f"{found[1]}: {inner[1]}" if inner else text) if found else (0, text)


def make_error(message: str, code: str, status: int = 0, *, hint: str = "", is_retryable: bool = False) -> dict[str, Json]:
    """An error {message, code, details {is_retryable, status_code?, hint?}}. Some HTTP statuses are retryable by themselves."""
    details: dict[str, Json] = {"is_retryable": is_retryable or status in (408, 409, 429) or status >= 500}
    if status:
        details["status_code"] = status
    if hint:
        details["hint"] = hint
    return {"message": message, "code": code, "details": details}


def error_fact(error: dict[str, Json], raw: Json, child: str | None = None) -> Fact:
    """The `error` event for an error {message, code, details?}; synthetic without a native message."""
    return Fact(EventType.ERROR, error_data(error), raw=raw, synthetic=raw is None, child=child)


_CONTEXT_FULL = re.compile(
    r"prompt is too long|context_length_exceeded|maximum context length|exceed\w* .{0,40}context (window|length|limit|size)"
    r"|context window (is full|exceed)|input is too long",
    re.IGNORECASE,
)


def is_context_full(message: str) -> bool:
    """Whether an error's text, of agents that pass on only their model's words, says that the context is full."""
    return _CONTEXT_FULL.search(message) is not None


def add_usage(total: dict[str, int], more: dict[str, int]) -> dict[str, int]:
    """The sum of two counts of tokens."""
    return {key: value + total.get(key, 0) for key, value in more.items()}
