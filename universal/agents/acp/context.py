"""What the parts of the ACP codec share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from universal.agents import kit

Msg: TypeAlias = dict[str, Any]


@dataclass(slots=True)
class Context(kit.Context):
    """Shared by the parts of one codec."""

    model: Callable[[], Msg | None]
    """Returns `metadata.model` for items that begin now, or None."""
