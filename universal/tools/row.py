"""The type of a row in an agent's table of tools."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Row:
    """One tool of an agent: OpenCode's name (`tool`), and the new names of its arguments (`keys`).

    changes     True for a todo tool whose calls hold only changes of the list
    permission  the OpenCode tool whose permission a call needs, if that is not `tool`
    """

    tool: str
    keys: Mapping[str, str] = field(default_factory=dict[str, str])
    changes: bool = False
    permission: str = ""
