"""What the parts of the ACP codec share: ids, counters, facts about status and about what was not understood."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from universal.codec import Fact, IdFactory
from universal.counting import Kinds
from universal.events import EventType, ItemData, UnparsedData
from universal.items import Item, ItemKind, ItemRole, ItemStatus, Json, StatusPart

Msg: TypeAlias = dict[str, Any]


@dataclass(slots=True)
class Context:
    """Shared by the parts of one codec. `model` gives `metadata.model` for what is said now."""

    name: str
    ids: IdFactory
    model: Callable[[], Msg | None]
    counters: Kinds = field(default_factory=Kinds)

    def ignore(self, what: str) -> None:
        """Count something that is known and not used."""
        self.counters[f"ignored:{what}"] += 1

    def unparsed(self, what: str, error: str, raw: Json, raw_hash: str | None = None) -> Fact:
        """Something that no rule knows."""
        self.counters[f"unparsed:{what}"] += 1
        data = UnparsedData(error=error, location=f"{self.name} stdout: {what}", raw_hash=raw_hash)
        return Fact(EventType.UNPARSED, data, raw=raw, synthetic=True)

    def status(self, label: str, detail: str | None, metadata: Msg, raw: Json) -> Fact:
        """A complete item of kind status; `metadata` as listed at `universal.items.Item`."""
        item = Item(
            item_id=self.ids("item"),
            kind=ItemKind.STATUS,
            role=ItemRole.SYSTEM,
            status=ItemStatus.COMPLETED,
            content=(StatusPart(label=label, detail=detail),),
            metadata=metadata,
        )
        return Fact(EventType.ITEM_COMPLETED, ItemData(item=item), raw=raw)
