"""The row type of an agent's tool table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Row:
    """One tool of an agent: OpenCode's name, renamed keys.

    changes     a todo tool whose calls do not carry the whole list
    permission  the OpenCode tool by whose permission it is called, where that is not `tool`'s own
    """

    tool: str
    keys: Mapping[str, str] = field(default_factory=dict[str, str])
    changes: bool = False
    permission: str = ""
